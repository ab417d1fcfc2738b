"""Many texts at once, as ids: an engine of the right size for some jobs.

    hypotheses = write(model, [Job(prompt=[1], source=[5, 6, 2], limit=20)], beam=4)[0]

This is what the other rooms call. `generate` and `translate` are the same with words.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from cutaway.arguments import checked
from cutaway.decoding.engine.engine import Engine, Job
from cutaway.decoding.engine.pool import EngineSize, pooled_engine
from cutaway.decoding.engine.threads import n_engines, run_in_threads
from cutaway.decoding.search.beam import BeamSearch, Considered, EarlyStopping, check_many, check_prune
from cutaway.decoding.search.sampling import Sampling
from cutaway.decoding.search.search import GreedySearch, Hypothesis, Search
from cutaway.errors import InputError
from cutaway.model.model import DecoderModel, EncoderDecoderModel

ROWS = {"cuda": 64, "cpu": 128}  # texts of an engine, unless somebody says


def run_jobs(model: DecoderModel, jobs: Sequence[Job], **options: object) -> list[list[Hypothesis]]:
    """What was found for each job, the best first; `options` are those of `written`."""
    found = dict(finished_jobs(model, jobs, **options))
    return [found[number] for number in range(len(jobs))]


def finished_jobs(
    model: DecoderModel, jobs: Sequence[Job], **options: object
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """The same, each with the number of its job as soon as it is done; `options` are those of `engine_for`."""
    if not jobs:
        return check_jobs(model, jobs, 1)
    rows = options.get("rows")
    n = 1 if options.get("listener") else min(n_engines(model, jobs), rows if isinstance(rows, int) else len(jobs))
    if n > 1 and isinstance(rows, int):  # all engines together work on so many
        options["rows"] = rows // n
    if n <= 1:
        yield from engine_for(model, jobs, **options).run(jobs)  # type: ignore[arg-type]
    else:
        check_jobs(model, jobs, 1)
        yield from run_in_threads(lambda: engine_for(model, jobs, **options), jobs, n)  # type: ignore[arg-type]


@checked
def engine_for(
    model: DecoderModel,
    jobs: Sequence[Job],
    *,
    beam: int = 1,
    length_penalty: float = 1.0,
    early_stopping: EarlyStopping = False,
    groups: int = 1,
    diversity: float = 0.5,
    prune: float | None = None,
    listener: Callable[[Considered], None] | None = None,
    end_ids: Sequence[int] | None = None,
    rows: int | None = None,
) -> Engine:
    """An engine with room for each of these jobs, of which `rows` are worked on at a time."""
    check_jobs(model, jobs, beam)
    check_prune(prune)
    end_ids = model.config.end_ids or () if end_ids is None else end_ids
    if rows is None:
        rows = ROWS[model.device.type]
    if rows < 1:
        raise InputError(f"rows={rows}: at least one text is written at a time")
    room = EngineSize(
        rows=min(rows, len(jobs)),
        most=max(job.limit for job in jobs),
        prompt=max(len(job.prompt) for job in jobs),
        source=max(len(job.source) for job in jobs),
    )
    kind: type[Search] = BeamSearch
    options: dict[str, Any] = {"length_penalty": length_penalty}
    if beam == groups == 1 and listener is None:
        kind = Sampling if any(job.seed is not None for job in jobs) else GreedySearch
    else:
        options |= {"width": beam, "early_stopping": early_stopping, "groups": groups, "diversity": diversity}
        options["prune"] = prune

    def make(room: EngineSize) -> Engine:
        dtype = torch.promote_types(model.dtype, torch.float32)
        where: dict[str, Any] = {"ends": end_ids, "device": model.device, "dtype": dtype}
        search = kind(rows=room.rows, most=room.most, prompt=room.prompt, **where, **options)
        if isinstance(search, BeamSearch):
            search.listener = listener
        return Engine(model, search, rows=room.rows, prompt=room.prompt, source=room.source)

    if model.device.type == "cuda" and listener is None:
        return pooled_engine(model, (kind, *options.items(), *end_ids), room, make)
    return make(room)


def check_jobs(model: DecoderModel, jobs: Sequence[Job], beam: int) -> None:
    """Refuses what cannot be written, before anything is."""
    across = isinstance(model, EncoderDecoderModel)
    task = "translate" if across else "language_model"
    if model.config.task != task:
        raise InputError(f"a model for task={model.config.task!r} scores no next token; one for {task!r} does")
    if model.training:
        raise InputError("this model is in training and drops out at random: call model.eval() first")
    if beam < 1:
        raise InputError(f"beam={beam}: at least one beginning is kept")
    check_many("beam", beam)
    if beam > 1 and any(job.seed is not None for job in jobs):
        raise InputError(f"beam={beam} keeps the likeliest and draws nothing: leave out the seed, or the beam")
    for number, job in enumerate(jobs):
        if not job.prompt:
            raise InputError(f"text {number + 1} has nothing to begin with: give a prompt of at least one token")
        if across and not job.source:
            raise InputError(f"text {number + 1} has an empty source")
        if not across and job.source:
            raise InputError("this model has no encoder to read a source")
        if job.limit < 1:
            raise InputError(f"limit={job.limit}: at least one token is to be written")
        longest = len(job.prompt) + job.limit - 1
        if model.max_len is not None and longest > model.max_len:
            room = model.max_len - len(job.prompt) + 1
            raise InputError(f"after {len(job.prompt)} tokens at most {room} more fit into max_len={model.max_len}")
