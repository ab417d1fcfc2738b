"""`cutaway patch`: which layer, position or head carries the difference between two texts."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.cli.patch_inputs import Given, answers_to, check_alike, check_answered, given_to
from cutaway.cli.shared.format import minus
from cutaway.cli.shared.inside import (
    Force,
    Layers,
    Out,
    To,
    Which,
    as_text,
    check_output,
    columns,
    draw_picture,
    numbers_in_option,
    open_model,
    screen,
    waiting,
    write_output,
)
from cutaway.cli.shared.options import Json
from cutaway.errors import InputError

if TYPE_CHECKING:
    from cutaway.model.model import Model
    from cutaway.pictures import HeatMap


class Over(StrEnum):
    """What is patched."""

    residual = "residual"
    heads = "heads"
    attention = "attention"
    feed_forward = "feed_forward"
    cross = "cross"
    cross_heads = "cross_heads"


class Gone(StrEnum):
    """What stands in the place of what is taken away."""

    zero = "zero"
    mean = "mean"
    resample = "resample"


class Stream(StrEnum):
    """Whose layers are patched."""

    encoder = "encoder"
    decoder = "decoder"


Clean = Annotated[str, typer.Argument(metavar="CLEAN", help="A text that the model answers well; or a picture's file.")]
Other = Annotated[
    str | None, typer.Argument(metavar="[CORRUPTED]", help="The same with another answer, and as many tokens.")
]
What = Annotated[Over, typer.Option("--over", help="What is patched; heads, one by one.")]
Right = Annotated[str | None, typer.Option("--right", help="The answer to CLEAN; the model's own unless given.")]
Wrong = Annotated[str | None, typer.Option("--wrong", help="That to CORRUPTED; the model's own unless given.")]
Side = Annotated[Stream | None, typer.Option("--stream", help="Of a translator: encoder, or decoder unless given.")]
Target = Annotated[str, typer.Option("--target", help="A translator's translation so far; empty unless given.")]
Fast = Annotated[bool, typer.Option("--fast", help="Attribution patching: an estimate from one pass and back.")]
Ablate = Annotated[
    Gone | None, typer.Option("--ablate", help="Take each place away instead; resample takes it from CORRUPTED.")
]


NAMES = {
    "residual": "the residual stream",
    "heads": "every head",
    "attention": "attention",
    "feed_forward": "the feed-forwards",
    "cross": "cross-attention",
    "cross_heads": "every cross head",
}


def patch(
    model: Which,
    clean: Clean,
    corrupted: Other = None,
    over: What = Over.residual,
    right: Right = None,
    wrong: Wrong = None,
    layers: Layers = None,
    stream: Side = None,
    fast: Fast = False,
    ablate: Ablate = None,
    to: To = None,
    target: Target = "",
    out: Out = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Which places carry the answer: each is patched from CLEAN into CORRUPTED, or with --ablate taken away.

    What is measured is the logit of the right answer − that of the wrong one. Patched, 1 is as CLEAN, 0 as CORRUPTED.
    """
    check_output(out, force=force)
    if ablate is None and corrupted is None:
        raise InputError("a second text is missing: one with another answer and as many tokens; or --ablate zero")
    if ablate is not None and (ablate is Gone.resample) != (corrupted is not None):
        raise InputError("--ablate resample takes values from a second text; zero and mean need one text alone")
    if ablate is not None and fast:
        raise InputError("--fast estimates patches: leave it out, or leave out --ablate")
    loaded, tokenizer = open_model(model, blocks=True)

    from cutaway.inside.patching.metrics import LogitDifference
    from cutaway.pictures.to_picture import to_picture

    first = given_to(loaded, tokenizer, model, clean, to, target)
    second = None if corrupted is None else given_to(loaded, tokenizer, model, corrupted, to, target)
    if second is not None:
        check_alike(first, second)
    ids, names = answers_to(loaded, tokenizer, first, second, right, wrong)
    check_answered(loaded, tokenizer, first, second, ids, names)
    metric = LogitDifference(*ids, at=first.at)
    chosen: dict[str, Any] = {"over": over.value, "side": None if stream is None else stream.value}
    chosen |= {"layers": numbers_in_option(layers), **first.more}
    agreed = None
    with waiting("patching") as report:
        if ablate is not None:
            from cutaway.inside.patching.ablation import ablate_sweep

            source = None if second is None else second.inputs
            chosen |= {"how": ablate.value, "source": source, "report": report}
            found = ablate_sweep(loaded, *first.inputs, metric=metric, **chosen)
        elif fast:
            assert second is not None
            found, agreed = _estimated(loaded, first, second, metric, chosen)
        else:
            from cutaway.inside.patching.sweep import sweep

            assert second is not None
            found = sweep(loaded, first.inputs, second.inputs, metric, report=report, **chosen)
    data = {"model": str(model), "clean_text": clean, "corrupted_text": corrupted, "right": names[0],
            "wrong": names[1], "tokens": [list(some) for some in first.names], "agreement": agreed,
            **found.to_dict()}  # fmt: skip
    if as_json:
        print(as_text(data), end="")
    side = found.tap.partition(".")[0]
    tokens = first.names[0] if side == "encoder" else first.names[-1]
    picture = to_picture(found, title=_title(over, ablate, fast), names=tokens)
    if out is not None:
        from cutaway.pictures.pages import page_of

        lead = f"Against «{corrupted}». " if corrupted else ""
        write_output(out, picture, data, page_of(clean, lead + _lead(names, found), [picture]))
    elif not as_json:
        _show(picture, first, second, names, found, agreed)  # type: ignore[arg-type]


