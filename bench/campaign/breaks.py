"""Mistakes that code bases ship, one for each model: here those of masks.

Each is a function of a model that is called inside a `with`: what it patches is undone behind it. `breaks` lists it for
a family of `tests/helpers/tiny_models.py`, with the numbers that it needs to show.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from cutaway.families import lstm  # noqa: E402
from cutaway.model import cache, masks  # noqa: E402
from cutaway.model import model as models  # noqa: E402
from cutaway.model.masks import EVERYWHERE, Mask  # noqa: E402


class Break(NamedTuple):
    """One model and what is wrong with it."""

    area: str
    said: str
    family: str  # a name of tests/helpers/tiny_models.py
    changes: dict[str, Any]
    precision: str
    do: Callable[[Any], Any]  # takes the model, gives a context manager


BREAKS: list[Break] = []


def breaks(area: str, family: str, precision: str = "fp32", **changes: Any) -> Callable[[Any], Any]:
    """Lists a function, whose docstring says what is wrong, as a break of this family."""

    def listed(function: Any) -> Any:
        do = function if hasattr(function, "__wrapped__") else contextmanager(function)
        BREAKS.append(Break(area, function.__doc__, family, changes, precision, do))
        return do

    return listed


def instead(owner: Any, name: str, make: Callable[[Any], Any]) -> Any:
    """`owner.name` becomes what is made of it."""
    return patch.object(owner, name, make(getattr(owner, name)))


def along(n: int) -> Any:
    return torch.arange(n)


# --- masks ------------------------------------------------------------------------------------------------------------


@breaks("masks", "bert", max_len=64)
@breaks("masks", "roformer", "int8", max_len=64)
def _padding_far(model: Any) -> Iterator[None]:
    """padding is seen from key 40 on"""
    with patch.object(masks, "padding", lambda real: Mask((real | (along(real.shape[1]) >= 40))[:, None, None])):
        yield


@breaks("masks", "transformer", max_len=64)
@breaks("masks", "t5")
def _padding_last_quarter(model: Any) -> Iterator[None]:
    """padding is seen in the last quarter of what is read"""
    first = (model.max_len or 256) * 3 // 4
    with patch.object(masks, "padding", lambda real: Mask((real | (along(real.shape[1]) >= first))[:, None, None])):
        yield


@breaks("masks", "roberta")
def _neighbours_mask(model: Any) -> Iterator[None]:
    """each row has the padding mask of its neighbour"""
    with instead(masks, "padding", lambda right: lambda real: right(real.roll(1, 0))):
        yield


@breaks("masks", "transformer")
@breaks("masks", "t5", "int8")
def _cross_padding(model: Any) -> Iterator[None]:
    """cross-attention sees the padding of the source"""

    def across(right: Any) -> Any:
        return lambda *a: right(*a) | ({"memory_mask": EVERYWHERE} if a[-1] is None else {})

    with instead(models.EncoderDecoderModel, "across", across):
        yield


@breaks("masks", "gpt2", max_len=64)
@breaks("masks", "transformer-rotary", max_len=64)
def _next_token(model: Any) -> Iterator[None]:
    """from position 40 on, a query sees the token behind it"""

    def table(right: Any) -> Any:
        def off(self: Mask, n_query: int, n_key: int, device: Any) -> Any:
            found = right(self, n_query, n_key, device)
            if found is None or not self.causal:
                return found
            query, key = along(n_query)[:, None] + n_key - n_query, along(n_key)[None]
            return found | ((query >= 40) & (key == query + 1))

        return off

    with instead(Mask, "table", table):
        yield


@breaks("masks", "gpt")
def _no_causal_mask(model: Any) -> Iterator[None]:
    """without a cache, the future is seen"""
    bare = lambda at, real=None, documents=None, window=None: masks.padding_mask(real, documents)  # noqa: E731
    with patch.object(models, "causal_mask", bare):
        yield


@breaks("masks", "llama-window")
@breaks("masks", "llama-window", "int8", max_len=64, window=7)
def _window_with_a_cache(model: Any) -> Iterator[None]:
    """with a cache the window is one token too wide"""
    with instead(cache, "sliding_window", lambda right: lambda size, *a: right(size + 1, *a)):
        yield


@breaks("masks", "llama-window", max_len=64, window=5)
def _window_far(model: Any) -> Iterator[None]:
    """without a cache there is no window in the last quarter of max_len"""

    def wide(right: Any) -> Any:
        return lambda size, at, key=None: Mask(right(size, at).may_look | (at[:, None, :, None] >= 48))

    with instead(masks, "sliding_window", wide):
        yield


@breaks("masks", "gpt2", max_len=64)
@breaks("masks", "roformer", max_len=64)
def _documents_parity(model: Any) -> Iterator[None]:
    """documents of a packed row are told apart by their last bit only"""
    same = lambda documents: Mask((documents[:, :, None] % 2 == documents[:, None] % 2)[:, None])  # noqa: E731
    with patch.object(masks, "same_document", same):
        yield


@breaks("masks", "lstm")
def _state_of_the_document_before(model: Any) -> Iterator[None]:
    """a document of a packed row goes on from the state of the one before"""
    with patch.object(lstm, "document_starts", lambda documents: along(documents.shape[1])[None] == 0 * documents):
        yield


@breaks("masks", "gpt2")
def _finite_mask(model: Any) -> Iterator[None]:
    """what kernels add to hidden scores is −8, not −∞"""
    weak = lambda self, dtype: replace(self, added=(~self.may_look).to(dtype) * -8)  # noqa: E731
    with patch.object(Mask, "written_out", weak):
        yield
