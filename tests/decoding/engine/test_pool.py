"""An engine is kept for the next call, and never lent twice. (On a CPU nothing is kept; what keeps is the same.)"""

import copy
import pickle
from dataclasses import replace

import pytest
from helpers.tiny_models import tiny

from cutaway.decoding.engine.engine import Engine, Job
from cutaway.decoding.engine.pool import EnginePool, pooled_engine
from cutaway.decoding.engine.run import EngineSize
from cutaway.decoding.search.search import GreedySearch
from cutaway.model.model import DecoderModel

ROOM = EngineSize(rows=2, most=5, prompt=3, source=0)


def lend(model: DecoderModel, kind: str = "greedy", room: EngineSize = ROOM) -> Engine:
    def make(room: EngineSize) -> Engine:
        search = GreedySearch(
            rows=room.rows, most=room.most, prompt=room.prompt, ends=[], device=model.device, dtype=model.dtype
        )
        return Engine(model, search, rows=room.rows, prompt=room.prompt)

    return pooled_engine(model, kind, room, make)


def use(engine: Engine) -> list[list[int]]:
    found = dict(engine.run([Job(prompt=[1, 2], limit=4), Job(prompt=[3], limit=5)]))
    return [found[number][0].ids for number in (0, 1)]


def test_an_engine_is_lent_again_when_it_is_back():
    model = tiny("gpt2")
    engine = lend(model)
    words = use(engine)
    assert lend(model) is engine
    assert use(engine) == words


def test_an_engine_is_never_lent_twice():
    """Not while it runs, not before it has begun, and not in the middle of a run that is not over."""
    model = tiny("gpt2")
    first = lend(model)
    second = lend(model)
    assert second is not first
    running = second.steps([Job(prompt=[1, 2], limit=4)])
    next(running)
    assert lend(model) is not second
    running.close()
    assert not second.busy


def test_another_kind_more_room_and_other_weights_need_another_engine():
    model = tiny("gpt2")
    engine = lend(model)
    use(engine)
    assert lend(model, room=EngineSize(rows=2, most=3, prompt=2, source=0)) is engine  # there is room
    use(engine)
    assert lend(model, room=EngineSize(rows=3, most=3, prompt=2, source=0)) is not engine  # as many rows at a time
    use(engine := lend(model))
    assert lend(model, "drawn") is not engine
    use(engine := lend(model))
    model.decoder[0].attention.output.weight.data = model.decoder[0].attention.output.weight.data.clone()
    assert lend(model) is not engine


@pytest.mark.parametrize("what", ["most", "prompt", "source"])
def test_an_engine_that_was_made_for_shorter_texts_is_too_small(what):
    room = EngineSize(rows=2, most=70, prompt=70, source=70)
    fewer, more = (replace(room, **{what: n}) for n in (69, 71))
    assert [room.holds(other) for other in (fewer, room, more)] == [True, True, False]
    model = tiny("gpt2", max_len=500)
    small = EngineSize(rows=2, most=5, prompt=3, source=0)
    use(engine := lend(model, room=small))
    assert lend(model, room=replace(small, **{what: 65})) is not engine  # rounded up, it holds 64


def test_a_copy_of_a_model_has_no_engine():
    model = tiny("gpt2")
    use(lend(model))
    assert vars(copy.deepcopy(model))["_engine_pool"].kept is None
    assert pickle.loads(pickle.dumps(EnginePool())).kept is None


def test_room_is_rounded_up_and_never_beyond_the_model():
    assert EngineSize(rows=3, most=5, prompt=3, source=9).rounded(None) == EngineSize(
        rows=3, most=64, prompt=64, source=64
    )
    assert EngineSize(rows=3, most=5, prompt=3, source=9).rounded(100) == EngineSize(
        rows=3, most=5, prompt=3, source=64
    )
