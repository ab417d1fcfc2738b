"""The law of scores finds every way in which beams go wrong, by a number."""

from typing import Any

import pytest
import torch
from helpers.tiny_models import VOCAB, tiny
from torch import Tensor

from cutaway.certificate import text_laws
from cutaway.certificate.entry import TOLERANCE, judge
from cutaway.certificate.inputs import short_inputs
from cutaway.certificate.subject import Subject
from cutaway.decoding.engine.engine import Job
from cutaway.decoding.search.beam import BeamSearch
from cutaway.decoding.search.search import GreedySearch
from cutaway.model.beam_cache import Tree
from cutaway.model.model import Model


def found_by_scores(model: Model) -> bool:
    """Whether the law of scores, by itself, finds something wrong."""
    with Subject(model, short_inputs(model, None, 0)) as asked:
        entry = judge("scores = uncached", lambda: text_laws.scores_are_uncached(asked))
    assert entry.value is not None, entry
    return entry.value > TOLERANCE


reorder, collect = Tree.reorder, Tree.collect


def stays(self: Tree, parents: Tensor) -> None:
    pass


def mixes(self: Tree, parents: Tensor) -> None:
    self.ancestors.copy_(self.ancestors.any(dim=1, keepdim=True))


def swaps(self: Tree, parents: Tensor) -> None:
    reorder(self, parents.flip(1))


def forgets(self: Tree, rows: Tensor) -> list[int]:
    left = collect(self, rows)
    self.ancestors[rows, :, left[0] - 1] = False
    return left


@pytest.mark.parametrize("wrong", [stays, mixes, swaps, forgets])
@pytest.mark.parametrize("name", ["gpt2", "llama", "llama-window", "transformer", "transformer-rotary", "t5"])
def test_hypotheses_that_go_on_from_others(name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tree, "collect" if wrong is forgets else "reorder", wrong)
    assert found_by_scores(tiny(name, dtype=torch.float32))


@pytest.mark.parametrize("name", ["gpt2", "transformer"])
def test_beams_are_seen_where_every_text_ends_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny(name, dtype=torch.float32, end_ids=list(range(VOCAB)))
    assert not found_by_scores(model)
    monkeypatch.setattr(Tree, "reorder", stays)
    assert found_by_scores(model)


@pytest.mark.parametrize("wrong", [0.0, 1.0])
@pytest.mark.parametrize("search", [GreedySearch, BeamSearch])
def test_scores_that_are_divided_by_something_else(search: Any, wrong: float, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = search.__init__
    monkeypatch.setattr(search, "__init__", lambda self, **room: begin(self, **room | {"length_penalty": wrong}))
    assert found_by_scores(tiny("gpt2", dtype=torch.float32))


def test_a_greedy_text_is_every_likeliest_token_to_its_end_or_its_limit() -> None:
    """One that stops short, goes on behind its end, or has another token anywhere is none."""
    model = tiny("gpt2")
    prompt, text = [3, 5, 7], []
    for _ in range(6):
        text.append(int(model(torch.tensor([[*prompt, *text]]))[0, -1].argmax()))
    first = text.index(text[-1])  # the text ends where this token stands for the first time
    for ends, limit, wanted in (
        ((), 6, 6),
        ((), 4, 4),
        ((text[-1],), 20, first + 1),
        ((text[-1],), first + 1, first + 1),
    ):
        asked = tiny("gpt2", end_ids=ends or None)
        job = Job(prompt=prompt, limit=limit)
        assert [n for n in range(1, 7) if text_laws.is_greedy(asked, job, text[:n])] == [wanted]
        for place in range(wanted):
            other = [(id + 1) % VOCAB if i == place else id for i, id in enumerate(text[:wanted])]
            assert not text_laws.is_greedy(asked, job, other)
