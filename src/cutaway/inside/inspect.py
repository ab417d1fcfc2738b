"""One sentence, or one picture, through the machine: what the model answers, and what went on inside.

    found = look_inside(model, tokenizer, "The Eiffel Tower is in")
    found.guesses[0]            # the likeliest next words
    found.attribution.scores    # what each word of the text did for the answer
    found.writers.best()        # which heads and feed-forwards wrote it
    found.patterns              # where every head looked: part → head query key

What is asked depends on the model: the next word, a translation (word by word), the words in the blanks, a label, the
label of a picture.
"""

from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cutaway.arguments import checked
from cutaway.decoding.alignment import align
from cutaway.decoding.classify import arrays_of
from cutaway.decoding.translate import tag_for
from cutaway.errors import InputError
from cutaway.inside.answer_tokens import answer_name, may_answer
from cutaway.inside.progress import Told, silent, stages
from cutaway.inside.question import Question
from cutaway.inside.questions import question_of
from cutaway.inside.report import Guess, Inspection, Writers
from cutaway.inside.residual.logit_lens import POOLED
from cutaway.inside.residual.stream import Writes, writes
from cutaway.model.blocks import has_blocks
from cutaway.model.finite import check_scores
from cutaway.model.model import EncoderDecoderModel, Model
from cutaway.model.tap import tap_names, uncompiled, watch
from cutaway.model.upcast import upcast
from cutaway.tokens import Tokenizer

SHOWN = ("answer", "attribution", "writers", "heads", "alignment")
STEPS = 16  # of integrated gradients: enough to see which words matter


@checked
def look_inside(
    model: Model,
    tokenizer: Tokenizer | None,
    given: str | Path,
    *,
    target: str | None = None,
    versus: str | None = None,
    to: str | None = None,
    method: str = "integrated_gradients",
    show: Collection[str] = SHOWN,
    parts: str = "*",
    k: int = 5,
    steps: int | None = STEPS,
    as_trained: bool = False,
    report: Told = silent,
    **pixels: Any,
) -> Inspection:
    """Asks a model what it makes of a text, or of a picture's file, and looks inside while it answers.

    `target` is the answer that is asked about, in place of the model's own, `versus` what it is held against. `show` is
    what to look for, `parts` the attentions whose heads are kept (`decoder.3.*`); `k` guesses are made. Integrated
    gradients take so many `steps`, where the answer changes most, and say how far they are from adding up (`error`);
    None takes as many as they need, which may be minutes. A translator takes the text for one sentence.
    """
    if k < 1:
        raise InputError(f"k={k}: at least one answer is shown")
    model = uncompiled(model)
    unknown = set(show) - set(SHOWN)
    if unknown:
        raise InputError(f"show={sorted(unknown)[0]!r} is not one of {', '.join(SHOWN)}")
    question, asked = question_of(
        model, tokenizer, given, target=target, versus=versus, to=to, as_trained=as_trained, **pixels
    )
    answering, attributing = stages(report, 1, 19)  # of which one pass takes little
    answering(0, 1)
    seen = _Pass.of(asked, show, parts)
    answering(1, 1)
    guesses = _guesses(seen, k)
    answer = _answer(asked, question)
    found = Inspection(
        question, str(given), answer, asked.texts, asked.outputs, guesses, _asked(seen), patterns=seen.patterns
    )
    if seen.writes is not None:
        found = replace(found, writers=_writers(seen))
    if "alignment" in show and isinstance(model, EncoderDecoderModel):
        assert tokenizer is not None
        (links,) = align(model, tokenizer, [str(given)], [answer], tag=tag_for(tokenizer, to))
        found = replace(found, alignment=links)
    if question == "picture":
        (image,), *_ = arrays_of(model, [str(given)], pixels.get("mean"), pixels.get("std"))
        found = replace(found, image=image)
    if "attribution" in show:
        options: dict[str, Any] = {}
        if method == "integrated_gradients":
            options = {"steps": steps, "rule": "even_change", "report": attributing}
        found = replace(found, attribution=asked.attribute(method, **options))
    attributing(1, 1)
    return found


