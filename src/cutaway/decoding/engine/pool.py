"""An engine that is kept for the next call: on a GPU, recording its steps takes as long as dozens of them.

A model keeps one, with room for a little more than was asked for, and its memory with it.
"""

from collections.abc import Callable, Hashable

from cutaway.decoding.engine.engine import Engine
from cutaway.decoding.engine.run import EngineSize
from cutaway.model.model import DecoderModel


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
