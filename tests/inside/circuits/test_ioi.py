"""Indirect objects: prompts say what they should, hand-set patterns score 1, and a small model has a small circuit."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.tiny_models import close, tiny
from torch import Tensor

from cutaway.errors import InputError
from cutaway.families import build
from cutaway.inside.circuits.circuit import Circuit, completeness, faithfulness, minimality
from cutaway.inside.circuits.find import faithfulness_curve, find_circuit, grow_circuit
from cutaway.inside.circuits.head_scores import HeadScores
from cutaway.inside.circuits.ioi import IOI_TEMPLATES, IoiTemplates, ioi_prompts
from cutaway.inside.circuits.ioi_head_scores import ROLES, copying_scores, ioi_head_scores, ioi_role
from cutaway.inside.patching.activations import record_activations
from cutaway.model.model import DecoderModel
from cutaway.model.tap import edit
from cutaway.toys import names
from cutaway.toys.names import train_names, word_tokenizer


def test_prompts_name_one_twice_and_the_others_never() -> None:
    tokenizer = word_tokenizer()
    asked = ioi_prompts(tokenizer, 24, seed=3)
    rows = torch.arange(24)
    for row, text in enumerate(asked.texts):
        io, s = tokenizer.token(int(asked.io[row])), tokenizer.token(int(asked.s[row]))
        assert text.count(io) == 1
        assert text.count(s) == 2
        assert (text.index(io) < text.index(s)) == (asked.groups[row][1] == "ABBA")
        assert tokenizer.decode(asked.ids[row][: int(asked.at["end"][row]) + 1].tolist()).endswith(" to")
    assert torch.equal(asked.ids[rows, asked.at["io"]], asked.io)
    for place in ("s1", "s2"):
        assert torch.equal(asked.ids[rows, asked.at[place]], asked.s)
    assert torch.equal(asked.at["s1+1"], asked.at["s1"] + 1)
    assert bool((asked.at["s1"] < asked.at["s2"]).all())
    changed = asked.ids != asked.abc
    assert changed.sum(dim=1).tolist() == [3] * 24
    names = torch.stack([asked.abc[rows, asked.at[place]] for place in ("io", "s1", "s2")], dim=1)
    names = torch.cat([names, asked.io[:, None], asked.s[:, None]], dim=1)
    assert all(len(set(row)) == 5 for row in names.tolist())
    assert set(asked.groups) == {(i, order) for i in range(4) for order in ("ABBA", "BABA")}
    assert torch.equal(asked.ids, ioi_prompts(tokenizer, 24, seed=3).ids)
    behind = ioi_prompts(tokenizer, 24, seed=3, front=[0])
    assert torch.equal(behind.at["s2"], asked.at["s2"] + 1)


def test_templates_come_from_a_file_and_halves_share_nothing(tmp_path: Path) -> None:
    values = {"NAMES": list(IOI_TEMPLATES.names), "PLACES": ["park"], "OBJECTS": ["cup"]}
    values["BABA_TEMPLATES"] = ["Then, [B] and [A] met. [B] spoke to [A]", "So [B] and [A] met. [B] ran to [A]"]
    (tmp_path / "t.json").write_text(json.dumps(values))
    read = IoiTemplates.read(tmp_path / "t.json")
    assert read.sentences[0] == "Then, [B] and [A] met. [B] spoke to"
    first, second = read.halves()
    assert not set(first.names) & set(second.names)
    assert not set(first.sentences) & set(second.sentences)
    with pytest.raises(InputError, match="no list of texts 'ABBA_TEMPLATES'"):
        IoiTemplates.read(tmp_path / "t.json", "ABBA_TEMPLATES")


def test_templates_without_three_names_are_refused() -> None:
    for sentence, complaint in (("When [B] met, he went to", "has 1 names"), ("[A] and [B], [B] to", "after a space")):
        templates = IoiTemplates((sentence,), IOI_TEMPLATES.names, IOI_TEMPLATES.places, IOI_TEMPLATES.objects)
        with pytest.raises(InputError, match=complaint):
            ioi_prompts(word_tokenizer(templates), 2, templates=templates)
    few = IoiTemplates(IOI_TEMPLATES.sentences, IOI_TEMPLATES.names[:4], IOI_TEMPLATES.places, IOI_TEMPLATES.objects)
    with pytest.raises(InputError, match="4 of 4 names are one token"):
        ioi_prompts(word_tokenizer(few), 2, templates=few)


@pytest.mark.parametrize("name", ["gpt", "gpt2", "llama"])
def test_hand_set_patterns_score_one(name: str) -> None:
    tokenizer = word_tokenizer()
    asked = ioi_prompts(tokenizer, 16)
    ways = [("end", "s2"), ("s2", "s1"), ("s2", "s1+1"), ("end", "io")]
    rows = torch.arange(16)

    def by_hand(pattern: Tensor) -> Tensor:
        new = torch.zeros_like(pattern)
        for head, (query, key) in enumerate(ways):
            new[rows, head, asked.at[query], asked.at[key]] = 1
        return new

    model = tiny(name, vocab_size=tokenizer.vocab_size)
    assert isinstance(model, DecoderModel)
    with edit(model, {"decoder.1.attention.pattern": by_hand}):
        found = ioi_head_scores(model, asked)
    for head, role in enumerate(("s_inhibition", "duplicate_token", "induction", "end_to_io")):
        scores = [found[role].scores[f"decoder.1.attention.{other}"] for other in range(4)]
        assert scores == [float(other == head) for other in range(4)], role
    mover, copied = found["name_mover"].scores, found["copying"].scores
    assert mover["decoder.1.attention.3"] == copied["decoder.1.attention.3"]


@pytest.mark.parametrize(("sign", "norm", "score"), [(1, 1, 1), (-1, 1, 0), (1, -1, 0), (-1, -1, 1)])
def test_a_head_that_hands_on_what_it_reads_copies(sign: int, norm: int, score: float) -> None:
    """Unless the final norm turns it round."""
    tokenizer = word_tokenizer()
    width = 96
    model = build(
        "gpt2", n_layers=1, n_heads=1, d_model=width, d_ff=4, vocab_size=tokenizer.vocab_size, max_len=32
    ).eval()
    assert isinstance(model, DecoderModel)
    attention = model.decoder[0].attention
    attention.query_key_value.weight.data[2 * width :] = torch.eye(width)  # type: ignore[union-attr, index]
    attention.output.weight.data.copy_(sign * torch.eye(width))  # type: ignore[union-attr, operator]
    model.decoder.final_norm.weight.data.fill_(norm)  # type: ignore[union-attr, operator]
    asked = ioi_prompts(tokenizer, 16)
    assert copying_scores(model, asked).scores == {"decoder.0.attention.0": score}
    assert copying_scores(model, asked, name="s2", against=True).scores == {"decoder.0.attention.0": 1 - score}
    found = ioi_head_scores(model, asked)
    for role, looked, mine in (("name_mover", "end_to_io", score), ("s_suppression", "s_inhibition", 1 - score)):
        (ours,), (theirs,) = found[role].scores.values(), found[looked].scores.values()
        assert ours == theirs * mine > -1


def test_a_name_is_copied_if_it_is_among_the_best() -> None:
    tokenizer = word_tokenizer()
    model, asked = tiny("gpt2", vocab_size=tokenizer.vocab_size), ioi_prompts(tokenizer, 16)
    assert isinstance(model, DecoderModel)
    value = record_activations(model, asked.ids, places="decoder.1.attention.value", real=asked.real)
    attention = model.decoder[1].attention
    for head in range(4):
        own = value["decoder.1.attention.value"][range(16), head, asked.at["io"]]
        written = own @ attention.output.weight.unflatten(1, (4, -1))[:, head].T  # type: ignore[union-attr]
        logits = model.head(model.decoder.final_norm(written)[:, None])[:, 0]  # type: ignore[misc]
        places = (logits > logits.gather(1, asked.io[:, None])).sum(dim=1)  # 0 for the likeliest
        for best in (1, int(places.min()) + 1, int(places.max())):
            score = copying_scores(model, asked, best=best).scores[f"decoder.1.attention.{head}"]
            assert score == (places < best).double().mean()


def test_a_head_has_the_role_in_which_it_scores_highest() -> None:
    low, high = "decoder.0.attention.0", "decoder.0.attention.1"
    scores = {role: HeadScores(role, {low: 0.1, high: 0.2}) for role in (*ROLES, "s_suppression")}
    assert ioi_role(high, scores) is None
    for role in ROLES:
        assert ioi_role(high, scores | {role: HeadScores(role, {low: 0.1, high: 0.5})}) == role
    looks = scores | {"s_inhibition": HeadScores("s_inhibition", {high: 0.8})}
    against = {"s_suppression": HeadScores("s_suppression", {high: 0.4})}
    assert ioi_role(high, looks | against) == "s_suppression"
    assert ioi_role(high, looks | against, least=0.5) == "s_inhibition"


def test_a_compiled_model_scores_the_same() -> None:
    tokenizer = word_tokenizer()
    model, asked = tiny("gpt2", vocab_size=tokenizer.vocab_size), ioi_prompts(tokenizer, 4)
    assert isinstance(model, DecoderModel)
    compiled = ioi_head_scores(torch.compile(model), asked)
    assert {role: found.scores for role, found in compiled.items()} == {
        role: found.scores for role, found in ioi_head_scores(model, asked).items()
    }


def test_answers_are_those_of_the_last_position() -> None:
    tokenizer = word_tokenizer()
    asked = ioi_prompts(tokenizer, 8)
    model = tiny("llama", vocab_size=tokenizer.vocab_size)
    found = asked.answers(model)
    for row in range(8):
        end = int(asked.at["end"][row])
        logits = model(asked.ids[row : row + 1, : end + 1])[0, -1].detach()
        assert abs(float(logits[asked.io[row]] - logits[asked.s[row]] - found.ahead[row])) < 1e-9
        assert bool(found.first[row]) == (int(logits.argmax()) == int(asked.io[row]))
    assert close(found.ahead, asked.task(model).whole)


def test_a_head_is_replaced_by_its_mean_over_the_same_template_and_order() -> None:
    tokenizer = word_tokenizer()
    asked = ioi_prompts(tokenizer, 24)
    model = tiny("gpt2", vocab_size=tokenizer.vocab_size)
    instead = asked.task(model).instead
    own = record_activations(model, asked.abc, places=list(instead), real=asked.real)
    for row, group in enumerate(asked.groups):
        mates = [other for other in range(24) if asked.groups[other] == group]
        assert len(mates) == 3
        end = int(asked.at["end"][row]) + 1
        for tap, value in instead.items():
            assert close(value[row, :, :end], own[tap][mates, :, :end].mean(dim=0))


def test_a_model_trained_on_names_has_a_circuit(tmp_path: Path) -> None:
    """Half a minute on one core; found on some prompts, tested on others."""
    model, tokenizer = train_names()
    here, there = (ioi_prompts(tokenizer, 64, seed=seed) for seed in range(2))
    assert here.answers(model).to_dict()["accuracy"] > 0.95
    found_on, tested_on = here.task(model), there.task(model)
    grown = grow_circuit(found_on, "names", to=12, by=2)
    size = grown.smallest(0.8)
    assert size is not None
    assert size <= 8
    circuit = grown.circuit(size)
    assert faithfulness(tested_on, circuit) > 0.7
    ranked = find_circuit(found_on, "names", sizes=[size, 12], shortlist=6)
    assert ranked.curve[12] == 1
    assert faithfulness_curve(tested_on, grown.order, [12]) == {12: 1}
    lost = minimality(tested_on, circuit)
    assert max(lost.values()) > 0.1
    assert completeness(tested_on, circuit, [circuit.nodes]).circuit == (0,)
    circuit.save(tmp_path / "names.json")
    assert Circuit.load(tmp_path / "names.json", model) == circuit


def test_a_toy_learns_other_sentences_than_those_that_it_is_tried_on(monkeypatch: pytest.MonkeyPatch):
    """Whoever asks draws sentences by a seed such as 0, 1 or 1234: none of these is among those of the training."""
    drawn: list[int] = []
    made = names.ioi_prompts

    def heard(*given: Any, seed: int, **more: Any) -> Any:
        drawn.append(seed)
        return made(*given, seed=seed, **more)

    monkeypatch.setattr(names, "ioi_prompts", heard)
    for seed in (0, 1):
        names.train_names(steps=2, batch=4, n_layers=1, seed=seed)
    assert len(set(drawn)) == 4
    assert min(drawn) > 1_000_000
