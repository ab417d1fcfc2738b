"""The kernels of a step with few rows, and recorded steps: the numbers and words of the plain way."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from helpers.tiny_models import DECODERS, TRANSLATORS, some_ids, tiny

from cutaway.decoding import Job, run_jobs
from cutaway.decoding.engine.engine import Engine
from cutaway.decoding.rules.scores import NoRepeat, RepetitionPenalty, Temperature, TopP
from cutaway.decoding.search.search import GreedySearch
from cutaway.model import linear
from cutaway.model.beam_cache import Tree
from cutaway.model.kernels import gpu_step, gpu_step_triton
from cutaway.model.model import DecoderModel, EncoderDecoderModel
from cutaway.model.tap import watch

DEVICE = "cuda"
WIDE = {"d_model": 64}  # heads of 16, which the kernels know


def wide(name: str, dtype: torch.dtype, device: str = DEVICE) -> DecoderModel:
    model = tiny(name, dtype=dtype, **WIDE, **({"d_head": 16} if name == "t5" else {})).to(device)
    assert isinstance(model, DecoderModel)
    return model


@contextmanager
def plainly() -> Iterator[None]:
    """Without the kernels."""
    kept = gpu_step.kernels_serve, linear.kernels_serve
    gpu_step.kernels_serve = linear.kernels_serve = lambda x: False
    try:
        yield
    finally:
        gpu_step.kernels_serve, linear.kernels_serve = kept


@torch.no_grad()
def states(model: DecoderModel, width: int) -> torch.Tensor:
    """Some steps behind prompts of different lengths, with hypotheses that change hands."""
    ids = some_ids(3, 6, seed=1).to(DEVICE)
    cache = model.new_cache(3, 12, slots=5 + width * 7)
    read = model.hidden
    if isinstance(model, EncoderDecoderModel):
        real = torch.arange(6, device=DEVICE)[None] < torch.tensor([[6], [4], [5]], device=DEVICE)
        cache = model.with_memory(cache, 6)
        model.remember(cache, model.encode(ids, real), real)
        read = model.decode
    real = torch.arange(5, device=DEVICE)[None] < torch.tensor([[5], [3], [1]], device=DEVICE)
    read(ids[:, :5], real=real, cache=cache)
    cache = Tree.of(cache, width) if width > 1 else cache
    found = []
    for step in range(4):
        found.append(read(some_ids(3, width, seed=step).to(DEVICE), cache=cache))
        if isinstance(cache, Tree):
            cache.follow(torch.randint(width, (3, width), generator=torch.Generator().manual_seed(step)).to(DEVICE))
    return torch.stack(found).float()


def test_a_fast_step_gives_the_numbers_of_the_plain_way():
    called = []
    for name in ("project", "attend"):
        kernel = getattr(gpu_step_triton, name)
        setattr(gpu_step_triton, name, lambda *a, k=kernel, n=name, **m: called.append(n) or k(*a, **m))
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 0.03)):
        for name in (*DECODERS, *TRANSLATORS):
            for width in (1, 2, 4):
                model = wide(name, dtype)
                with plainly():
                    plain = states(model, width)
                assert not called, "the plain way has no kernels"
                fast = states(model, width)
                assert "attend" in called or name == "t5"
                assert "project" in called or dtype is torch.float32 or width == 4
                called.clear()
                error = ((fast - plain).abs().max() / plain.abs().max()).item()
                assert error < tolerance, (name, dtype, width, error)


def jobs(name: str, **more: object) -> list[Job]:
    rows = [row[: 3 + i % 5].tolist() for i, row in enumerate(some_ids(11, 7, seed=3))]
    limits = [12, 3, 9, 1, 12, 7, 2, 11, 5, 12, 12]
    if name in TRANSLATORS:
        return [Job(prompt=[1], source=row, limit=limit, **more) for row, limit in zip(rows, limits, strict=True)]
    return [Job(prompt=row, limit=limit, **more) for row, limit in zip(rows, limits, strict=True)]


def test_recorded_steps_write_the_words_of_the_cpu():
    """Greedily, drawn, ruled and in beams, in any number of rows; and again with the engine that was kept."""
    rules = (RepetitionPenalty(1.3), NoRepeat(2), Temperature(1.5), TopP(0.9))
    for name in (*DECODERS, *TRANSLATORS):
        for options, more in (
            ({}, {}),
            ({"beam": 4}, {}),
            ({"beam": 4, "groups": 2}, {}),
            ({}, {"seed": 7, "rules": rules}),
        ):
            asked = jobs(name, **more)
            here = run_jobs(wide(name, torch.float32, "cpu"), asked, end_ids=range(5, 12), **options)
            model = wide(name, torch.float32)
            for rows in (3, 3, 11):
                there = run_jobs(model, asked, end_ids=range(5, 12), rows=rows, **options)
                assert [[h.ids for h in found] for found in there] == [[h.ids for h in found] for found in here], (
                    name,
                    options,
                )
                scores = [
                    (h.score, k.score) for a, b in zip(there, here, strict=True) for h, k in zip(a, b, strict=True)
                ]
                assert all(abs(a - b) < 1e-4 for a, b in scores)


def test_steps_are_recorded_and_a_watched_one_is_not():
    model, asked = wide("gpt2", torch.float32), [Job(prompt=[1, 2], limit=9) for _ in range(2)]
    search = GreedySearch(rows=2, most=9, ends=[], device=model.device, prompt=2)
    engine = Engine(model, search, rows=2, prompt=2)
    plain = dict(engine.run(asked))
    assert engine.recorded is not None
    assert [kind[0] for kind in engine.recorded.graphs] == [2]
    with watch(model, "*.pattern") as seen:
        watched = dict(engine.run(asked))
    assert seen
    assert [h.ids for h in watched[0]] == [h.ids for h in plain[0]]


def test_an_engine_is_kept_and_not_for_other_weights():
    model = wide("gpt2", torch.float32)
    asked = [Job(prompt=[1, 2], limit=9)]
    before = run_jobs(model, asked)
    kept = vars(model)["_engine_pool"].kept[2]
    assert run_jobs(model, asked) == before
    assert vars(model)["_engine_pool"].kept[2] is kept
    model.decoder[0].attention.output.weight.data = model.decoder[0].attention.output.weight.data * -3
    other = run_jobs(model, asked)
    assert vars(model)["_engine_pool"].kept[2] is not kept
    assert other[0][0].score != before[0][0].score
