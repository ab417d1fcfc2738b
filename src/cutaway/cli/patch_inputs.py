"""What `cutaway patch` compares: two texts as a model reads them, and its answers to both."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutaway.cli.shared.format import minus
from cutaway.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from cutaway.model.model import Model
    from cutaway.tokens import Tokenizer


@dataclass(frozen=True)
class Given:
    """What the model reads of one text, and where it answers."""

    text: str
    inputs: "tuple[Tensor, ...]"
    more: dict[str, Any]
    at: int
    names: tuple[tuple[str, ...], ...]  # of the tokens of each input


def given_to(
    loaded: "Model", tokenizer: "Tokenizer | None", path: Path, text: str, to: str | None, target: str
) -> Given:
    import torch

    from cutaway.cli.lens import asked_about
    from cutaway.decoding.translate import encode_sources, tag_for
    from cutaway.inside.attribution.result import token_names
    from cutaway.model.model import EncoderDecoderModel

    if not isinstance(loaded, EncoderDecoderModel):
        asked = asked_about(loaded, tokenizer, path, text, to, target or None)
        place = int(asked.reads[0].argmax())
        return Given(text, asked.inputs, asked.more, place, tuple(asked.texts.values()))
    from cutaway.cli.shared.models import tokenizer_for_text

    tokenizer = tokenizer_for_text(tokenizer, path)
    if loaded.config.start_id is None or not loaded.config.end_ids:
        raise InputError(f"{path} does not say what begins and ends a text: set start_id and end_ids in its config")
    (source,) = encode_sources(loaded, tokenizer, [text], tag_for(tokenizer, to), loaded.config.end_ids[0])
    if not source:
        raise InputError("the text is empty: write a sentence to look at")
    rows = [source, [loaded.config.start_id, *tokenizer.encode(target, special=False)]]
    inputs = tuple(torch.tensor([row], device=loaded.device) for row in rows)
    return Given(text, inputs, {}, len(rows[1]) - 1, tuple(token_names(tokenizer, row) for row in rows))


def check_alike(first: Given, second: Given) -> None:
    """Positions are compared one by one: both texts need as many tokens, and the answer at the same place."""
    if any(one.shape != other.shape for one, other in zip(first.inputs, second.inputs, strict=True)):
        cut = ["│".join(given.names[0]) for given in (first, second)]
        n = [len(given.names[0]) for given in (first, second)]
        raise InputError(
            f"CLEAN has {n[0]} tokens and CORRUPTED {n[1]}: choose words so that both have as many. "
            f"They are cut so: {cut[0]} — {cut[1]}"
        )
    if first.at != second.at:
        raise InputError(f"the answers stand at positions {first.at} and {second.at}: they need to be at the same one")


def answers_to(
    loaded: "Model",
    tokenizer: "Tokenizer | None",
    first: Given,
    second: Given | None,
    right: str | None,
    wrong: str | None,
) -> tuple[tuple[int, int], tuple[str, str]]:
    """The two answers, as numbers and as texts: those asked for, or the likeliest of each text, or the runner-up."""
    from cutaway.inside.answer_tokens import LABELS, answer_name, answer_scores, label_names, one_token
    from cutaway.pictures import visible_text

    labels = label_names(loaded) if loaded.config.task in LABELS else None

    def number(word: str, option: str) -> int:
        if labels is None:
            assert tokenizer is not None
            return one_token(tokenizer, word, option)
        if word not in labels:
            raise InputError(f"{option} {word!r} is no label of this model: {', '.join(labels)}")
        return labels.index(word)

    def likeliest(given: Given, *but: int) -> int:
        (scores,) = answer_scores(loaded, tokenizer, given.inputs, given.more, [given.at])
        scores[list(but)] = float("-inf")
        return int(scores.argmax())

    a = likeliest(first) if right is None else number(right, "--right")
    own = likeliest(first, a) if second is None else likeliest(second)
    b = own if wrong is None else number(wrong, "--wrong")
    names = tuple(visible_text(answer_name(loaded, tokenizer)(one)).strip() for one in (a, b))
    if a == b:
        raise InputError(f"both answers are «{names[0]}», so that nothing could move: give --right and --wrong")
    return (a, b), (names[0], names[1])


def check_answered(
    loaded: "Model",
    tokenizer: "Tokenizer | None",
    first: Given,
    second: Given | None,
    ids: tuple[int, int],
    names: tuple[str, str],
) -> None:
    """Says before the long part where a model does not answer as it is asked to, and nothing could be brought back."""
    from cutaway.inside.answer_tokens import answer_scores

    def lead(given: Given) -> float:
        (scores,) = answer_scores(loaded, tokenizer, given.inputs, given.more, [given.at])
        return float(scores[ids[0]] - scores[ids[1]])

    said, a, b = f"«{names[0]}» is ahead of «{names[1]}» by", lead(first), None if second is None else lead(second)
    if a <= 0:
        print(f"warning: this model fails the task: in CLEAN {said} {minus(f'{a:+.2f}')}", file=sys.stderr)
    elif b is not None and b >= a:
        numbers = minus(f"{b:+.2f}, in CLEAN {a:+.2f}")
        print(f"warning: CORRUPTED is no worse: there {said} {numbers}", file=sys.stderr)
