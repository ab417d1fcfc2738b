"""The feed: makes the batches of the coming steps while the device works on the present one.

What a step sees depends on the seed and on the step, so any number of workers give the same batches.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cutaway.data.batches import Source
from cutaway.data.order import generator
from cutaway.objectives.objective import Arrays, Objective, Tensors, n_targets

PREPARE, AUGMENT = 100, 101  # what random numbers are for; the order of batches uses small numbers
SCALE = "scale"  # weight / targets of each term: what turns its sum into its share of the loss


@dataclass(frozen=True)
class StepBatch:
    """A step's batch in parts, the real targets of all of them together, and how many places it fills."""

    step: int
    parts: list[Tensors]
    counts: dict[str, int]
    tokens: int
    examples: list[int]


class Feed:
    """Batches for the steps of a run; each rank takes its share of the parts."""

    def __init__(
        self,
        source: Source,
        objective: Objective,
        *,
        seed: int,
        accumulate: int = 1,
        device: torch.device | str = "cpu",
        workers: int = 1,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.source, self.objective, self.seed = source, objective, seed
        self.n_parts, self.rank, self.world = accumulate * world, rank, world
        self.device, self.workers = torch.device(device), workers

    def make(self, step: int) -> StepBatch:
        """A step's batch, from nothing but its number."""
        raw = self.source(step)
        arrays = self.objective.prepare(raw, generator(self.seed, PREPARE, step))
        counts = self.objective.counts(arrays)
        scale = [self.objective.weight(term) / max(n, 1) for term, n in counts.items()]
        parts = [
            {name: self._tensor(values) for name, values in part.items()}
            | {SCALE: self._tensor(np.array(scale, dtype=np.float32))}
            for part in split_batch(arrays, self.n_parts)[self.rank :: self.world]
        ]
        return StepBatch(step, parts, counts, tokens_in(arrays), self._examples(step, raw))

    def _examples(self, step: int, raw: Arrays) -> list[int]:
        """The numbers of a step's examples; of running text, the token at which each window begins."""
        if "example" in raw:
            return raw["example"].tolist()
        starts = getattr(getattr(self.source, "windows", self.source), "starts", None)
        return [] if starts is None else starts(step).tolist()

    def _tensor(self, values: Any) -> Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(values))
        return tensor.pin_memory() if self.device.type == "cuda" else tensor

    def on_device(self, batch: StepBatch) -> StepBatch:
        """The parts on the device, pictures varied; nobody waits for the copy."""
        parts = [
            {name: tensor.to(self.device, non_blocking=True) for name, tensor in part.items()} for part in batch.parts
        ]
        augment = getattr(self.objective, "augment", None)
        if augment is not None:
            random = torch.Generator(self.device)
            for i, part in enumerate(parts):
                number = i * self.world + self.rank  # of the part in the whole step: one process would draw the same
                random.manual_seed(int(generator(self.seed, AUGMENT, batch.step, 0, number).integers(1 << 62)))
                parts[i] = {**augment(part, random), SCALE: part[SCALE]}
        return StepBatch(batch.step, parts, batch.counts, batch.tokens, batch.examples)

    @contextmanager
    def ahead(self, start: int, stop: int) -> Iterator[Iterator[StepBatch]]:
        """The batches of the steps start … stop − 1, made a few steps ahead."""
        with ThreadPoolExecutor(self.workers, thread_name_prefix="feed") as pool:
            waiting: list[Future[StepBatch]] = []

            def batches() -> Iterator[StepBatch]:
                following = start
                for _ in range(start, stop):
                    while following < stop and len(waiting) < self.workers + 2:
                        waiting.append(pool.submit(self.make, following))
                        following += 1
                    yield self.on_device(waiting.pop(0).result())

            try:
                yield batches()
            finally:
                for future in waiting:
                    future.cancel()


def split_batch(arrays: Arrays, n: int) -> list[Arrays]:
    """A batch in n parts of as many rows; where they do not divide, the first parts have one more."""
    if n == 1:
        return [arrays]
    pieces = {name: np.array_split(values, n) for name, values in arrays.items()}
    return [{name: piece[i] for name, piece in pieces.items()} for i in range(n) if len(next(iter(pieces.values()))[i])]


def tokens_in(arrays: Arrays) -> int:
    """Real tokens that a model reads, source and target together; of pictures, the pictures."""
    if "image" in arrays:
        return len(arrays["image"])
    if "source" in arrays:
        return int(arrays["source_real"].sum()) + int((arrays["targets"] >= 0).sum())
    if "real" in arrays:
        return int(arrays["real"].sum())
    if "documents" in arrays:  # packed rows have no padding; only the borders ask for nothing
        return int(arrays["ids"].size)
    return n_targets(arrays["targets"])  # every token that is read is asked for the next
