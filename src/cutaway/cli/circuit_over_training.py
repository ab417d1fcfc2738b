"""`cutaway circuit RUN --preset induction --over-training`: when induction heads appeared, checkpoint by checkpoint."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutaway.cli.shared.inside import as_text, screen, waiting, write_output

if TYPE_CHECKING:
    from cutaway.cli.circuit_presets import PresetOptions
    from cutaway.model.model import Model
    from cutaway.pictures import Lines
    from cutaway.tokens import Tokenizer

KINDS = {"previous": "previous token", "induction": "induction"}
ROWS = 20  # in a terminal


def rise(
    run: Path, model: "Model", tokenizer: "Tokenizer", wishes: "PresetOptions", out: Path | None, *, as_json: bool
) -> None:
    from cutaway.cli.circuit_presets import twice
    from cutaway.inside.circuits.induction import over_training
    from cutaway.pictures.pages import page_of

    ids, found = twice(model, tokenizer, wishes, 0), []
    with waiting("reading checkpoints"):
        for step, scores in over_training(model, run, ids):
            best = {kind: getattr(scores, kind).best(1)[0] for kind in KINDS}
            found.append({"step": step, **best, "first": scores.loss[0], "second": scores.loss[1]})
    data = {"model": str(run), "preset": "induction", "steps": found}
    if as_json:
        print(as_text(data), end="")
    if out is not None:
        picture = _picture(found)
        lead = "The best head of each kind in every checkpoint, and how much cheaper a token is when it is said again."
        write_output(out, picture, data, page_of(f"{run.name}: how induction heads appeared", lead, [picture]))
    elif not as_json:
        _show(found)


def _picture(found: list[dict[str, Any]]) -> "Lines":
    from cutaway.pictures import Lines

    lines = {f"{name} head": [one[kind][1] for one in found] for kind, name in KINDS.items()}
    lines["saved the second time"] = [1 - one["second"] / one["first"] for one in found]
    title = "The best head of each kind, and what saying it twice saves"
    return Lines([one["step"] for one in found], lines, title=title, x_name="step", y_name="share")


def _show(found: list[dict[str, Any]]) -> None:
    from rich.text import Text

    from cutaway.cli.shared.tables import grid

    table = grid(header=True)
    for name in ("step", *KINDS.values(), "nats: first", "second time"):
        table.add_column(name, justify="left" if name in KINDS.values() else "right")
    back = -len(found) // ROWS  # from the last step on: it is always shown
    for one in found[::back][::-1]:
        heads = (Text(f"{score:.2f}  {_named(head)}") for head, score in (one[kind] for kind in KINDS))
        table.add_row(f"{one['step']:,}", *heads, f"{one['first']:.2f}", f"{one['second']:.2f}")
    screen().print(table)


def _named(head: str) -> str:
    """decoder.1.attention.2 → block 1 head 2"""
    _, block, _, number = head.split(".")
    return f"block {block} head {number}"
