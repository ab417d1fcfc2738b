"""Decodes many texts at once, as ids, in an engine of the right size.

    hypotheses = run_jobs(model, [Job(prompt=[1], source=[5, 6, 2], limit=20)], beam=4)[0]

`generate` and `translate` do the same with text.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import torch

from cutaway.arguments import with_options
from cutaway.decoding.engine.engine import Engine, Job
from cutaway.decoding.options import SearchOptions
from cutaway.decoding.search.beam import BeamSearch, Considered
from cutaway.decoding.search.search import GreedySearch, Hypothesis, Search
from cutaway.errors import InputError
from cutaway.model.model import DecoderModel, EncoderDecoderModel
from cutaway.model.tap import watching

JOBS_PER_CORE = 4  # with fewer, all cores work on the same texts
ROWS = {"cuda": 64, "cpu": 128}  # texts of an engine by default


@dataclass(frozen=True, kw_only=True)
class EngineSize:
    """How much room an engine has."""

    rows: int
    most: int  # new tokens per text
    prompt: int
    source: int

    def holds(self, other: "EngineSize") -> bool:
        """Whether the texts of another size fit, as many at a time."""
        return (
            self.rows == other.rows
            and self.most >= other.most
            and self.prompt >= other.prompt
            and self.source >= other.source
        )

    def rounded(self, max_len: int | None) -> "EngineSize":
        """A little more, so that the next texts fit, too."""
        most, prompt = _up(self.most, 64), _up(self.prompt, 64)
        if prompt - 1 + most > (inf if max_len is None else max_len):
            most, prompt = self.most, self.prompt
        return EngineSize(rows=self.rows, most=most, prompt=prompt, source=_up(self.source, 64))


@with_options
def run_jobs(
    model: DecoderModel,
    jobs: Sequence[Job],
    *,
    listener: Callable[[Considered], None] | None = None,
    options: SearchOptions,
) -> list[list[Hypothesis]]:
    """The hypotheses found for each job, the best first. `listener` is called after each step of a beam search."""
    found = dict(finished_jobs(model, jobs, listener=listener, options=options))
    return [found[number] for number in range(len(jobs))]


@with_options
def finished_jobs(
    model: DecoderModel,
    jobs: Sequence[Job],
    *,
    listener: Callable[[Considered], None] | None = None,
    options: SearchOptions,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """The same as pairs (number of the job, hypotheses), each as soon as its job is done."""
    check_jobs(model, jobs, options.beam)
    if not jobs:
        return
    n = 1 if listener is not None else min(n_engines(model, jobs), options.rows or len(jobs))
    if n == 1:
        yield from engine_for(model, jobs, listener=listener, options=options).run(jobs)
        return
    from cutaway.decoding.engine.threads import run_in_threads

    if options.rows is not None:  # of all engines together
        options = replace(options, rows=options.rows // n)
    yield from run_in_threads(lambda: engine_for(model, jobs, options=options), jobs, n)


@with_options
def engine_for(
    model: DecoderModel,
    jobs: Sequence[Job],
    *,
    listener: Callable[[Considered], None] | None = None,
    options: SearchOptions,
) -> Engine:
    """An engine with room for each of these jobs."""
    check_jobs(model, jobs, options.beam)
    sampled = any(job.seed is not None for job in jobs)
    kind = SearchKind.of(model, options, sampled=sampled, beam=listener is not None)
    size = EngineSize(
        rows=min(options.rows or ROWS[model.device.type], len(jobs)),
        most=max(job.limit for job in jobs),
        prompt=max(len(job.prompt) for job in jobs),
        source=max(len(job.source) for job in jobs),
    )
    if model.device.type == "cuda" and listener is None:
        from cutaway.decoding.engine.pool import pooled_engine

        return pooled_engine(model, kind, size, lambda size: kind.engine(model, size))
    return kind.engine(model, size, listener)


@dataclass(frozen=True)
class SearchKind:
    """The search that some options ask for, and its settings. Jobs of equal kinds can share an engine."""

    search: type[Search]
    settings: tuple[tuple[str, Any], ...]
    end_ids: tuple[int, ...]

    @classmethod
    def of(cls, model: DecoderModel, options: SearchOptions, *, sampled: bool, beam: bool = False) -> "SearchKind":
        """`sampled`: some job has a seed. `beam`: a beam search, even if it has one hypothesis only."""
        search: type[Search] = GreedySearch
        settings: dict[str, Any] = {"length_penalty": options.length_penalty}
        if options.beam > 1 or beam:
            search = BeamSearch
            names = ("early_stopping", "groups", "diversity", "prune")
            settings |= {"width": options.beam, **{name: getattr(options, name) for name in names}}
        elif sampled:
            from cutaway.decoding.search.sampling import Sampling as search
        end_ids = model.config.end_ids or () if options.end_ids is None else options.end_ids
        return cls(search, tuple(settings.items()), tuple(end_ids))

    def engine(
        self, model: DecoderModel, size: EngineSize, listener: Callable[[Considered], None] | None = None
    ) -> Engine:
        search = self.search(
            rows=size.rows,
            most=size.most,
            prompt=size.prompt,
            ends=self.end_ids,
            device=model.device,
            dtype=torch.promote_types(model.dtype, torch.float32),
            **dict(self.settings),
        )
        if isinstance(search, BeamSearch):
            search.listener = listener
        return Engine(model, search, rows=size.rows, prompt=size.prompt, source=size.source)


def row_bytes(model: DecoderModel, kind: SearchKind, size: EngineSize) -> int:
    """The bytes that one row of an engine's KV cache takes at most."""
    n_layers, n_heads, d_head = model.cache_shape
    width = dict(kind.settings).get("width", 1)
    numbers = n_layers * n_heads * d_head * (size.prompt - 1 + width * size.most)
    if size.source:
        cross = model.decoder[0].cross
        assert cross is not None
        numbers += n_layers * cross.n_heads * cross.d_head * size.source
    return 2 * numbers * model.dtype.itemsize


