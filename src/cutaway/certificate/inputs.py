"""What a model is asked for its certificate.

Rows of random ids of many lengths, and with a tokenizer real sentences; sources and targets for a translator; random
pictures for a model that reads those. Then two long rows, one of them as long as the model reads: masks, windows,
positions and caches may go wrong where no short row gets to.
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
MOST = 18  # tokens of a sentence that are read
UNBOUNDED = 256  # tokens of the longest row, where the model knows no longest text
BEARABLE = 250e9  # multiplications and additions of one pass: five seconds on one core, and there are about thirty
PICTURES = 4
SENTENCES = (
    "Wait!",
    "When Mary and John went to the store, John gave a drink to Mary.",
    "Der Zug nach Köln fährt heute um 7:45 Uhr von Gleis 12 ab.",
    "Ünïcödé, 数学 and 🙂 in one line: def square(x): return x * x",
)


@dataclass(frozen=True)
class Inputs:
    """Rows of ids with their segments; of a translator sources, with the targets beside them."""

    inputs: str  # in words
    rows: list[Ids] = field(default_factory=list)
    targets: list[Ids] = field(default_factory=list)
    segments: list[Ids] = field(default_factory=list)
    pictures: Float[Tensor, "batch channel height width"] | None = None
    long: bool = False  # so long that the head, which scores every place by itself, is asked at a few places only

    def __len__(self) -> int:
        return len(self.rows) if self.pictures is None else len(self.pictures)

    def only(self, i: int) -> "Inputs":
        """One row, or one picture."""
        pictures = None if self.pictures is None else self.pictures[i : i + 1]
        rows, targets, segments = (of[i : i + 1] for of in (self.rows, self.targets, self.segments))
        return Inputs(self.inputs, rows, targets, segments, pictures, self.long)

    def shortened(self, n: int) -> "Inputs":
        """The same, the first row cut to n tokens."""
        cut = ([of[0][:n], *of[1:]] if of else [] for of in (self.rows, self.targets, self.segments))
        rows, targets, segments = cut
        return Inputs(self.inputs, rows, targets, segments, self.pictures, self.long)


def full_length(model: Model) -> int | None:
    """The longest text that a model reads, or that is tried where it knows none; None of a model that reads none."""
    if "image_size" in model.config.to_dict():
        return None
    return getattr(model, "max_len", None) or UNBOUNDED


def bearable_length(model: Model) -> int | None:
    """The longest text of which one pass is bearable, at most the full length."""
    full = full_length(model)
    if full is None:
        return None
    each = 2 * sum(x.numel() for x in (*model.parameters(), *model.buffers()))
    pairs = 4 * sum(part.n_heads * part.d_head for part in model.modules() if isinstance(part, Attention))
    bearable = 2 * BEARABLE / (each + math.sqrt(each**2 + 4 * pairs * BEARABLE))  # each · n + pairs · n² = BEARABLE
    return min(full, max(MOST, int(bearable)))


def questions(model: Model, tokenizer: Tokenizer | None, seed: int) -> Inputs:
    """What this model can read."""
    numbers, generator = model.config.to_dict(), torch.Generator().manual_seed(seed)
    if "image_size" in numbers:
        shape = (PICTURES, numbers["n_channels"], numbers["image_size"], numbers["image_size"])
        pictures = torch.randn(shape, generator=generator).to(model.device, model.dtype)
        return Inputs(f"{PICTURES} random pictures", pictures=pictures)
    max_len = getattr(model, "max_len", None) or MOST
    translates = isinstance(model, EncoderDecoderModel)
    lengths = [min(n, max_len) for n in LENGTHS]
    rows, targets = random_rows(model, lengths, lengths[3:] + lengths[:3], generator)
    said = f"{len(rows)} rows of {lengths[0]} … {lengths[-1]} random ids"
    if tokenizer is not None:
        rows += [ids[: min(MOST, max_len)] for ids in tokenizer.encode_batch(SENTENCES)]
        if translates:
            start = [model.config.start_id or 0]
            plain = tokenizer.encode_batch(SENTENCES[::-1], special=False)
            targets += [[*start, *ids][: min(MOST, max_len)] for ids in plain]
        said += f" and {len(SENTENCES)} sentences"
    return Inputs(said, rows, targets, two_segments(rows, numbers.get("n_segments") or 1))


def long_questions(model: Model, length: int | None, seed: int) -> Inputs | None:
    """A row of this length and one of a quarter of it; None where the other questions are as long already."""
    if length is None or length <= MOST:
        return None
    lengths = [length, length // 4]
    rows, targets = random_rows(model, lengths, lengths[::-1], torch.Generator().manual_seed(seed + 1))
    segments = two_segments(rows, model.config.to_dict().get("n_segments") or 1)
    return Inputs(f"2 rows of {lengths[1]:,} and {length:,}", rows, targets, segments, long=True)


def random_rows(
    model: Model, lengths: Sequence[int], of_targets: Sequence[int], generator: torch.Generator
) -> tuple[list[Ids], list[Ids]]:
    """Rows of these lengths, and of a translator targets."""
    numbers = model.config.to_dict()

    def random(vocab_size: int, lengths: Sequence[int]) -> list[Ids]:
        known = [id for id in range(vocab_size) if id != model.config.pad_id]  # others take it for padding
        return [[known[int(i)] for i in torch.randint(len(known), (n,), generator=generator)] for n in lengths]

    rows = random(numbers.get("source_vocab_size") or numbers["vocab_size"], lengths)
    return rows, random(numbers["vocab_size"], of_targets) if isinstance(model, EncoderDecoderModel) else []


def two_segments(rows: Sequence[Ids], n_segments: int) -> list[Ids]:
    """The second half of each row belongs to the second segment, where a model tells segments apart."""
    return [[int(2 * at >= len(row)) for at in range(len(row))] for row in rows] if n_segments > 1 else []


def padded_inputs(
    rows: Sequence[Ids], side: Side, filler: int, device: torch.device
) -> tuple[Int[Tensor, "batch seq"], Bool[Tensor, "batch seq"]]:
    """Rows side by side, and where they are real."""
    longest = max(map(len, rows))
    lengths = torch.tensor([len(row) for row in rows])[:, None]
    along = torch.arange(longest)[None]
    real = along < lengths if side == "right" else along >= longest - lengths
    ids = torch.full(real.shape, filler)
    ids[real] = torch.tensor([id for row in rows for id in row])
    return ids.to(device), real.to(device)
