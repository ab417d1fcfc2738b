"""One sentence, or one picture, through the machine: what the model answers, and what went on inside.

    found = look_inside(model, tokenizer, "The Eiffel Tower is in")
    found.guesses[0]            # the likeliest next words
    found.attribution.scores    # what each word of the text did for the answer
    found.writers.best()        # which heads and feed-forwards wrote it
    found.patterns              # where every head looked: part → head query key

What is asked depends on the model: the next word, a translation (word by word), the words in the blanks, a label, the
label of a picture.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cutaway.decoding.align import Alignment, align
from cutaway.decoding.classify import FOLLOWS, arrays_of
from cutaway.decoding.fill import TASKS as BLANKS
from cutaway.decoding.fill import writable
from cutaway.decoding.translate import tag_for
from cutaway.errors import InputError
from cutaway.inside import questions
from cutaway.inside.attributed import Attribution, token_names
from cutaway.inside.heads import patterns
from cutaway.inside.questions import METHODS, Asked
from cutaway.inside.stream import writes
from cutaway.model.model import DecoderModel, EncoderDecoderModel, Model
from cutaway.tokens import Tokenizer

SHOWN = ("answer", "attribution", "writers", "heads", "alignment")
WITHIN = 0.1
LABELS = ("classify", "regress", "next_sentence")
Guess = tuple[str, float]


@dataclass(frozen=True, eq=False)
class Writers:
    """By how much each writer puts an output ahead of the one that it is held against: direct logit attribution."""

    names: tuple[str, ...]
    scores: Float[Tensor, "writer output"]  # a column adds up to the difference of the two logits
    outputs: tuple[str, ...]
    versus: tuple[str, ...]  # the runner-up, unless another was asked for; "" where there is nothing to hold against

    def best(self, n: int = 10) -> list[tuple[str, list[float]]]:
        """The writers with the largest numbers, whichever way they point."""
        order = self.scores.abs().amax(dim=1).argsort(descending=True, stable=True)[:n].tolist()
        return [(self.names[i], self.scores[i].tolist()) for i in order]

    def to_dict(self) -> dict[str, Any]:
        return {
            "names": list(self.names),
            "scores": self.scores.tolist(),
            "outputs": list(self.outputs),
            "versus": list(self.versus),
        }


@dataclass(frozen=True, eq=False)
class Inspection:
    """What was found; a part that was not asked for, or that this kind of model has not, is None."""

    question: str  # next word, translation, blank, label, picture
    given: str
    answer: str
    tokens: dict[str, tuple[str, ...]]  # the inputs by name: text; source, target; patches
    outputs: tuple[str, ...]
    guesses: list[list[Guess]]  # for each output the likeliest, with their probabilities
    attribution: Attribution | None = None
    writers: Writers | None = None
    patterns: dict[str, Float[Tensor, "head query key"]] | None = None
    alignment: Alignment | None = None
    image: np.ndarray | None = None

    def names_of(self, part: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of the queries and the keys of an attention (`decoder.3.cross`)."""
        first, *_, last = [*self.tokens.values()] * 2
        if part.endswith(".cross"):
            return last, first
        return (first, first) if part.startswith("encoder") else (last, last)

    def looks(self) -> list[dict[str, Any]]:
        """For every head its strongest look, away from the query itself and from the first token."""
        found = []
        for part, pattern in (self.patterns or {}).items():
            queries, keys = self.names_of(part)
            for head, weights in enumerate(pattern):
                away = weights.clone()
                if not part.endswith(".cross") and len(keys) > 2:
                    away.fill_diagonal_(-1.0)
                    away[:, 0] = -1.0
                query, key = divmod(int(away.argmax()), len(keys))
                look = {"query": query, "key": key, "from": queries[query], "to": keys[key]}
                found.append({"head": f"{part}.{head}", **look, "weight": weights[query, key].item()})
        return found

    def to_dict(self, *, whole_patterns: bool = False) -> dict[str, Any]:
        """As JSON writes it; patterns are the square of a text for each head, so that only their peaks are said."""
        said: dict[str, Any] = {
            "question": self.question,
            "given": self.given,
            "answer": self.answer,
            "tokens": {name: list(tokens) for name, tokens in self.tokens.items()},
            "outputs": list(self.outputs),
            "guesses": [[{"text": text, "probability": p} for text, p in some] for some in self.guesses],
        }
        for name in ("attribution", "writers"):
            if (part := getattr(self, name)) is not None:
                said[name] = part.to_dict()
        if self.patterns is not None:
            said["heads"] = self.looks()
            if whole_patterns:
                said["patterns"] = {part: pattern.tolist() for part, pattern in self.patterns.items()}
        if self.alignment is not None:
            links = [{"source": a, "target": b, "weight": weight} for a, b, weight in self.alignment.links()]
            said["alignment"] = {"links": links, "pharaoh": self.alignment.pharaoh()}
        return said


