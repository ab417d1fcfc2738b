"""A watch that keeps some positions keeps those; a step of generation shows what one whole pass shows."""

from threading import Thread

import pytest
import torch
from helpers.engine_jobs import ENDS, jobs_for, model_of
from helpers.tiny_models import ALL, close, inputs, some_ids, tiny

from cutaway.decoding import Job, run_jobs
from cutaway.decoding.engine.run import engine_for
from cutaway.errors import InputError
from cutaway.model import tap as taps
from cutaway.model.model import EncoderDecoderModel
from cutaway.model.tap import tap_names, watch, watching


@pytest.mark.parametrize("name", ALL)
def test_some_positions_are_those_of_everything(name: str) -> None:
    model, given = tiny(name, dtype=torch.float32), inputs(name, dtype=torch.float32)
    with watch(model, "*") as whole:
        plain = model(*given)
    with watch(model, "*", positions=[-1, 0, 2]) as some:
        assert torch.equal(model(*given), plain)
    assert set(some) == set(tap_names(model))
    for tap, value in whole.items():
        kept = value[..., [-1, 0, 2], :] if value.ndim > 2 else value
        assert torch.equal(some[tap], kept), tap


def test_the_sequence_is_the_last_axis_but_one_of_every_tap() -> None:
    model = tiny("transformer")
    with watch(model, "*") as seen:
        model(some_ids(3, 9), some_ids(3, 8))
    sizes = {tap: value.shape[-2] for tap, value in seen.items()}
    of_the_source = {tap for tap in seen if tap.startswith(("encoder", "source")) or tap.endswith(("s.key", "s.value"))}
    assert {size for tap, size in sizes.items() if tap in of_the_source} == {9}
    assert {size for tap, size in sizes.items() if tap not in of_the_source} == {8}


def test_what_is_kept_goes_where_it_is_wanted() -> None:
    model, ids = tiny("gpt2"), some_ids(2, 6)
    with watch(model, "*.residual_after", positions=[-1], to="cpu", dtype=torch.float32) as seen:
        model(ids)
    with watch(model, "*.residual_after") as whole:
        model(ids)
    for tap, value in seen.items():
        assert value.dtype == torch.float32
        assert value.untyped_storage().nbytes() == value.numel() * 4  # nothing else is kept alive
        assert torch.equal(value, whole[tap][:, -1:].float())


def test_gradients_flow_through_some_positions() -> None:
    model, ids = tiny("gpt2"), some_ids(1, 4)
    with watch(model, "head.logits", positions=[-1]) as seen:
        model(ids)
    seen["head.logits"].sum().backward()
    assert model.decoder[0].attention.output.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("position", [6, -7])
def test_a_position_that_is_not_there_is_named(position: int) -> None:
    model = tiny("gpt2")
    said = rf"position {position} of 'decoder\.1\.attention\.pattern': this pass has 6, 0 … 5"
    with pytest.raises(InputError, match=said), watch(model, "decoder.1.*.pattern", positions=[0, position]):
        model(some_ids(1, 6))


@pytest.mark.parametrize("name", ["gpt", "gpt2", "llama", "llama-window"])
def test_steps_with_a_cache_show_what_one_pass_shows(name: str) -> None:
    model, ids = tiny(name), some_ids(2, 8)
    taps = ("decoder.*.residual_after", "decoder.*.heads", "decoder.*.pattern", "decoder.*.features", "head.logits")
    with torch.no_grad(), watch(model, *taps) as whole:
        model(ids)
    cache = model.new_cache(2, 10)
    with torch.no_grad(), watch(model, *taps, keep="all", positions=[-1]) as seen:
        model(ids[:, :3], cache=cache)
        for t in range(3, 8):
            model(ids[:, t : t + 1], cache=cache)
    for tap, steps in seen.items():
        together, expected = torch.cat(steps, dim=-2), whole[tap][..., 2:, :]
        if tap.endswith("pattern"):
            assert (together[..., 8:] == 0).all()
            together = together[..., :8]
        assert close(together, expected), tap


