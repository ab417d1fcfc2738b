"""Positions: attention by itself sees a set of tokens; positions tell it their order.

    PE(pos, 2i) = sin(pos / 10000^(2i/d)),   PE(pos, 2i+1) = cos(pos / 10000^(2i/d))

The sinusoids are unique and bounded, and a shift by c is the same rotation at every position: P(t+c) = M_c P(t).
(Attention Is All You Need, section 3.5; Su et al. 2021 for rotary; Raffel et al. 2020 for the relative bias.)
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cutaway.errors import ConfigError
from cutaway.model.embeddings import check_range, drawn_weights
from cutaway.model.masks import document_starts
from cutaway.model.tap import Part


def positions_of(
    ids: Int[Tensor, "batch seq"],
    real: Bool[Tensor, "batch seq"] | None = None,
    documents: Int[Tensor, "batch seq"] | None = None,
) -> Int[Tensor, "#batch seq"]:
    """0, 1, 2, … for the real tokens of each row; each document of a packed row starts at 0 again.

    Because padding is not counted, the model gives the same results with padding on the left and on the right.
    """
    index = torch.arange(ids.shape[1], device=ids.device)[None]
    if real is None and documents is None:
        return index
    counted = torch.ones_like(ids) if real is None else real.long()
    so_far = counted.cumsum(dim=1)
    if documents is not None:
        before = (so_far - counted) * document_starts(documents)  # the tokens of the row before this document
        so_far = so_far - before.cummax(dim=1).values
    return (so_far - 1).clamp(min=0)


def sinusoids(n: int, d_model: int) -> Float[Tensor, "n d_model"]:
    """The table in double precision, one row per position; if d_model is odd, the last column is a sine."""
    position = torch.arange(n, dtype=torch.float64)[:, None]
    pair = torch.arange(0, d_model, 2, dtype=torch.float64)
    angle = position / 10000 ** (pair / d_model)
    table = torch.empty(n, d_model, dtype=torch.float64)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle[:, : d_model // 2].cos()
    return table


class Sinusoidal(Part):
    """The positions of 2017. They are fixed, so they are computed and never stored in a checkpoint."""

    table: Tensor

    def __init__(self, max_len: int, d_model: int) -> None:
        super().__init__()
        self.register_buffer("table", torch.empty(max_len, d_model), persistent=False)
        self.fill()

    def rows(self) -> Float[Tensor, "n d_model"]:
        return sinusoids(*self.table.shape)

    def fill(self) -> None:
        if not self.table.is_meta:
            self.table.copy_(self.rows())

    def _apply(self, fn, recurse=True):  # type: ignore[no-untyped-def]
        """Moving or casting computes the table again: a model in double precision has a table in double precision."""
        super()._apply(fn, recurse)
        self.fill()
        return self

    def forward(self, positions: Int[Tensor, "batch seq"]) -> Float[Tensor, "batch seq d_model"]:
        check_range("position", positions, len(self.table))
        return F.embedding(positions, self.table)


class SinusoidalHalves(Sinusoidal):
    """The same numbers, all sines before all cosines, as in Marian's models."""

    def rows(self) -> Float[Tensor, "n d_model"]:
        table = super().rows()
        return torch.cat([table[:, 0::2], table[:, 1::2]], dim=1)


class Learned(Part):
    """One learned vector per position, as in GPT and BERT."""

    def __init__(self, max_len: int, d_model: int) -> None:
        super().__init__()
        self.weight = drawn_weights(max_len, d_model)

    def forward(self, positions: Int[Tensor, "batch seq"]) -> Float[Tensor, "batch seq d_model"]:
        check_range("position", positions, len(self.weight))
        return F.embedding(positions, self.weight)


@dataclass(frozen=True, eq=False)  # eq=False: torch 2.11's compiler hashes what is called, and tensors have no hash
class Rotation:
    """Turns queries and keys by the angles of their positions: q·k then depends on the difference of positions only."""

    cos: Float[Tensor, "#batch 1 seq d_pairs"]
    sin: Float[Tensor, "#batch 1 seq d_pairs"]

    def __call__(self, x: Float[Tensor, "batch head seq d_head"]) -> Float[Tensor, "batch head seq d_head"]:
        first, second = x.chunk(2, dim=-1)  # coordinates i and i + d_head/2 are turned as a pair
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


Frequencies = Float[Tensor, " d_pairs"]


@dataclass(frozen=True)
class Stretch:
    """Every pair turns `factor` times slower: longer texts stay within the angles of training (Chen et al. 2023)."""

    factor: float

    def __call__(self, frequencies: Frequencies) -> Frequencies:
        return frequencies / self.factor