@dataclass(frozen=True, eq=False)
class _Pass:
    """What one pass of the question shows: the scores of each output, and what of the inside was wanted."""

    asked: Question
    scores: Float[Tensor, "output answer"]
    may: Bool[Tensor, " answer"]
    writes: Writes | None
    patterns: dict[str, Float[Tensor, "head query key"]] | None

    @classmethod
    @torch.no_grad()
    def of(cls, asked: Question, show: Collection[str], parts: str) -> "_Pass":
        model, inputs, more = asked.model, asked.inputs, asked.more
        places = None if isinstance(model.head, POOLED) else asked.reads.argmax(dim=1).tolist()
        looks = "heads" in show and any(tap.endswith(".pattern") for tap in tap_names(model))
        with ExitStack() as stack:
            seen = stack.enter_context(watch(model, f"{parts}.pattern")) if looks else None
            written = None
            if "writers" in show and has_blocks(model):
                written = writes(model, *inputs, positions=places, **more)
            logits = model(*inputs, **more) if written is None else written.logits()
        scores = logits if places is None else logits[0] if written is not None else logits[0, places]
        check_scores(model, scores)
        patterns = None
        if seen is not None:
            patterns = {tap.removesuffix(".pattern"): value[0].float().cpu() for tap, value in seen.items()}
        return cls(asked, upcast(scores), may_answer(model, asked.tokenizer, scores.shape[1]), written, patterns)


def _guesses(seen: _Pass, k: int) -> list[list[Guess]]:
    model = seen.asked.model
    if model.config.task == "regress":
        return [[(f"{score:.4g}", 1.0)] for score in seen.scores[:, 0].tolist()]
    name = answer_name(model, seen.asked.tokenizer)
    best = seen.scores.softmax(dim=-1).masked_fill(~seen.may, -1.0).topk(min(k, int(seen.may.sum())))
    rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [[(name(id), one) for id, one in zip(*row, strict=True)] for row in rows]


def _asked(seen: _Pass) -> list[Guess]:
    """What is asked about, output by output, as `guesses` has it."""
    asked, model = seen.asked, seen.asked.model
    if model.config.task == "regress":
        return [some[0] for some in _guesses(seen, 1)]
    name, chances = answer_name(model, asked.tokenizer), seen.scores.softmax(dim=-1)
    return [(name(id), row[id].item()) for id, row in zip(asked.right, chances, strict=True)]


def _answer(asked: Question, question: str) -> str:
    if asked.tokenizer is not None and asked.output_ids is not None:
        said = asked.tokenizer.decode(list(asked.output_ids))
        return said.strip() if question == "translation" else said
    return ", ".join(asked.outputs)


def _writers(seen: _Pass) -> Writers:
    assert seen.writes is not None
    asked, scores = seen.asked, seen.scores
    right, wrong = (torch.tensor(chosen, device=scores.device) for chosen in (asked.right, asked.wrong))
    if not len(wrong) and scores.shape[1] > 1:  # the runner-up
        rest = scores.masked_fill(~seen.may, float("-inf")).scatter(1, right[:, None], float("-inf"))
        wrong = rest.argmax(dim=1)
    each = []
    for chosen in (right, wrong):
        if len(chosen):
            told = seen.writes.to_logits([int(chosen[0])] if seen.writes.positions is None else chosen[None])
            each.append(told.scores[:, 0].flatten(1))
    total = each[0] - each[1] if len(each) == 2 else each[0]
    name = answer_name(asked.model, asked.tokenizer)
    versus = tuple(map(name, wrong.tolist())) or ("",) * len(right)
    return Writers(told.names, total.float().cpu(), tuple(map(name, right.tolist())), versus)
