"""`cutaway tokenizer show`: how a text is cut, step by step."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.cli.shared.options import Json, locate_model
from cutaway.pictures.terminal_text import json_text

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text as RichText

    from cutaway.tokens import Encoded, Tokenizer, Trace
    from cutaway.tokens.trace import Cut, Match, Merge

Which = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        callback=locate_model,
        help="A model's folder, file or name, or the folder or file of a tokenizer.",
    ),
]
Text = Annotated[str, typer.Argument(metavar="TEXT", help="What to cut.")]
Special = Annotated[bool, typer.Option("--special", help="With what is put around a text, such as [CLS] … [SEP].")]


def show(model: Which, text: Text, special: Special = False, as_json: Json = False) -> None:
    """Show the tokens of a text, and how it was cut."""
    from cutaway.pictures.console import Console
    from cutaway.tokens import trace_tokens

    tokenizer = _tokenizer(model)
    encoded = tokenizer.encode_full(text, special=special)
    trace = trace_tokens(tokenizer, text)
    if as_json:
        places = zip(encoded.tokens, encoded.ids, encoded.offsets, strict=True)
        tokens = [{"token": token, "id": id, "offsets": offsets} for token, id, offsets in places]
        found = {"model": str(model), "text": text, "vocab_size": tokenizer.vocab_size, "tokens": tokens}
        print(json_text({**found, "trace": trace.to_dict()}, 2))
        return
    console = Console()
    console.print(f"{trace.model}, {tokenizer.vocab_size:,} entries; {len(encoded.ids)} tokens\n")
    console.print(_tokens(encoded, text))
    if (steps := _steps(trace)) is not None:
        console.print()
        console.print(steps)


def _tokenizer(path: Path) -> "Tokenizer":
    from cutaway.errors import InputError
    from cutaway.tokens import Tokenizer, find_tokenizer

    if path.suffix == ".json":
        return Tokenizer.load(path)
    if path.is_dir():
        found = find_tokenizer(path)
    else:
        from cutaway.checkpoints import tokenizer_of  # knows GGUF and llama2.c; imports torch

        found = tokenizer_of(path)
    if found is None:
        raise InputError(f"{path} has no tokenizer")
    return found


# --- the page ---------------------------------------------------------------------------------------------------------

HEADS = {
    "BPE": ("rank", "merged", "word"),
    "WordPiece": ("rest", "", "longest entries so far"),
    "Unigram": ("log p", "of each piece", "cuts, the best first"),
}


def _tokens(encoded: "Encoded", text: str) -> "Table":
    table = _columns("token", "id", "place", "text")
    for token, id, (start, stop) in zip(encoded.tokens, encoded.ids, encoded.offsets, strict=True):
        place = f"{start}–{stop}" if stop > start else ""
        table.add_row(_styled(token, "bold"), str(id), place, _styled(text[start:stop], "dim"))
    return table


def _steps(trace: "Trace") -> "Table | None":
    """The steps of each word that took some; of a word that stands twice, once."""
    trivial = 2 if trace.model == "WordPiece" else 1  # the word, then the whole word found
    words = {word.text: word for word in trace.words if len(word.steps) > trivial}
    if not words:
        return None
    table = _columns(*HEADS[trace.model])
    for word in words.values():
        if table.row_count:
            table.add_row()
        steps = word.steps[::-1] if trace.model == "Unigram" else word.steps
        for step in steps:
            table.add_row(*_row(step, last=step is word.steps[-1]))
    return table


def _row(step: "Merge | Match | Cut", last: bool) -> "Iterator[RichText]":
    from rich.text import Text

    from cutaway.tokens.trace import Cut, Match, Merge

    made = ""
    match step:
        case Merge(_, None, _):
            left = ("", "")
        case Merge(_, (first, second), rank):
            left, made = (f"{rank:,}", f"{first} + {second}"), first + second
        case Match(_, rest):
            left = (rest, "")
        case Cut(_, scores, score):
            left = (f"{score:.2f}", " ".join(f"{part:.2f}" for part in scores))
    yield from (_styled(cell, "dim") for cell in left)
    yield Text(" ").join(_styled(piece, "bold" if last or piece == made else "") for piece in step.pieces)


def _columns(*titles: str) -> "Table":
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for title in titles:
        table.add_column(title, justify="right" if title in ("id", "rank", "log p") else "left", overflow="fold")
    return table


def _styled(text: str, style: str) -> "RichText":
    """White space and control characters are written out: a line end within a cell would tear the table."""
    from rich.text import Text

    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return Text(shown, style)
