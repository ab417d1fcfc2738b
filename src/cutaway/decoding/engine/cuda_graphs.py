"""Steps on a GPU, recorded once as a CUDA graph and replayed, instead of launching every kernel anew.

A graph has as many rows as there are texts, rounded up to a power of two; the rows beyond them are ignored. A text that
has ended does not change until the host knows: it fetches the state of each step while the next one runs, so that the
GPU never waits.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from cutaway.decoding.rules.scores import Rule
from cutaway.decoding.search.search import Search
from cutaway.model.kernels.cuda_graphs import record

Kind = tuple[int, int, tuple[Rule, ...]]  # rows, places of the sources, the rules that all of them share
Given = tuple[Tensor, Tensor]  # ids, and which of them are real
LONGEST = 256  # tokens of prompts or sources: reading longer ones takes longer than launching the kernels
MOST = 64  # kinds that are kept: every other temperature is one
SOURCES = 16  # places of sources are counted in blocks: fewer kinds of graph


class RecordedSteps:
    """The graphs of one engine. `take(rows, source)` makes a step of so many rows, with sources of so many tokens."""

    block = SOURCES

    def __init__(self, search: Search, most_rows: int, take: Callable[[int, int], None]) -> None:
        self.search, self.most_rows, self.take, self.device = search, most_rows, take, search.done.device
        self.tried: set[Kind] = set()
        self.graphs: dict[Kind, torch.cuda.CUDAGraph] = {}
        self.given: dict[tuple[int, ...], list[Given]] = {}
        self.readings: dict[tuple[int, ...], torch.cuda.CUDAGraph] = {}
        self.heard: Callable[[], Tensor] | None = None
        self._prepare()

    def _prepare(self) -> None:
        self.pool = torch.cuda.graph_pool_handle()
        self.flags = [torch.zeros(self.most_rows, dtype=torch.bool, pin_memory=True) for _ in range(2)]

    def fits(self, n: int) -> bool:
        """Whether a step of these rows can be recorded: nothing in it needs the host."""
        rules = self.search.rules[:n]
        return (
            self.search.recordable
            and all(its == rules[0] for its in rules)
            and not any(rule.on_host for rule in rules[0])
        )

    def step(self, n: int, source: int) -> None:
        """The first step of a kind runs without recording, which loads its kernels; the second is recorded."""
        rows = min(self.most_rows, 1 << (n - 1).bit_length())
        source = -(-source // SOURCES) * SOURCES
        kind = rows, source, self.search.rules[0]
        self.search.rules[n:rows] = [self.search.rules[0]] * (rows - n)
        if kind in self.tried:
            self._replay(kind)
        else:
            if len(self.tried) == MOST:
                self.tried.clear()
                self.graphs.clear()
            self.tried.add(kind)
            self.take(rows, source)

    def _replay(self, kind: Kind) -> None:
        if kind not in self.graphs:
            self.graphs[kind] = self._record(lambda: self.take(*kind[:2]))
        self.graphs[kind].replay()

    def reads(self, rows: slice, given: Sequence[Given]) -> bool:
        """Whether texts of this number and length are likely to come again."""
        count = rows.stop - rows.start
        return rows.start == 0 and count & (count - 1) == 0 and all(ids.shape[1] <= LONGEST for ids, _ in given)

    def read(self, rows: slice, given: Sequence[Given], take_in: Callable[[slice, Sequence[Given]], None]) -> None:
        """Reads new texts, given as ids and masks: the first of a kind without recording, the second recorded."""
        kind = (rows.stop, *(ids.shape[1] for ids, _ in given))
        if kind not in self.given:
            if len(self.given) == MOST:
                self.given.clear()
                self.readings.clear()
            self.given[kind] = [(ids.to(self.device), real.to(self.device)) for ids, real in given]
            take_in(rows, self.given[kind])
            return
        for places, new in zip(self.given[kind], given, strict=True):
            for place, tensor in zip(places, new, strict=True):
                place.copy_(tensor)
        if kind not in self.readings:
            self.readings[kind] = self._record(lambda: take_in(rows, self.given[kind]))
        self.readings[kind].replay()

    def _record(self, call: Callable[[], None]) -> torch.cuda.CUDAGraph:
        return record(call, self.pool)[0]

    def done(self, n: int) -> list[int]:
        """The rows that were done after the step before the last."""
        before, self.heard = self.heard, self._hear()
        return [] if before is None else before()[:n].nonzero()[:, 0].tolist()

    def _hear(self) -> Callable[[], Tensor]:
        """Starts to fetch the state of this step; the function that it returns waits for it."""
        self.flags.reverse()  # the other one may not be read yet
        flags, event = self.flags[0], torch.cuda.Event()
        flags.copy_(self.search.done, non_blocking=True)
        event.record()

        def heard() -> Tensor:
            event.synchronize()
            return flags

        return heard

    def forget(self) -> None:
        """Discards the fetched state, because the rows have changed."""
        self.heard = None
