"""What `inspect` finds: the answer of a model, and what went on inside while it was computed."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from cutaway.decoding.alignment import Alignment
from cutaway.errors import InputError
from cutaway.inside.attribution.result import Attribution
from cutaway.inside.model_kinds import Kind
from cutaway.inside.reports.inspection_pictures import inspection_pictures
from cutaway.inside.reports.inspection_text import print_inspection
from cutaway.inside.reports.report import Report
from cutaway.inside.reports.writers import Writers
from cutaway.pictures import Picture
from cutaway.pictures.console import Console
from cutaway.pictures.pages import page_section
from cutaway.pictures.svg import Markup
from cutaway.tokens import Tokenizer

Guess = tuple[str, float]  # an answer and its probability


@dataclass(frozen=True, eq=False)
class Inspection(Report):
    """What was found about one text or image; a part that was not asked for, or that the model lacks, is None."""

    kind: Kind
    given: str
    answer: str
    tokens: dict[str, tuple[str, ...]]  # the inputs by name: text; source, target; patches
    outputs: tuple[str, ...]
    guesses: list[list[Guess]]  # for each output the most likely answers
    asked: list[Guess]  # for each output the answer that is asked about
    attribution: Attribution | None = None
    writers: Writers | None = None
    patterns: dict[str, Float[Tensor, "head query key"]] | None = None
    alignment: Alignment | None = None
    image: np.ndarray | None = None
    model: str = ""
    architecture: str = ""  # in a few words
    parts: tuple[str, ...] = ()  # those that were asked for; () if none were named
    told: bool = False  # `asked` is not the model's own answer
    head: int | None = None  # drawn large in each layer
    tokenizer: Tokenizer | None = field(default=None, repr=False)

    @property
    def question(self) -> str:
        """The kind of question: next word, translation, blank, label, picture."""
        return self.kind.name

    @property
    def title(self) -> str:
        return self.kind.title(self.given)

    @property
    def summary(self) -> str:
        return f"{self.name}: {self.answer_with_probability}"

    @property
    def answer_with_probability(self) -> str:
        text, p = self.asked[0]
        shown = f" ({p:.1%})" if len(self.asked) == 1 and text == self.outputs[0] else ""
        return self.answer.strip() + shown

    def pictures(self) -> dict[str, Picture]:
        pictures = inspection_pictures(self)
        if not pictures:
            raise InputError("the answer alone has no picture: show something else, too")
        return pictures

    def one_picture(self, file: str) -> Picture:
        if len(self.parts) > 1:
            raise InputError(f"{file} holds one picture: show one part alone, or write a page (.html)")
        return super().one_picture(file)

    def print_to(self, console: Console, which: str = "") -> None:
        print_inspection(console, self, which)

    def axis_names(self, part: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of the queries and the keys of an attention (`decoder.3.cross`)."""
        first, *_, last = [*self.tokens.values()] * 2
        if part.endswith(".cross"):
            return last, first
        return (first, first) if part.startswith("encoder") else (last, last)

    def strongest_looks(self) -> list[dict[str, Any]]:
        """For every head its largest weight, other than on the query itself and on the first token, if it has any."""
        found = []
        for part, pattern in (self.patterns or {}).items():
            queries, keys = self.axis_names(part)
            for head, weights in enumerate(pattern):
                away = weights.clone()
                if not part.endswith(".cross"):
                    away.fill_diagonal_(0.0)
                    away[:, 0] = 0.0
                if not away.any():
                    continue
                query, key = divmod(int(away.argmax()), len(keys))
                look = {"query": query, "key": key, "from": queries[query], "to": keys[key]}
                found.append({"head": f"{part}.{head}", **look, "weight": weights[query, key].item()})
        return found

    def to_dict(self) -> dict[str, Any]:
        """All numbers, ready for JSON; of patterns, the square of a text for each head, only if they were asked for."""
        data: dict[str, Any] = {
            "question": self.question,
            "given": self.given,
            "answer": self.answer,
            "tokens": {name: list(tokens) for name, tokens in self.tokens.items()},
            "outputs": list(self.outputs),
            "guesses": [[{"text": text, "probability": p} for text, p in some] for some in self.guesses],
            "asked": [{"text": text, "probability": p} for text, p in self.asked],
        }
        for name in ("attribution", "writers"):
            if (part := getattr(self, name)) is not None:
                data[name] = part.to_dict()
        if self.patterns is not None:
            data["heads"] = self.strongest_looks()
            if "heads" in self.parts:
                data["patterns"] = {part: pattern.tolist() for part, pattern in self.patterns.items()}
        if self.alignment is not None:
            links = [{"source": a, "target": b, "weight": weight} for a, b, weight in self.alignment.links()]
            data["alignment"] = {"links": links, "pharaoh": self.alignment.pharaoh()}
        return data


@dataclass(frozen=True, eq=False)
class Inspections(Report):
    """The sentences of a text, each inspected by itself."""

    given: str
    sentences: tuple[Inspection, ...]
    model: str = ""

    @property
    def title(self) -> str:
        return self.given

    @property
    def summary(self) -> str:
        return f"{self.name}: {len(self.sentences)} sentences"

    def pictures(self) -> dict[str, Picture]:
        return {
            f"{number}: {name}": picture
            for number, one in enumerate(self.sentences, 1)
            for name, picture in one.pictures().items()
        }

    def page_parts(self) -> Iterable[Markup]:
        return (page_section(one.given, one.answer_with_probability, one.pictures().values()) for one in self.sentences)

    def one_picture(self, file: str) -> Picture:
        raise InputError(
            f"{file} holds one picture, and the text has {len(self.sentences)} sentences: write a page (.html)"
        )

    def print_to(self, console: Console) -> None:
        for number, one in enumerate(self.sentences, 1):
            if number > 1:
                console.print()
            one.print_to(console, f"; sentence {number} of {len(self.sentences)}")

    def to_dict(self) -> dict[str, Any]:
        return {"given": self.given, "sentences": [one.to_dict() for one in self.sentences]}
