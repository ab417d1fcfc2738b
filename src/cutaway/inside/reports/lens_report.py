"""`lens`: what each layer of a model would answer, as a report."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from rich.text import Text
from torch import Tensor

from cutaway.arguments import with_options
from cutaway.errors import InputError
from cutaway.inside.answers import labels_of, single_token
from cutaway.inside.attribution.result import token_names
from cutaway.inside.model_kinds import Kind, ask, kind_of
from cutaway.inside.reports.axes import layer_names
from cutaway.inside.reports.options import LensOptions
from cutaway.inside.reports.report import Report
from cutaway.inside.reports.to_picture import to_picture
from cutaway.inside.residual.decompose import check_blocks
from cutaway.inside.residual.logit_lens import Lens, logit_lens
from cutaway.inside.residual.tuned_lens import TunedLens
from cutaway.model.model import Model
from cutaway.model.tap import uncompiled
from cutaway.pictures import Picture, visible_text
from cutaway.pictures.console import Console
from cutaway.pictures.terminal_tables import chance, draw_picture, grid
from cutaway.tokens import Tokenizer


@dataclass(frozen=True, eq=False)
class LensReport(Report):
    """A lens, and the text that it was used on."""

    lens: Lens
    kind: Kind
    text: str
    ids: Int[Tensor, " token"]  # of the text, or of the translation; none of an image
    tokenizer: Tokenizer | None
    labels: list[str] | None  # None: each layer answers with tokens
    follow: tuple[str, ...]  # words whose probabilities are followed
    tuned: bool
    model: str

    @property
    def title(self) -> str:
        return self.kind.title(self.text)

    @property
    def summary(self) -> str:
        return f"{self.name}, read after each layer"

    def pictures(self) -> dict[str, Picture]:
        title = f"{'Tuned' if self.tuned else 'Logit'} lens: what each layer would say"
        drawn = to_picture(self.lens, self.tokenizer, self.ids, labels=self.labels, title=title)
        return {"lens": drawn} | {
            f"«{word}»": to_picture(
                self.lens,
                self.tokenizer,
                self.ids,
                follow=number,
                title=f"How likely «{visible_text(word).strip()}» is",
            )
            for number, word in enumerate(self.follow)
        }

    def to_dict(self) -> dict[str, Any]:
        """The numbers of the lens, with texts for its tokens."""
        positions = [] if self.tokenizer is None else token_names(self.tokenizer, self.ids.tolist())
        return {
            "text": self.text,
            "layer_names": list(layer_names(self.lens.layers)),
            "position_texts": list(positions),
            "texts": {str(id): text for id, text in self._texts().items()},
            **self.lens.to_dict(),
        }

    def _texts(self) -> dict[int, str]:
        ids = self.lens.top_tokens.unique().tolist()
        if self.labels is not None:
            return {id: self.labels[id] for id in ids}
        assert self.tokenizer is not None
        return {id: token_names(self.tokenizer, [id])[0] for id in ids if id < self.tokenizer.vocab_size}

    def print_to(self, console: Console) -> None:
        draw_picture(console, self.pictures()["lens"])
        for number, word in enumerate(self.follow):
            console.print()
            console.print(Text.assemble((_name(word), "bold"), ("  at the last position: rank, probability", "dim")))
            table = grid()
            for layer, its in reversed(list(enumerate(layer_names(self.lens.layers)))):
                rank = int(self.lens.token_rank[layer, 0, -1, number]) + 1
                probability = float(self.lens.token_probability[layer, 0, -1, number])
                table.add_row(Text(f"  {its}"), Text(f"{rank:,}.".rjust(7)), *chance(probability, console))
            console.print(table)


def _name(word: str) -> str:
    return visible_text(word).strip()


@with_options
def lens(
    model: Model, tokenizer: Tokenizer | None, text: str | Path, *, name: str = "", options: LensOptions
) -> LensReport:
    """Reads the residual stream after each layer of a model as if it were the last.

    >>> print(lens(model, tokenizer, "the cat"))

    `name` is what the report calls the model.
    """
    model, kind = uncompiled(model), kind_of(model)
    check_blocks(model)
    if options.target is not None and not kind.translates:
        raise InputError("a target is the translation that a translator reads, and this model does not translate")
    _, asked = ask(model, tokenizer, text, options, target=options.target)
    labels = labels_of(model)
    if options.follow and labels is not None:
        raise InputError("follow is for words, and this model answers with labels: leave it out")
    followed = [single_token(tokenizer, word, "follow") for word in options.follow] if tokenizer is not None else []
    tuned = TunedLens.load(options.tuned, model) if isinstance(options.tuned, Path | str) else options.tuned
    stream = None if options.stream is None else str(options.stream)
    how: dict[str, Any] = {"stream": stream, **asked.more}
    found = logit_lens(model, *asked.inputs, top=options.top, tokens=followed, tuned=tuned, **how)
    ids = torch.zeros(0, dtype=torch.long) if kind.reads_images else asked.inputs[-1][0]
    follow, name = tuple(options.follow), name or model.config.family
    return LensReport(found, kind, str(text), ids, tokenizer, labels, follow, tuned is not None, name)
