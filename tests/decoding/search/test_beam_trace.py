"""The trace of a beam: what it tells is what happened, and telling changes nothing."""

import json
import math

import pytest
import torch
from helpers.beam_translator import START, STOPS, log_p, sources, translator
from helpers.tiny_models import DECODERS, some_ids, tiny

from cutaway.decoding import BeamTrace, Job, run_jobs, trace_beam

ENDS = [5, 6, 7, 8, 9]


def traced(*, beam: int = 4, limit: int = 10, **options) -> tuple[BeamTrace, list]:
    model, job = translator(dtype=torch.float64), Job(prompt=[START], source=some_ids(1, 7)[0].tolist(), limit=limit)
    options = {"beam": beam, "end_ids": ENDS, **options}
    return trace_beam(model, job, **options), run_jobs(model, [job], **options)[0]


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beam": 1, "length_penalty": 3.0, "end_ids": range(30)},  # greedy stops where a beam would go on
        {"length_penalty": 2.0},
        {"groups": 2, "diversity": 0.3},
    ],
)
def test_tracing_changes_nothing(stop, options):
    trace, plain = traced(early_stopping=stop, **options)
    assert [hypothesis.ids for hypothesis in trace.found] == [hypothesis.ids for hypothesis in plain]
    assert [h.score for h in trace.found] == pytest.approx([h.score for h in plain], rel=1e-12)


@pytest.mark.parametrize("name", DECODERS)
def test_a_prompt_of_a_decoder_by_itself(name):
    model, job = tiny(name), Job(prompt=[3, 1, 4, 1, 5], limit=8)
    trace = trace_beam(model, job, end_ids=ENDS)
    assert trace.found == run_jobs(model, [job], beam=4, end_ids=ENDS)[0]
    assert trace.to_dict()["prompt"] == [3, 1, 4, 1, 5]


@pytest.mark.parametrize("options", [{}, {"groups": 2, "diversity": 0.5}, {"length_penalty": 0.0, "beam": 3}])
def test_every_number_is_the_models_own(options):
    trace, _ = traced(**options)
    model, (source, _) = translator(dtype=torch.float64), sources([7])
    by_id = {node.id: node for step in trace.steps for node in step}
    assert list(by_id) == list(range(1, len(by_id) + 1))
    for length, step in enumerate(trace.steps, start=1):
        for node in step:
            ids = trace.text(node)
            assert len(ids) == length
            assert node.total == pytest.approx(log_p(model, source, ids), rel=1e-9)
            assert node.score == pytest.approx(node.total / length ** options.get("length_penalty", 1.0))
            before = by_id[node.parent].total if node.parent else 0.0
            assert node.log_p == pytest.approx(node.total - before)


@pytest.mark.parametrize("beam", [1, 3, 4])
def test_what_became_of_each(beam):
    trace, plain = traced(beam=beam)
    for before, step in zip([[], *trace.steps], trace.steps, strict=False):
        kept = [node for node in step if node.fate == "kept"]
        assert [node.place for node in kept] == list(range(len(kept)))
        assert all(node.place is None for node in step if node.fate != "kept")
        assert {node.parent for node in step} <= ({node.id for node in before if node.fate == "kept"} or {0})
        totals = [node.total for node in step]
        assert totals == sorted(totals, reverse=True)
        # nobody was dropped for a worse one; at the limit nobody goes on
        worst = min(node.total for node in kept or [node for node in step if node.fate == "finished"])
        for node in step:
            assert node.fate != "dropped" or node.total <= worst or node.token in ENDS
            assert (node.token in ENDS or len(trace.steps) == 10) or node.fate != "finished"
    assert not [node for node in trace.steps[-1] if node.fate == "kept"] or len(trace.steps) < 10
    ranked = {node.rank: trace.text(node) for step in trace.steps for node in step if node.rank is not None}
    assert [ranked[rank] for rank in range(len(plain))] == [hypothesis.ids for hypothesis in plain]
    finished = [node for step in trace.steps for node in step if node.fate == "finished"]
    assert min((node.score for node in finished if node.rank is not None), default=0.0) >= max(
        (node.score for node in finished if node.rank is None), default=-math.inf
    )


def test_as_plain_data():
    trace, _ = traced()
    data = json.loads(trace.to_json(spell=lambda id: f"<{id}>"))
    assert data == trace.to_dict(spell=lambda id: f"<{id}>")
    assert set(data) == {"prompt", "source", "limit", "options", "steps", "found"}
    assert data["options"] == {"beam": 4, "length_penalty": 1.0}
    first = data["steps"][0][0]
    assert first["text"] == f"<{first['token']}>"
    assert {"id", "parent", "token", "log_p", "total", "score", "fate", "group", "place", "rank"} < set(first)
    assert "text" not in trace.to_dict()["steps"][0][0]


def test_a_beam_wider_than_the_vocabulary_is_still_plain_data():
    """Places that nobody holds have no score: they are left out."""
    model, job = translator(vocab_size=4), Job(prompt=[START], source=[3, 2], limit=4)
    trace = trace_beam(model, job, beam=30, end_ids=[2])
    assert json.loads(trace.to_json())["found"]
    assert len(trace.steps[0]) == 4
    assert [len(step) for step in trace.steps] == [4, 12, 36, 60]
