"""Induction heads: hand-built ones score 1, hand-set patterns what they are, and training makes them appear."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from helpers.tiny_models import DECODERS, VOCAB, tiny
from torch import Tensor

from cutaway.checkpoints import load
from cutaway.errors import InputError
from cutaway.families import build
from cutaway.inside.circuits.induction import induction_heads, induction_over_training, repeated_tokens
from cutaway.model.model import Model
from cutaway.model.norms import LayerNorm
from cutaway.model.tap import edit
from cutaway.training.checkpoint import write_checkpoint
from cutaway.training.presets import recipe_for
from cutaway.training.train import train


def test_what_is_said_is_said_twice() -> None:
    ids = repeated_tokens(50, rows=3, length=8, start_id=1, least=3)
    assert ids.shape == (3, 17)
    assert bool((ids[:, 0] == 1).all())
    assert torch.equal(ids[:, 1:9], ids[:, 9:])
    assert all(len(set(row.tolist())) == 8 for row in ids[:, 1:9])
    assert int(ids[:, 1:].min()) >= 3
    assert torch.equal(ids, repeated_tokens(50, rows=3, length=8, start_id=1, least=3))


@pytest.mark.parametrize("front", [0, 1])
@pytest.mark.parametrize("name", DECODERS)
def test_hand_set_patterns_score_one(name: str, front: int) -> None:
    """In block 0 every head looks at the token before; in block 1 head 2 is an induction head, head 3 a duplicate's."""
    length = 5
    ids = repeated_tokens(VOCAB, rows=2, length=length, start_id=7 if front else None)
    n = ids.shape[1]

    def before(pattern: Tensor) -> Tensor:
        return torch.eye(n).double().roll(-1, dims=1).expand_as(pattern)

    def by_hand(pattern: Tensor) -> Tensor:
        new = torch.zeros_like(pattern)
        for position in range(front + length, n):
            new[:, 2, position, position - length + 1] = 1
            new[:, 3, position, position - length] = 1
        return new

    model = tiny(name)
    with edit(model, {"decoder.0.attention.pattern": before, "decoder.1.attention.pattern": by_hand}):
        found = induction_heads(model, ids)
    assert found.induction.scores["decoder.1.attention.2"] == 1
    assert found.induction.scores["decoder.1.attention.3"] == 0
    assert found.duplicate.scores["decoder.1.attention.3"] == 1
    assert found.previous.scores["decoder.0.attention.1"] == 1
    assert found.previous.scores["decoder.1.attention.3"] == 0
    assert found.induction.best(1) == [("decoder.1.attention.2", 1)]


@pytest.mark.parametrize("front", [0, 1])
def test_of_both_times_the_first_token_is_left_out(front: int) -> None:
    length = 5
    model, ids = tiny("gpt2"), repeated_tokens(VOCAB, rows=2, length=length, start_id=7 if front else None)
    nats = -model(ids)[:, :-1].log_softmax(dim=-1).gather(2, ids[:, 1:, None])[..., 0].mean(dim=0)
    each = dict(enumerate(nats.tolist(), 1))  # of the token at each place
    first, second = ([each[begin + i] for i in range(1, length)] for begin in (front, front + length))
    assert induction_heads(model, ids).loss == pytest.approx((sum(first) / 4, sum(second) / 4))


def by_hand(vocab: int = 12, places: int = 24) -> Model:
    """Two heads: one writes beside each token the one before it, the other looks for itself there and says the rest.

    The stream has a direction for each token, for each token as the one before, for each token to say, and each place.
    """
    width = 3 * vocab + places
    model = build(
        "gpt2", n_layers=2, n_heads=1, d_model=width, d_ff=4, vocab_size=vocab, max_len=places, dropout=0.0, tied=False
    ).eval()
    for parameter in model.parameters():
        parameter.data.zero_()
    for part in model.modules():
        if isinstance(part, LayerNorm):
            part.weight.data.fill_(1)
    names, before, said, place = 0, vocab, 2 * vocab, 3 * vocab
    tokens = torch.arange(vocab)
    model.embedding.tokens.weight.data[tokens, names + tokens] = 1  # type: ignore[union-attr, index]
    model.embedding.positions.weight.data[range(places), range(place, width)] = 1  # type: ignore[union-attr, index]
    first, second = (block.attention for block in model.decoder)  # type: ignore[union-attr]
    each = torch.arange(places)
    query, key, value = first.query_key_value.weight.data.chunk(3)
    query[each[:-1], place + each[1:]] = 50  # the place before mine
    key[each, place + each] = 50
    value[tokens, names + tokens] = 1
    first.output.weight.data[before + tokens, tokens] = 1
    query, key, value = second.query_key_value.weight.data.chunk(3)
    query[tokens, names + tokens] = 50  # before which was I?
    key[tokens, before + tokens] = 50
    value[tokens, names + tokens] = 1
    second.output.weight.data[said + tokens, tokens] = 5
    model.head.weight.data[tokens, said + tokens] = 5  # type: ignore[union-attr, index]
    return model


