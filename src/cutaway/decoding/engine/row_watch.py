"""What one job of a batch shows while it runs: the values of taps, and the likeliest next tokens.

    ticket = scheduler.submit(model, job, watch=Watch(taps=["decoder.5.cross.pattern"], top=3))
    best = ticket.result()[0]
    ticket.seen.values(best.ids)["decoder.5.cross.pattern"]     # a tensor for each token: head source
    ticket.seen.scores(best.ids)                                # log p of each token, and of the 3 likeliest

A step computes the values of all rows at once. A job's are taken out between the model and the search: then its
hypotheses still are those that the model has read. Nothing is computed twice, and no other row changes.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import partial

import torch
from torch import Tensor

from cutaway.decoding.engine.engine import Engine
from cutaway.decoding.search.beam import BeamSearch, Considered
from cutaway.decoding.search.search import Job
from cutaway.decoding.search.topk import top
from cutaway.errors import InputError
from cutaway.model.beam_cache import Tree
from cutaway.model.model import DecoderModel
from cutaway.model.tap import StepWatch

MEMORY = 1 << 30  # bytes of what is watched of a request's jobs at most
MOST_KEPT = 256  # sets of taps whose places in the model are remembered


@dataclass(frozen=True, kw_only=True)
class Watch:
    """What is kept of a job: the values of the taps that match, the `top` likeliest tokens at each step, and whatever
    the `beam` weighed (`BeamTrace` makes a tree of it)."""

    taps: Sequence[str] = ()
    top: int = 0
    beam: bool = False


@dataclass(frozen=True)
class TokenScore:
    """A token of a text with its log p, and the likeliest tokens at its place with theirs, the likeliest first."""

    token: int
    log_p: float
    top: list[tuple[int, float]]


@dataclass
class _Step:
    """What the hypotheses of a row showed when they read their last token."""

    texts: Tensor | None  # hypothesis × tokens so far; None where there is one hypothesis
    values: dict[str, list[Tensor]] = field(default_factory=dict)  # one for each hypothesis
    top: tuple[Tensor, Tensor] | None = None  # log p and ids, hypothesis × k
    chosen: tuple[int, float] | None = None  # where there is one hypothesis

    def place(self, ids: Sequence[int]) -> int:
        """The hypothesis with these tokens."""
        if self.texts is None:
            return 0
        return int((self.texts == torch.tensor(ids, dtype=self.texts.dtype)).all(dim=1).nonzero()[0, 0])


@dataclass
class SeenInSteps:
    """What was seen of one job. `reading` are values from reading the prompt and the source, without the batch axis."""

    reading: dict[str, Tensor] = field(default_factory=dict)
    steps: list[_Step] = field(default_factory=list)
    considered: list[Considered] = field(default_factory=list)

    def values(self, ids: Sequence[int]) -> dict[str, list[Tensor]]:
        """The values of each tap, one for each of these tokens, those of one of the job's hypotheses.

        A pattern is (head key), a residual stream (d_model): the value at the position before the token.
        """
        found: dict[str, list[Tensor]] = {}
        for n, step in enumerate(self.steps[: len(ids)]):
            place = step.place(ids[:n])
            for name, values in step.values.items():
                found.setdefault(name, []).append(values[place])
        return found

    def scores(self, ids: Sequence[int], start: int = 0) -> list[TokenScore]:
        """log p of each of these tokens from `start` on, the model's own, whatever the rules."""
        found = []
        for n, (step, token) in enumerate(zip(self.steps[start:], ids[start:], strict=False), start):
            assert step.top is not None, "watch with top=1 or more"
            log_p, tokens = (kept[step.place(ids[:n])].tolist() for kept in step.top)
            likeliest = list(zip(tokens, log_p, strict=True))
            own = dict(likeliest).get(token) if step.chosen is None else step.chosen[1]
            found.append(TokenScore(token, float("-inf") if own is None else own, likeliest))
        return found


