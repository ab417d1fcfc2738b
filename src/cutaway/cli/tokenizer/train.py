"""`cutaway tokenizer train`: text files become a tokenizer."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.cli.shared.options import Json
from cutaway.pictures.terminal_text import json_text
from cutaway.tokens.options import TokenizerOptions

if TYPE_CHECKING:
    from cutaway.tokens import Tokenizer


SAMPLES = 8  # pieces of text, from all over the files, on which the tokenizer is tested at the end
SAMPLE = 1 << 15  # characters of each

Files = Annotated[list[Path], typer.Argument(metavar="FILES", help="Text in UTF-8, plain or packed with gzip or xz.")]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder for tokenizer.json.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the tokenizer that is in the folder.")]


def train(
    files: Files,
    out: Out,
    options: TokenizerOptions,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Train a tokenizer on text files."""
    import time

    from cutaway.tokens import train_tokenizer

    _check(files, out, force)
    started = time.perf_counter()
    texts = _Texts(files)
    with texts.progress:
        tokenizer = train_tokenizer(texts, options=options)
    tokenizer.save(out)
    tried = _tried(tokenizer, texts.samples())
    file = out / "tokenizer.json"
    found = {
        "kind": options.kind,
        "vocab_size": tokenizer.vocab_size,
        "asked": options.vocab_size,
        "special": tokenizer.special_ids(),
        "file": str(file),
        "bytes": file.stat().st_size,
        "seconds": round(time.perf_counter() - started, 1),
        "characters_read": texts.characters,
        "sample": tried,
    }
    print(json_text(found, 2)) if as_json else _report(found)


def _check(files: list[Path], out: Path, force: bool) -> None:
    """Refuses a folder that may not be replaced, before anything is read."""
    from cutaway.data.text_files import file_size
    from cutaway.folders import TOKENIZER, check_folder

    for path in files:
        file_size(path)
    check_folder(out, TOKENIZER, force=force, by="--force", name="--out", shared=True)


class _Texts:
    """The text of the files, piece by piece, once. Shows the progress, and keeps a sample of the pieces."""

    def __init__(self, files: list[Path]) -> None:
        from random import Random

        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        from cutaway.data.text_files import file_size, read_documents
        from cutaway.pictures.console import Console

        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        console = Console(stderr=True)
        self.progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.bar = self.progress.add_task("reading", total=sum(map(file_size, files)))
        self.pieces = read_documents(files, progress=lambda done, _: self.progress.update(self.bar, completed=done))
        self.characters = self.n_pieces = 0
        self.kept: list[str] = []
        self.random = Random(0)

    def __iter__(self) -> Iterator[str]:
        for piece in self.pieces:
            self._keep(piece.text)
            yield piece.text
        self.progress.update(self.bar, description="learning", total=None)

    def _keep(self, text: str) -> None:
        """Reservoir sampling: all pieces are equally likely to be kept."""
        self.characters += len(text)
        self.n_pieces += 1
        place = len(self.kept) if len(self.kept) < SAMPLES else self.random.randrange(self.n_pieces)
        if place < SAMPLES:
            self.kept[place : place + 1] = [text[: text.rfind("\n", 0, SAMPLE) + 1 or SAMPLE]]

    def samples(self) -> list[str]:
        if not self.kept:  # the kind byte reads nothing
            self._keep(next(self.pieces).text)
        return self.kept


def _tried(tokenizer: "Tokenizer", samples: list[str]) -> dict[str, Any]:
    """Measures the tokenizer on the sample, and shows a line of it."""
    encoded = tokenizer.encode_batch(samples, special=False)
    characters, n = sum(map(len, samples)), sum(map(len, encoded))
    lines = [line for sample in samples for line in sample.split("\n") if line.strip()]
    line = next((line for line in lines if 20 <= len(line) <= 80), "".join(lines[:1])[:80])
    unknown = sum(id == tokenizer.unk_id for ids in encoded for id in ids) / max(n, 1)
    return {
        "characters": characters,
        "tokens": n,
        "characters_per_token": round(characters / max(n, 1), 3),
        "unknown": round(unknown, 6),
        "line": line,
        "line_tokens": tokenizer.encode_full(line, special=False).tokens,
    }


def _report(found: dict[str, Any]) -> None:
    from cutaway.pictures.console import Console
    from cutaway.pictures.terminal_text import human

    console = Console(soft_wrap=True)
    sample, asked = found["sample"], found["asked"]
    console.print(f"wrote    {found['file']}, {human(found['bytes'], 'B')}, after {found['seconds']} s")
    console.print(f"entries  {found['vocab_size']:,}, of them {len(found['special'])} special:", *found["special"])
    if asked is not None and found["vocab_size"] < asked:
        console.print(f"         fewer than the {asked:,} requested: the text is too short")
    unknown = f", {sample['unknown']:.2%} unknown" if sample["unknown"] else ""
    console.print(
        f"sample   {sample['characters_per_token']:.2f} characters a token{unknown} "
        f"({sample['characters']:,} of the {found['characters_read']:,} characters read)"
    )
    console.print(f"line     {sample['line']}")
    console.print("tokens   " + " · ".join(sample["line_tokens"]))