def _estimated(
    loaded: "Model", first: Given, second: Given, metric: Any, chosen: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """The estimate of all layers, and how it agrees with three of them patched exactly: the first, the middle, the
    last."""
    from cutaway.inside.patching.estimate import agreement, estimate_sweep
    from cutaway.inside.patching.sweep import sweep

    found = estimate_sweep(loaded, first.inputs, second.inputs, metric, **chosen)
    n = len(found.layers)
    some = [found.layers[i] for i in sorted({0, n // 2, n - 1})]
    few = {**chosen, "layers": some}
    exact, guessed = (tool(loaded, first.inputs, second.inputs, metric, **few) for tool in (sweep, estimate_sweep))
    return found, {"layers": some, **agreement(exact, guessed).to_dict()}


def _title(over: Over, ablate: Gone | None, fast: bool) -> str:
    name = NAMES[over.value]
    if ablate is not None:
        how = {"zero": "made zero", "mean": "made the mean", "resample": "taken from another text"}[ablate]
        return f"What is lost without it: {name}, {how}"
    return f"{'Attribution patching' if fast else 'Patching'} {name}: what brings the answer back"


def _show(
    picture: "HeatMap", first: Given, second: Given | None, names: tuple[str, str], found: Any, agreed: Any
) -> None:
    from rich.text import Text

    console = screen()
    both = [("clean", first), *([] if second is None else [("corrupted", second)])]
    for name, given in both:
        if tokens := given.names[0]:
            console.print(Text.assemble((f"{name:>9}  ", "dim"), columns(tokens)), soft_wrap=True)
    console.print(Text(_lead(names, found), "dim"), soft_wrap=True)
    console.print()
    draw_picture(console, picture)
    if agreed is not None:
        layers = ", ".join(map(str, agreed["layers"]))
        pearson, rank = ("–" if agreed[name] is None else f"{agreed[name]:.2f}" for name in ("pearson", "rank"))
        numbers = f"correlation {pearson}, ranks {rank}, signs {agreed['sign']:.0%}"
        console.print(Text(minus(f"against exact patches, layers {layers}: {numbers}"), "dim"))


def _lead(names: tuple[str, str], found: Any) -> str:
    """By how much the right answer is ahead, in each run."""
    runs = {"clean": found.clean, "corrupted": found.corrupted}
    said = ", ".join(f"{name} {lead.mean().item():+.2f}" for name, lead in runs.items() if lead is not None)
    return f"logit of «{names[0]}» − logit of «{names[1]}»: {minus(said)}"