class RowWatch:
    """Takes out of an engine's steps what some of its jobs show. The taps of all of them are watched together."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._made: dict[tuple[str, ...], StepWatch] = {}

    @contextmanager
    def reading(self, watch: Watch, seen: SeenInSteps) -> Iterator[None]:
        """Inside, a job enters the engine alone."""
        if not watch.taps:
            yield
            return
        with self._installed((watch,)) as values:
            yield
        source = self.engine.sources[-1]
        seen.reading = {
            name: (value[0, ..., :source] if _over_source(name) else value[0]).detach().cpu().clone()
            for name, value in values.items()
        }

    @contextmanager
    def step(self, watched: Mapping[int, tuple[Watch, SeenInSteps]]) -> Iterator[None]:
        """Inside, the engine takes a step; `watched` are the jobs that somebody watches, by their rows."""
        engine = self.engine
        log_p: dict[int, Tensor] = {}
        with self._installed([watch for watch, _ in watched.values()]) as values:

            def observe(logits: Tensor) -> None:
                for row, (watch, seen) in watched.items():
                    step = _Step(self._texts(row))
                    for name, value in values.items():
                        if any(name in self._names(pattern) for pattern in watch.taps):
                            step.values[name] = self._of_row(name, value, row)
                    if watch.top:
                        log_p[row] = logits[row].log_softmax(dim=-1, dtype=engine.search.scores.dtype)
                        best, ids = top(log_p[row], self._enough(watch.top, logits.shape[-1]))
                        step.top = best.cpu(), ids.cpu()
                    seen.steps.append(step)

            engine.observer = observe
            if isinstance(engine.search, BeamSearch):
                engine.search.listener = partial(_keep_considered, watched)
            try:
                yield
            finally:
                engine.observer = None
                if isinstance(engine.search, BeamSearch):
                    engine.search.listener = None
        for row, scores in log_p.items():
            self._note_choice(row, watched[row][1], scores)

    def _note_choice(self, row: int, seen: SeenInSteps, log_p: Tensor) -> None:
        """Of a sampled text the token need not be among the likeliest."""
        search = self.engine.search
        if search.width == 1:
            token = int(search.tokens[row, 0, int(search.written[row]) - 1])
            seen.steps[-1].chosen = token, float(log_p[0, token])

    def _enough(self, k: int, vocab_size: int) -> int:
        """A beam goes on with some of its hypotheses' likeliest tokens: these are kept, so that each has its log p."""
        return min(vocab_size, max(k, getattr(self.engine.search, "n_candidates", 1)))

    def _texts(self, row: int) -> Tensor | None:
        search = self.engine.search
        return search.tokens[row, :, : int(search.written[row])].cpu().clone() if search.width > 1 else None

    def _of_row(self, name: str, value: Tensor, row: int) -> list[Tensor]:
        """A row's part of a value, one for each hypothesis; keys are those that it may look at, in their order."""
        part, tap = value[row].detach().cpu(), name.rsplit(".", 1)[-1]
        if part.ndim < 2:
            return [part.clone()] * self.engine.search.width
        if ".cross." in name and tap in ("key", "value"):  # of the source, the same for all
            return [part[..., : self.engine.sources[row], :].clone()] * self.engine.search.width
        each = list(part.movedim(-2, 0))
        if tap in ("pattern", "scores"):
            if _over_source(name):
                return [one[..., : self.engine.sources[row]].clone() for one in each]
            return [one[..., self._slots(row, number)].clone() for number, one in enumerate(each)]
        return [one.clone() for one in each]

    def _slots(self, row: int, hypothesis: int) -> Tensor:
        """The slots of a hypothesis's own tokens, in their order."""
        cache = self.engine.cache
        if not isinstance(cache, Tree):
            return torch.arange(int(cache.lengths[row]))
        slots = cache.ancestors[row, hypothesis].nonzero()[:, 0]
        return slots[cache.positions[row, slots].argsort()].cpu()

    @contextmanager
    def _installed(self, watches: Sequence[Watch]) -> Iterator[Mapping[str, Tensor]]:
        """The values of all taps of these watches; without any, the model runs as if nobody watched."""
        patterns = tuple(dict.fromkeys(pattern for watch in watches for pattern in watch.taps))
        if not patterns:
            yield {}
            return
        with self._made_for(patterns).installed() as values:
            yield values

    def _names(self, pattern: str) -> Collection[str]:
        """The taps that a pattern matches."""
        return self._made_for((pattern,)).names

    def _made_for(self, patterns: tuple[str, ...]) -> StepWatch:
        if patterns not in self._made:
            if len(self._made) >= MOST_KEPT:
                self._made.clear()
            self._made[patterns] = StepWatch(self.engine.model, patterns)
        return self._made[patterns]


def _over_source(name: str) -> bool:
    """Whether the last axis of a tap's values are the tokens of the source, for which a cache has more room."""
    return name.endswith((".cross.pattern", ".cross.scores"))


def _keep_considered(watched: Mapping[int, tuple[Watch, SeenInSteps]], step: Considered) -> None:
    """Of a group's step the rows of those who asked for the beam."""
    for row, (watch, seen) in watched.items():
        if watch.beam:
            tensors = {one.name: getattr(step, one.name) for one in fields(step) if one.name != "group"}
            own = {name: tensor[row : row + 1].cpu().clone() for name, tensor in tensors.items()}
            seen.considered.append(Considered(step.group, **own))


def check_watch(model: DecoderModel, watch: Watch, jobs: Sequence[Job] = (), beam: int = 1) -> None:
    """Refuses taps that the model does not have, and values that would take too much memory."""
    if watch.top < 0:
        raise InputError(f"top={watch.top} must be at least 0")
    names = StepWatch(model, watch.taps).names
    _, n_heads, d_head = model.cache_shape
    needed = 0
    for job in jobs:
        keys = max(len(job.source), len(job.prompt) + job.limit)
        each = sum(keys * n_heads if name.endswith(("pattern", "scores")) else n_heads * d_head for name in names)
        needed += 4 * beam * job.limit * each
    if needed > MEMORY:
        raise InputError(
            f"what is watched would take up to {needed:,} bytes, and at most {MEMORY:,} are kept: watch fewer layers, "
            "or shorter texts"
        )
