"""Keeps an engine for the next call: on a GPU, recording its steps takes as long as dozens of steps.

A model keeps one engine, with room for a little more than was needed, and its memory.
"""

from collections.abc import Callable, Hashable

from cutaway.decoding.engine.engine import Engine
from cutaway.decoding.engine.run import EngineSize
from cutaway.model.model import DecoderModel


class EnginePool:
    """Where a model keeps its engine. A copy of the model starts without one."""

    def __init__(self) -> None:
        self.kept: tuple[Hashable, EngineSize, Engine] | None = None

    def __deepcopy__(self, memo: object) -> "EnginePool":
        return EnginePool()

    def __reduce__(self) -> tuple[type["EnginePool"], tuple[()]]:
        return EnginePool, ()


def pooled_engine(
    model: DecoderModel, kind: Hashable, room: EngineSize, make: Callable[[EngineSize], Engine]
) -> Engine:
    """The model's engine, if it is of this kind, large enough and free; otherwise a new one, which is kept."""
    weights = tuple(tensor.data_ptr() for tensor in (*model.parameters(), *model.buffers()))
    pool = vars(model).setdefault("_engine_pool", EnginePool())
    if pool.kept is not None:
        known, its, engine = pool.kept
        if known == (kind, weights) and its.holds(room) and not engine.busy:
            engine.busy = True  # from now on: another call may come before it runs
            return engine
        pool.kept = None  # before a new one is made: there may not be memory for both
        del engine
    room = room.rounded(model.max_len)
    engine = make(room)
    engine.busy = True
    pool.kept = (kind, weights), room, engine
    return engine
