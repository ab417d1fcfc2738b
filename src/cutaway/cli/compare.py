"""`cutaway compare`: n-grams, classes, an LSTM and a Transformer on your own text, in one table and one picture."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.cli.shared.options import Json
from cutaway.errors import InputError
from cutaway.files import check_writable

if TYPE_CHECKING:
    from cutaway.before.ladder.compare import ComparisonResults

WIDTH = 80

Files = Annotated[list[Path], typer.Argument(metavar="FILES", help="Text in UTF-8, plain or packed with gzip or xz.")]
Minutes = Annotated[float, typer.Option("--minutes", min=0.01, help="For all rungs together.")]
Steps = Annotated[
    int | None, typer.Option("--steps", min=1, help="Of each network, instead of as many as fit into the time.")
]
Changes = Annotated[
    list[str] | None, typer.Option("--set", help="Change the recipe of both networks: --set train.tokens=4096")
]
Start = Annotated[str, typer.Option("--start", help="What the samples begin with.", show_default="a new line")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of the samples.")]
Out = Annotated[
    Path | None, typer.Option("--out", help="A folder for table.md, compare.svg, compare.json and the models.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on in --out behind the rungs that are finished.")]


def compare(
    files: Files,
    minutes: Minutes = 5.0,
    steps: Steps = None,
    changes: Changes = None,
    start: Start = "\n",
    seed: Seed = 0,
    out: Out = None,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Train the ladder on your text, from counting to the Transformer, and see what each step buys.

    Every rung learns the same text in the same tokens, and tells the same held-out bytes. Ctrl-C keeps the rungs that
    are finished; --resume goes on.

    \b
    cutaway compare novel.txt --minutes 5 --out build/ladder
    cutaway generate "It was" --model build/ladder/models/transformer
    """
    import tempfile

    _check(out, resume)
    if out is not None:
        _climb(files, out, minutes, steps, changes or [], start, seed, resume, as_json, kept=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        _climb(files, Path(folder), minutes, steps, changes or [], start, seed, resume, as_json, kept=False)


def _check(out: Path | None, resume: bool) -> None:
    """Nothing is read before it is clear that it may be written."""
    if out is None:
        if resume:
            raise InputError("--resume goes on in a folder: name it with --out")
        return
    from cutaway.before.ladder.comparison_folder import check_place

    check_place(out, resume)
    check_writable(out)


def _climb(
    files: list[Path],
    out: Path,
    minutes: float,
    steps: int | None,
    changes: list[str],
    start: str,
    seed: int,
    resume: bool,
    as_json: bool,
    kept: bool,
) -> None:
    from cutaway.before.ladder.compare import compare as climbed
    from cutaway.before.ladder.table import hurried
    from cutaway.cli.shared.inside import as_text, learning

    asked: dict[str, Any] = {"minutes": minutes, "steps": steps, "changes": changes, "start": start, "seed": seed}
    shown: list[str] = []

    def finished(found: "ComparisonResults") -> None:
        if not as_json:
            _show_rungs(found, shown)

    try:
        with learning(anew=True) as report:
            found = climbed(files, out, **asked, resume=resume, report=report, finished=finished)
    except KeyboardInterrupt:
        more = f"; cutaway compare … --out {out} --resume goes on" if kept and shown else ""
        print(f"stopped: {len(shown)} rungs are finished{more}", file=sys.stderr)
        raise typer.Exit(130) from None
    if as_json:
        print(as_text({**found.to_dict(), "out": str(out) if kept else None}), end="")
        return
    _show_rungs(found, shown)
    for said in hurried(found.to_dict()):
        print(f"         {said}")
    _show(found)
    if kept:
        print(f"wrote {out}: table.md, compare.svg, compare.json, models/")


def _show_rungs(found: "ComparisonResults", shown: list[str]) -> None:
    """The rows that were not shown before, as they come."""
    from cutaway.before.ladder.table import work

    about = found.to_dict() if not shown else {}
    if about:
        print(f"learnt   {about['trained_on']['tokens']:,} {about['unit']}")
        print(f"scored   {about['scored_on']['bytes']:,} held-out bytes, the same for all")
        if about["trained_on"]["too_little"]:
            print("         too little to go by: with so short a text the numbers say little")
        print(f"{'rung':12s} bits per byte   parameters  training  work")
    for rung in found.rungs[len(shown) :]:
        told = f"{rung.name:12s} {rung.bits_per_byte:13.3f} {rung.parameters:12,} {rung.seconds:7.1f} s"
        print(f"{told}  {work(rung.to_dict())}", flush=True)
        if rung.flops is not None:
            print(f"{'':12s} {rung.about}", flush=True)
        shown.append(rung.name)


def _show(found: "ComparisonResults") -> None:
    from cutaway.cli.shared.tables import grid, stdout
    from cutaway.cli.shared.wording import shown

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
    from cutaway.cli.shared.tables import grid, stdout

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