@pytest.mark.parametrize("name", ["gpt2", "llama", "transformer", "t5"])
def test_greedy_writing_shows_what_one_pass_shows(name: str) -> None:
    model, (job, *_) = model_of(name), jobs_for(name)
    watched = [tap for tap in tap_names(model) if tap.startswith("decoder") and tap.endswith(("cross.key", "_after"))]
    with watch(model, *watched, keep="all", positions=[-1]) as seen:
        (found,) = run_jobs(model, [job], end_ids=ENDS)[0]
    given = [torch.tensor([[*job.prompt, *found.ids[:-1]]])]
    if isinstance(model, EncoderDecoderModel):
        given.insert(0, torch.tensor([job.source]))
    with torch.no_grad(), watch(model, *watched) as whole:
        model(*given)
    for tap in watched:
        steps = torch.cat(seen[tap][-len(found.ids) :], dim=-2)
        expected = whole[tap][..., -1:, :] if tap.endswith("key") else whole[tap][:, -len(found.ids) :]
        assert close(steps, expected.expand_as(steps)), tap


@pytest.mark.parametrize("prune", [None, 0.5])
@pytest.mark.parametrize("name", ["gpt2", "llama", "transformer"])
def test_every_hypothesis_of_a_beam_shows_what_one_pass_shows(name: str, prune: float | None) -> None:
    """Rows of different lengths enter and leave; each hypothesis is read again from its beginning."""
    model, jobs, tap = model_of(name), jobs_for(name)[:4], "decoder.1.residual_after"
    engine = engine_for(model, jobs, beam=3, end_ids=ENDS, rows=2, prune=prune)
    search, step, read = engine.search, engine._step, []

    def noted(n: int, view: object) -> None:
        for row, number in enumerate(engine.jobs):
            written = int(search.written[row])
            texts = [[*jobs[number].prompt, *tokens[:written]] for tokens in search.tokens[row].tolist()]
            read.append((number, texts))
        step(n, view)

    engine._step = noted
    with watch(model, tap, keep="all", positions=[-1]) as seen:
        list(engine.run(jobs))
    steps = [row for value in seen[tap] for row in value if value.shape[1] == 3]
    assert len(steps) == len(read)
    for (number, texts), value in zip(read, steps, strict=True):
        given = [torch.tensor(texts)]
        if isinstance(model, EncoderDecoderModel):
            given.insert(0, torch.tensor([jobs[number].source] * 3))
        with torch.no_grad(), watch(model, tap, positions=[-1]) as whole:
            model(*given)
        assert close(value[:, None], whole[tap])


def test_a_step_of_a_beam_has_one_position() -> None:
    model = model_of("gpt2")
    said = "position 1 of 'decoder.0.residual_after': this pass has 1"
    with pytest.raises(InputError, match=said), watch(model, "decoder.0.residual_after", positions=[1]):
        run_jobs(model, [Job(prompt=[1], limit=3)], beam=4, end_ids=ENDS)


def test_what_is_kept_of_a_step_outlives_the_next_text() -> None:
    """The memory of a text is written over by the next one's."""
    model, jobs = model_of("transformer"), jobs_for("transformer")
    with watch(model, "decoder.0.cross.key", keep="all") as seen:
        run_jobs(model, jobs[:1], end_ids=ENDS)
        first = [value.clone() for value in seen["decoder.0.cross.key"]]
    with watch(model, "decoder.0.cross.key", keep="all") as both:
        run_jobs(model, jobs[:2], end_ids=ENDS, rows=1)
    kept = both["decoder.0.cross.key"][: len(first)]
    n = len(jobs[0].source)
    assert all(torch.equal(a[..., :n, :], b[..., :n, :]) for a, b in zip(kept, first, strict=True))


def test_behind_a_beam_positions_are_those_of_a_pass_again() -> None:
    model, ids = model_of("gpt2"), some_ids(2, 5)
    with watch(model, "decoder.0.residual_after") as whole:
        model(ids)
    with watch(model, "decoder.0.residual_after", positions=[-1]) as seen:
        run_jobs(model, [Job(prompt=[1], limit=3)], beam=4, end_ids=ENDS)
        model(ids)
    assert torch.equal(seen["decoder.0.residual_after"], whole["decoder.0.residual_after"][:, -1:])


def test_a_dtype_needs_no_device() -> None:
    model = tiny("gpt2")
    with watch(model, "*.residual_after", dtype=torch.bfloat16) as seen:
        model(some_ids(1, 4))
    assert {value.dtype for value in seen.values()} == {torch.bfloat16}


def test_watchers_come_and_go_one_at_a_time() -> None:
    """Of two threads that change the tuple of watchers at once, one's would be lost, or stay for good."""
    model, seen = tiny("gpt2"), []

    def look() -> None:
        with watch(model, "decoder.0.residual_after"):
            seen.append(watching(model))

    thread = Thread(target=look)
    with taps._installing:
        thread.start()
        thread.join(0.2)
        assert seen == []
        assert not watching()
    thread.join(10)
    assert seen == [True]
    assert not watching()
