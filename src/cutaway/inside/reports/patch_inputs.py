"""What `patch` compares: two texts as a model reads them, and its answers to both."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cutaway.decoding.translate import tag_for
from cutaway.decoding.translate_sentences import encode_sources
from cutaway.errors import InputError
from cutaway.inside.answers import answer_name, answer_scores, label_number, labels_of, single_token
from cutaway.inside.attribution.result import token_names
from cutaway.inside.model_kinds import ask, kind_of
from cutaway.inside.reports.options import PatchOptions
from cutaway.model.model import Model
from cutaway.pictures import visible_text
from cutaway.pictures.terminal_text import minus
from cutaway.tokens import Tokenizer


def warn_in_python(message: str) -> None:
    warnings.warn(message, stacklevel=4)


@dataclass(frozen=True, eq=False)
class OneText:
    """What the model reads of one text, and at which position it answers."""

    text: str
    inputs: tuple[Tensor, ...]
    more: dict[str, Any]
    at: int
    names: tuple[tuple[str, ...], ...]  # of the tokens of each input

    @classmethod
    def of(cls, model: Model, tokenizer: Tokenizer | None, text: str | Path, options: PatchOptions) -> "OneText":
        if kind_of(model).translates and tokenizer is not None:
            return cls._of_translation(model, tokenizer, str(text), options)
        if options.target:
            raise InputError("a target is what a translator has written so far, and this model does not translate")
        _, asked = ask(model, tokenizer, text, options)
        at = int(asked.reads[0].argmax())
        return cls(str(text), asked.inputs, asked.more, at, tuple(asked.texts.values()))

    @classmethod
    def _of_translation(cls, model: Model, tokenizer: Tokenizer, text: str, options: PatchOptions) -> "OneText":
        config = model.config
        if config.start_id is None or not config.end_ids:
            raise InputError(
                "this model does not say what begins and ends a text: set start_id and end_ids in its config"
            )
        (source,) = encode_sources(model, tokenizer, [text], tag_for(tokenizer, options.to), config.end_ids[0])  # type: ignore[arg-type]
        if not source:
            raise InputError("the text is empty: write a sentence to look at")
        rows = [source, [config.start_id, *tokenizer.encode(options.target, special=False)]]
        inputs = tuple(torch.tensor([row], device=model.device) for row in rows)
        return cls(text, inputs, {}, len(rows[1]) - 1, tuple(token_names(tokenizer, row) for row in rows))

    def scores(self, model: Model, tokenizer: Tokenizer | None) -> Tensor:
        """The score of every answer."""
        return answer_scores(model, tokenizer, self.inputs, self.more, [self.at])[0]


@dataclass(frozen=True, eq=False)
class Pair:
    """Two texts, or one, with the right and the wrong answer: as ids (or numbers of labels) and as text."""

    clean: OneText
    corrupted: OneText | None
    ids: tuple[int, int]
    names: tuple[str, str]

    @classmethod
    def of(
        cls,
        model: Model,
        tokenizer: Tokenizer | None,
        clean: str | Path,
        corrupted: str | Path | None,
        options: PatchOptions,
    ) -> "Pair":
        first = OneText.of(model, tokenizer, clean, options)
        second = None if corrupted is None else OneText.of(model, tokenizer, corrupted, options)
        if second is not None:
            _check_same_shape(first, second)
        return cls(first, second, *_answers(model, tokenizer, first, second, options))

    def check(self, model: Model, tokenizer: Tokenizer | None, warn: Callable[[str], None]) -> None:
        """Warns if the right answer is not ahead, or as much ahead in the corrupted text: there is nothing to find."""

        def lead(one: OneText) -> float:
            scores = one.scores(model, tokenizer)
            return float(scores[self.ids[0]] - scores[self.ids[1]])

        a, b = lead(self.clean), None if self.corrupted is None else lead(self.corrupted)
        ahead = f"«{self.names[0]}» is ahead of «{self.names[1]}» by"
        if a <= 0:
            warn(f"this model fails the task: in CLEAN {ahead} {minus(f'{a:+.2f}')}")
        elif b is not None and b >= a:
            warn(f"CORRUPTED is no worse: there {ahead} {minus(f'{b:+.2f}, in CLEAN {a:+.2f}')}")


def _check_same_shape(first: OneText, second: OneText) -> None:
    """Positions are compared one by one, so both texts need the same number of tokens, and one place to answer."""
    if any(one.shape != other.shape for one, other in zip(first.inputs, second.inputs, strict=True)):
        pieces = ["│".join(one.names[0]) for one in (first, second)]
        n = [len(one.names[0]) for one in (first, second)]
        raise InputError(
            f"CLEAN has {n[0]} tokens and CORRUPTED {n[1]}: choose words so that both have as many. "
            f"They are cut so: {pieces[0]} — {pieces[1]}"
        )
    if first.at != second.at:
        raise InputError(f"the answers stand at positions {first.at} and {second.at}: they need to be at the same one")


def _answers(
    model: Model, tokenizer: Tokenizer | None, first: OneText, second: OneText | None, options: PatchOptions
) -> tuple[tuple[int, int], tuple[str, str]]:
    """The right and the wrong answer: those asked for, or the most likely one of each text, or the runner-up."""

    def number(word: str, option: str) -> int:
        if labels_of(model) is not None:
            return label_number(model, word, option)
        assert tokenizer is not None
        return single_token(tokenizer, word, option)

    def likeliest(one: OneText, *others: int) -> int:
        scores = one.scores(model, tokenizer)
        scores[list(others)] = float("-inf")
        return int(scores.argmax())

    right = likeliest(first) if options.right is None else number(options.right, "right")
    own = likeliest(first, right) if second is None else likeliest(second)
    wrong = own if options.wrong is None else number(options.wrong, "wrong")
    name = answer_name(model, tokenizer)
    names = visible_text(name(right)).strip(), visible_text(name(wrong)).strip()
    if right == wrong:
        raise InputError(f"both answers are «{names[0]}», so that nothing could move: give the right and the wrong one")
    return (right, wrong), names
