"""The engine beneath all decoding: rows in which texts are written side by side, one step at a time.

    engine = Engine(model, GreedySearch(...), rows=32)
    for number, hypotheses in engine.run(jobs): ...

A text enters a free row: its source is encoded, or its prompt read, up to the last token. Then every step reads one
token of each hypothesis and writes the next. A text that is done leaves at once, the last row takes its place, and one
that waits may enter (Yu et al. 2022, Orca: continuous batching). No text's words depend on its neighbours.
"""

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from cutaway.decoding.search import Hypothesis, Search
from cutaway.decoding.search import Job as Job
from cutaway.model.cache import Cache, Tree
from cutaway.model.model import DecoderModel, EncoderDecoderModel
from cutaway.model.tap import watching

BLOCK = {"cuda": 32, "cpu": 4}  # slots are looked at in blocks: less to read while texts are short
NOTHING_VIEWED = (0, 0, 0, False)
SPARE = 4  # steps whose beams may be looked at in vain before a row forgets those that were given up


class Engine:
    """Rows for texts of at most `prompt` and `search.most` tokens; of sources of at most `source`."""

    def __init__(self, model: DecoderModel, search: Search, *, rows: int, prompt: int = 1, source: int = 0) -> None:
        self.model, self.search, self.most_rows = model, search, rows
        slots = prompt - 1 + search.width * search.most
        cache = model.new_cache(rows, prompt - 1 + search.most, slots=slots)
        if isinstance(model, EncoderDecoderModel):
            cache = model.with_memory(cache, source)
        self.plain: Cache = cache
        self.cache: Cache = Tree.of(cache, search.width) if search.width > 1 else cache
        self.ids = torch.zeros(rows, search.width, dtype=torch.long, device=model.device)
        self.jobs: list[int] = []  # the number of the job in each row
        self.filled: list[int] = []  # the slots that each row has taken
        self.sources: list[int] = []  # the length of each row's source
        self.bounds: list[int] = []  # the slots from which on each row forgets what its beams gave up
        self._viewed, self._last_view = NOTHING_VIEWED, cache

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[int, list[Hypothesis]]]:
        """The hypotheses of each job, by its number, as they are done."""
        for done in self.steps(jobs):
            yield from done

    def steps(self, jobs: Iterable[Job]) -> Iterator[list[tuple[int, list[Hypothesis]]]]:
        """The same, one step of all rows at a time: what was done after each, often nothing."""
        waiting = iter(enumerate(jobs))
        for kept in self._kept():
            kept.clear()  # of a run that was given up
        while True:
            self._admit(waiting)
            if not self.jobs:
                return
            self.step()
            self.search.tell(len(self.jobs))
            yield list(self._leave())

    @torch.no_grad()
    def _admit(self, waiting: Iterator[tuple[int, Job]]) -> None:
        """Texts enter when a quarter of the rows is free: together they cost little more than one."""
        free = self.most_rows - len(self.jobs)
        if self.jobs and free < max(1, self.most_rows // 4):
            return
        entering = [next_one for _, next_one in zip(range(free), waiting, strict=False)]
        if not entering:
            return
        rows = slice(len(self.jobs), len(self.jobs) + len(entering))
        jobs = [job for _, job in entering]
        for number, job in entering:
            self.jobs.append(number)
            self.filled.append(len(job.prompt) - 1)
            self.sources.append(len(job.source))
            self.bounds.append(self._bound(len(job.prompt) - 1))
        self._read(rows, jobs)
        self.search.enter(rows, jobs)

    def _read(self, rows: slice, jobs: Sequence[Job]) -> None:
        """Encodes the sources, and reads the prompts up to their last token, which the next step reads."""
        self._viewed = NOTHING_VIEWED
        own = self.plain.rows(rows.start, rows.stop)
        own.clear()
        if isinstance(self.model, EncoderDecoderModel):
            source, real = padded([job.source for job in jobs], self.model.device)
            self.model.remember(own, self.model.encode(source, real), real)
        if max(len(job.prompt) for job in jobs) > 1:
            prompts, real = padded([job.prompt[:-1] for job in jobs], self.model.device)
            self._hidden(prompts, own.first(prompts.shape[1]), real)
        if isinstance(self.cache, Tree):
            self.cache.rows(rows.start, rows.stop).begin()
        last = torch.tensor([job.prompt[-1] for job in jobs], device=self.ids.device)
        self.ids[rows] = last[:, None]

    def _hidden(self, ids: Tensor, cache: Cache, real: Tensor | None = None) -> Tensor:
        if isinstance(self.model, EncoderDecoderModel):
            return self.model.decode(ids, real=real, cache=cache)
        return self.model.hidden(ids, real=real, cache=cache)

    def step(self) -> None:
        """One more token of every hypothesis."""
        n = len(self.jobs)
        with torch.no_grad() if watching() else torch.inference_mode():  # what a person watches may be learnt from
            view = self._view(n)
            logits = self.model.head(self._hidden(self.ids[:n], view))
            parents, self.ids[:n] = self.search.advance(logits)
            if isinstance(view, Tree):
                view.follow(parents)
            self.filled = [filled + self.search.width for filled in self.filled]
            self._forget()

    def _forget(self) -> None:
        """Rows forget the beams that were given up, each by its own count, so that no neighbour has a say in it."""
        if not isinstance(self.cache, Tree) or self.cache.keys[0].is_cuda:  # a GPU would have to wait for the count
            return
        due = [row for row, (filled, bound) in enumerate(zip(self.filled, self.bounds, strict=True)) if filled >= bound]
        if due:
            for row, left in zip(due, self.cache.collect(torch.tensor(due)), strict=True):
                self.filled[row], self.bounds[row] = left, self._bound(left)

    def _bound(self, filled: int) -> int:
        """Twice as much as is needed, and some more: a row is tidied up seldom, and never looks at much in vain."""
        return 2 * filled + SPARE * self.search.width

    def _kept(self) -> tuple[list[int], ...]:
        return self.jobs, self.filled, self.sources, self.bounds

    def _view(self, n: int) -> Cache:
        """The rows and places that are taken. It is the same for some steps, and a fiftieth of a step to make."""
        block = BLOCK[self.ids.device.type]
        slots = min(self.cache.max_len, -(-(max(self.filled) + self.search.width) // block) * block)
        source, full = max(self.sources), min(self.sources) == max(self.sources)
        if (n, slots, source, full) != self._viewed:
            self._viewed = (n, slots, source, full)
            self._last_view = self.cache.rows(0, n).first(slots).across(source, full=full)
        return self._last_view

    def _leave(self) -> Iterator[tuple[int, list[Hypothesis]]]:
        done = self.search.done[: len(self.jobs)].nonzero()[:, 0].tolist()
        for row in reversed(done):
            yield self.jobs[row], self.search.leaving(row)
            last, self._viewed = len(self.jobs) - 1, NOTHING_VIEWED
            if row != last:
                self.cache.move(last, row)
                self.search.move(last, row)
                self.ids[row] = self.ids[last]
            for kept in self._kept():
                kept[row] = kept[last]
                kept.pop()


def padded(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Rows side by side, filled up on the right, and where they are real; None where nothing was filled up."""
    lengths = torch.tensor([len(row) for row in rows])
    real = torch.arange(int(lengths.max()))[None] < lengths[:, None]
    ids = torch.zeros(real.shape, dtype=torch.long)
    ids[real] = torch.tensor([id for row in rows for id in row])
    return ids.to(device), None if real.all() else real.to(device)
