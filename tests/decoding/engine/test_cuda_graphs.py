"""What recorded steps ask of the engine, tried on the CPU: idle rows, texts that stand still, news that come late.

A graph is stood in for by the step itself. That graphs replay the same is tried on a GPU (tests/device).
"""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from helpers.tiny_models import VOCAB, tiny
from torch import Tensor

from cutaway.decoding.engine.cuda_graphs import MOST, RecordedSteps
from cutaway.decoding.engine.engine import Engine, Job
from cutaway.decoding.rules.allowed import Allowed
from cutaway.decoding.rules.scores import NoRepeat, Temperature
from cutaway.decoding.search.beam import BeamSearch
from cutaway.decoding.search.search import GreedySearch, Search

#         prompt source limit
SIZES = [(9, 2, 3), (1, 12, 11), (14, 5, 12), (1, 1, 1), (2, 7, 17), (1, 3, 8), (13, 9, 2), (5, 11, 9), (3, 4, 16)]


def jobs_for(name: str) -> list[Job]:
    draw = torch.Generator().manual_seed(7)

    def ids(n: int) -> list[int]:
        return torch.randint(VOCAB, (n,), generator=draw).tolist()

    across = name in ("transformer", "t5")
    return [Job(prompt=[1, *ids(p - 1)], source=ids(s) if across else [], limit=n) for p, s, n in SIZES]


class Stepped(RecordedSteps):
    """As on a GPU, without one."""

    replayed = 0

    def _prepare(self) -> None:
        pass

    def _record(self, call: Callable[[], None]) -> SimpleNamespace:
        def replay() -> None:
            self.replayed += 1
            call()

        return SimpleNamespace(replay=replay)

    def _hear(self) -> Callable[[], Tensor]:
        flags = self.search.done.clone()
        return lambda: flags


def engine_for(name: str, beam: int, rows: int, jobs: list[Job], *, recorded: bool) -> Engine:
    model = tiny(name)
    room = {"rows": rows, "most": max(job.limit for job in jobs), "prompt": max(len(job.prompt) for job in jobs)}
    room |= {"ends": range(5, 12), "device": model.device, "dtype": torch.float64}
    search: Search = BeamSearch(beam, **room) if beam > 1 else GreedySearch(**room)
    engine = Engine(model, search, rows=rows, prompt=room["prompt"], source=max(len(job.source) for job in jobs))
    if recorded:
        engine.recorded = Stepped(search, rows, engine._again)
    return engine


@pytest.mark.parametrize("name", ["gpt2", "llama-window", "transformer", "t5"])
@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("rows", [1, 3, 8])
def test_late_news_and_idle_rows_change_no_word(name: str, beam: int, rows: int) -> None:
    jobs = jobs_for(name)
    plain = dict(engine_for(name, beam, rows, jobs, recorded=False).run(jobs))
    engine = engine_for(name, beam, rows, jobs, recorded=True)
    for _ in range(2):  # a second run begins with what the first left behind
        found = dict(engine.run(jobs))
        assert {n: [h.ids for h in texts] for n, texts in found.items()} == {
            n: [h.ids for h in texts] for n, texts in plain.items()
        }
    assert isinstance(engine.recorded, Stepped)
    assert engine.recorded.replayed > 0
    assert engine.recorded.readings or rows == 3  # not of three at once
    assert all(kind[0] in (1, 2, 3, 4, 8) for kind in engine.recorded.tried)


@pytest.mark.parametrize("beam", [1, 4])
def test_a_text_that_is_done_stands_still(beam: int) -> None:
    """Its slots and positions are taken up to the last: another step must not go beyond them."""
    jobs = [Job(prompt=[1], limit=32), Job(prompt=[1], limit=4)]
    engine = engine_for("gpt2", beam, 2, jobs, recorded=True)  # max_len of the model is 32
    engine.search.ends = engine.search.ends[:0]
    for _ in engine.steps(jobs):
        assert (engine.cache.lengths <= engine.cache.max_len).all()
        assert (engine.cache.seen <= 32).all()


def test_rules_that_ask_the_host_and_mixed_ones_are_not_recorded() -> None:
    for rules in ([(Allowed(lambda ids: [3, 4]),)] * 2, [(NoRepeat(2),), ()]):
        jobs = [Job(prompt=[1, 2], limit=5, rules=its) for its in rules]
        engine = engine_for("gpt2", 1, 2, jobs, recorded=True)
        list(engine.run(jobs))
        assert not engine.recorded.tried


@pytest.mark.parametrize("beam", [1, 4])
def test_what_was_heard_of_a_run_that_was_given_up_is_forgotten(beam: int) -> None:
    """Its texts were done when it was given up, and nobody had heard of it yet."""
    engine = engine_for("gpt2", beam, 2, [Job(prompt=[1], limit=9)], recorded=True)
    engine.search.ends = engine.search.ends[:0]
    given_up = engine.steps([Job(prompt=[1], limit=1)] * 2)
    assert next(given_up) == []
    assert engine.search.done.all()
    given_up.close()
    found = dict(engine.run([Job(prompt=[1], limit=9)] * 2))
    assert [len(texts[0].ids) for texts in found.values()] == [9, 9]


def test_graphs_are_not_kept_for_ever() -> None:
    engine = engine_for("gpt2", 1, 1, [Job(prompt=[1], limit=3)], recorded=True)
    for n in range(MOST + 5):
        list(engine.run([Job(prompt=[1], limit=3, rules=(Temperature(1.0 + n),))]))
    assert isinstance(engine.recorded, Stepped)
    assert len(engine.recorded.tried) <= MOST
    assert len(engine.recorded.graphs) <= MOST
