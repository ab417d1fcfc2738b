"""Progress of long calls: each takes `progress`, a function that is called with how much is done, and of how much.

    patch_sweep(model, clean, corrupted, metric, progress=lambda done, total: print(f"{done / total:.0%}"))

The unit is up to each call; done / total never falls, and ends at 1. An error raised by the function, or Ctrl-C, ends
the call and leaves the model as it was, without watches and edits.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TypeVar

from cutaway.arguments import Progress, no_progress

__all__ = ["Progress", "counted_progress", "no_progress", "stages"]
T = TypeVar("T")


def counted_progress(items: Sequence[T], progress: Progress) -> Iterator[T]:
    """Goes through the items, and reports each one when it is done."""
    for number, item in enumerate(items, 1):
        yield item
        progress(number, len(items))


def stages(progress: Progress, *sizes: int) -> list[Progress]:
    """The progress of several calls that follow each other, each with its share of the work."""
    ends = list(accumulate(sizes))
    return [_stage(progress, end - size, size, ends[-1]) for end, size in zip(ends, sizes, strict=True)]


def _stage(progress: Progress, before: int, size: int, total: int) -> Progress:
    return lambda done, of: progress(before * of + size * done, total * of)
