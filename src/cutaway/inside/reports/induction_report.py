"""`cutaway circuit RUN --preset induction --over-training`: when induction heads appeared, by checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from cutaway.arguments import with_options
from cutaway.inside.circuits.induction import induction_over_training
from cutaway.inside.presets.induction_preset import repeated_rows
from cutaway.inside.presets.search import Search
from cutaway.inside.progress import no_progress
from cutaway.inside.reports.options import CircuitOptions
from cutaway.inside.reports.patch_inputs import warn_in_python
from cutaway.inside.reports.report import Report
from cutaway.model.model import Model
from cutaway.pictures import Lines, Picture
from cutaway.pictures.console import Console
from cutaway.pictures.terminal_tables import grid
from cutaway.tokens import Tokenizer

KINDS = {"previous": "previous token", "induction": "induction"}
ROWS = 20  # in a terminal


@dataclass(frozen=True, eq=False)
class InductionReport(Report):
    """The best head of each kind in every checkpoint, and the loss on tokens and on their repetition."""

    steps: Sequence[dict[str, Any]]
    model: str

    @property
    def title(self) -> str:
        return f"{self.name}: how induction heads appeared"

    @property
    def summary(self) -> str:
        return "The best head of each kind in every checkpoint, and how much cheaper a token is when it is said again."

    def pictures(self) -> dict[str, Picture]:
        lines = {f"{name} head": [one[kind][1] for one in self.steps] for kind, name in KINDS.items()}
        lines["saved the second time"] = [1 - one["second"] / one["first"] for one in self.steps]
        title = "The best head of each kind, and what saying it twice saves"
        steps = [one["step"] for one in self.steps]
        return {"induction": Lines(steps, lines, title=title, x_name="step", y_name="share")}

    def to_dict(self) -> dict[str, Any]:
        return {"preset": "induction", "steps": list(self.steps)}

    def print_to(self, console: Console) -> None:
        table = grid(header=True)
        for name in ("step", *KINDS.values(), "nats: first", "second time"):
            table.add_column(name, justify="left" if name in KINDS.values() else "right")
        back = -len(self.steps) // ROWS  # counted from the last step, which is always shown
        for one in self.steps[::back][::-1]:
            heads = (Text(f"{score:.2f}  {_short(head)}") for head, score in (one[kind] for kind in KINDS))
            table.add_row(f"{one['step']:,}", *heads, f"{one['first']:.2f}", f"{one['second']:.2f}")
        console.print(table)


@with_options
def induction_report(
    model: Model, tokenizer: Tokenizer, run: Path | str, *, options: CircuitOptions
) -> InductionReport:
    """Scores every checkpoint in the folder of a training run; `model` ends with the weights of the last one."""
    ids = repeated_rows(Search(model, tokenizer, options, no_progress, warn_in_python))
    steps = []
    for step, scores in induction_over_training(model, run, ids):
        best = {kind: getattr(scores, kind).best(1)[0] for kind in KINDS}
        steps.append({"step": step, **best, "first": scores.loss[0], "second": scores.loss[1]})
    return InductionReport(steps, str(run))


def _short(head: str) -> str:
    """decoder.1.attention.2 → block 1 head 2"""
    _, block, _, number = head.split(".")
    return f"block {block} head {number}"
