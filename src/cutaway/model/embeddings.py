"""Embeddings: from tokens to vectors, the sum of a vector for the token, one for its position and one for its segment.

Token i is row i of the embedding matrix. A one-hot row times that matrix selects the same row: the look-up is that
product without the multiplications. (Attention Is All You Need, section 3.4; BERT, figure 2; ViT, equation 1.)
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from cutaway.errors import ConfigError, InputError
from cutaway.model.dropout import Dropout
from cutaway.model.tap import Part


def drawn_weights(n: int, width: int) -> nn.Parameter:
    """A table with variance 1/width, for a part that is built by itself; families draw their own weights afterwards.

    Uniform, because to draw normal numbers on the meta device torch 2.13 imports its compiler, which takes a second.
    """
    bound = (3 / width) ** 0.5
    return nn.Parameter(torch.empty(n, width).uniform_(-bound, bound))


def autocast_dtype(x: Tensor) -> torch.dtype:
    """The type that autocast computes in, if it is on: the residual stream has the type of what is written to it."""
    kind = x.device.type
    on = not x.is_meta and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if on else x.dtype


MEANINGS = {
    "real": "True where a token is real and False where it is padding",
    "memory_real": "True where a source token is real and False where it is padding",
    "segments": "the segment of each token",
    "documents": "the document that each token of a packed row belongs to",
}


class TokenMatrix(Part):
    """A matrix with a row for each token: its own, or that of the part that it is tied to."""

    weight: nn.Parameter | None

    def __init__(self, vocab_size: int, d_model: int, *, tied_to: "TokenMatrix | None" = None) -> None:
        super().__init__()
        # in a tuple, so that torch does not register it here too: a matrix has one owner, and one name in a checkpoint
        self._tied = (tied_to,)
        own = drawn_weights(vocab_size, d_model) if tied_to is None else None
        self.register_parameter("weight", own)

    @property
    def matrix(self) -> Float[Tensor, "vocab d_model"]:
        (owner,) = self._tied
        weight = self.weight if owner is None else owner.matrix
        assert weight is not None
        return weight


class TokenEmbedding(TokenMatrix):
    """Token i is row i of the matrix, multiplied by `scale` (√d_model in 2017)."""

    def __init__(
        self, vocab_size: int, d_model: int, *, scale: float = 1.0, tied_to: TokenMatrix | None = None
    ) -> None:
        super().__init__(vocab_size, d_model, tied_to=tied_to)
        self.scale = scale

    def forward(self, ids: Int[Tensor, "batch seq"]) -> Float[Tensor, "batch seq d_model"]:
        vectors = F.embedding(ids, self.matrix)
        return vectors if self.scale == 1.0 else vectors * self.scale


class SegmentEmbedding(Part):
    """One learned vector per kind of input: first or second sentence, text or picture."""

    def __init__(self, n_segments: int, d_model: int) -> None:
        super().__init__()
        self.weight = drawn_weights(n_segments, d_model)

    def forward(self, segments: Int[Tensor, "batch seq"]) -> Float[Tensor, "batch seq d_model"]:
        check_range("segment", segments, len(self.weight))
        return F.embedding(segments, self.weight)


class Embedding(Part):
    """Token + position + segment, then a norm (BERT) and dropout."""

    taps = {
        "tokens": "the vector of each token",
        "positions": "the vector of each position",
        "segments": "the vector of each segment",
        "output": "their sum: the residual stream as it enters the first block",
    }

    def __init__(
        self,
        tokens: TokenEmbedding,
        *,
        positions: Part | None = None,
        segments: SegmentEmbedding | None = None,
        norm: Part | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.tokens, self.positions, self.segments, self.norm = tokens, positions, segments, norm
        absent = {"positions"} if positions is None else set()
        absent |= {"segments"} if segments is None else set()
        self.taps = {name: meaning for name, meaning in self.taps.items() if name not in absent}
        self.dropout = Dropout(dropout)

    def forward(
        self,
        ids: Int[Tensor, "batch seq"],
        positions: Int[Tensor, "#batch seq"],
        segments: Int[Tensor, "batch seq"] | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        x = self.tap("tokens", self.tokens(ids))
        if self.segments is not None:
            check_like("segments", segments, ids, "int")
            segments = torch.zeros_like(ids) if segments is None else segments
            x = x + self.tap("segments", self.segments(segments))
        elif segments is not None:
            raise InputError("this model has no segment embeddings: leave `segments` out")
        if self.positions is not None:
            x = x + self.tap("positions", self.positions(positions))
        if self.norm is not None:
            x = self.norm(x)
        return self.tap("output", self.dropout(x.to(autocast_dtype(x))))


class PatchEmbedding(Part):
    """Cuts an image into square patches and maps each one to a vector, from left to right and from top to bottom.

    A learned class token comes before the patches; its final hidden state is what the head reads.
    """

    taps = {
        "patches": "the vector of each patch",
        "positions": "the vector of each position, the class token's first",
        "output": "class token and patches with their positions: the residual stream as it enters the first block",
    }

    def __init__(
        self, image_size: int, patch_size: int, n_channels: int, d_model: int, *, dropout: float = 0.0
    ) -> None:
        super().__init__()
        if image_size % patch_size:
            raise ConfigError(f"image_size={image_size} is not divisible by patch_size={patch_size}")
        self.image_size, self.patch_size, self.n_channels = image_size, patch_size, n_channels
        self.project = nn.Linear(n_channels * patch_size**2, d_model)
        self.class_token = nn.Parameter(torch.zeros(d_model))
        self.positions = drawn_weights((image_size // patch_size) ** 2 + 1, d_model)
        self.dropout = Dropout(dropout)

    def forward(self, images: Float[Tensor, "batch channel height width"]) -> Float[Tensor, "batch seq d_model"]:
        expected = (self.n_channels, self.image_size, self.image_size)
        if images.ndim != 4:
            raise InputError(
                f"images of shape {tuple(images.shape)}: expected (batch, *{expected}); one is image[None]"
            )
        if images.dtype != self.project.weight.dtype:
            raise InputError(f"images of {images.dtype} for a model of {self.project.weight.dtype}: use images.to(…)")
        if tuple(images.shape[1:]) != expected:
            raise InputError(f"images of shape {tuple(images.shape[1:])} where this model reads {expected}")
        patches = F.unfold(images, self.patch_size, stride=self.patch_size).transpose(1, 2)
        x = self.tap("patches", self.project(patches))
        x = torch.cat([self.class_token.expand(len(x), 1, -1), x], dim=1)
        x = x + self.tap("positions", self.positions)
        return self.tap("output", self.dropout(x.to(autocast_dtype(x))))


def check_range(what: str, values: Int[Tensor, "..."], n: int) -> None:
    """Refuses numbers that have no row in a table of n rows.

    On the CPU only: on a GPU this would wait for the device, and there the look-up itself stops the program.
    """
    if values.device.type == "cpu" and not torch.compiler.is_compiling():
        low, high = values.aminmax()
        if low < 0 or high >= n:
            raise InputError(f"{what} {int(low) if low < 0 else int(high)} is outside 0…{n - 1}")


def check_like(name: str, given: Tensor | None, ids: Tensor, kind: str) -> None:
    """Refuses a tensor that does not have one entry of this kind, `bool` or `int`, for each token."""
    if given is None:
        return
    kinds = (torch.bool,) if kind == "bool" else (torch.int64, torch.int32)
    if given.dtype not in kinds or given.shape != ids.shape[:2]:
        raise InputError(
            f"`{name}` is {given.dtype} of shape {tuple(given.shape)}: expected {kinds[0]} of shape "
            f"{tuple(ids.shape[:2])}, {MEANINGS[name]}"
        )


def check_len(ids: Tensor, max_len: int | None) -> None:
    if max_len is not None and ids.shape[1] > max_len:
        raise InputError(f"a sequence of {ids.shape[1]} tokens is longer than max_len={max_len}: cut or split it")


def check_ids(ids: Tensor, vocab_size: int, *, max_len: int | None = None, real: Tensor | None = None) -> None:
    """Refuses what is not a batch of tokens of this vocabulary, and sequences longer than `max_len`."""
    if not isinstance(ids, Tensor):
        raise InputError(f"ids is a {type(ids).__name__}: encode a text first, torch.tensor([tokenizer.encode(text)])")
    if ids.ndim != 2:
        raise InputError(f"ids of shape {tuple(ids.shape)}: expected (batch, seq); one sequence is ids[None]")
    if ids.dtype not in (torch.int64, torch.int32):
        raise InputError(f"ids of type {ids.dtype}: expected whole numbers (torch.int64)")
    if ids.numel() == 0:
        raise InputError(f"ids of shape {tuple(ids.shape)} hold no token")
    check_like("real", real, ids, "bool")
    check_len(ids, max_len)
    check_range("token id", ids, vocab_size)
