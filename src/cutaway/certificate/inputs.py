"""The inputs that a certificate is measured on.

Rows of random ids of many lengths, and real sentences if there is a tokenizer; sources and targets for a translator;
random images for a model that reads images. Then two long rows, one of them as long as the model can read: errors in
masks, windows, positions and caches may show only there.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cutaway.model.attention import Attention
from cutaway.model.model import EncoderDecoderModel, Model
from cutaway.tokens import Tokenizer

Side = Literal["left", "right"]
Ids = list[int]
LENGTHS = (1, 2, 3, 4, 6, 9, 13, 18)
MAX_TOKENS = 18  # tokens of a row or sentence, at most
UNBOUNDED = 256  # tokens of the longest row, if the model has no limit
MAX_OPERATIONS = 250e9  # of one pass: five seconds on one core, and there are about thirty passes
PICTURES = 4
SENTENCES = (
    "Wait!",
    "When Mary and John went to the store, John gave a drink to Mary.",
    "Der Zug nach Köln fährt heute um 7:45 Uhr von Gleis 12 ab.",
    "Ünïcödé, 数学 and 🙂 in one line: def square(x): return x * x",
)


@dataclass(frozen=True)
class Inputs:
    """Rows of ids and their segments. For a translator, `rows` are the sources."""

    description: str
    rows: list[Ids] = field(default_factory=list)
    targets: list[Ids] = field(default_factory=list)
    segments: list[Ids] = field(default_factory=list)
    pictures: Float[Tensor, "batch channel height width"] | None = None
    long: bool = False  # the head is then evaluated at some positions only

    def __len__(self) -> int:
        return len(self.rows) if self.pictures is None else len(self.pictures)

    def only(self, i: int) -> "Inputs":
        """One row, or one image."""
        pictures = None if self.pictures is None else self.pictures[i : i + 1]
        rows, targets, segments = (of[i : i + 1] for of in (self.rows, self.targets, self.segments))
        return Inputs(self.description, rows, targets, segments, pictures, self.long)

    def shortened(self, n: int) -> "Inputs":
        """The same inputs with the first row cut to n tokens."""
        cut = ([of[0][:n], *of[1:]] if of else [] for of in (self.rows, self.targets, self.segments))
        rows, targets, segments = cut
        return Inputs(self.description, rows, targets, segments, self.pictures, self.long)


def full_length(model: Model) -> int | None:
    """The maximum length of a model, or UNBOUNDED if it has none; None for a model that reads images."""
    if "image_size" in model.config.to_dict():
        return None
    return getattr(model, "max_len", None) or UNBOUNDED


def default_length(model: Model) -> int | None:
    """The full length, or less if a pass over so many tokens would take more than MAX_OPERATIONS."""
    full = full_length(model)
    if full is None:
        return None
    per_token = 2 * sum(x.numel() for x in (*model.parameters(), *model.buffers()))
    per_pair = 4 * sum(part.n_heads * part.d_head for part in model.modules() if isinstance(part, Attention))
    # per_token · n + per_pair · n² = MAX_OPERATIONS
    affordable = 2 * MAX_OPERATIONS / (per_token + math.sqrt(per_token**2 + 4 * per_pair * MAX_OPERATIONS))
    return min(full, max(MAX_TOKENS, int(affordable)))


def short_inputs(model: Model, tokenizer: Tokenizer | None, seed: int) -> Inputs:
    """Rows of up to MAX_TOKENS tokens, or images."""
    numbers, generator = model.config.to_dict(), torch.Generator().manual_seed(seed)
    if "image_size" in numbers:
        shape = (PICTURES, numbers["n_channels"], numbers["image_size"], numbers["image_size"])
        pictures = torch.randn(shape, generator=generator).to(model.device, model.dtype)
        return Inputs(f"{PICTURES} random pictures", pictures=pictures)
    max_len = getattr(model, "max_len", None) or MAX_TOKENS
    translates = isinstance(model, EncoderDecoderModel)
    lengths = [min(n, max_len) for n in LENGTHS]
    rows, targets = random_rows(model, lengths, lengths[3:] + lengths[:3], generator)
    description = f"{len(rows)} rows of {lengths[0]} … {lengths[-1]} random ids"
    if tokenizer is not None:
        rows += [ids[: min(MAX_TOKENS, max_len)] for ids in tokenizer.encode_batch(SENTENCES)]
        if translates:
            start = [model.config.start_id or 0]
            plain = tokenizer.encode_batch(SENTENCES[::-1], special=False)
            targets += [[*start, *ids][: min(MAX_TOKENS, max_len)] for ids in plain]
        description += f" and {len(SENTENCES)} sentences"
    return Inputs(description, rows, targets, two_segments(rows, numbers.get("n_segments") or 1))


def long_inputs(model: Model, length: int | None, seed: int) -> Inputs | None:
    """A row of this length and one of a quarter of it; None if short rows are as long already."""
    if length is None or length <= MAX_TOKENS:
        return None
    lengths = [length, length // 4]
    rows, targets = random_rows(model, lengths, lengths[::-1], torch.Generator().manual_seed(seed + 1))
    segments = two_segments(rows, model.config.to_dict().get("n_segments") or 1)
    return Inputs(f"2 rows of {lengths[1]:,} and {length:,}", rows, targets, segments, long=True)


def random_rows(
    model: Model, lengths: Sequence[int], of_targets: Sequence[int], generator: torch.Generator
) -> tuple[list[Ids], list[Ids]]:
    """Rows of these lengths, and targets if the model is a translator."""
    numbers = model.config.to_dict()

    def random(vocab_size: int, lengths: Sequence[int]) -> list[Ids]:
        known = [id for id in range(vocab_size) if id != model.config.pad_id]  # which other libraries take for padding
        return [[known[int(i)] for i in torch.randint(len(known), (n,), generator=generator)] for n in lengths]

    rows = random(numbers.get("source_vocab_size") or numbers["vocab_size"], lengths)
    return rows, random(numbers["vocab_size"], of_targets) if isinstance(model, EncoderDecoderModel) else []


def two_segments(rows: Sequence[Ids], n_segments: int) -> list[Ids]:
    """The second half of each row belongs to the second segment, if the model has segments."""
    return [[int(2 * at >= len(row)) for at in range(len(row))] for row in rows] if n_segments > 1 else []


def padded_inputs(
    rows: Sequence[Ids], side: Side, filler: int, device: torch.device
) -> tuple[Int[Tensor, "batch seq"], Bool[Tensor, "batch seq"]]:
    """Rows padded to one length, and where they are real."""
    longest = max(map(len, rows))
    lengths = torch.tensor([len(row) for row in rows])[:, None]
    along = torch.arange(longest)[None]
    real = along < lengths if side == "right" else along >= longest - lengths
    ids = torch.full(real.shape, filler)
    ids[real] = torch.tensor([id for row in rows for id in row])
    return ids.to(device), real.to(device)
