"""A tuned lens, trained in seconds on what a small model has learnt: closer to the last layer, at every layer."""

import torch
from helpers.tiny_models import tiny

from cutaway.inside.residual.tuned_lens import kl_by_layer, train_tuned_lens
from cutaway.objectives import next_token_loss

TEXT = "the cat sat on the mat and the dog sat on the log while the bird sang a song to the sun and the moon . " * 40


def test_after_training_every_layer_is_closer_on_text_it_has_not_seen() -> None:
    letters = {letter: number for number, letter in enumerate(sorted(set(TEXT)))}
    ids = torch.tensor([letters[letter] for letter in TEXT])
    model = tiny("gpt2", dtype=torch.float32, n_layers=3, vocab_size=len(letters), dropout=0.0)
    rows = ids[: len(ids) // 32 * 32].view(-1, 32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(60):
        optimizer.zero_grad()
        next_token_loss(model, rows[torch.randint(len(rows) - 20, (16,))]).backward()
        optimizer.step()
    model.zero_grad()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    held_out = [(rows[-20:],)]
    plain = kl_by_layer(model, held_out)
    told: list[tuple[int, int]] = []
    batches = [(rows[torch.randint(len(rows) - 20, (16,))],) for _ in range(150)]
    lens = train_tuned_lens(model, batches, rate=1e-2, progress=lambda done, total: told.append((done, total)))
    tuned = kl_by_layer(model, held_out, tuned=lens)
    *early, last = plain
    assert all(tuned[layer] < 0.7 * plain[layer] for layer in early)
    assert plain[last] == tuned[last] == 0
    assert told == [(step, 150) for step in range(1, 151)]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())


def test_every_batch_is_learnt_from_the_first_and_the_last_too() -> None:
    model, ids = tiny("gpt2", dtype=torch.float32), torch.arange(24).view(4, 6)
    alike, first, last = (
        train_tuned_lens(model, [(ids + a,), (ids,), (ids + b,)]).weight for a, b in ((0, 0), (20, 0), (0, 20))
    )
    assert not torch.equal(alike, first)
    assert not torch.equal(alike, last)


def test_the_mean_is_over_positions_whatever_batches_they_come_in() -> None:
    model = tiny("gpt2", dtype=torch.float64)
    rows = torch.arange(24).view(4, 6) % 11
    together = kl_by_layer(model, [(rows,)])
    apart = kl_by_layer(model, [(rows[:1],), (rows[1:],)])
    assert all(abs(together[layer] - apart[layer]) < 1e-9 for layer in together)
    assert max(together.values()) > 0
