"""At the sizes that our kernels take, every family gives what plain PyTorch gives in double precision."""

from typing import Any

import pytest
import torch
from helpers.tiny_models import ALL, DECODERS, TRANSLATORS, inputs, some_ids, tiny
from torch import Tensor

from cutaway.model.beam_cache import Tree
from cutaway.model.kernels.live_rows import Packing
from cutaway.model.model import DecoderModel, EncoderDecoderModel, Model

LENGTHS = [7, 4, 2]


def twins(name: str) -> tuple[Model, Model]:
    """The same weights in single and in double precision: four heads of 16, and an ε that shows."""
    changes: dict[str, Any] = {"d_model": 64, "norm_eps": 0.1, **({"d_head": 16} if name == "t5" else {})}
    ours, exact = (tiny(name, dtype=dtype, **changes) for dtype in (torch.float32, torch.float64))
    exact.load_state_dict(ours.state_dict())
    return ours, exact


def padded(seed: int) -> tuple[Tensor, Tensor]:
    """Rows of three lengths, padded on the left."""
    real = torch.arange(7) >= 7 - torch.tensor(LENGTHS)[:, None]
    return some_ids(3, 7, seed=seed), real


def near(ours: Tensor, exact: Tensor) -> bool:
    return bool((ours - exact).abs().max() <= 1e-5 * exact.abs().max())


def exactly(exact: Model, source: Tensor | None, text: Tensor) -> Tensor:
    """The last scores of one text."""
    given = (text[None],) if source is None else (source[None], text[None])
    return exact(*given)[0, -1].detach()


@pytest.mark.parametrize("name", ALL)
def test_a_batch_is_read_as_exactly(name: str) -> None:
    ours, exact = twins(name)
    given = inputs(name, batch=3, dtype=torch.float32)
    wanted = exact(*(x.double() if x.is_floating_point() else x for x in given))
    more: dict[str, Tensor] = {}
    if name != "vit":
        real = padded(1)[1][:, : given[0].shape[1]]
        more = {"source_real" if name in TRANSLATORS else "real": real}
        wanted = exact(*given, **more)
    with torch.no_grad():
        found = ours(*given, **more)
    seen = torch.ones(found.shape[:2], dtype=torch.bool) if name in ("vit", *TRANSLATORS) else more["real"]
    assert near(found[seen], wanted[seen])


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("name", [*DECODERS, *TRANSLATORS])
def test_hypotheses_read_on_as_exactly(name: str, pack: bool) -> None:
    """A prompt, then two tokens of three hypotheses, of which some may be dead by then."""
    ours, exact = twins(name)
    assert isinstance(ours, DecoderModel)
    ids, real = padded(2)
    sources: list[Tensor | None] = [None] * 3
    with torch.no_grad():
        cache = ours.new_cache(3, 16, slots=32)
        if isinstance(ours, EncoderDecoderModel):
            source, source_real = padded(3)
            cache = ours.with_memory(cache, 9)
            ours.remember(cache, ours.encode(source, source_real), source_real)
            sources = [row[is_real] for row, is_real in zip(source, source_real, strict=True)]

        def read(new: Tensor, cache: Any, **more: Any) -> Tensor:
            if isinstance(ours, EncoderDecoderModel):
                return ours.head(ours.decode(new, cache=cache, **more))
            return ours(new, cache=cache, **more)

        read(ids, cache, real=real)
        tree = Tree.of(cache, 3)
        first, second = some_ids(3, 3, seed=4), some_ids(3, 3, seed=5)
        scores = read(first, tree)
        parents = torch.tensor([[1, 1, 0], [0, 2, 1], [2, 0, 0]])
        tree.reorder(parents)
        living = torch.ones(3, 3, dtype=torch.bool)
        if pack:
            living[0, 1] = living[2, 0] = living[2, 2] = False
            packing = Packing.of(living)
            assert packing is not None
            found = read(second[living][None], tree.pack(packing))[0]
            assert torch.equal(tree.ancestors.any(dim=2), living)  # so that `collect` frees the slots of the others
        else:
            found = read(second, tree)[living]
    begun = [row[is_real] for row, is_real in zip(ids, real, strict=True)]
    for row, place in torch.ones(3, 3).nonzero().tolist():
        alone = exactly(exact, sources[row], torch.cat([begun[row], first[row, place : place + 1]]))
        assert near(scores[row, place], alone)
    for state, (row, place) in zip(found, living.nonzero().tolist(), strict=True):
        new = torch.stack([first[row, parents[row, place]], second[row, place]])
        assert near(state, exactly(exact, sources[row], torch.cat([begun[row], new])))
