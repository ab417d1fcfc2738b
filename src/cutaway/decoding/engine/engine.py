"""The engine of all decoding: generates many texts at the same time, one token of each per step.

    engine = Engine(model, GreedySearch(...), rows=32)
    for number, hypotheses in engine.run(jobs): ...

Whoever has jobs at any time calls what `run` is made of, as `scheduler` does: `enter`, `step`, `leave`, and `drop`.

A text enters a free row: its source is encoded, or its prompt is read, up to the last token. Then every step reads one
token of each hypothesis and appends the next. A text that is done leaves at once, the last row takes its place, and a
waiting text may enter (continuous batching: Yu et al. 2022, Orca). No text depends on the others in the batch.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cutaway.decoding.search.beam import BeamSearch
from cutaway.decoding.search.search import Hypothesis, NoNumbers, Search, gaps, move_up
from cutaway.decoding.search.search import Job as Job
from cutaway.errors import CutawayError
from cutaway.model.beam_cache import Tree
from cutaway.model.cache import Cache
from cutaway.model.device import threads_for
from cutaway.model.kernels.live_rows import Packing
from cutaway.model.model import DecoderModel, EncoderDecoderModel
from cutaway.model.tap import decoding, watching

if TYPE_CHECKING:
    from cutaway.decoding.engine.cuda_graphs import RecordedSteps

Outcome = list[Hypothesis] | CutawayError  # what became of a text: the best first
BLOCK = {"cuda": 32, "cpu": 4}  # slots are read in blocks: fewer while texts are short
NOTHING_VIEWED = (0, 0, 0, False)
PLACES = 512  # tokens that a CPU reads at a time: with more, the states between two layers do not fit into its cache
SPARE = 4  # steps before a row frees the slots of dropped beams


class Engine:
    """Rows for prompts of at most `prompt` tokens, `search.most` new ones, and sources of at most `source` tokens."""

    def __init__(self, model: DecoderModel, search: Search, *, rows: int, prompt: int = 1, source: int = 0) -> None:
        self.model, self.search = model, search
        self.most_rows, self.most_prompt, self.most_source = rows, prompt, source
        slots = prompt - 1 + search.width * search.most
        longest = prompt - 1 + search.most  # longer than any text, if the longest comes after another prompt
        cache = model.new_cache(rows, min(longest, model.max_len or longest), slots=slots)
        if isinstance(model, EncoderDecoderModel):
            cache = model.with_memory(cache, source)
        self.plain: Cache = cache
        self.cache: Cache = Tree.of(cache, search.width) if search.width > 1 else cache
        self.ids = torch.zeros(rows, search.width, dtype=torch.long, device=model.device)
        self.jobs: list[int] = []  # the number of each row's job
        self.filled: list[int] = []  # the number of slots that each row uses
        self.sources: list[int] = []  # the length of each row's source
        self.bounds: list[int] = []  # the number of slots at which each row frees those of dropped beams
        self._viewed, self._last_view = NOTHING_VIEWED, cache
        self.busy = False
        self.observer: Callable[[Tensor], None] | None = None  # called in a step with the scores of its next tokens
        self._at_once = PLACES if self.ids.device.type == "cpu" else None
        self.recorded = self._recorded_steps() if self.ids.is_cuda else None

    def _recorded_steps(self) -> "RecordedSteps":
        from cutaway.decoding.engine.cuda_graphs import RecordedSteps

        return RecordedSteps(self.search, self.most_rows, self._again)

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Pairs of a job's number and its hypotheses, each as soon as it is done."""
        for done in self.steps(jobs):
            yield from done

    def steps(self, jobs: Iterable[Job]) -> Iterator[list[tuple[int, list[Hypothesis]]]]:
        """The same, as a list after each step of all rows, which is often empty."""
        waiting = iter(enumerate(jobs))
        self.busy = True
        try:
            while True:
                if not self.jobs or self.free >= self.few:
                    self.enter([next_one for _, next_one in zip(range(self.free), waiting, strict=False)])
                if not self.jobs:
                    return
                self.step()
                yield [(number, hypotheses_of(found)) for number, found in self.leave()]
        finally:  # the caller may stop in between
            self.search.done.fill_(True)
            self.busy = False
            for kept in self._kept():
                kept.clear()

    @property
    def free(self) -> int:
        """The number of free rows."""
        return self.most_rows - len(self.jobs)

    @property
    def few(self) -> int:
        """A quarter of the rows: so many texts enter together, since reading many costs little more than one."""
        return max(1, self.most_rows // 4)

    @torch.no_grad()
    def enter(self, entering: Sequence[tuple[int, Job]]) -> None:
        """Texts enter free rows; each job has a number, by which `leave` and `drop` know it."""
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

    def leave(self) -> list[tuple[int, Outcome]]:
        """After a step, the texts that are done leave: their numbers with their hypotheses, or with the error."""
        self.search.tell(len(self.jobs))
        if not (done := self._done()):
            return []
        left = [
            (self.jobs[row], self._no_numbers() if isinstance(found, NoNumbers) else found)
            for row, found in zip(done, self.search.leaving(done), strict=True)
        ]
        self._free(done)
        return left

    def drop(self, numbers: Collection[int]) -> None:
        """Gives up these texts; their rows are free."""
        if rows := [row for row, number in enumerate(self.jobs) if number in numbers]:
            self.search.done[rows] = True
            self._free(rows)

    def _read(self, rows: slice, jobs: Sequence[Job]) -> None:
        """Encodes the sources and reads the prompts, except for the last token, which the next step reads."""
        self._rows_changed()
        texts, room = [], []
        if isinstance(self.model, EncoderDecoderModel):
            texts, room = [[job.source for job in jobs]], [self.most_source]
        if max(len(job.prompt) for job in jobs) > 1:
            texts.append([job.prompt[:-1] for job in jobs])
            room.append(self.most_prompt - 1)
        if self.recorded is not None and not self._observed:
            rounded = [side_by_side(its, self.recorded.block, most) for its, most in zip(texts, room, strict=True)]
            if self.recorded.reads(rows, rounded):
                with torch.inference_mode():
                    self.recorded.read(rows, rounded, self._take_in)
                return self._begin(rows, jobs)
        for part in portions(
            [max(map(len, its)) for its in zip(*texts, strict=True)] or [0] * len(jobs), self._at_once
        ):
            its = [padded_ids(side[part], self.model.device) for side in texts]
            with threads_for(sum(ids.numel() for ids, _ in its)):
                self._take_in(slice(rows.start + part.start, rows.start + part.stop), its)
        self._begin(rows, jobs)

    def _take_in(self, rows: slice, given: Sequence[tuple[Tensor, Tensor | None]]) -> None:
        own, given = self.plain.rows(rows.start, rows.stop), list(given)
        own.clear()
        if isinstance(self.model, EncoderDecoderModel):
            source, real = given.pop(0)
            self.model.remember(own, self.model.encode(source, real), real)
        for prompts, real in given:
            with decoding(self.model, hypotheses=False):
                self._hidden(prompts, own.first(prompts.shape[1]), real)
        if isinstance(self.cache, Tree):
            self.cache.rows(rows.start, rows.stop).begin()

    def _begin(self, rows: slice, jobs: Sequence[Job]) -> None:
        last = torch.tensor([job.prompt[-1] for job in jobs], device=self.ids.device)
        self.ids[rows] = last[:, None]

    def _logits(self, ids: Tensor, cache: Cache) -> Tensor:
        with decoding(self.model, hypotheses=isinstance(cache, Tree)):
            return self.model.head(self._hidden(ids, cache))

    def _hidden(self, ids: Tensor, cache: Cache, real: Tensor | None = None) -> Tensor:
        if isinstance(self.model, EncoderDecoderModel):
            return self.model.decode(ids, real=real, cache=cache)
        return self.model.hidden(ids, real=real, cache=cache)

    @property
    def _observed(self) -> bool:
        """Whether somebody looks: then every row is computed, step by step."""
        return self.observer is not None or watching()

    def step(self) -> None:
        """One more token of every hypothesis."""
        n = len(self.jobs)
        mode = torch.no_grad() if watching() else torch.inference_mode()  # what is watched may need gradients
        with mode, threads_for(n * self.search.width):
            if self.recorded is not None and not self._observed and self.recorded.fits(n):
                self.recorded.step(n, max(self.sources))
                taken = [self.search.width] * n
            elif packing := self._packing(n):
                self._packed_step(n, self._view(n), packing)
                taken = packing.counts.tolist()
            else:
                self._step(n, self._view(n))
                taken = [self.search.width] * n
            self.filled = [filled + new for filled, new in zip(self.filled, taken, strict=True)]
            self._forget()

    def _packing(self, n: int) -> Packing | None:
        """Which hypotheses are alive, if a CPU can skip the others; while somebody watches, every row is computed."""
        living = None if self.ids.is_cuda or self._observed else self.search.living(n)
        return None if living is None else Packing.of(living)

    def _packed_step(self, n: int, view: Cache, packing: Packing) -> None:
        """The same step for the hypotheses that are alive."""
        assert isinstance(view, Tree)
        assert isinstance(self.search, BeamSearch)
        logits = self._logits(packing.gather(self.ids[:n])[None], view.pack(packing))
        parents, self.ids[:n] = self.search.advance(logits, packing)
        view.reorder(parents)

    def _step(self, n: int, view: Cache) -> None:
        logits = self._logits(self.ids[:n], view)
        if self.observer is not None:
            self.observer(logits)
        parents, self.ids[:n] = self.search.advance(logits)
        if isinstance(view, Tree):
            view.reorder(parents)
        if self.recorded is not None:  # a text that is done but has not left yet does not change
            done = self.search.done[:n].long()
            view.lengths.sub_(done, alpha=self.search.width)
            view.seen.sub_(done)

    def _again(self, rows: int, source: int) -> None:
        """A step of `rows` with all slots: a recorded graph must not depend on the current length of the texts."""
        self._step(rows, self.cache.rows(0, rows).first_of_memory(source))

    def _forget(self) -> None:
        """Frees the slots of dropped beams, row by row, so that no row depends on the others."""
        if not isinstance(self.cache, Tree) or self.cache.keys[0].is_cuda:  # a GPU would have to wait for the count
            return
        due = [row for row, (filled, bound) in enumerate(zip(self.filled, self.bounds, strict=True)) if filled >= bound]
        if due:
            for row, left in zip(due, self.cache.collect(torch.tensor(due)), strict=True):
                self.filled[row], self.bounds[row] = left, self._bound(left)

    def _bound(self, filled: int) -> int:
        """Twice what is needed and some more: slots are freed rarely, and few are read in vain."""
        return 2 * filled + SPARE * self.search.width

    def _kept(self) -> tuple[list[int], ...]:
        return self.jobs, self.filled, self.sources, self.bounds

    def _view(self, n: int) -> Cache:
        """The part of the cache in use. It is kept while it stays the same, since making it takes 2 % of a step."""
        block = BLOCK[self.ids.device.type]
        slots = min(self.cache.max_len, -(-(max(self.filled) + self.search.width) // block) * block)
        source, full = max(self.sources), min(self.sources) == max(self.sources)
        if (n, slots, source, full) != self._viewed:
            self._viewed = (n, slots, source, full)
            self._last_view = self.cache.rows(0, n).first(slots).first_of_memory(source, full=full)
        return self._last_view

    def _no_numbers(self) -> CutawayError:
        from cutaway.model.finite import scores_error

        return scores_error(self.model)

    def _free(self, done: Sequence[int]) -> None:
        """The last rows take the places of these."""
        self._rows_changed()
        rows, to = gaps(len(self.jobs), done)
        if rows:
            slots, source = ([kept[row] for row in rows] for kept in (self.filled, self.sources))
            self.cache.move(rows, to, slots=slots, source=source)
            self.search.move(rows, to)
            self.ids[to] = self.ids[rows]
        for kept in self._kept():
            move_up(kept, rows, to)
            del kept[len(kept) - len(done) :]

    def _rows_changed(self) -> None:
        """Discards what depends on the rows: texts have entered, left or been dropped."""
        self._viewed = NOTHING_VIEWED
        if self.recorded is not None:
            self.recorded.forget()

    def _done(self) -> list[int]:
        """The rows whose texts are done; on a GPU known one step later, unless there are listeners."""
        n = len(self.jobs)
        if self.recorded is not None and not any(self.search.listeners[:n]):
            return self.recorded.done(n)
        return self.search.done[:n].nonzero()[:, 0].tolist()


def hypotheses_of(found: Outcome) -> list[Hypothesis]:
    """The hypotheses of a text, or its error is raised."""
    if isinstance(found, CutawayError):
        raise found
    return found


def portions(lengths: Sequence[int], most: int | None) -> Iterator[slice]:
    """Slices of rows that have at most `most` tokens together when padded; at least one row each."""
    start, longest = 0, 0
    for row, length in enumerate(lengths):
        longest = max(longest, length)
        if most is not None and row > start and (row + 1 - start) * longest > most:
            yield slice(start, row)
            start, longest = row, length
    yield slice(start, len(lengths))


def padded_ids(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Rows padded on the right, and the mask of real tokens; None if nothing is padding."""
    ids, real = side_by_side(rows)
    return ids.to(device), None if real.all() else real.to(device)


def side_by_side(rows: Sequence[Sequence[int]], block: int = 1, most: int | None = None) -> tuple[Tensor, Tensor]:
    """The same, padded to the longest row, or to the next multiple of `block` if that is at most `most`."""
    lengths = torch.tensor([len(row) for row in rows])
    places = -(-int(lengths.max()) // block) * block
    real = torch.arange(places if most is None else min(places, most))[None] < lengths[:, None]
    ids = torch.zeros(real.shape, dtype=torch.long)
    ids[real] = torch.tensor([id for row in rows for id in row])
    return ids, real
