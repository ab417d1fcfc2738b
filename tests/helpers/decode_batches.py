"""Decoding for tests: a batch of padded ids in, hypotheses out."""

from collections.abc import Sequence

from torch import Tensor

from cutaway.decoding import Hypothesis, Job, run_jobs
from cutaway.model.model import DecoderModel


def rows_of(ids: Tensor, real: Tensor | None) -> list[list[int]]:
    return [
        (row if real is None else row[its]).tolist()
        for row, its in zip(ids, real if real is not None else ids, strict=True)
    ]


def beams(
    model: DecoderModel,
    source: Tensor,
    *,
    n: int | Sequence[int],
    real: Tensor | None = None,
    start: int = 1,
    **options: object,
) -> list[list[Hypothesis]]:
    """All that a beam search finds for each source."""
    limits = [n] * len(source) if isinstance(n, int) else n
    jobs = [
        Job(prompt=[start], source=row, limit=limit) for row, limit in zip(rows_of(source, real), limits, strict=True)
    ]
    return run_jobs(model, jobs, **{"beam": 4, **options})


def translations(model: DecoderModel, source: Tensor, **options: object) -> list[list[int]]:
    return [found[0].ids for found in beams(model, source, **options)]  # type: ignore[arg-type]


def continuations(
    model: DecoderModel, ids: Tensor, *, n: int, real: Tensor | None = None, **options: object
) -> list[list[int]]:
    jobs = [Job(prompt=row, limit=n) for row in rows_of(ids, real)]
    return [found[0].ids for found in run_jobs(model, jobs, **{"beam": 4, **options})]
