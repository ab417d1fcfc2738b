"""What a model is asked for its certificate, and its answers in a form that can be held against each other.

Rows of random ids of many lengths, and with a tokenizer real sentences; sources and targets for a translator; random
pictures for a model that reads those. Padding is filled with a token that means something: it shows when it leaks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cutaway.model.model import EncoderDecoderModel, Model
from cutaway.tokens import Tokenizer

Side = Literal["left", "right"]
Ids = list[int]
LENGTHS = (1, 2, 3, 5, 8, 12, 17, 24)
MOST = 32  # tokens of a sentence that are read
PICTURES = 4
SENTENCES = (
    "I ate an apple.",
    "Wait!",
    "The animal didn't cross the street because it was too tired.",
    "When Mary and John went to the store, John gave a drink to Mary.",
    "Attention is all you need, or so they said in the year 2017; by then nobody had tried it at this size.",
    "Der Zug nach Köln fährt heute um 7:45 Uhr von Gleis 12 ab.",
    "def square(x): return x * x",
    "Ünïcödé, 数学 and 🙂 in one line.",
)
PLACEWISE = ("language_model", "masked_language_model", "pretrain", "tag", "translate", "hidden")


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
    segments = random_segments(rows, numbers.get("n_segments") or 1)
    return Asked(said, rows, targets, segments)


def random_segments(rows: Sequence[Ids], n_segments: int) -> list[Ids]:
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


@torch.no_grad()
def together(model: Model, asked: Asked, *, side: Side = "right") -> list[Tensor]:
    """All answers from one batch, each as one row of numbers."""
    given, more, real = batch_of(model, asked, side)
    return answers(model, model.hidden(*given, **more), real)


@torch.no_grad()
def one_by_one(model: Model, asked: Asked) -> list[Tensor]:
    """All answers, each from a batch of its own, in which nothing is padded."""
    found: list[Tensor] = []
    for i in range(len(asked)):
        given, more, _ = batch_of(model, alone(asked, i), "right")
        found += answers(
            model, model.hidden(*given, **{name: x for name, x in more.items() if name == "segments"}), None
        )
    return found


def alone(asked: Asked, i: int) -> Asked:
    pictures = None if asked.pictures is None else asked.pictures[i : i + 1]
    return Asked(asked.inputs, asked.rows[i : i + 1], asked.targets[i : i + 1], asked.segments[i : i + 1], pictures)


def batch_of(model: Model, asked: Asked, side: Side) -> tuple[list[Tensor], dict[str, Any], Tensor | None]:
    """What `model.hidden` is given, and where its output is real."""
    if asked.pictures is not None:
        return [asked.pictures], {}, None
    filler = min(7, model.config.to_dict()["vocab_size"] - 1)
    ids, real = padded(asked.rows, side, filler, model.device)
    if asked.targets:
        targets, targets_real = padded(asked.targets, side, filler, model.device)
        return [ids, targets], {"source_real": real, "real": targets_real}, targets_real
    more = {"real": real}
    if asked.segments:
        more["segments"], _ = padded(asked.segments, side, 0, model.device)
    return [ids], more, real


def answers(model: Model, hidden: Float[Tensor, "batch seq d_model"], real: Tensor | None) -> list[Tensor]:
    """All that the head says of each row, at its real places: what else it knows is asked by name."""
    said = [model.head(hidden, real)]
    for name, task in (("next_sentence", "pretrain"), ("pool", "hidden")):
        part = getattr(model.head, name, None)
        if part is not None and model.config.task == task:
            said.append(part(hidden, real))

    def of_row(i: int) -> Tensor:
        whole = [x[i] if real is None or x.ndim < 3 else x[i][real[i]] for x in said]
        return torch.cat([x.flatten() for x in whole])

    return [of_row(i) for i in range(len(hidden))]


def states(model: Model, hidden: Float[Tensor, "seq d_model"]) -> Float[Tensor, "seq answers"]:
    """What can be compared place by place: the head's scores where it scores places, else the hidden states."""
    return model.head(hidden[None])[0] if model.config.task in PLACEWISE else hidden