def test_an_induction_head_made_by_hand_is_one() -> None:
    found = induction_heads(by_hand(), repeated_tokens(12, rows=4, length=11, start_id=0, least=1))
    assert found.induction.scores["decoder.1.attention.0"] > 0.99
    assert found.previous.scores["decoder.0.attention.0"] > 0.95  # the first place has none before it
    assert found.loss[1] < 0.1 < 1 < found.loss[0]


def test_an_induction_head_appears_in_training() -> None:
    """Rows that repeat themselves after 3 to 11 tokens, so that no fixed distance helps; two seconds on one core."""
    torch.manual_seed(0)
    draw = torch.Generator().manual_seed(0)
    vocab, seq, batch = 64, 24, 32
    model = build("gpt", n_layers=2, d_model=64, n_heads=2, d_ff=4, vocab_size=vocab, max_len=64, dropout=0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.98), weight_decay=0.0)
    ids = repeated_tokens(vocab, rows=16, length=12, seed=99)
    rise = [induction_heads(model.eval(), ids)]
    for step in range(200):
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * min(1, (step + 1) / 20)
        period = torch.randint(3, 12, (batch, 1), generator=draw)
        once = torch.rand(batch, vocab, generator=draw).argsort(dim=1)
        rows = once.gather(1, torch.arange(seq) % period)
        nats = F.cross_entropy(model.train()(rows)[:, :-1].transpose(1, 2), rows[:, 1:], reduction="none")
        known = torch.arange(1, seq) > period
        optimizer.zero_grad()
        nats[known].mean().backward()
        optimizer.step()
        if step % 50 == 49:
            rise.append(induction_heads(model.eval(), ids))
    best = [found.induction.best(1)[0][1] for found in rise]
    assert max(best[:2]) < 0.2  # the period of 12 was never seen, nor anything before step 50
    assert best[-1] > 0.7
    assert rise[-1].induction.best(1)[0][0].startswith("decoder.1")
    assert rise[-1].previous.best(1)[0][0].startswith("decoder.0")
    assert rise[-1].loss[1] < 0.5 * rise[0].loss[1] < 0.5 * rise[-1].loss[0]


def test_the_rise_is_read_from_the_checkpoints_of_a_run(tmp_path: Path) -> None:
    models = {step: tiny("llama", seed=step, dtype=torch.float32) for step in (100, 20, 3)}
    for step, model in models.items():
        write_checkpoint(tmp_path / "run/checkpoints", step, {"weights": dict(model.named_parameters())}, {})
    ids = repeated_tokens(VOCAB, rows=2, length=6)
    found = dict(induction_over_training(tiny("llama", seed=9, dtype=torch.float32), tmp_path, ids))
    assert list(found) == [3, 20, 100]
    for step, model in models.items():
        assert found[step].to_dict() == induction_heads(model, ids).to_dict()
    with pytest.raises(InputError, match="no checkpoints"):
        next(induction_over_training(tiny("llama"), tmp_path / "else", ids))


def test_the_checkpoints_are_where_a_run_puts_them(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the cat sat on the mat and saw the dog\n" * 60)
    small = [
        "model.n_layers=1",
        "model.d_model=32",
        "model.d_ff=32",
        "train.tokens=256",
        "data.seq_len=32",
        "data.valid_share=0.1",
    ]
    kept = ["train.steps=3", "checkpoint.every=1", "checkpoint.keep=3"]
    train(recipe_for([tmp_path / "text.txt"], [*small, *kept]), tmp_path / "out")
    model = load(tmp_path / "out")
    found = dict(
        induction_over_training(model, tmp_path / "out", repeated_tokens(model.config.vocab_size, rows=2, length=6))
    )  # type: ignore[attr-defined]
    assert list(found) == [1, 2, 3]


def test_what_is_not_said_twice_is_refused() -> None:
    with pytest.raises(InputError, match="are not repeated"):
        induction_heads(tiny("gpt2"), torch.arange(8)[None])
    with pytest.raises(InputError, match="task of this one is masked"):
        induction_heads(tiny("bert"), repeated_tokens(VOCAB, length=4))
    with pytest.raises(InputError, match="50 different tokens"):
        repeated_tokens(50, length=60)