def look_inside(
    model: Model,
    tokenizer: Tokenizer | None,
    given: str | Path,
    *,
    target: str | None = None,
    versus: str | None = None,
    to: str | None = None,
    method: str = METHODS[0],
    show: Collection[str] = SHOWN,
    parts: str = "*",
    k: int = 5,
    within: float = WITHIN,
    as_trained: bool = False,
    **pixels: Any,
) -> Inspection:
    """Asks a model what it makes of a text, or of a picture's file, and looks inside while it answers.

    `target` is the answer that is asked about, in place of the model's own, `versus` what it is held against. `show` is
    what to look for, `parts` the attentions whose heads are kept (`decoder.3.*`); `k` guesses are made. Integrated
    gradients stop where the scores add up `within` this share: 0.1 takes a quarter of the time of 0.01.
    """
    unknown = set(show) - set(SHOWN)
    if unknown:
        raise InputError(f"show={sorted(unknown)[0]!r} is not one of {', '.join(SHOWN)}")
    question, asked = question_of(
        model, tokenizer, given, target=target, versus=versus, to=to, as_trained=as_trained, **pixels
    )
    scores, places = _scores(asked)
    names = _names(asked)
    may = may_answer(model, tokenizer, scores.shape[1])
    guesses = _guesses(scores, may, names, k, model.config.task == "regress")
    answer = _answer(asked, question)
    found = Inspection(question, str(given), answer, token_texts(asked), asked.outputs, guesses)
    if "attribution" in show:
        options: dict[str, Any] = {"within": within} if method == METHODS[0] else {}
        found = replace(found, attribution=asked.attribute(method, **options))
    if "writers" in show:
        found = replace(found, writers=_writers(asked, scores, places, may, names))
    if "heads" in show:
        seen = patterns(model, *asked.inputs, parts=parts, **asked.more)
        found = replace(found, patterns={part: pattern[0].float().cpu() for part, pattern in seen.items()})
    if "alignment" in show and isinstance(model, EncoderDecoderModel):
        assert tokenizer is not None
        (links,) = align(model, tokenizer, [str(given)], [answer], tag=tag_for(tokenizer, to))
        found = replace(found, alignment=links)
    if question == "picture":
        (image,), *_ = arrays_of(model, [str(given)], pixels.get("mean"), pixels.get("std"))
        found = replace(found, image=image)
    return found


def may_answer(model: Model, tokenizer: Tokenizer | None, n: int) -> Bool[Tensor, " answer"]:
    """Which scores are of answers: all labels; of tokens those that may stand in a text."""
    if tokenizer is None or model.config.task in LABELS:
        return torch.ones(n, dtype=torch.bool, device=model.device)
    return writable(model, tokenizer)


@torch.no_grad()
def answer_scores(
    model: Model, tokenizer: Tokenizer | None, inputs: Sequence[Tensor], more: Mapping[str, Any], at: int
) -> Float[Tensor, " answer"]:
    """The logits of what a model may answer at a position; −∞ for what it may not."""
    logits = model(*inputs, **more)[0]
    logits = (logits[at] if logits.ndim == 2 else logits).float()
    return logits.masked_fill(~may_answer(model, tokenizer, len(logits)), float("-inf"))


def token_text(tokenizer: Tokenizer | None, id: int) -> str:
    """What a token adds to a text; places that only pad the vocabulary have a number."""
    return f"<{id}>" if tokenizer is None or id >= tokenizer.vocab_size else token_names(tokenizer, [id])[0]


