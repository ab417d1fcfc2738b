"""An engine that is kept for the next call: on a GPU, recording its steps takes as long as dozens of them.

A model keeps one, with room for a little more than was asked for, and its memory with it.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from math import inf

from cutaway.decoding.engine.engine import Engine
from cutaway.model.model import DecoderModel


@dataclass(frozen=True, kw_only=True)
class EngineSize:
    """How much an engine has to hold."""

    rows: int
    most: int  # new tokens of a text
    prompt: int
    source: int

    def holds(self, other: "EngineSize") -> bool:
        """Whether the other's texts fit in, as many at a time."""
        return (
            self.rows == other.rows
            and self.most >= other.most
            and self.prompt >= other.prompt
            and self.source >= other.source
        )

    def rounded(self, max_len: int | None) -> "EngineSize":
        """A little more, so that the next texts find room too."""
        most, prompt = _up(self.most, 64), _up(self.prompt, 64)
        if prompt - 1 + most > (inf if max_len is None else max_len):
            most, prompt = self.most, self.prompt
        return EngineSize(rows=self.rows, most=most, prompt=prompt, source=_up(self.source, 64))


class EnginePool:
    """Where a model keeps its engine. A copy of the model has none."""

    def __init__(self) -> None:
        self.kept: tuple[Hashable, EngineSize, Engine] | None = None

    def __deepcopy__(self, memo: object) -> "EnginePool":
        return EnginePool()

    def __reduce__(self) -> tuple[type["EnginePool"], tuple[()]]:
        return EnginePool, ()


def pooled_engine(
    model: DecoderModel, kind: Hashable, room: EngineSize, make: Callable[[EngineSize], Engine]
) -> Engine:
    """The engine of this kind that the model keeps, if it has room and is free; otherwise a new one, which is kept."""
    weights = tuple(tensor.data_ptr() for tensor in (*model.parameters(), *model.buffers()))
    shelf = vars(model).setdefault("_shelf", EnginePool())
    if shelf.kept is not None:
        known, its, engine = shelf.kept
        if known == (kind, weights) and its.holds(room) and not engine.busy:
            engine.busy = True  # from now on, not only when it runs: another may ask before that
            return engine
        shelf.kept = None  # before another is made: there may not be memory for both
        del engine
    room = room.rounded(model.max_len)
    engine = make(room)
    engine.busy = True
    shelf.kept = (kind, weights), room, engine
    return engine


def _up(n: int, block: int) -> int:
    return -(-n // block) * block
