"""Broken weights, 8-bit products, and batches."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from campaign.breaks import breaks, instead

from cutaway.families import lstm, lstm_translator
from cutaway.model import embeddings, feed_forward, heads, precision
from cutaway.model.dropout import Dropout
from cutaway.model.kernels import int8

# --- weights ----------------------------------------------------------------------------------------------------------


def damaged(area: str, said: str, family: str, name: str, at: Any, value: float, *more: Any, **changes: Any) -> None:
    """One number of a tensor."""

    def do(model: Any) -> Iterator[None]:
        dict([*model.named_parameters(), *model.named_buffers()])[name].data[at] = value
        yield

    do.__doc__ = said
    breaks(area, family, *more, **changes)(do)


NAN, INF = float("nan"), float("inf")
TOKENS, BIAS = "embedding.tokens.weight", "head.words.bias"
damaged("weights", "NaN in the row of a token", "gpt2", TOKENS, (2999, 5), NAN, vocab_size=3000)
damaged("weights", "an infinity in an untied head", "llama", "head.weight", (2998, 3), INF, vocab_size=3000, tied=False)
damaged(
    "weights", "NaN in a segment that is never asked", "bert", "embedding.segments.weight", (3, 0), NAN, n_segments=4
)
damaged("weights", "−∞ in the bias of a token", "roberta", BIAS, 1, -INF)
damaged("weights", "NaN in the last sinusoids", "transformer", "target_embedding.positions.table", (31, 2), NAN)
damaged("weights", "NaN in a recurrent matrix", "lstm", "decoder.1.engine.weight_hh_l0", (3, 3), NAN)
damaged("weights", "an infinity in the bias of a class", "vit", "head.classes.bias", 6, INF)
damaged("weights", "NaN in a distance never seen", "t5", "target_bias.weight", (31, 0), NAN, max_distance=4096)
damaged("weights", "NaN in the scale of an 8-bit row", "gpt2", "head.words.scale", 7, NAN, "int8")


# --- 8 bits -----------------------------------------------------------------------------------------------------------


@breaks("8 bits", "gpt2")
@breaks("8 bits", "bert")
def _wraps_round(model: Any) -> Iterator[None]:
    """the largest weight of a row becomes 128, and so −128"""

    def rounded(right: Any) -> Any:
        def wrong(weight: Any) -> Any:
            scale = right(weight)[1] * 127 / 128
            return (weight / scale[:, None]).round().to(torch.int32).to(torch.int8), scale

        return wrong

    with instead(int8, "rounded", rounded):
        yield


@breaks("8 bits", "t5")
def _scale_of_the_head(model: Any) -> Iterator[None]:
    """the head in 8 bits forgets its scale"""
    with patch.object(precision.Int8LanguageModelHead, "forward", lambda self, hidden, real=None: self.words(hidden)):
        yield


def multiplying(change: Any) -> Any:
    """An 8-bit product that is changed: `change(part, x, right)`."""
    return instead(int8.Int8Linear, "forward", lambda right: lambda self, x: change(self, x, right))


@breaks("8 bits", "gpt2", "int8")
@breaks("8 bits", "t5", "int8")
def _fixed_range(model: Any) -> Iterator[None]:
    """activations saturate at ±1"""
    with multiplying(lambda part, x, right: right(part, x.clamp(-1, 1))):
        yield


@breaks("8 bits", "bert", "int8")
@breaks("8 bits", "transformer", "int8")
def _one_scale_for_all(model: Any) -> Iterator[None]:
    """all rows of a batch have one scale"""

    def change(part: Any, x: Any, right: Any) -> Any:
        size = x.abs().amax() / 127
        found = F.linear((x / size).round(), part.weight.float()) * part.scale * size
        return found if part.bias is None else found + part.bias

    with multiplying(change):
        yield


@breaks("8 bits", "llama", "int8")
def _pairs_saturate(model: Any) -> Iterator[None]:
    """pairs of products are added in 16 bits, and saturate"""

    def change(part: Any, x: Any, right: Any) -> Any:
        size = x.abs().amax(dim=-1, keepdim=True) / 127
        products = ((x / size).round() + 128)[..., None, :] * part.weight.float()
        found = products.unflatten(-1, (-1, 2)).sum(-1).clamp(-(2**15), 2**15 - 1).sum(-1)
        found = (found - 128 * part.weight.float().sum(dim=1)) * part.scale * size
        return found if part.bias is None else found + part.bias

    with multiplying(change):
        yield


@breaks("8 bits", "gpt", "int8")
def _bias_of_one_row(model: Any) -> Iterator[None]:
    """the way for one row forgets the bias"""

    def change(part: Any, x: Any, right: Any) -> Any:
        alone = x.numel() == x.shape[-1] and part.bias is not None
        return right(part, x) - part.bias if alone else right(part, x)

    with multiplying(change):
        yield


@breaks("8 bits", "roberta", "int8")
def _packed_before(model: Any) -> Iterator[None]:
    """new weights are loaded, and the kernel has packed the old ones"""
    model(torch.arange(6)[None])
    for part in model.modules():
        if isinstance(part, int8.Int8Linear):
            part.weight.copy_(part.weight.roll(1, 0))
    yield


# --- batches ----------------------------------------------------------------------------------------------------------


@breaks("batches", "bert", task="classify", n_classes=3)
@breaks("batches", "roberta", task="classify", n_classes=3)
def _first_place(model: Any) -> Iterator[None]:
    """the first place is read, and not the first token"""
    with patch.object(heads, "first_state", lambda hidden, real=None: hidden[:, 0]):
        yield


@breaks("batches", "gpt2", task="classify", n_classes=3)
@breaks("batches", "llama", "int8", task="regress")
def _last_place(model: Any) -> Iterator[None]:
    """the last place is read, and not the last token"""
    with patch.object(heads.LastTokenHead, "forward", lambda self, hidden, real=None: self.classes(hidden[:, -1])):
        yield


@breaks("batches", "roformer", task="classify", n_classes=3, pooling="mean")
def _mean_of_all(model: Any) -> Iterator[None]:
    """the mean counts padding"""
    with patch.object(heads, "mean_state", lambda hidden, real=None: hidden.mean(dim=1)):
        yield


@breaks("batches", "vit")
def _pictures(model: Any) -> Iterator[None]:
    """pictures are centred by the mean of their batch"""
    with instead(embeddings.PatchEmbedding, "forward", lambda right: lambda self, x: right(self, x - x.mean())):
        yield


@breaks("batches", "gpt2")
@breaks("batches", "lstm")
def _dropout_stays_on(model: Any) -> Iterator[None]:
    """dropout stays on"""
    with patch.object(Dropout, "forward", lambda self, x: F.dropout(x, 0.1, True)):
        yield


@breaks("batches", "roformer")
def _features_of_the_batch(model: Any) -> Iterator[None]:
    """what the feed-forward reads is rounded with one scale for the batch"""

    def forward(right: Any) -> Any:
        def wrong(self: Any, x: Any) -> Any:
            size = x.abs().amax() / 127
            return right(self, (x / size).round() * size)

        return wrong

    with instead(feed_forward.FeedForward, "forward", forward):
        yield


@breaks("batches", "lstm")
def _not_sorted_back(model: Any) -> Iterator[None]:
    """rows are sorted by their lengths, and not put back"""

    def hidden(right: Any) -> Any:
        def wrong(self: Any, ids: Any, *, real: Any = None, **more: Any) -> Any:
            found = right(self, ids, real=real, **more)
            return found if real is None else found[real.sum(dim=1).argsort(descending=True)]

        return wrong

    with instead(lstm.LSTMModel, "hidden", hidden):
        yield


@breaks("batches", "lstm")
def _reads_padding_first(model: Any) -> Iterator[None]:
    """padding on the left is read as text"""
    with patch.object(lstm, "forward_order", lambda real: None):
        yield


@breaks("batches", "lstm-translator")
def _backwards_from_padding(model: Any) -> Iterator[None]:
    """the layer that reads backwards begins with the padding"""
    with instead(lstm_translator, "backward_order", lambda right: lambda tokens, real: right(tokens, None)):
        yield
