"""`patch`: which layer, position or head carries the difference between two texts, as a report."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from cutaway.arguments import with_options
from cutaway.inside.patching.ablation import ablate_sweep
from cutaway.inside.patching.estimate import compare_sweeps, estimate_sweep
from cutaway.inside.patching.metrics import LogitDifference
from cutaway.inside.patching.sweep import Sweep, patch_sweep
from cutaway.inside.progress import Progress, no_progress
from cutaway.inside.reports.options import Ablation, Over, PatchOptions
from cutaway.inside.reports.patch_inputs import Pair, warn_in_python
from cutaway.inside.reports.report import Report
from cutaway.inside.reports.to_picture import to_picture
from cutaway.inside.residual.decompose import check_blocks
from cutaway.model.model import Model
from cutaway.model.tap import uncompiled
from cutaway.pictures import Picture
from cutaway.pictures.console import Console
from cutaway.pictures.terminal_tables import draw_picture, token_row
from cutaway.pictures.terminal_text import minus
from cutaway.tokens import Tokenizer

PLACES = {
    Over.residual: "the residual stream",
    Over.heads: "every head",
    Over.attention: "attention",
    Over.feed_forward: "the feed-forwards",
    Over.cross: "cross-attention",
    Over.cross_heads: "every cross head",
}
ABLATIONS = {
    Ablation.zero: "made zero",
    Ablation.mean: "made the mean",
    Ablation.resample: "taken from another text",
}


@dataclass(frozen=True, eq=False)
class PatchReport(Report):
    """A sweep of patches or ablations, the texts, and how well an estimate agrees with exact patches."""

    sweep: Sweep
    pair: Pair
    heading: str
    agreement: dict[str, Any] | None
    model: str

    @property
    def title(self) -> str:
        return self.pair.clean.text

    @property
    def summary(self) -> str:
        other = self.pair.corrupted
        return (f"Against «{other.text}». " if other is not None else "") + self.lead

    @property
    def lead(self) -> str:
        """By how much the right answer is ahead, in each run."""
        runs = {"clean": self.sweep.clean, "corrupted": self.sweep.corrupted}
        leads = ", ".join(f"{name} {lead.mean().item():+.2f}" for name, lead in runs.items() if lead is not None)
        right, wrong = self.pair.names
        return f"logit of «{right}» − logit of «{wrong}»: {minus(leads)}"

    def pictures(self) -> dict[str, Picture]:
        tokens = self.pair.clean.names[0 if self.sweep.tap.startswith("encoder") else -1]
        return {"sweep": to_picture(self.sweep, title=self.heading, names=tokens)}

    def to_dict(self) -> dict[str, Any]:
        clean, corrupted = self.pair.clean, self.pair.corrupted
        return {
            "clean_text": clean.text,
            "corrupted_text": None if corrupted is None else corrupted.text,
            "right": self.pair.names[0],
            "wrong": self.pair.names[1],
            "tokens": [list(names) for names in clean.names],
            "agreement": self.agreement,
            **self.sweep.to_dict(),
        }

    def print_to(self, console: Console) -> None:
        for name, one in (("clean", self.pair.clean), ("corrupted", self.pair.corrupted)):
            if one is not None and one.names[0]:
                console.print(Text.assemble((f"{name:>9}  ", "dim"), token_row(one.names[0])), soft_wrap=True)
        console.print(Text(self.lead, "dim"), soft_wrap=True)
        console.print()
        draw_picture(console, self.pictures()["sweep"])
        if (agreement := self.agreement) is not None:
            layers = ", ".join(map(str, agreement["layers"]))
            pearson, rank = (
                "–" if agreement[name] is None else f"{agreement[name]:.2f}" for name in ("pearson", "rank")
            )
            numbers = f"correlation {pearson}, ranks {rank}, signs {agreement['sign']:.0%}"
            console.print(Text(minus(f"against exact patches, layers {layers}: {numbers}"), "dim"))


@with_options
def patch(
    model: Model,
    tokenizer: Tokenizer | None,
    clean: str | Path,
    corrupted: str | Path | None = None,
    *,
    progress: Progress = no_progress,
    warn: Callable[[str], None] = warn_in_python,
    name: str = "",
    options: PatchOptions,
) -> PatchReport:
    """Patches each place from the run on `clean` into the run on `corrupted`, or ablates it.

    >>> patch(model, tokenizer, "the cat", ablate="zero").save("patch.html")

    The metric is the logit of the right answer less that of the wrong one. `warn` is called with a message if the model
    does not answer `clean` right; `name` is what the report calls the model.
    """
    options.check_second_text(corrupted is not None)
    model = uncompiled(model)
    check_blocks(model)
    pair = Pair.of(model, tokenizer, clean, corrupted, options)
    pair.check(model, tokenizer, warn)
    side = None if options.stream is None else str(options.stream)
    how: dict[str, Any] = {"over": str(options.over), "side": side, "layers": options.layers}
    how |= pair.clean.more
    own, other = pair.clean.inputs, () if pair.corrupted is None else pair.corrupted.inputs
    metric, agreement = LogitDifference(*pair.ids, at=pair.clean.at), None
    if options.ablate is not None:
        ablation = str(options.ablate)
        sweep = ablate_sweep(model, *own, metric=metric, how=ablation, source=other or None, progress=progress, **how)
    elif options.fast:
        sweep = estimate_sweep(model, own, other, metric, **how)
        agreement = _agreement(model, own, other, metric, how | {"layers": sweep.layers})
    else:
        sweep = patch_sweep(model, own, other, metric, progress=progress, **how)
    return PatchReport(sweep, pair, _heading(options), agreement, name or model.config.family)


def _agreement(model: Model, own: Any, other: Any, metric: LogitDifference, how: dict[str, Any]) -> dict[str, Any]:
    """How well the estimate agrees with exact patches of three layers: the first, the middle and the last."""
    layers, n = how["layers"], len(how["layers"])
    some = [layers[i] for i in sorted({0, n // 2, n - 1})]
    exact, estimated = (
        tool(model, own, other, metric, **{**how, "layers": some}) for tool in (patch_sweep, estimate_sweep)
    )
    return {"layers": some, **compare_sweeps(exact, estimated).to_dict()}


def _heading(options: PatchOptions) -> str:
    place = PLACES.get(options.over, options.over)  # type: ignore[call-overload]
    if options.ablate is not None:
        return f"What is lost without it: {place}, {ABLATIONS[Ablation(options.ablate)]}"
    return f"{'Attribution patching' if options.fast else 'Patching'} {place}: what brings the answer back"
