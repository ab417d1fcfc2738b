"""`cutaway train`: a recipe becomes a model folder."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from cutaway.cli.shared.options import Json
from cutaway.cli.shared.tables import json_text

SPEED = {"tokens": "tok/s", "pictures": "pictures/s"}


def train(
    what: Annotated[
        list[Path],
        typer.Argument(metavar="RECIPE.toml|FILES…", help="A recipe, or files to learn from: text, a table, …"),
    ],
    out: Annotated[Path, typer.Option(help="Where the model folder goes.")],
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="Change a value of the recipe: --set train.steps=200")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run in --out stopped.")] = False,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="The same bits every time, on a GPU too (slower).")
    ] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard files to OUT/run.")] = False,
    as_json: Json = False,
) -> None:
    """Train a model as a recipe says, or on your own files; Ctrl-C leaves a checkpoint that --resume goes on from."""
    from cutaway.training.lock import check_run_folder
    from cutaway.training.parallel import leads, leave_group
    from cutaway.training.presets import recipe_for
    from cutaway.training.recipe import read_recipe
    from cutaway.training.train import train as run

    changes = [*(changes or []), *(["train.deterministic=true"] if deterministic else [])]
    is_recipe = len(what) == 1 and what[0].suffix == ".toml"
    resolved = read_recipe(what[0], changes) if is_recipe else recipe_for(what, changes)
    shown = Shown(quiet=as_json or not leads())
    listeners: list[Any] = [shown]
    if leads():
        check_run_folder(out, resume)  # TensorBoard writes its first file at once
    if tensorboard and leads():
        from cutaway.training.tensorboard import TensorBoard

        listeners.append(TensorBoard(out / "run"))
    with shown:
        outcome = run(resolved, out, resume=resume, listeners=listeners)
    leave_group()
    if as_json and leads():
        import dataclasses

        print(json_text({**dataclasses.asdict(outcome), "out": str(out)}))
    else:
        shown.end(outcome, out)
    raise typer.Exit(outcome.exit_code)


class Shown:
    """What a person sees of a run: a bar while it goes on, a line for each measurement; when piped, lines alone."""

    def __init__(self, *, quiet: bool) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        from cutaway.cli.shared.console import Console

        self.console = Console(quiet=quiet)
        self.progress = Progress(
            TextColumn("step {task.completed:,}/{task.total:,}"),
            BarColumn(bar_width=8),
            TextColumn("{task.fields[told]}"),
            console=self.console,
            disable=quiet or not self.console.is_terminal,
        )
        self.bar: Any = None
        self.next_line = 0

    def __enter__(self) -> "Shown":
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def __call__(self, event: dict[str, Any]) -> None:
        tell = getattr(self, f"_{event['event']}", None)
        if tell is not None:
            tell(event)

    def _note(self, event: dict[str, Any]) -> None:
        self.console.print(event["text"])

    def _start(self, event: dict[str, Any]) -> None:
        from rich.text import Text

        about = (
            f": {event['parameters']:,} parameters on {event['machine']}, "
            f"{_several(event['examples'], 'example')}, {_several(event['steps_per_epoch'], 'step')} an epoch"
        )
        self.console.print(Text.assemble((event["name"], "bold"), about))
        self.bar = self.progress.add_task("", total=event["steps"], told="")
        self.first, self.began, self.unit = event["step"], time.monotonic(), SPEED[event["unit"]]

    def _resume(self, event: dict[str, Any]) -> None:
        self.console.print(f"going on from step {event['step']:,}")
        self.progress.update(self.bar, completed=event["step"])

    def _step(self, event: dict[str, Any]) -> None:
        left = (time.monotonic() - self.began) * (event["steps"] - event["step"]) / (event["step"] - self.first)
        told = (
            f"{duration(left)} left  loss {event['loss']:.3f}  rate {event['rate']:.1e}  "
            f"{amount(event['tokens_per_second'])} {self.unit}  {event['share_of_peak']:.0%} of peak"
        )
        if event["skipped"]:
            told += f"  {event['skipped']} skipped"
        self.progress.update(self.bar, completed=event["step"], told=told)
        if not self.console.is_terminal and event["step"] >= self.next_line:
            self.next_line = event["step"] + event["steps"] // 10
            self.console.print(f"step {event['step']:,}/{event['steps']:,}  {told}")

    def _skip(self, event: dict[str, Any]) -> None:
        self.console.print(f"step {event['step']:,} had no usable loss and was skipped", style="yellow")

    def _evaluate(self, event: dict[str, Any]) -> None:
        from rich.text import Text

        hidden = ("event", "step", "samples", "seconds", "best")
        scores = "  ".join(f"{name} {value:.4f}" for name, value in event.items() if name not in hidden)
        mark = ("  best so far" if event["best"] else "", "green")
        self.console.print(Text.assemble((f"step {event['step']:,}", "bold"), f"  {scores}", mark))
        for sample in event["samples"]:
            self.console.print(f"    {sample.strip()}", style="dim")

    def end(self, outcome: Any, out: Path) -> None:
        if outcome.finished:
            took = f"{_several(outcome.step, 'step')}, {duration(outcome.seconds)}"
            self.console.print(f"done after {took}: the model is in {out}")
        else:
            self.console.print(f"stopped at step {outcome.step:,}; the same command with --resume goes on")


def _several(n: int, thing: str) -> str:
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def duration(seconds: float) -> str:
    """45 s, 12 min, 3.4 h."""
    for size, unit, digits in ((3600.0, "h", 1), (60.0, "min", 0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.{digits}f} {unit}"
    return f"{seconds:.0f} s"


def amount(x: float) -> str:
    """3.2 M, 45 k: as many digits as one can read at a glance."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if x >= size:
            return f"{x / size:.3g} {letter}"
    return f"{x:.0f}"
