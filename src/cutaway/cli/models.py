"""`cutaway models`: the models that are available by name."""

from typing import TYPE_CHECKING

from cutaway.cli.shared.options import Json
from cutaway.pictures.terminal_text import json_text

if TYPE_CHECKING:
    from cutaway.bundled.info import ModelInfo


def models(as_json: Json = False) -> None:
    """List the models that are available by name, with task, size, licence and score."""
    from cutaway.bundled import models as here

    found = here()
    if as_json:
        print(json_text([model.to_dict() for model in found], 2))
    elif found:
        _show(found)
    else:
        print("no model is available by name: set CUTAWAY_MODELS to a folder of model folders (docs/models.md)")


def _show(found: "list[ModelInfo]") -> None:
    from rich.text import Text

    from cutaway.pictures.terminal_tables import grid, stdout
    from cutaway.pictures.terminal_text import human

    console, table = stdout(), grid(header=True)
    for title in ("name", "what it does", "parameters", "on disk", "licence", "score"):
        number = title in ("parameters", "on disk")
        table.add_column(title, justify="right" if number else "left", no_wrap=number or title == "name")
    for model in found:
        does = model.about or " · ".join(filter(None, (model.family, model.task))) or "–"
        table.add_row(
            Text(model.name, "bold"),
            Text(does) if model.problem is None else Text(f"cannot be read: {model.problem}", "red"),
            "–" if model.parameters is None else human(model.parameters, "").strip(),
            human(model.size, "B") + (f" {model.stored}" if model.stored else ""),
            Text(model.licence or "–"),
            Text(model.score or "–"),
        )
    console.print(table)
