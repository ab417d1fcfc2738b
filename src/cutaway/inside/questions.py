"""Questions to a model: a row of inputs, a metric, and names for both.

    asked = ask_next_word(model, tokenizer, "The dog")
    asked.metric(model(*asked.inputs))          # log p of the most likely next token
    asked.attribute("integrated_gradients")     # its attribution to the inputs

`explain_next` and its like do both; `deletion_curve` measures how faithful an attribution is.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.arguments import checked
from cutaway.decoding.classify import Picture, arrays_of
from cutaway.decoding.fill import rows_with_blanks
from cutaway.decoding.generate import prompt_ids
from cutaway.decoding.single_pass import Row, check_room, pixels_of, rows_of, side_by_side
from cutaway.decoding.translate import tag_for, translations
from cutaway.decoding.translate_sentences import encode_sources
from cutaway.errors import InputError
from cutaway.inside.answers import answer_scores, answers_number, label_number, labels_of, single_token
from cutaway.inside.attribution.result import token_names
from cutaway.inside.patching.metrics import Measure
from cutaway.inside.question import Question
from cutaway.model.heads import ClassificationHead, LastTokenHead, Mean
from cutaway.model.model import DecoderModel, EncoderDecoderModel, Model
from cutaway.model.upcast import upcast
from cutaway.tokens import Tokenizer

Word = str | int


@checked
def ask_next_word(
    model: DecoderModel, tokenizer: Tokenizer, text: str, target: str | None = None, versus: str | None = None
) -> Question:
    """The question of `explain_next`.

    >>> ask_next_word(model, tokenizer, "the cat").outputs
    """
    if isinstance(model, EncoderDecoderModel) or model.config.task != "language_model":
        raise InputError(f"a {model.config.family} for task={model.config.task!r} does not continue a text")
    front = prompt_ids(model, tokenizer, text)
    if target is None:
        read = (torch.tensor([front], device=model.device),)
        wanted = [int(answer_scores(model, tokenizer, read, {}, [-1]).argmax())]
    else:
        wanted = continuation_ids(tokenizer, text, target)
    right, wrong = tuple(wanted), tuple[int, ...]()
    if versus is None:
        ids = [*front, *wanted[:-1]]
        places = list(range(len(front) - 1, len(ids)))
        metric, names, output_ids = _said(places, wanted), token_names(tokenizer, wanted), tuple(wanted)
    else:
        other = continuation_ids(tokenizer, text, versus)
        same = next((n for n, (a, b) in enumerate(zip(wanted, other, strict=False)) if a != b), None)
        if same is None:
            raise InputError(f"versus={versus!r} and target={target!r} are the same: give two different words")
        ids, output_ids = [*front, *wanted[:same]], None
        places = [len(ids) - 1]
        metric = _difference(places[0], wanted[same], other[same])
        right, wrong = (wanted[same],), (other[same],)
        names = (" − ".join(token_names(tokenizer, [one[same]])[0].strip() for one in (wanted, other)),)
    if model.max_len is not None and len(ids) > model.max_len:
        raise InputError(f"text and target have {len(ids)} tokens; this model reads at most {model.max_len}")
    given = torch.tensor([ids], device=model.device)
    reads = _rows(places, len(ids))
    return Question(model, (given,), {}, metric, names, reads, tokenizer, output_ids, right=right, wrong=wrong)


@checked
def ask_translation(
    model: EncoderDecoderModel,
    tokenizer: Tokenizer,
    source: str,
    target: str | None = None,
    *,
    to: str | None = None,
    beam: int = 4,
) -> Question:
    """The question of `explain_translation`.

    >>> ask_translation(translator, its_tokenizer, "I ate", "a dog").outputs
    """
    if not isinstance(model, EncoderDecoderModel) or model.config.start_id is None or not model.config.end_ids:
        raise InputError(f"a {model.config.family} for task={model.config.task!r} does not translate")
    its = "the target"
    if target is None:
        its = "its translation"
        target = translations(model, tokenizer, [source], to=to, beam=beam, split=False)[0].text
    (read,) = encode_sources(model, tokenizer, [source], tag_for(tokenizer, to), model.config.end_ids[0])
    said = tokenizer.encode(target, special=False)
    if not read or not said:
        raise InputError(f"{its if read else 'the source'} has no tokens: write some text")
    if model.max_len is not None and len(said) > model.max_len:
        raise InputError(f"{its} has {len(said)} tokens; this model reads at most {model.max_len}")
    inputs = tuple(torch.tensor([ids], device=model.device) for ids in (read, [model.config.start_id, *said[:-1]]))
    places, names = list(range(len(said))), token_names(tokenizer, said)
    reads, ids = _rows(places, len(said)), tuple(said)
    return Question(model, inputs, {}, _said(places, said), names, reads, tokenizer, ids, right=ids)


@checked
def ask_label(
    model: Model,
    tokenizer: Tokenizer,
    text: str | tuple[str, str],
    wanted: Word | None = None,
    versus: Word | None = None,
    *,
    as_trained: bool = False,
) -> Question:
    """The question of `explain_label`.

    >>> ask_label(classifier, words, "a good film").outputs
    """
    rows = rows_of(tokenizer, [text], None, as_trained=as_trained)
    check_room(model, rows, "shorten it")
    ids, more = _alone(model, rows)
    metric, name, right, wrong = _of_label(model, (ids,), more, wanted, versus)
    reads = _pooled(model, ids.shape[1])
    return Question(model, (ids,), more, metric, (name,), reads, tokenizer, right=right, wrong=wrong)


@checked
def ask_blank(
    model: Model, tokenizer: Tokenizer, text: str, word: Word | None = None, *, as_trained: bool = False
) -> Question:
    """The question of `explain_blank`.

    >>> ask_blank(bert, its_words, "the [MASK] barked .").outputs
    """
    ids, more = _alone(model, rows_with_blanks(model, tokenizer, [text], 1, as_trained))
    places = ids[0].eq(tokenizer.mask_id or 0).nonzero()[:, 0].tolist()
    if word is None:
        said = answer_scores(model, tokenizer, (ids,), more, places).argmax(dim=-1).tolist()
    else:
        said = [word if isinstance(word, int) else single_token(tokenizer, word)] * len(places)
    names = tuple(tokenizer.decode([id]).strip() or tokenizer.token(id) for id in said)
    reads = _rows(places, ids.shape[1])
    return Question(model, (ids,), more, _said(places, said), names, reads, tokenizer, right=tuple(said))


@checked
def ask_image(
    model: Model,
    picture: Picture,
    wanted: Word | None = None,
    versus: Word | None = None,
    *,
    at: str = "patches",
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Question:
    """The question of `explain_image`.

    >>> ask_image(vit, image).outputs
    """
    numbers = model.config.to_dict()
    if "image_size" not in numbers:
        raise InputError(f"a {model.config.family} model does not read images")
    if at not in ("patches", "pixels"):
        raise InputError(f'at={at!r}: it may be "patches" or "pixels"')
    arrays, mean, std = arrays_of(model, [picture], mean, std)
    pictures = pixels_of(model, np.stack(arrays), mean, std)
    metric, name, right, wrong = _of_label(model, (pictures,), {}, wanted, versus)
    n = (numbers["image_size"] // numbers["patch_size"]) ** 2 + 1
    reads, colours = _rows([0], n), (mean, std)
    return Question(model, (pictures,), {}, metric, (name,), reads, at=at, right=right, wrong=wrong, colours=colours)


def _alone(model: Model, rows: list[Row]) -> tuple[Tensor, dict[str, Tensor]]:
    """The ids of one row, and the further inputs of the model."""
    ((_, ids, more),) = side_by_side(model, rows, 1)
    return ids, {name: one for name, one in more.items() if one is not None}


def _of_label(
    model: Model, inputs: tuple[Tensor, ...], more: dict[str, Any], label: Word | None, versus: Word | None
) -> tuple[Measure, str, tuple[int, ...], tuple[int, ...]]:
    """The metric (log p of a label, a difference of two logits, or a number), its name, and the labels' numbers."""
    if answers_number(model):
        return (lambda scores: scores[:, 0]), "number", (0,), ()
    names = labels_of(model)
    if names is None:
        raise InputError(f"a {model.config.family} model for task={model.config.task!r} has no labels")
    right = int(answer_scores(model, None, inputs, more).argmax()) if label is None else label_number(model, label)
    if versus is None:
        return (lambda scores: upcast(scores).log_softmax(dim=-1)[:, right]), names[right], (right,), ()
    wrong = label_number(model, versus)
    name = f"{names[right]} − {names[wrong]}"
    return (lambda scores: upcast(scores[:, right] - scores[:, wrong])), name, (right,), (wrong,)


