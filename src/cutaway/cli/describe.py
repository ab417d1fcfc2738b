"""`cutaway describe`: the parts of a model as a tree, and what it costs, before anything is trained or allocated."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.cli.shared.options import Dtype, Json
from cutaway.pictures.terminal_text import human, json_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from cutaway.inside.description import Description, PartCount
    from cutaway.model.config import Config
    from cutaway.pictures.console import Console


WIDE = 100  # columns from which the tree names the kind of each part

Which = Annotated[
    str, typer.Argument(metavar="MODEL", help="A named size such as gpt2, or a model's folder, file or name.")
]
Batch = Annotated[int, typer.Option("--batch", min=1, help="Rows in one pass.")]
Length = Annotated[
    int | None, typer.Option("--length", min=1, help="Tokens in a row; without it max_len, at most 1024.")
]
SourceLength = Annotated[
    int | None, typer.Option("--source-length", min=1, help="Tokens in a row of the source, if not the same.")
]
Kind = Annotated[Dtype, typer.Option("--dtype", help="Of weights and activations.")]
Depth = Annotated[int | None, typer.Option("--depth", min=1, help="Levels of the tree.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change one of its numbers, such as n_layers=4.")
]


def describe(
    model: Which,
    batch: Batch = 1,
    length: Length = None,
    source_length: SourceLength = None,
    dtype: Kind = Dtype.float32,
    depth: Depth = None,
    changes: Set = None,
    as_json: Json = False,
) -> None:
    """What a model is made of and what it costs, before it exists."""
    import torch

    from cutaway.inside.description import describe as describe_config
    from cutaway.pictures.console import Console

    config = _changed(_config(model), changes or [])
    kind = getattr(torch, dtype.value)
    found = describe_config(config, batch=batch, length=length, source_length=source_length, dtype=kind)
    if as_json:
        print(json_text({"model": model, **found.to_dict()}, 2))
        return
    console = Console()
    for piece in _page(model, found, depth, console):
        console.print(piece)


def _config(model: str) -> "Config":
    from cutaway.families import sizes
    from cutaway.inside.description import named_config

    if model in sizes() and Path(model).exists():
        print(f"note: {model} is the named size; ./{model} is what lies here by that name", file=sys.stderr)
    return named_config(model)


def _changed(config: "Config", changes: list[str]) -> "Config":
    from cutaway.errors import InputError

    values: dict[str, Any] = {}
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals or not name:
            raise InputError(f"--set {change}: write NAME=VALUE, such as n_layers=4")
        try:
            values[name] = json.loads(value)  # 4, 0.1, true, null, [1, 2]
        except ValueError:
            values[name] = value
    return config.with_(**values) if values else config


# --- the page -------------------------------------------------------------------------------------------------------


def _page(name: str, found: "Description", depth: int | None, console: "Console") -> "Iterator[RenderableType]":
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    title = Text.assemble((name, "bold"), f"  family {found.config.family} · task {found.config.task} · ")
    yield title.append(f"{found.parameters:,} parameters", "bold")
    yield ""
    yield _tree(found, depth, kinds=console.width >= WIDE)
    yield ""
    costs = [_flops(found), _memory(found)]
    both = Table.grid(padding=(0, 6, 0, 0))
    both.add_row(*costs)
    if Measurement.get(console, console.options.update(max_width=999), both).maximum <= console.width:
        yield both
    else:
        yield costs[0]
        yield ""
        yield costs[1]
    yield ""
    yield from (Text(note, "dim") for note in _notes(found))


def _tree(found: "Description", depth: int | None, *, kinds: bool) -> "Table":
    from rich.text import Text

    rows = []
    for guide, part, times in _rows(found.parts, depth or 99):
        label = Text(guide, "dim").append(part.name, "bold" if not guide else "")
        if part.times > 1:
            label.append(f"  × {part.times}", "bold")
        count = f"{part.parameters:,}" if part.parameters else "computed" if part.computed else ""
        count = "tied" if part.tied_to and not count else count
        count = f"{times} × {count}" if times > 1 and part.parameters else count
        share, work = times * part.parameters / found.parameters, times * part.flops / found.flops.forward
        rows.append((label, Text(part.kind, "dim"), _shapes(part), count, _percent(share), _percent(work)))
    table = _columns("part", *(["kind"] if kinds else []), "", "share", "of FLOPs", n_left=3 if kinds else 2)
    # Shapes stand left and counts right in one column: few rows have long ones of both.
    width = max(max(len(shape) + 2 + len(count) for _, _, shape, count, _, _ in rows), len("shape  parameters"))
    table.columns[-3].header = "shape" + "parameters".rjust(width - len("shape"))
    for label, kind, shape, count, *shares in rows:
        both = Text.assemble(shape, count.rjust(width - len(shape)))
        table.add_row(label, *([kind] if kinds else []), both, *shares)
    return table


def _rows(parts: "tuple[PartCount, ...]", depth: int) -> "Iterator[tuple[str, PartCount, int]]":
    """(guide lines, part, how often it stands in the model), top down."""

    def below(parts: "tuple[PartCount, ...]", guide: str, times: int, depth: int) -> Any:
        for part in parts:
            last = part is parts[-1]
            yield guide + ("└─ " if last else "├─ "), part, times * part.times
            if depth > 1:
                yield from below(part.parts, guide + ("   " if last else "│  "), times * part.times, depth - 1)

    for part in parts:
        yield "", part, part.times
        if depth > 1:
            yield from below(part.parts, "", part.times, depth - 1)


def _shapes(part: "PartCount") -> "Text":
    from rich.text import Text

    own = [" × ".join(map(str, shape)) for shape in part.shapes.values()]
    return Text(" + ".join([f"= {part.tied_to}", *own] if part.tied_to else own), "cyan")


def _percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %") if share >= 0.0005 else ""


def _flops(found: "Description") -> "Table":
    table = _columns(f"work for {_input(found)}", "per token", "in all")
    flops = found.flops
    for name, n in (
        ("products with weights", flops.products),
        ("attention (grows with the length)", flops.look_ups),
        ("forward", flops.forward),
        ("forward and backward (× 3)", flops.training),
    ):
        style = "bold" if n == flops.forward else ""
        table.add_row(name, human(n / found.n_tokens, "FLOP"), human(n, "FLOP"), style=style)
    return table


def _input(found: "Description") -> str:
    if found.source_length is not None:
        return f"{found.batch} × ({found.source_length:,} source + {found.length:,} target) tokens"
    if (side := found.config.to_dict().get("image_size")) is not None:
        return f"{found.batch} × {found.length} tokens: a picture of {side} × {side}"
    return f"{found.batch} × {found.length:,} tokens"


def _memory(found: "Description") -> "Table":
    memory = found.memory
    table = _columns(f"memory in {found.dtype}", "training", "inference")

    def size(n: int) -> str:
        return human(n, "B") if n else "–"

    table.add_row("weights", size(memory.weights), size(memory.weights))
    table.add_row("gradients", size(memory.gradients), "–")
    table.add_row("Adam's two moments", size(memory.adam), "–")
    table.add_row("activations", size(memory.kept), size(memory.peak))
    if memory.cache:
        per_token = f"{size(memory.cache_per_token)} a token"
        if memory.cache_per_source_token:
            per_token += f", {size(memory.cache_per_source_token)} a source token"
        table.add_row(f"key/value cache, {per_token}", "–", size(memory.cache))
    table.add_row("together", size(memory.training), size(memory.inference), style="bold")
    return table


def _columns(*titles: str, n_left: int = 1) -> "Table":
    """A table without lines whose first columns are words and whose others are numbers."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for i, title in enumerate(titles):
        table.add_column(title, justify="left" if i < n_left else "right", no_wrap=i > 0)
    return table


def _notes(found: "Description") -> "Iterator[str]":
    yield (
        "1 MB = 10⁶ bytes. A multiplication with its addition is 2 FLOPs; matrix products alone are counted, and of "
        "attention every query with every key (a causal kernel does about half)."
    )
    if any(part.tied_to for _, part, _ in _rows(found.parts, 99)):
        yield "«= part» marks a matrix that is tied to that part's and counted there."
    yield (
        "Activations as a GPU's fused kernels keep them: in training what the backward pass needs, with "
        f"{human(found.memory.output, 'B')} of output and without the loss; in inference the peak of one pass."
    )
    if "image_size" in found.config.to_dict():
        yield "The number of tokens is fixed by the picture: its patches, and the class token."
