"""One text, or one image, through the model: what it answers, and what went on inside.

    report = inspect(model, tokenizer, "The Eiffel Tower is in")
    report.guesses[0]            # the most likely next words
    report.attribution.scores    # what each word of the text did for the answer
    report.writers.best()        # which heads and feed-forwards wrote it
    report.patterns              # where every head looked: part → head query key
    print(report)
    report.save("page.html")

What is asked depends on the model: the next word, a translation (word by word), the words in the blanks, a label, the
label of an image.
"""

from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cutaway.arguments import with_options
from cutaway.decoding.alignment import align
from cutaway.decoding.classify import arrays_of
from cutaway.decoding.translate import sentences_of, tag_for
from cutaway.errors import InputError
from cutaway.inside.answers import answer_mask, answer_name, answers_number
from cutaway.inside.attribution.result import method_name
from cutaway.inside.model_kinds import ask, kind_of
from cutaway.inside.progress import Progress, no_progress, stages
from cutaway.inside.question import Question
from cutaway.inside.reports.inspection import Guess, Inspection, Inspections
from cutaway.inside.reports.options import InspectOptions, Part
from cutaway.inside.reports.writers import Writers
from cutaway.inside.residual.decompose import check_blocks
from cutaway.inside.residual.logit_lens import POOLED
from cutaway.inside.residual.stream import ResidualDecomposition, decompose_residual
from cutaway.model.blocks import has_blocks
from cutaway.model.finite import check_scores
from cutaway.model.model import Model
from cutaway.model.tap import tap_names, uncompiled, watch
from cutaway.model.upcast import upcast
from cutaway.tokens import Tokenizer


@with_options
def inspect(
    model: Model,
    tokenizer: Tokenizer | None,
    text: str | Path,
    *,
    progress: Progress = no_progress,
    name: str = "",
    options: InspectOptions,
) -> Inspection:
    """Runs a model on a text, or on an image's file, and looks inside while it answers.

    >>> print(inspect(model, tokenizer, "the cat", show=["answer"]))

    Integrated gradients take their `steps` where the answer changes most, and report how far their sum is off
    (`error`). A translator takes the text as one sentence: see `inspect_sentences`. `name` is what the report calls the
    model.
    """
    model = uncompiled(model)
    kind, asked = ask(model, tokenizer, text, options, target=options.target, versus=options.versus)
    _check_parts(model, options)
    answering, attributing = stages(progress, 1, 19)  # one pass takes little of the time
    answering(0, 1)
    show = options.show or tuple(Part)
    seen = _Pass.of(asked, show, "*" if options.layer is None else f"*.{options.layer}.*")
    answering(1, 1)
    answer = _answer(asked, strip=kind.translates)
    found = Inspection(
        kind, str(text), answer, asked.texts, asked.outputs, _guesses(seen, options.k), _asked_about(seen),
        patterns=seen.patterns, model=name or model.config.family, architecture=_architecture(model),
        parts=tuple(map(str, options.show)), told=options.target is not None, head=options.head, tokenizer=tokenizer,
    )  # fmt: skip
    if seen.residual is not None:
        found = replace(found, writers=_writers(seen))
    if "alignment" in show and kind.translates:
        assert tokenizer is not None
        (links,) = align(model, tokenizer, [str(text)], [answer], tag=tag_for(tokenizer, options.to))  # type: ignore[arg-type]
        found = replace(found, alignment=links)
    if kind.reads_images:
        (image,), *_ = arrays_of(model, [str(text)], options.mean, options.std)
        found = replace(found, image=image)
    if "attribution" in show:
        method = method_name(options.method)
        how: dict[str, Any] = {}
        if method == "integrated_gradients":
            how = {"steps": options.steps, "rule": "even_change", "progress": attributing}
        found = replace(found, attribution=asked.attribute(method, **how))
    attributing(1, 1)
    return found


@with_options
def inspect_sentences(
    model: Model,
    tokenizer: Tokenizer | None,
    text: str | Path,
    *,
    progress: Progress = no_progress,
    name: str = "",
    options: InspectOptions,
) -> Inspection | Inspections:
    """As `inspect`; a text for a translator is first split into sentences, as `translate` does.

    >>> inspect_sentences(model, tokenizer, "the cat", show=["heads"]).save("heads.html")
    """
    texts = split_sentences(model, tokenizer, str(text), options)
    found = [
        inspect(model, tokenizer, one, progress=its, name=name, options=options)
        for one, its in zip(texts, stages(progress, *(len(one) ** 2 for one in texts)), strict=True)
    ]
    return found[0] if len(found) == 1 else Inspections(str(text), tuple(found), found[0].model)


def split_sentences(model: Model, tokenizer: Tokenizer | None, text: str, options: InspectOptions) -> list[str]:
    """The sentences of a text for a translator, unless it is asked about one translation; else the text itself."""
    if not kind_of(model).translates or tokenizer is None or options.target is not None:
        return [text]
    return sentences_of(model, tokenizer, text) or [text]  # type: ignore[arg-type]