def n_engines(model: DecoderModel, jobs: Sequence[Job]) -> int:
    """How many engines to run in threads. What somebody watches or listens to comes from one."""
    alone = model.device.type != "cpu" or watching() or any(job.hear is not None for job in jobs)
    return 1 if alone else max(1, min(torch.get_num_threads(), len(jobs) // JOBS_PER_CORE))


def check_jobs(model: DecoderModel, jobs: Sequence[Job], beam: int) -> None:
    """Refuses jobs that cannot be done, before anything is generated."""
    across = isinstance(model, EncoderDecoderModel)
    task = "translate" if across else "language_model"
    if model.config.task != task:
        raise InputError(f"a model for task={model.config.task!r} predicts no next token: use one for {task!r}")
    if model.training:
        raise InputError("this model is in training and drops out at random: call model.eval() first")
    if beam > 1 and any(job.seed is not None for job in jobs):
        raise InputError(f"beam={beam} and a seed: beam search does not sample; leave out one of the two")
    for number, job in enumerate(jobs):
        if not job.prompt:
            raise InputError(f"text {number + 1} has an empty prompt: give at least one token")
        if across and not job.source:
            raise InputError(f"text {number + 1} has an empty source")
        if not across and job.source:
            raise InputError("this model has no encoder to read a source")
        if job.limit < 1:
            raise InputError(f"limit={job.limit} must be at least 1")
        longest = len(job.prompt) + job.limit - 1
        if model.max_len is not None and longest > model.max_len:
            room = model.max_len - len(job.prompt) + 1
            raise InputError(f"after {len(job.prompt)} tokens at most {room} more fit into max_len={model.max_len}")


def _up(n: int, block: int) -> int:
    return -(-n // block) * block
