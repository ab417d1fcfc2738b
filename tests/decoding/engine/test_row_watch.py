"""A watch belongs to one job of a batch: it shows that job's own values, and no other job notices."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from helpers.engine_jobs import ENDS, jobs_for, model_of, texts
from torch import Tensor

from cutaway import tap_names, watch
from cutaway.decoding import Job, Scheduler, Watch, run_jobs
from cutaway.decoding.engine import row_watch
from cutaway.decoding.options import SearchOptions
from cutaway.errors import InputError
from cutaway.model.model import DecoderModel, EncoderDecoderModel
from cutaway.model.tap import StepWatch, watching

LONG = 600.0
TAPS = {
    "gpt2": ["decoder.*.attention.pattern", "decoder.*.residual_after", "decoder.*.attention.heads"],
    "llama": ["decoder.*.attention.pattern", "decoder.*.attention.query"],
    "transformer": ["decoder.*.cross.pattern", "decoder.*.attention.pattern", "decoder.*.residual_after",
                    "encoder.*.residual_after", "decoder.*.cross.value"],
    "t5": ["decoder.*.cross.pattern", "decoder.*.attention.pattern"],
}  # fmt: skip


def in_one_pass(model: DecoderModel, job: Job, ids: Sequence[int], taps: Sequence[str]) -> dict[str, Tensor]:
    """What the whole text shows, read at once and alone; without the batch axis."""
    read = torch.tensor([[*job.prompt, *ids[:-1]]])
    with torch.no_grad(), watch(model, *taps, "head.logits") as seen:
        if isinstance(model, EncoderDecoderModel):
            model(torch.tensor([list(job.source)]), read)
        else:
            model(read)
    return {name: value[0] for name, value in seen.items()}


@pytest.mark.parametrize("name", TAPS)
@pytest.mark.parametrize("beam", [1, 4])
def test_a_watched_job_shows_what_it_shows_alone(name: str, beam: int) -> None:
    """Some of a batch are watched, each with taps of its own; rows move when others leave."""
    model, jobs = model_of(name), jobs_for(name)
    options = SearchOptions(beam=beam, end_ids=ENDS)
    wished = [Watch(taps=TAPS[name][number % 2 :], top=3) if number % 3 else None for number in range(len(jobs))]
    with Scheduler(threads=1, rows=5) as scheduler:
        tickets = [scheduler.submit(model, job, options, watch=one) for job, one in zip(jobs, wished, strict=True)]
        found = [ticket.result(LONG) for ticket in tickets]
    assert texts(found) == texts(run_jobs(model, jobs, options=options))
    for job, ticket, hypotheses, one in zip(jobs, tickets, found, wished, strict=True):
        if one is None:
            assert not ticket.seen.steps
            assert not ticket.seen.reading
            continue
        for best in hypotheses:
            expected = in_one_pass(model, job, best.ids, one.taps)
            values = ticket.seen.values(best.ids)
            for tap, each in values.items():
                assert len(each) == len(best.ids)
                for n, value in enumerate(each):
                    torch.testing.assert_close(value, at(tap, expected[tap], len(job.prompt) - 1 + n))
            decoder = [tap for tap in expected if not tap.startswith(("encoder", "head"))]
            assert {*values} == {*decoder}
            log_p = expected["head.logits"][len(job.prompt) - 1 :].log_softmax(dim=-1)
            for n, score in enumerate(ticket.seen.scores(best.ids)):
                assert score.token == best.ids[n]
                assert score.log_p == pytest.approx(float(log_p[n, score.token]), abs=1e-4)
                assert [token for token, _ in score.top[:3]] == log_p[n].topk(3).indices.tolist()
                if score.token == score.top[0][0]:
                    assert score.log_p == score.top[0][1]  # to the bit: clients compare them
        encoder = {tap for tap in expected if tap.startswith("encoder")}
        assert encoder <= {*ticket.seen.reading}
        for tap in encoder:
            torch.testing.assert_close(ticket.seen.reading[tap], expected[tap])


def at(tap: str, value: Tensor, position: int) -> Tensor:
    """A value's part at one position of the target."""
    if tap.endswith("cross.value"):
        return value
    part = value.select(-2, position)
    return part[..., : position + 1] if tap.endswith("attention.pattern") else part


