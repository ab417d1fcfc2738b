"""What a model is asked for its certificate.

Rows of random ids of many lengths, and with a tokenizer real sentences; sources and targets for a translator; random
pictures for a model that reads those.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cutaway.model.model import EncoderDecoderModel, Model
from cutaway.tokens import Tokenizer

Side = Literal["left", "right"]
Ids = list[int]
LENGTHS = (1, 2, 3, 4, 6, 9, 13, 18)
MOST = 18  # tokens of a sentence that are read
PICTURES = 4
SENTENCES = (
    "Wait!",
    "When Mary and John went to the store, John gave a drink to Mary.",
    "Der Zug nach Köln fährt heute um 7:45 Uhr von Gleis 12 ab.",
    "Ünïcödé, 数学 and 🙂 in one line: def square(x): return x * x",
)


@dataclass(frozen=True)
class Asked:
    """Rows of ids with their segments; of a translator sources, with the targets beside them."""

    inputs: str  # in words
    rows: list[Ids] = field(default_factory=list)
    targets: list[Ids] = field(default_factory=list)
    segments: list[Ids] = field(default_factory=list)
    pictures: Float[Tensor, "batch channel height width"] | None = None

    def __len__(self) -> int:
        return len(self.rows) if self.pictures is None else len(self.pictures)

    def only(self, i: int) -> "Asked":
        """One row, or one picture."""
        pictures = None if self.pictures is None else self.pictures[i : i + 1]
        return Asked(self.inputs, self.rows[i : i + 1], self.targets[i : i + 1], self.segments[i : i + 1], pictures)


def questions(model: Model, tokenizer: Tokenizer | None, seed: int) -> Asked:
    """What this model can read."""
    numbers, generator = model.config.to_dict(), torch.Generator().manual_seed(seed)
    if "image_size" in numbers:
        shape = (PICTURES, numbers["n_channels"], numbers["image_size"], numbers["image_size"])
        pictures = torch.randn(shape, generator=generator).to(model.device, model.dtype)
        return Asked(f"{PICTURES} random pictures", pictures=pictures)
    max_len = getattr(model, "max_len", None) or MOST
    translates = isinstance(model, EncoderDecoderModel)

    def random(vocab_size: int, lengths: Sequence[int]) -> list[Ids]:
        known = [id for id in range(vocab_size) if id != model.config.pad_id]  # others take it for padding
        return [[known[int(i)] for i in torch.randint(len(known), (n,), generator=generator)] for n in lengths]

    lengths = [min(n, max_len) for n in LENGTHS]
    rows = random(numbers.get("source_vocab_size") or numbers["vocab_size"], lengths)
    targets = random(numbers["vocab_size"], lengths[3:] + lengths[:3]) if translates else []
    said = f"{len(rows)} rows of {lengths[0]} … {lengths[-1]} random ids"
    if tokenizer is not None and tokenizer.vocab_size <= numbers["vocab_size"]:
        rows += [ids[: min(MOST, max_len)] for ids in tokenizer.encode_batch(SENTENCES)]
        if translates:
            start = [model.config.start_id or 0]
            plain = tokenizer.encode_batch(SENTENCES[::-1], special=False)
            targets += [[*start, *ids][: min(MOST, max_len)] for ids in plain]
        said += f" and {len(SENTENCES)} sentences"
    segments = two_segments(rows, numbers.get("n_segments") or 1)
    return Asked(said, rows, targets, segments)


def two_segments(rows: Sequence[Ids], n_segments: int) -> list[Ids]:
    """The second half of each row belongs to the second segment, where a model tells segments apart."""
    return [[int(2 * at >= len(row)) for at in range(len(row))] for row in rows] if n_segments > 1 else []


def padded(
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
