"""`cutaway inspect`: one sentence, or one picture, through the machine."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.cli.opened import (
    Out,
    To,
    Which,
    as_text,
    check_out,
    opened,
    waiting,
    write,
)
from cutaway.cli.options import Json
from cutaway.errors import InputError

if TYPE_CHECKING:
    from cutaway.inside.inspected import Inspection
    from cutaway.inside.pictures import Picture


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
Layer = Annotated[int | None, typer.Option("--layer", min=0, help="Only the heads of this block.")]
Head = Annotated[int | None, typer.Option("--head", min=0, help="Show this head large.")]
K = Annotated[int, typer.Option("--k", min=1, help="How many guesses.")]


def inspect(
    model: Which,
    text: Words,
    show: Show = None,
    to: To = None,
    target: Target = None,
    versus: Versus = None,
    method: How = Method.integrated,
    layer: Layer = None,
    head: Head = None,
    k: K = 5,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """What a model answers, and why: tokens, what each word did, who wrote the answer, where the heads look.

    Next words, translations, blanks ([MASK]), labels (two texts with a tab between) and pictures, by what the model
    does. A page (--out page.html) has all pictures, an .svg the one that --show names. --json has the numbers, and
    with --show heads every pattern.
    """
    check_out(out)
    given = _given(text)
    loaded, tokenizer = opened(model)

    from cutaway.cli.asking import as_trained, reading
    from cutaway.inside.inspection import SHOWN, look_inside
    from cutaway.inside.pages import pictures_of
    from cutaway.model.model import EncoderDecoderModel

    across = isinstance(loaded, EncoderDecoderModel)
    pixels: dict[str, Any] = {}
    if loaded.config.family == "vit":
        from cutaway.evaluation.examples import picture_numbers

        pixels = picture_numbers(model)
    else:
        tokenizer = reading(tokenizer, model)
    wanted = [part.value for part in show or Part]
    if show and Part.alignment in show and not across:
        raise InputError(f"--show alignment is for translators, and {model} is a {loaded.config.family} model")
    if layer is not None:
        n = max(len(getattr(loaded, side)) for side in ("encoder", "decoder") if hasattr(loaded, side))
        if layer >= n:
            raise InputError(f"--layer {layer}: this model has layers 0 … {n - 1}")
    if head is not None and head >= loaded.config.to_dict()["n_heads"]:
        raise InputError(f"--head {head}: this model has heads 0 … {loaded.config.to_dict()['n_heads'] - 1} in a layer")
    if loaded.config.task == "language_model" and not across:
        target, versus = (None if word is None else _after(given, word) for word in (target, versus))
    with waiting("looking inside") as report:
        found = look_inside(
            loaded, tokenizer, given, target=target, versus=versus, to=to, method=NAMES[method.value],
            show=[name for name in SHOWN if name in wanted], parts="*" if layer is None else f"*.{layer}.*", k=k,
            as_trained=as_trained(model), report=report, **pixels,
        )  # fmt: skip
    if as_json or (out is not None and out.suffix.lower() == ".json"):
        data = {"model": str(model), **found.to_dict(whole_patterns=bool(show) and Part.heads in (show or ()))}
        if as_json:
            print(as_text(data), end="")
        if out is not None and out.suffix.lower() == ".json":
            write(out, None, data)  # type: ignore[arg-type]
            return
    if out is not None:
        _save(out, model, found, pictures_of(found, tokenizer, head=head), show)
    elif not as_json:
        from cutaway.cli.inspected import show_inspection

        names = [part.value for part in show or []]
        show_inspection(found, pictures_of(found, tokenizer, head=head), names, f"{model.name}: {_sizes(loaded)}")


def _given(text: list[str]) -> str:
    if text == ["-"]:
        import sys

        return sys.stdin.read().removesuffix("\n")
    return " ".join(text)


def _after(text: str, word: str) -> str:
    """A word that goes on with a text, with the space that a shell makes hard to write."""
    return f" {word}" if word[:1].isalnum() and text[-1:].strip() else word


def _sizes(model: Any) -> str:
    numbers = model.config.to_dict()
    stacks = [f"{len(getattr(model, side))} {side}" for side in ("encoder", "decoder") if hasattr(model, side)]
    return f"{numbers['family']}, {' + '.join(stacks)} layers × {numbers['n_heads']} heads"


def _save(out: Path, model: Path, found: "Inspection", pictures: "dict[str, Picture]", show: list[Part] | None) -> None:
    from cutaway.inside.pages import page_of

    if not pictures:
        raise InputError("--show answer has no picture: leave --out away, or show something else")
    if out.suffix.lower() == ".html":
        best = found.guesses[0][0]
        said = f"{model.name}: {found.answer.strip()}"
        said += f" ({best[1]:.1%})" if len(found.guesses) == 1 and best[0] == found.outputs[0] else ""
        title = Path(found.given).name if found.question == "picture" else found.given
        page = page_of(title, said, pictures.values())
        write(out, next(iter(pictures.values())), {}, page)
        return
    names = [part.value for part in show or []]
    if len(names) > 1:
        raise InputError(f"--out {out.name} holds one picture: give one --show, or write a page (.html)")
    write(out, next(iter(pictures.values())), {})
