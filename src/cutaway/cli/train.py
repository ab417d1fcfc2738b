"""`cutaway train`: from a recipe, or from files, to a model folder."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.cli.shared.options import Json
from cutaway.pictures.terminal_text import json_text

if TYPE_CHECKING:
    from cutaway.training.recipe import Recipe
    from cutaway.training.trainer import Outcome

SPEED = {"tokens": "tok/s", "pictures": "pictures/s"}


def train(
    out: Annotated[Path, typer.Option(help="The model folder to write.")],
    what: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RECIPE.toml|FILES…", help="A recipe, or files to train on: text, a table, images."),
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="Change a value of the recipe: --set train.steps=200")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --out, whose recipe need not be named again.")
    ] = False,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="The same bits every time, on a GPU too (slower).")
    ] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard files to OUT/run.")] = False,
    as_json: Json = False,
) -> None:
    """Train a model from a recipe, or on your own files. Ctrl-C saves a checkpoint, from which --resume continues."""
    from cutaway.training.parallel import leads, leave_group
    from cutaway.training.run_folder import RunFolder
    from cutaway.training.train import choose_recipe
    from cutaway.training.train import train as run

    changes = [*(changes or []), *(["train.deterministic=true"] if deterministic else [])]
    recipe = choose_recipe(what or [], out, changes, resume=resume)
    display = Display(quiet=as_json or not leads())
    listeners: list[Any] = [display]
    if leads():
        RunFolder(out).check(resume)  # TensorBoard writes its first file at once
    if tensorboard and leads():
        from cutaway.training.tensorboard import TensorBoard

        listeners.append(TensorBoard(out / "run"))
    with display:
        outcome = run(recipe, out, resume=resume, listeners=listeners)
    leave_group()
    if as_json and leads():
        import dataclasses

        print(json_text({**dataclasses.asdict(outcome), "out": str(out)}))
    else:
        display.end(outcome, recipe, out)
    raise typer.Exit(outcome.exit_code)


class Display:
    """What people see of a run: a progress bar and a line for each evaluation; in a pipe, lines only."""

    def __init__(self, *, quiet: bool) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        from cutaway.pictures.console import Console

        self.console = Console(quiet=quiet)
        self.progress = Progress(
            TextColumn("step {task.completed:,}/{task.total:,}"),
            BarColumn(bar_width=8),
            TextColumn("{task.fields[shown]}"),
            console=self.console,
            disable=quiet or not self.console.is_terminal,
        )
        self.bar: Any = None
        self.next_line = 0

    def __enter__(self) -> "Display":
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
            f"{_count(event['examples'], 'example')}, {_count(event['steps_per_epoch'], 'step')} an epoch"
        )
        self.console.print(Text.assemble((event["name"], "bold"), about))
        self.bar = self.progress.add_task("", total=event["steps"], shown="")
        self.first, self.began, self.unit = event["step"], time.monotonic(), SPEED[event["unit"]]

    def _resume(self, event: dict[str, Any]) -> None:
        self.console.print(f"continuing from step {event['step']:,}")
        self.progress.update(self.bar, completed=event["step"])

    def _step(self, event: dict[str, Any]) -> None:
        left = (time.monotonic() - self.began) * (event["steps"] - event["step"]) / (event["step"] - self.first)
        shown = (
            f"{duration(left)} left  loss {event['loss']:.3f}  rate {event['rate']:.1e}  "
            f"{amount(event['tokens_per_second'])} {self.unit}  {event['share_of_peak']:.0%} of peak"
        )
        if event["skipped"]:
            shown += f"  {event['skipped']} skipped"
        self.progress.update(self.bar, completed=event["step"], shown=shown)
        if not self.console.is_terminal and event["step"] >= self.next_line:
            self.next_line = event["step"] + event["steps"] // 10
            self.console.print(f"step {event['step']:,}/{event['steps']:,}  {shown}")

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

    def end(self, outcome: "Outcome", recipe: "Recipe", out: Path) -> None:
        """How it ended, and what to do next."""
        import shlex

        from cutaway.cli.shared.next_steps import next_steps

        if outcome.finished:
            took = f"{_count(outcome.step, 'step')}, {duration(outcome.seconds)}"
            self.console.print(f"done after {took}: the model is in {out}")
            commands = next_steps(recipe, out)
        else:
            self.console.print(f"stopped at step {outcome.step:,}")
            commands = [f"cutaway train --resume --out {shlex.quote(str(out))}"]
        self.console.print("next:")
        for command in commands:
            self.console.print(f"  {command}", soft_wrap=True)


def _count(n: int, thing: str) -> str:
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def duration(seconds: float) -> str:
    """45 s, 12 min, 3.4 h."""
    for size, unit, digits in ((3600.0, "h", 1), (60.0, "min", 0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.{digits}f} {unit}"
    return f"{seconds:.0f} s"


def amount(x: float) -> str:
    """3.2 M, 45 k: three digits."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if x >= size:
            return f"{x / size:.3g} {letter}"
    return f"{x:.0f}"
