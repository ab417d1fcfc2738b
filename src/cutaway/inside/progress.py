"""How far a long call is: every one of them takes `report`, a function of how much is done, and of how much.

    sweep(model, clean, corrupted, metric, report=lambda done, total: print(f"{done / total:.0%}"))

What is counted is the call's own affair; done / total never falls, and ends at 1. Whoever raises an error in it, or
presses Ctrl-C, ends the call, and leaves the model as it was: unwatched and unedited.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TypeVar

from cutaway.arguments import Progress as Told

__all__ = ["Told", "counted_progress", "silent", "stages"]
T = TypeVar("T")


def silent(done: int, total: int) -> None:
    """Nobody wants to know."""


def counted_progress(items: Sequence[T], report: Told) -> Iterator[T]:
    """Goes through the items, and reports each one when it is done."""
    for number, item in enumerate(items, 1):
        yield item
        report(number, len(items))


def stages(report: Told, *sizes: int) -> list[Told]:
    """For calls inside a call, one after the other, each with its share of the work."""
    ends = list(accumulate(sizes))
    return [_stage(report, end - size, size, ends[-1]) for end, size in zip(ends, sizes, strict=True)]


def _stage(report: Told, before: int, size: int, of: int) -> Told:
    return lambda done, total: report(before * total + size * done, of * total)