def _said(places: list[int], ids: list[int]) -> Measure:
    """log p of each token at its position."""
    return lambda logits: upcast(logits[:, places]).log_softmax(dim=-1)[:, range(len(ids)), ids]


def _difference(place: int, right: int, wrong: int) -> Measure:
    return lambda logits: upcast(logits[:, place, right] - logits[:, place, wrong])


def continuation_ids(tokenizer: Tokenizer, text: str, target: str) -> list[int]:
    """The tokens with which a target continues a text, encoded together if that leaves the text's own tokens alone."""
    before, both = tokenizer.encode(text, special=False), tokenizer.encode(text + target, special=False)
    ids = both[len(before) :] if both[: len(before)] == before else tokenizer.encode(target, special=False)
    if not ids:
        raise InputError(f"{target!r} has no tokens: write what should come next")
    return ids


def spell_after(tokenizer: Tokenizer, text: str, word: str) -> str:
    """A word as it goes on with a text: with a space before it or without, whichever takes fewer tokens."""
    if not word[:1].isalnum() or not text[-1:].strip():
        return word
    return min(f" {word}", word, key=lambda spelling: len(continuation_ids(tokenizer, text, spelling)))


def _rows(places: list[int], n: int) -> Float[Tensor, "output position"]:
    return torch.eye(n)[places]


def _pooled(model: Model, n: int) -> Float[Tensor, "output position"]:
    """The positions that the head of a classifier reads."""
    if isinstance(model.head, LastTokenHead):
        return _rows([n - 1], n)
    if isinstance(model.head, ClassificationHead) and isinstance(model.head.pool, Mean):
        return torch.full((1, n), 1 / n)
    return _rows([0], n)