def _check_parts(model: Model, options: InspectOptions) -> None:
    """Refuses parts that the model does not have."""
    n_heads: int = max((getattr(part, "n_heads", 0) for part in model.modules()), default=0)
    if "alignment" in options.show and not kind_of(model).translates:
        raise InputError(f"the alignment is for translators, and this is a {model.config.family} model")
    if "writers" in options.show:
        check_blocks(model)
    if "heads" in options.show and not n_heads:
        raise InputError(f"{model.config.family} has no attention, so there are no heads to show")
    if options.layer is not None:
        n = max(len(getattr(model, side)) for side in ("encoder", "decoder") if hasattr(model, side))
        if options.layer >= n:
            raise InputError(f"layer={options.layer}: this model has layers 0 … {n - 1}")
    if options.head is not None and options.head >= n_heads:
        there = f"heads 0 … {n_heads - 1} in a layer" if n_heads else "no attention"
        raise InputError(f"head={options.head}: this model has {there}")


def _architecture(model: Model) -> str:
    """The family and its sizes in a few words."""
    stacks = [f"{len(getattr(model, side))} {side}" for side in ("encoder", "decoder") if hasattr(model, side)]
    heads = model.config.to_dict().get("n_heads")
    return f"{model.config.family}, {' + '.join(stacks)} layers{f' × {heads} heads' if heads else ''}"


@dataclass(frozen=True, eq=False)
class _Pass:
    """What one pass shows: the scores of each output, and those parts of the inside that were asked for."""

    asked: Question
    scores: Float[Tensor, "output answer"]
    mask: Bool[Tensor, " answer"]  # the possible answers
    residual: ResidualDecomposition | None
    patterns: dict[str, Float[Tensor, "head query key"]] | None

    @classmethod
    @torch.no_grad()
    def of(cls, asked: Question, show: Collection[str], parts: str) -> "_Pass":
        model, inputs, more = asked.model, asked.inputs, asked.more
        places = None if isinstance(model.head, POOLED) else asked.reads.argmax(dim=1).tolist()
        has_patterns = "heads" in show and any(tap.endswith(".pattern") for tap in tap_names(model))
        with ExitStack() as stack:
            seen = stack.enter_context(watch(model, f"{parts}.pattern")) if has_patterns else None
            residual = None
            if "writers" in show and has_blocks(model):
                residual = decompose_residual(model, *inputs, positions=places, **more)
            logits = model(*inputs, **more) if residual is None else residual.logits()
        scores = logits if places is None else logits[0] if residual is not None else logits[0, places]
        check_scores(model, scores)
        patterns = None
        if seen is not None:
            patterns = {tap.removesuffix(".pattern"): value[0].float().cpu() for tap, value in seen.items()}
        return cls(asked, upcast(scores), answer_mask(model, asked.tokenizer, scores.shape[1]), residual, patterns)


def _guesses(seen: _Pass, k: int) -> list[list[Guess]]:
    model = seen.asked.model
    if answers_number(model):
        return [[(f"{score:.4g}", 1.0)] for score in seen.scores[:, 0].tolist()]
    name = answer_name(model, seen.asked.tokenizer)
    best = seen.scores.softmax(dim=-1).masked_fill(~seen.mask, -1.0).topk(min(k, int(seen.mask.sum())))
    rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [[(name(id), one) for id, one in zip(*row, strict=True)] for row in rows]


def _asked_about(seen: _Pass) -> list[Guess]:
    asked, model = seen.asked, seen.asked.model
    if answers_number(model):
        return [some[0] for some in _guesses(seen, 1)]
    name, probabilities = answer_name(model, asked.tokenizer), seen.scores.softmax(dim=-1)
    return [(name(id), row[id].item()) for id, row in zip(asked.right, probabilities, strict=True)]


def _answer(asked: Question, *, strip: bool) -> str:
    if asked.tokenizer is not None and asked.output_ids is not None:
        text = asked.tokenizer.decode(list(asked.output_ids))
        return text.strip() if strip else text
    return ", ".join(asked.outputs)


def _writers(seen: _Pass) -> Writers:
    assert seen.residual is not None
    asked, scores = seen.asked, seen.scores
    right, wrong = (torch.tensor(chosen, device=scores.device) for chosen in (asked.right, asked.wrong))
    if not len(wrong) and scores.shape[1] > 1:  # the runner-up
        rest = scores.masked_fill(~seen.mask, float("-inf")).scatter(1, right[:, None], float("-inf"))
        wrong = rest.argmax(dim=1)
    each = []
    for chosen in (right, wrong):
        if len(chosen):
            parts = seen.residual.to_logits([int(chosen[0])] if seen.residual.positions is None else chosen[None])
            each.append(parts.scores[:, 0].flatten(1))
    total = each[0] - each[1] if len(each) == 2 else each[0]
    name = answer_name(asked.model, asked.tokenizer)
    versus = tuple(map(name, wrong.tolist())) or ("",) * len(right)
    return Writers(parts.names, total.float().cpu(), tuple(map(name, right.tolist())), versus)
