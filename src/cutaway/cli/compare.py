"""`cutaway compare`: n-grams, classes, an LSTM and a Transformer on your own text, in one table and one picture."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.before.options import CompareOptions
from cutaway.cli.shared.options import Json
from cutaway.errors import InputError
from cutaway.files import check_writable

if TYPE_CHECKING:
    from cutaway.before.ladder.compare import ComparisonResults

WIDTH = 80

Files = Annotated[list[Path], typer.Argument(metavar="FILES", help="Text in UTF-8, plain or packed with gzip or xz.")]
Out = Annotated[
    Path | None, typer.Option("--out", help="A folder for table.md, compare.svg, compare.json and the models.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the comparison in --out.")]


def compare(
    files: Files,
    options: CompareOptions,
    out: Out = None,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Train the ladder of models on your text, from n-grams to the Transformer, and compare what each one gains.

    Every model learns from the same tokens and is scored on the same held-out bytes. Ctrl-C keeps the models that are
    finished; --resume continues.

    \b
    cutaway compare novel.txt --minutes 5 --out build/ladder
    cutaway generate "It was" --model build/ladder/models/transformer
    """
    import tempfile

    _check(out, resume)
    if out is not None:
        _compare(files, out, options, resume, as_json, keep=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        _compare(files, Path(folder), options, resume, as_json, keep=False)


def _check(out: Path | None, resume: bool) -> None:
    """Refuses a folder that cannot be written, before anything is read."""
    if out is None:
        if resume:
            raise InputError("--resume continues the comparison in a folder: name it with --out")
        return
    from cutaway.before.ladder.comparison_folder import check_place

    check_place(out, resume)
    check_writable(out)


def _compare(files: list[Path], out: Path, options: CompareOptions, resume: bool, as_json: bool, *, keep: bool) -> None:
    from cutaway.before.ladder.compare import compare as train_all
    from cutaway.before.ladder.table import hurried
    from cutaway.cli.shared.inside import as_text, learning

    printed: list[str] = []

    def on_result(results: "ComparisonResults") -> None:
        if not as_json:
            _show_rungs(results, printed)

    try:
        with learning(anew=True) as progress:
            found = train_all(files, out, options=options, resume=resume, progress=progress, on_result=on_result)
    except KeyboardInterrupt:
        more = f"; cutaway compare … --out {out} --resume continues" if keep and printed else ""
        print(f"stopped: {len(printed)} rungs are finished{more}", file=sys.stderr)
        raise typer.Exit(130) from None
    if as_json:
        print(as_text({**found.to_dict(), "out": str(out) if keep else None}), end="")
        return
    _show_rungs(found, printed)
    for said in hurried(found.to_dict()):
        print(f"         {said}")
    _show(found)
    if keep:
        print(f"wrote {out}: table.md, compare.svg, compare.json, models/")


def _show_rungs(found: "ComparisonResults", printed: list[str]) -> None:
    """Prints the rows that were not printed before."""
    from cutaway.before.ladder.table import work

    about = found.to_dict() if not printed else {}
    if about:
        print(f"learnt   {about['trained_on']['tokens']:,} {about['unit']}")
        print(f"scored   {about['scored_on']['bytes']:,} held-out bytes, the same for all")
        if about["trained_on"]["too_little"]:
            print("         too little to go by: with so short a text the numbers say little")
        print(f"{'rung':12s} bits per byte   parameters  training  work")
    for rung in found.rungs[len(printed) :]:
        told = f"{rung.name:12s} {rung.bits_per_byte:13.3f} {rung.parameters:12,} {rung.seconds:7.1f} s"
        print(f"{told}  {work(rung.to_dict())}", flush=True)
        if rung.flops is not None:
            print(f"{'':12s} {rung.about}", flush=True)
        printed.append(rung.name)


def _show(found: "ComparisonResults") -> None:
    from cutaway.pictures.terminal_tables import grid, stdout
    from cutaway.pictures.terminal_text import shown

    console, data = stdout(), found.to_dict()
    print("\nsamples")
    for rung in found.rungs:
        text = " ".join(rung.sample.split())
        print(f"{rung.name:12s} {shown(text)[: WIDTH - 13]}")
    best = min((rung for rung in found.rungs if rung.name.startswith("order-")), key=lambda rung: rung.bits_per_byte)
    names = [best.name, *(rung.name for rung in found.rungs if not rung.name.startswith("order-"))]
    table = grid("", header=True)
    for title in ("bits per byte by what is told", "bytes", *names):
        table.add_column(title, justify="left" if title.startswith("bits") else "right")
    for row in data["where"]:
        table.add_row(row["what"], f"{row['share']:.0%}", *(f"{row['bits_per_byte'][name]:.2f}" for name in names))
    print()
    console.print(table)
    _show_agreement(found, names)
    if data["gains"]["words"]:
        better, worse = data["gains"]["of"]
        print(f"\nwords that {better} tells better than {worse}, by bits")
    for one in data["gains"]["words"]:
        print(f"{one['bits']:5.1f}  … {shown(' '.join(one['before'].split()))[-50:]} [{shown(one['word'])}]")


def _show_agreement(found: "ComparisonResults", names: list[str]) -> None:
    from cutaway.pictures.terminal_tables import grid, stdout

    shares = {rung.name: rung.agreement for rung in found.rungs if rung.name in names and rung.agreement}
    if not shares:
        return
    table = grid("", header=True)
    for title in ("the form of the text is likelier", "of", *shares):
        table.add_column(title, justify="left" if title.startswith("the form") else "right")
    for what, n in found.to_dict()["agreement"].items():
        table.add_row(what, f"{n:,}", *(f"{share[what]:.0%}" for share in shares.values()))
    print()
    stdout().print(table)
