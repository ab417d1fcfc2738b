"""Broken decoding, and what is handed on to others."""

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
from campaign.breaks import breaks, instead

from cutaway.certificate import subject
from cutaway.decoding.engine import engine
from cutaway.decoding.search import beam, search
from cutaway.model import model as models
from cutaway.model.beam_cache import Tree
from cutaway.model.cache import Cache

# --- decoding ---------------------------------------------------------------------------------------------------------


@breaks("decoding", "gpt", max_len=64)
@breaks("decoding", "transformer", "int8")
def _row_not_cleared(model: Any) -> Iterator[None]:
    """a text enters a row of the cache in which another's tokens still stand"""

    def clear(self: Any) -> None:
        self.lengths.zero_()
        self.seen.zero_()

    with patch.object(Cache, "clear", clear):
        yield


@breaks("decoding", "transformer")
@breaks("decoding", "t5", "int8")
def _source_stays(model: Any) -> Iterator[None]:
    """a text moves to another row, and what it knows of its source does not"""

    def move(right: Any) -> Any:
        return lambda self, *a, **k: right(replace(self, cross=()), *a, **k)

    with instead(Cache, "move", move):
        yield


@breaks("decoding", "transformer-pre-norm")
def _last_of_the_source(model: Any) -> Iterator[None]:
    """a search does not look at the last token of the source"""

    def across(right: Any) -> Any:
        return lambda self, n, full=False: right(self, max(1, n - 1), full=full)

    with instead(Cache, "first_of_memory", across):
        yield


@breaks("decoding", "t5")
def _padding_of_the_source(model: Any) -> Iterator[None]:
    """a search looks at the padding of the source"""

    def remember(right: Any) -> Any:
        return lambda self, kept, memory, real=None: right(self, kept, memory)

    with instead(models.EncoderDecoderModel, "remember", remember):
        yield


@breaks("decoding", "llama")
@breaks("decoding", "gpt2", "int8")
def _not_reordered(model: Any) -> Iterator[None]:
    """beams change places, and the cache does not"""
    with patch.object(Tree, "reorder", lambda self, parents: None):
        yield


@breaks("decoding", "gpt2")
@breaks("decoding", "transformer-rotary")
def _beams_of_the_first_row(model: Any) -> Iterator[None]:
    """the cache of every row follows the beams of the first"""
    with instead(Tree, "reorder", lambda right: lambda self, parents: right(self, parents[:1].expand(parents.shape))):
        yield


@breaks("decoding", "gpt2")
def _one_token_too_many(model: Any) -> Iterator[None]:
    """scores are divided by one token too many"""
    with instead(search.Search, "_divisor", lambda right: lambda self, lengths: right(self, lengths + 1)):
        yield


@breaks("decoding", "llama")
@breaks("decoding", "t5")
def _logits_added(model: Any) -> Iterator[None]:
    """a beam adds logits, and not their log p"""
    with patch.object(beam, "likeliest", lambda logits, k, dtype: tuple(logits.to(dtype).topk(k))):
        yield


@breaks("decoding", "gpt")
def _scores_stay(model: Any) -> Iterator[None]:
    """a text moves to another row, and its score does not"""

    def move(right: Any) -> Any:
        def wrong(self: Any, *a: Any) -> None:
            kept = self.scores.clone()
            right(self, *a)
            self.scores.copy_(kept)

        return wrong

    with instead(search.Search, "move", move):
        yield


@breaks("decoding", "transformer")
def _one_short(model: Any) -> Iterator[None]:
    """a text ends one token before its limit"""

    def enter(right: Any) -> Any:
        def wrong(self: Any, rows: Any, jobs: Any) -> None:
            right(self, rows, jobs)
            self.limits[rows] = (self.limits[rows] - 1).clamp(min=1)

        return wrong

    with instead(search.Search, "enter", enter):
        yield


@breaks("decoding", "gpt2", end_ids=list(range(0, 50, 3)))
def _first_end_only(model: Any) -> Iterator[None]:
    """of several tokens that end a text, only the first does"""

    def begin(right: Any) -> Any:
        return lambda self, width, **room: right(self, width, **room | {"ends": tuple(room["ends"])[:1]})

    with instead(search.Search, "__init__", begin):
        yield


@breaks("decoding", "gpt2")
@breaks("decoding", "lstm")
def _first_of_the_prompt(model: Any) -> Iterator[None]:
    """the first step reads the first token of the prompt again, and not the last"""

    def begin(self: Any, rows: slice, jobs: Any) -> None:
        self.ids[rows] = torch.tensor([job.prompt[0] for job in jobs])[:, None]

    with patch.object(engine.Engine, "_begin", begin):
        yield


# --- what is handed on ------------------------------------------------------------------------------------------------


def exporting(**changes: Any) -> Any:
    """The exported folder says something else in its config."""

    def export(right: Any) -> Any:
        def wrong(model: Any, folder: Any) -> None:
            other = copy.copy(model)
            other.config = model.config.with_(**changes)
            right(other, folder)

        return wrong

    return instead(subject, "export", export)


@breaks("handed on", "gpt2")
def _other_gelu(model: Any) -> Iterator[None]:
    """the exported config names the other GELU"""
    with exporting(activation="gelu"):
        yield


@breaks("handed on", "bert", norm_eps=1e-2)
def _usual_eps(model: Any) -> Iterator[None]:
    """the exported config leaves ε out, and readers take the usual one"""
    with exporting(norm_eps=1e-12):
        yield


@breaks("handed on", "llama", rotary_base=500.0)
def _usual_base(model: Any) -> Iterator[None]:
    """the exported config leaves the base of RoPE out"""
    with exporting(rotary_base=10000.0):
        yield


@breaks("handed on", "gpt2")
def _tokenizer_too_large(model: Any) -> Iterator[None]:
    """tokens were added to the tokenizer, and none to the model"""
    from tokens.test_tokenizer import byte_level

    model.tokenizer = byte_level()
    yield