def question_of(
    model: Model,
    tokenizer: Tokenizer | None,
    given: str | Path,
    *,
    target: str | None = None,
    versus: str | None = None,
    to: str | None = None,
    as_trained: bool = False,
    **pixels: Any,
) -> tuple[str, Asked]:
    """What this model can be asked about a text or a picture, by its name, and the question."""
    task = model.config.task
    if model.config.family == "vit":
        return "picture", questions.image(model, given, target, versus, **pixels)
    if tokenizer is None:
        raise InputError("this model reads text: give its tokenizer")
    text = str(given)
    if not text.strip():
        raise InputError("the text is empty: write a sentence to look at")
    if to is not None and not isinstance(model, EncoderDecoderModel):
        raise InputError(f"to={to!r}: a {model.config.family} model for task={task!r} does not translate")
    if versus is not None and (isinstance(model, EncoderDecoderModel) or task in BLANKS):
        raise InputError("versus is for next words and labels: leave it out")
    if isinstance(model, EncoderDecoderModel):
        return "translation", questions.translation(model, tokenizer, text, target, to=to)
    if task in BLANKS:
        return "blank", questions.blank(model, tokenizer, text, target, as_trained=as_trained)
    if task in LABELS:
        pair = tuple(text.split("\t", 1)) if "\t" in text else text
        return "label", questions.label(model, tokenizer, pair, target, versus, as_trained=as_trained)  # type: ignore[arg-type]
    if isinstance(model, DecoderModel) and task == "language_model":
        return "next word", questions.next_word(model, tokenizer, text, target, versus)
    raise InputError(
        f"a {model.config.family} model for task={task!r} gives no answer that could be looked into: "
        "one that writes, translates, fills blanks or classifies does"
    )


@torch.no_grad()
def _scores(asked: Asked) -> tuple[Float[Tensor, "output vocab"], list[int] | None]:
    """The logits of each output, and the positions they are read at; None: the head itself chooses what it reads."""
    logits = asked.model(*asked.inputs, **asked.more)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if logits.ndim == 2:
        return logits, None
    places = asked.reads.argmax(dim=1).tolist()
    return logits[0, places], places


def _names(asked: Asked) -> Any:
    """What a token, or the number of a label, is called."""
    if asked.model.config.task not in LABELS:
        return lambda id: token_text(asked.tokenizer, id)
    labels = label_names(asked.model)
    return lambda number: labels[number]


def label_names(model: Model) -> list[str]:
    """What a classifier's scores are called; one without names has numbers."""
    if model.config.task == "regress":
        return ["number"]
    names = FOLLOWS if model.config.task == "next_sentence" else model.config.labels
    return [str(name) for name in names or range(model.config.n_classes or 2)]


def _guesses(scores: Tensor, may: Tensor, names: Any, k: int, regression: bool) -> list[list[Guess]]:
    if regression:
        return [[(f"{score:.4g}", 1.0)] for score in scores[:, 0].tolist()]
    p = scores.softmax(dim=-1).masked_fill(~may, -1.0)
    best = p.topk(min(k, int(may.sum())))
    rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [[(names(id), one) for id, one in zip(*row, strict=True)] for row in rows]


def _answer(asked: Asked, question: str) -> str:
    if asked.tokenizer is not None and asked.output_ids is not None:
        said = asked.tokenizer.decode(list(asked.output_ids))
        return said.strip() if question == "translation" else said
    return ", ".join(asked.outputs)


def token_texts(asked: Asked) -> dict[str, tuple[str, ...]]:
    """What the positions of each input are called."""
    if asked.tokenizer is None:
        n = asked.reads.shape[1] - 1
        side = int(n**0.5)
        return {"patches": ("[class]", *(f"{row},{column}" for row in range(side) for column in range(side)))}
    each: Sequence[tuple[str, ...]] = [token_names(asked.tokenizer, one[0].tolist()) for one in asked.inputs]
    return dict(zip(("source", "target") if len(each) == 2 else ("text",), each, strict=True))


def _writers(asked: Asked, scores: Tensor, places: list[int] | None, may: Tensor, names: Any) -> Writers:
    right = torch.tensor(asked.right, device=scores.device)
    wrong = torch.tensor(asked.wrong, device=scores.device)
    if not len(wrong) and scores.shape[1] > 1:  # the runner-up
        rest = scores.masked_fill(~may, float("-inf")).scatter(1, right[:, None], float("-inf"))
        wrong = rest.argmax(dim=1)
    found = writes(asked.model, *asked.inputs, positions=places, **asked.more)
    each = []
    for chosen in (right, wrong):
        if len(chosen):
            told = found.to_logits([int(chosen[0])] if places is None else chosen[None])
            each.append(told.scores[:, 0].flatten(1))
    total = each[0] - each[1] if len(each) == 2 else each[0]
    versus = tuple(names(id) for id in wrong.tolist()) or ("",) * len(right)
    outputs = tuple(names(id) for id in right.tolist())
    return Writers(told.names, total.float().cpu(), outputs, versus)