def test_sampled_words_have_their_log_p_however_unlikely() -> None:
    model, job = model_of("gpt2"), Job(prompt=[1, 5], limit=12, seed=3)
    with Scheduler(threads=1) as scheduler:
        ticket = scheduler.submit(model, job, watch=Watch(top=1))
        (best,) = ticket.result(LONG)
    log_p = in_one_pass(model, job, best.ids, ["head.logits"])["head.logits"][1:].log_softmax(dim=-1)
    scores = ticket.seen.scores(best.ids)
    assert [score.token for score in scores] == best.ids
    assert [score.log_p for score in scores] == pytest.approx(
        log_p[torch.arange(len(best.ids)), best.ids].tolist(), abs=1e-4
    )
    assert any(score.token != score.top[0][0] for score in scores)
    assert sum(score.log_p for score in scores) / len(scores) == pytest.approx(best.score, abs=1e-4)


def test_a_watched_job_changes_no_token_of_its_neighbours() -> None:
    model, jobs = model_of("transformer"), jobs_for("transformer")
    options = SearchOptions(beam=3, end_ids=ENDS)
    every = Watch(taps=list(tap_names(model)), top=5)
    found = []
    for one in (None, every):
        with Scheduler(threads=1) as scheduler:
            tickets = [
                scheduler.submit(model, job, options, watch=one if number == 4 else None)
                for number, job in enumerate(jobs)
            ]
            found.append([ticket.result(LONG) for ticket in tickets])
    assert texts(found[0]) == texts(found[1])
    for plain, beside in zip(*found, strict=True):
        assert [one.score for one in beside] == pytest.approx([one.score for one in plain], abs=1e-5)


def test_a_step_watch_sees_its_own_thread_alone() -> None:
    model = model_of("gpt2")
    step, elsewhere = StepWatch(model, ["decoder.0.attention.pattern"]), []
    part = model.decoder[0].attention
    with step.installed() as seen:

        def other() -> None:
            elsewhere.append((watching(model), part.reads("pattern")))
            with torch.no_grad():
                model(torch.tensor([[1, 2, 3, 4]]))

        thread = threading.Thread(target=other)
        thread.start()
        thread.join(LONG)
        assert elsewhere == [(False, False)]
        assert not seen
        assert watching(model)
        assert part.reads("pattern")
        with torch.no_grad():
            model(torch.tensor([[1, 2]]))
        assert seen["decoder.0.attention.pattern"].shape[-1] == 2
    assert not watching(model)


def test_what_is_watched_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    model, job = model_of("gpt2"), Job(prompt=[1], limit=20)
    every = Watch(taps=list(tap_names(model)))
    with Scheduler(threads=1) as scheduler:
        scheduler.submit(model, job, watch=every).result(LONG)
        monkeypatch.setattr(row_watch, "MEMORY", 10_000)
        with pytest.raises(InputError, match="bytes, and at most 10,000 are kept: watch fewer layers"):
            scheduler.submit(model, job, watch=every)
        scheduler.submit(model, job, watch=Watch(top=5)).result(LONG)  # which takes next to nothing


def test_who_asks_for_scores_alone_leaves_the_model_unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it goes on in its fast way; and taps are looked for once, not at each step."""
    model, job = model_of("gpt2"), Job(prompt=[1], limit=9)
    seen: list[bool] = []
    made: list[object] = []
    hidden, begin = type(model).hidden, StepWatch.__init__

    def spied(*given: Any, **more: Any) -> Any:
        seen.append(watching())
        return hidden(*given, **more)

    def counted(watch: StepWatch, *given: Any) -> None:
        made.append(watch)
        begin(watch, *given)

    monkeypatch.setattr(type(model), "hidden", spied)
    monkeypatch.setattr(StepWatch, "__init__", counted)
    with Scheduler(threads=1) as scheduler:
        scores = scheduler.submit(model, job, watch=Watch(top=2))
        (best,) = scores.result(LONG)
        assert len(scores.seen.scores(best.ids)) == 9
        assert len(seen) >= 9
        assert not any(seen)
        made.clear()
        watch_of = Watch(taps=["decoder.0.attention.pattern", "decoder.*.residual_after"])
        scheduler.submit(model, job, watch=watch_of).result(LONG)
        assert any(seen)
        assert len(made) <= 1 + 1 + len(watch_of.taps)  # to check it, for all of them, and for each
