"""Indirect-object identification: «When Mary and John met, John gave a drink to» … Mary, the name that is not repeated.

The circuit of Wang et al. 2022 in words: some heads detect at the second John (S2) that John occurred before, at S1
(duplicate-token heads, or induction heads through S1+1); others move that to the end (S-inhibition heads, END → S2), so
that the last ones look at Mary (IO) and not at John, and copy what they look at (name movers, END → IO).

    asked = ioi_prompts(tokenizer, 100, front=[model.config.start_id])
    asked.answers(model)          # logit difference and accuracy
    ioi_head_scores(model, asked) # role → score of every head
    asked.task(model)             # for circuits: heads replaced by their means over prompts of three different names
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cutaway.arguments import checked
from cutaway.decoding.engine.engine import side_by_side
from cutaway.errors import InputError
from cutaway.files import read_json
from cutaway.inside.circuits.circuit_task import CircuitTask, circuit_task
from cutaway.inside.patching.metrics import LogitDifference, at_positions
from cutaway.model.finite import check_scores
from cutaway.model.model import Model
from cutaway.tokens import Tokenizer

ORDERS = ("ABBA", "BABA")


@dataclass(frozen=True)
class IoiTemplates:
    """Sentences with [A] for the indirect object, [B] for the subject, [PLACE] and [OBJECT], which end before [A].

    >>> IOI_TEMPLATES.halves()
    """

    sentences: tuple[str, ...]
    names: tuple[str, ...]
    places: tuple[str, ...]
    objects: tuple[str, ...]

    @classmethod
    def read(cls, path: Path | str, key: str = "BABA_TEMPLATES") -> "IoiTemplates":
        """Reads a JSON file with NAMES, PLACES, OBJECTS and lists of templates, of which `key` is used."""
        values = read_json(Path(path))
        for name in (key, "NAMES", "PLACES", "OBJECTS"):
            if not isinstance(values.get(name), list) or not all(isinstance(x, str) for x in values[name]):
                raise InputError(f"{path} has no list of texts {name!r}")
        sentences = tuple(text.strip().removesuffix("[A]").rstrip() for text in values[key])
        return cls(sentences, *(tuple(values[name]) for name in ("NAMES", "PLACES", "OBJECTS")))

    def halves(self) -> tuple["IoiTemplates", "IoiTemplates"]:
        """Every other sentence and name: one half to find a circuit on, the other, which shares neither, to test it."""
        first, second = (
            IoiTemplates(self.sentences[i::2], self.names[i::2], self.places, self.objects) for i in range(2)
        )
        return first, second


IOI_TEMPLATES = IoiTemplates(
    (
        "When [B] and [A] met near the [PLACE], [B] handed a [OBJECT] to",
        "Last week [B] and [A] were at the [PLACE], and [B] showed a [OBJECT] to",
        "As soon as [B] and [A] had left the [PLACE], [B] passed the [OBJECT] to",
        "In the evening [B] and [A] came back from the [PLACE]. [B] brought a [OBJECT] to",
    ),
    tuple("Mary John Tom James Anna Paul Sarah David Peter Kate Mark Lucy Jack Emma Alice Henry".split()),
    tuple("school park garden church market station".split()),
    tuple("book drink ring letter cup ball".split()),
)


@dataclass(frozen=True, eq=False)
class IoiPrompts:
    """Prompts as ids, the positions of their names, and the same prompts with three different names (`abc`)."""

    texts: tuple[str, ...]
    ids: Int[Tensor, "batch seq"]
    abc: Int[Tensor, "batch seq"]
    real: Bool[Tensor, "batch seq"] | None
    io: Int[Tensor, " batch"]  # the token of the right name
    s: Int[Tensor, " batch"]
    at: dict[str, Int[Tensor, " batch"]]  # positions: io, s1, s1+1, s2, end
    groups: tuple[tuple[int, str], ...]  # template and order: within a group, a position always means the same

    def to(self, device: torch.device | str) -> "IoiPrompts":
        """The same on a device; functions that take a model do this themselves."""
        moved = {name: getattr(self, name).to(device) for name in ("ids", "abc", "io", "s")}
        at = {name: place.to(device) for name, place in self.at.items()}
        return replace(self, **moved, at=at, real=None if self.real is None else self.real.to(device))

    @property
    def metric(self) -> LogitDifference:
        """By how much the indirect object is ahead of the subject, at the end."""
        return LogitDifference(self.io, self.s, at=self.at["end"])

    def task(self, model: Model, *, how: Literal["mean", "resample", "zero"] = "mean", **more: Any) -> CircuitTask:
        """The task of the logit difference; ablated nodes are as in prompts with three different names."""
        here = self.to(model.device)
        more = {"reference": here.abc, "groups": here.groups, "real": here.real, **more}
        return circuit_task(model, here.ids, metric=here.metric, how=how, **more)

    @torch.no_grad()
    def answers(self, model: Model) -> "IoiAnswers":
        here = self.to(model.device)
        hidden = model.hidden(here.ids, real=here.real)
        logits = model.head(at_positions(hidden, here.at["end"][:, None]))[:, 0]
        check_scores(model, logits)
        rows = torch.arange(len(logits), device=logits.device)
        ahead = logits[rows, here.io] - logits[rows, here.s]
        return IoiAnswers(ahead, logits.argmax(dim=-1) == here.io)


@dataclass(frozen=True, eq=False)
class IoiAnswers:
    """For each prompt: by how much the indirect object leads the subject, and whether it leads all tokens."""

    ahead: Float[Tensor, " batch"]
    first: Bool[Tensor, " batch"]

    def to_dict(self) -> dict[str, float]:
        """`accuracy` is between the two names, `top1` among all tokens."""
        return {
            "logit_difference": self.ahead.mean().item(),
            "accuracy": (self.ahead > 0).double().mean().item(),
            "top1": self.first.double().mean().item(),
        }


@checked
def ioi_prompts(
    tokenizer: Tokenizer,
    n: int,
    *,
    templates: IoiTemplates = IOI_TEMPLATES,
    seed: int = 0,
    orders: Sequence[str] = ORDERS,
    front: Sequence[int] = (),
) -> IoiPrompts:
    """`n` prompts: templates and orders in turn, with random names, places and objects that are one token each.

    >>> ioi_prompts(name_words, 2).texts

    `front` are tokens before each prompt, for a start token that the tokenizer does not write.
    """
    draw = Random(seed)
    for order in orders:
        if order not in ORDERS:
            raise InputError(f"order {order!r} is not one of {', '.join(ORDERS)}")
    kept = {
        what: [word for word in getattr(templates, what) if len(tokenizer.encode(f" {word}", special=False)) == 1]
        for what in ("names", "places", "objects")
    }
    for what, least in (("names", 5), ("places", 1), ("objects", 1)):
        if len(kept[what]) < least:
            raise InputError(
                f"{len(kept[what])} of {len(getattr(templates, what))} {what} are one token of this tokenizer: "
                f"{least} are needed"
            )
    cells = [(number, order) for order in orders for number in range(len(templates.sentences))]
    made = []
    for row in range(n):
        group = cells[row % len(cells)]
        io, s, *three = draw.sample(kept["names"], 5)
        fill = {"PLACE": draw.choice(kept["places"]), "OBJECT": draw.choice(kept["objects"])}
        sentence = templates.sentences[group[0]]
        names = [io, s, s] if group[1] == "ABBA" else [s, io, s]
        made.append((group, io, s, _read(tokenizer, sentence, fill, names), _read(tokenizer, sentence, fill, three)))
    return _together(tokenizer, made, list(front))


@dataclass(frozen=True)
class _Row:
    text: str
    ids: list[int]
    names: list[int]  # where the three names stand


def _read(tokenizer: Tokenizer, sentence: str, fill: dict[str, str], names: Sequence[str]) -> _Row:
    text = ""
    starts: list[int] = []
    for part in re.split(r"(\[\w+\])", sentence):
        if part in ("[A]", "[B]"):
            if len(starts) == 3 or not text.endswith(" "):
                raise InputError(f"the template {sentence!r} needs three names, each after a space")
            starts.append(len(text))
            text += names[len(starts) - 1]
        else:
            text += fill.get(part[1:-1], part)
    if len(starts) != 3:
        raise InputError(f"the template {sentence!r} has {len(starts)} names before its end: it needs three")
    encoded = tokenizer.encode_full(text, special=False)
    places = [next(i for i, (a, b) in enumerate(encoded.offsets) if a <= start < b) for start in starts]
    return _Row(text, encoded.ids, places)


def _together(tokenizer: Tokenizer, made: Sequence[tuple[Any, str, str, _Row, _Row]], front: list[int]) -> IoiPrompts:
    for _, _, _, own, other in made:
        if own.names != other.names or len(own.ids) != len(other.ids):
            raise InputError(f"{own.text!r} and {other.text!r} are not as long: the names are not one token there")
    ids, real = side_by_side([front + own.ids for *_, own, _ in made])
    abc, _ = side_by_side([front + other.ids for *_, other in made])
    first, second, third = (torch.tensor([len(front) + own.names[i] for *_, own, _ in made]) for i in range(3))
    io_first = torch.tensor([group[1] == "ABBA" for group, *_ in made])
    s1 = torch.where(io_first, second, first)
    at = {"io": torch.where(io_first, first, second), "s1": s1, "s1+1": s1 + 1, "s2": third, "end": real.sum(1) - 1}
    io, s = (torch.tensor([tokenizer.encode(f" {row[i]}", special=False)[0] for row in made]) for i in (1, 2))
    rows = torch.arange(len(ids))
    if not (torch.equal(ids[rows, at["io"]], io) and torch.equal(ids[rows, third], s)):
        raise InputError("a name is another token in its sentence than after a space: choose other templates")
    groups = tuple(group for group, *_ in made)
    return IoiPrompts(tuple(own.text for *_, own, _ in made), ids, abc, None if real.all() else real, io, s, at, groups)
