"""`cutaway inspect`: one sentence, or one picture, through the machine."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.cli.shared.inside import Force, Out, To, Which, as_text, check_output, open_model, waiting, write_output
from cutaway.cli.shared.options import Json
from cutaway.errors import InputError

if TYPE_CHECKING:
    from cutaway.inside.report import Inspection
    from cutaway.pictures import Picture
    from cutaway.tokens import Tokenizer


class Part(StrEnum):
    """What of the inside is shown."""

    answer = "answer"
    attribution = "attribution"
    writers = "writers"
    heads = "heads"
    alignment = "alignment"


class Method(StrEnum):
    """How the answer is shared out among the words."""

    integrated = "integrated"
    gradient = "gradient"
    rollout = "rollout"
    value = "value"


NAMES = {
    "integrated": "integrated_gradients",
    "gradient": "gradient_x_input",
    "rollout": "attention_rollout",
    "value": "value_weighted",
}
Words = Annotated[list[str], typer.Argument(metavar="TEXT…", help="A sentence, or a picture's file; - reads stdin.")]
Show = Annotated[list[Part] | None, typer.Option("--show", help="Only this; may be given again.")]
Target = Annotated[str | None, typer.Option("--target", help="Ask about this answer instead of the model's own.")]
Versus = Annotated[str | None, typer.Option("--versus", help="Held against this one, not against the runner-up.")]
How = Annotated[Method, typer.Option("--method", help="How the answer is shared out among the words.")]
Steps = Annotated[int, typer.Option("--steps", min=1, help="Of integrated gradients: more are slower, and nearer.")]
Layer = Annotated[int | None, typer.Option("--layer", min=0, help="Only the heads of this block.")]
Head = Annotated[int | None, typer.Option("--head", min=0, help="Show this head large.")]
K = Annotated[int, typer.Option("--k", min=1, help="How many guesses.")]

Whole = Annotated[bool, typer.Option("--whole", help="Take the text as one sentence; by default it is split.")]


def inspect(
    model: Which,
    text: Words,
    show: Show = None,
    to: To = None,
    target: Target = None,
    versus: Versus = None,
    method: How = Method.integrated,
    steps: Steps = 16,
    layer: Layer = None,
    head: Head = None,
    k: K = 5,
    whole: Whole = False,
    out: Out = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """What a model answers, and why: tokens, what each word did, who wrote the answer, where the heads look.

    Next words, translations, blanks ([MASK]), labels (two texts with a tab between) and pictures, by what the model
    does. A page (--out page.html) has all pictures, an .svg the one that --show names. --json has the numbers, and
    with --show heads every pattern. A translator reads sentence by sentence; --json then lists them as `sentences`.
    """
    check_output(out, force=force)
    given = _given(text)
    loaded, tokenizer = open_model(model)

    from cutaway.cli.shared.models import as_trained, tokenizer_for_text, warn_if_plain
    from cutaway.inside.inspect import SHOWN, look_inside
    from cutaway.inside.progress import stages
    from cutaway.model.model import EncoderDecoderModel
    from cutaway.pictures.pages import pictures_of

    across = isinstance(loaded, EncoderDecoderModel)
    pixels: dict[str, Any] = {}
    if loaded.config.family == "vit":
        from cutaway.evaluation.examples import picture_numbers

        pixels = picture_numbers(model)
    else:
        tokenizer = tokenizer_for_text(tokenizer, model)
    wanted = [part.value for part in show or Part]
    _check_parts(loaded, model, show or [], layer, head)
    if loaded.config.task == "language_model" and not across:
        assert tokenizer is not None
        target, versus = (None if word is None else _after(tokenizer, given, word) for word in (target, versus))
    asked = [given] if not across or whole or target is not None else _sentences(loaded, tokenizer, given)
    if len(asked) > 1 and out is not None and out.suffix.lower() in (".svg", ".txt"):
        raise InputError(
            f"--out {out.name} holds one picture, and the text has {len(asked)} sentences: write a page (.html), give "
            "one sentence, or --whole"
        )
    with waiting("looking inside") as report:
        found = [
            look_inside(
                loaded, tokenizer, one, target=target, versus=versus, to=to, method=NAMES[method.value], steps=steps,
                show=[name for name in SHOWN if name in wanted], parts="*" if layer is None else f"*.{layer}.*", k=k,
                as_trained=as_trained(model), report=told, **pixels,
            )
            for one, told in zip(asked, stages(report, *(len(one) ** 2 for one in asked)), strict=True)
        ]  # fmt: skip
    numbers_out = out if out is not None and out.suffix.lower() == ".json" else None
    if as_json or numbers_out:
        numbers = _numbers(model, given, found, whole_patterns=Part.heads in (show or []))
        if as_json:
            print(as_text(numbers), end="")
        if numbers_out:
            return write_output(numbers_out, None, numbers)
    for one in found:
        if one.image is not None:
            warn_if_plain(one.given, one.image)
    pictures = [pictures_of(one, tokenizer, head=head) for one in found]
    if out is not None:
        _save(out, model, given, found, pictures, show)
    elif not as_json:
        _print(found, pictures, f"{model.name}: {_sizes(loaded)}", show or [], told=target is not None)


def _check_parts(loaded: Any, model: Path, show: list[Part], layer: int | None, head: int | None) -> None:
    """What is asked for has to be there."""
    from cutaway.inside.residual.decompose import check_blocks
    from cutaway.model.model import EncoderDecoderModel

    if Part.alignment in show and not isinstance(loaded, EncoderDecoderModel):
        raise InputError(f"--show alignment is for translators, and {model} is a {loaded.config.family} model")
    if Part.writers in show:
        check_blocks(loaded)
    if Part.heads in show and not _n_heads(loaded):
        raise InputError(f"--show heads: {loaded.config.family} has no attention")
    if layer is not None:
        n = max(len(getattr(loaded, side)) for side in ("encoder", "decoder") if hasattr(loaded, side))
        if layer >= n:
            raise InputError(f"--layer {layer}: this model has layers 0 … {n - 1}")
    if head is not None and head >= (n_heads := _n_heads(loaded)):
        raise InputError(
            f"--head {head}: this model has {f'heads 0 … {n_heads - 1} in a layer' if n_heads else 'no attention'}"
        )


def _sentences(loaded: Any, tokenizer: Any, text: str) -> list[str]:
    """As `cutaway translate` cuts a text; an empty one is left for others to refuse."""
    from cutaway.decoding.translate import sentences_of

    return sentences_of(loaded, tokenizer, text) or [text]


def _given(text: list[str]) -> str:
    if text == ["-"]:
        import sys

        return sys.stdin.read().removesuffix("\n")
    return " ".join(text)


def _after(tokenizer: "Tokenizer", text: str, word: str) -> str:
    """A word that goes on with a text: with a space before it or without, whichever takes fewer tokens there."""
    from cutaway.inside.questions import following

    if not word[:1].isalnum() or not text[-1:].strip():
        return word
    return min(f" {word}", word, key=lambda spelled: len(following(tokenizer, text, spelled)))


def _sizes(model: Any) -> str:
    stacks = [f"{len(getattr(model, side))} {side}" for side in ("encoder", "decoder") if hasattr(model, side)]
    heads = model.config.to_dict().get("n_heads")
    return f"{model.config.family}, {' + '.join(stacks)} layers{f' × {heads} heads' if heads else ''}"


def _n_heads(model: Any) -> int:
    """In each layer; of an LSTM with attention one, without it none."""
    return max((part.n_heads for part in model.modules() if hasattr(part, "n_heads")), default=0)


def _numbers(model: Path, given: str, found: "list[Inspection]", *, whole_patterns: bool) -> dict[str, Any]:
    each = [one.to_dict(whole_patterns=whole_patterns) for one in found]
    return {"model": str(model), **(each[0] if len(each) == 1 else {"given": given, "sentences": each})}


def _print(
    found: "list[Inspection]", pictures: "list[dict[str, Picture]]", title: str, show: list[Part], *, told: bool
) -> None:
    from cutaway.cli.inspect_view import show_inspection

    for number, (one, its) in enumerate(zip(found, pictures, strict=True)):
        print("\n" if number else "", end="")
        which = f"; sentence {number + 1} of {len(found)}" if len(found) > 1 else ""
        show_inspection(one, its, [part.value for part in show], title + which, told=told)


def _save(
    out: Path,
    model: Path,
    given: str,
    found: "list[Inspection]",
    pictures: "list[dict[str, Picture]]",
    show: list[Part] | None,
) -> None:
    from cutaway.pictures.pages import page_of, part_of_page

    first = next(iter(pictures[0].values()), None)
    if first is None:
        raise InputError("--show answer has no picture: leave --out away, or show something else")
    if out.suffix.lower() == ".html":
        if len(found) == 1:
            title = Path(given).name if found[0].question == "picture" else found[0].given
            page = page_of(title, f"{model.name}: {_said(found[0])}", pictures[0].values())
        else:
            parts = [
                part_of_page(one.given, _said(one), its.values()) for one, its in zip(found, pictures, strict=True)
            ]
            page = page_of(given, f"{model.name}: {len(found)} sentences", parts)
        write_output(out, first, {}, page)
        return
    names = [part.value for part in show or []]
    if len(names) > 1:
        raise InputError(f"--out {out.name} holds one picture: give one --show, or write a page (.html)")
    write_output(out, first, {})


def _said(found: "Inspection") -> str:
    text, p = found.asked[0]
    sure = f" ({p:.1%})" if len(found.asked) == 1 and text == found.outputs[0] else ""
    return found.answer.strip() + sure