@dataclass(frozen=True)
class StretchSlow:
    """Llama 3.1: only pairs that turn less than `slow` times within `trained_len` tokens turn `factor` times slower.

    Pairs that turn more than `fast` times, which tell neighbours apart, stay as they are; in between, the change is
    gradual.
    """

    factor: float
    slow: float
    fast: float
    trained_len: float

    def __post_init__(self) -> None:
        if not self.slow < self.fast:
            raise ConfigError(f"slow={self.slow} turns must be fewer than fast={self.fast} turns")

    def __call__(self, frequencies: Frequencies) -> Frequencies:
        turns = frequencies * self.trained_len / (2 * math.pi)
        kept = ((turns - self.slow) / (self.fast - self.slow)).clamp(0, 1)
        return frequencies * (kept + (1 - kept) / self.factor)


SCALINGS: dict[str, type[Stretch] | type[StretchSlow]] = {"linear": Stretch, "llama3": StretchSlow}


def scaling_named(name: str, numbers: Sequence[float]) -> Stretch | StretchSlow:
    """A scaling of rotary positions by its name, with its numbers in the order of its fields."""
    if name not in SCALINGS:
        raise ConfigError(f"rotary_scaling={name!r} is not one of {', '.join(SCALINGS)}")
    wanted = [field.name for field in fields(SCALINGS[name])]
    if len(numbers) != len(wanted) or not all(0 < number < math.inf for number in numbers):
        raise ConfigError(f"rotary_scaling={name!r} takes {', '.join(wanted)}, each above 0, not {tuple(numbers)}")
    return SCALINGS[name](*numbers)


class Rotary(Part):
    """Rotary positions: pair i of a query or key at position t is turned by the angle t · base^(−2i/d_head).

    `scaling` changes the frequencies for texts longer than those of training.
    """

    taps = {"angle": "by how much each pair is turned at each position"}

    frequencies: Tensor

    def __init__(
        self, d_head: int, *, base: float = 10000.0, scaling: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        super().__init__()
        if d_head % 2:
            raise ConfigError(f"rotary positions turn pairs: d_head={d_head} is odd")
        self.d_head, self.base, self.scaling = d_head, base, scaling
        self.register_buffer("frequencies", torch.empty(d_head // 2), persistent=False)
        self.fill()

    def fill(self) -> None:
        """In single precision at least, whatever the weights have: in bfloat16, position 257 would equal 256."""
        if not self.frequencies.is_meta:
            exact = self.base ** (-torch.arange(0, self.d_head, 2, dtype=torch.float64) / self.d_head)
            exact = exact if self.scaling is None else self.scaling(exact)
            kind = torch.promote_types(self.frequencies.dtype, torch.float32)
            self.frequencies = exact.to(device=self.frequencies.device, dtype=kind)

    def _apply(self, fn, recurse=True):  # type: ignore[no-untyped-def]
        super()._apply(fn, recurse)
        self.fill()
        return self

    def forward(self, positions: Int[Tensor, "batch seq"]) -> Rotation:
        angle = self.tap("angle", positions[:, None, :, None] * self.frequencies)
        return Rotation(angle.cos(), angle.sin())


class RelativeBias(Part):
    """T5's positions: a learned number for each head and distance, added to the scores; far distances share buckets."""

    taps = {"bias": "what is added to the scores of each query and key, per head"}

    def __init__(self, n_heads: int, *, n_buckets: int = 32, max_distance: int = 128, both_ways: bool = True) -> None:
        super().__init__()
        self.weight = drawn_weights(n_buckets, n_heads)
        self.max_distance, self.both_ways = max_distance, both_ways

    def forward(
        self, query_positions: Int[Tensor, "batch query"], key_positions: Int[Tensor, "batch key"]
    ) -> Float[Tensor, "batch head query key"]:
        ahead = key_positions[:, None, :] - query_positions[:, :, None]
        # contiguous, because a GPU's fused kernels require it
        return self.tap("bias", F.embedding(self.bucket(ahead), self.weight).permute(0, 3, 1, 2).contiguous())

    def bucket(self, ahead: Int[Tensor, "batch query key"]) -> Int[Tensor, "batch query key"]:
        """Half of the buckets are single distances; the others grow with the logarithm, up to max_distance."""
        n = self.weight.shape[0]
        if self.both_ways:
            n //= 2
            side, distance = (ahead > 0) * n, ahead.abs()
        else:
            side, distance = torch.zeros_like(ahead), (-ahead).clamp(min=0)
        exact = n // 2
        growth = torch.log(distance.clamp(min=1) / exact) / math.log(self.max_distance / exact)
        far = (exact + (growth * (n - exact)).long()).clamp(max=n - 1)
        return side + torch.where(distance < exact, distance, far)
