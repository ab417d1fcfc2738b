"""Runs as their logs describe them, and their learning curves as a picture."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, inf, log10
from pathlib import Path
from typing import Any

from cutaway.errors import InputError
from cutaway.training.run_log import Event, is_number, read_log

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")  # Okabe & Ito: seen by all
WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 44, 48


@dataclass(frozen=True)
class RunRecord:
    """A run according to its log."""

    path: Path
    start: Event
    steps: dict[int, Event]
    evaluations: dict[int, Event]
    state: str  # done, stopped early, interrupted, or unfinished

    @property
    def last(self) -> Event:
        return self.steps[max(self.steps)] if self.steps else {}

    def best(self, metric: str = "loss") -> tuple[int, float] | None:
        """The step and the lowest value of a loss."""
        found = [(event[metric], step) for step, event in self.evaluations.items() if is_number(event.get(metric))]
        return (min(found)[1], min(found)[0]) if found else None


def read_run(folder: Path) -> RunRecord:
    """The run in a model folder, or in its `run` folder; of a step that was repeated the last line counts."""
    places = (folder / "run" / "log.jsonl", folder / "log.jsonl")
    path = next((place for place in places if place.exists()), None)
    if path is None:
        raise InputError(f"{folder} holds no run: there is no {places[0]}")
    start: Event = {}
    steps: dict[int, Event] = {}
    evaluations: dict[int, Event] = {}
    state = "unfinished"
    for event in read_log(path):
        match event["event"]:
            case "start":
                start, state = event, "unfinished"
                last = event.get("step", inf)  # what came after it was lost, or belongs to another run
                steps, evaluations = ({s: e for s, e in told.items() if s <= last} for told in (steps, evaluations))
            case "step":
                steps[event["step"]] = event
            case "evaluate":
                evaluations[event["step"]] = event
            case "end":
                state = event.get("reason") or "done"
    return RunRecord(folder, start, steps, evaluations, state)


def find_runs(folder: Path) -> list[RunRecord]:
    """All runs beneath a folder, by name."""
    return [read_run(path.parent.parent) for path in sorted(folder.rglob("run/log.jsonl")) if path.is_file()]


def _text(value: Any) -> str:
    """As text of an SVG file; characters that XML cannot hold become �."""
    return escape(re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", str(value)))


def plot_runs(runs: Sequence[RunRecord], metric: str = "loss") -> str:
    """An SVG picture: a thin line for the training loss, a thick one with points for the validation."""
    curves = []
    for i, run in enumerate(runs):
        colour = COLOURS[i % len(COLOURS)]
        trained = _points(run.steps, metric) if metric == "loss" else []
        curves.append((run, colour, _smooth(trained), _points(run.evaluations, metric)))
    points = [point for _, _, trained, measured in curves for point in trained + measured]
    if not points:
        known = sorted({name for run in runs for event in run.evaluations.values() for name in event})
        where = ", ".join(str(run.path) for run in runs)
        raise InputError(f"no {metric!r} in {where}; their evaluations hold {', '.join(known) or 'nothing'}")
    x_ticks = _ticks(0.0, max(x for x, _ in points))
    low, high = min(y for _, y in points), max(y for _, y in points)
    y_ticks = _ticks(low, high)
    frame = _Frame(x_ticks[0], x_ticks[-1], y_ticks[0], y_ticks[-1])
    parts = [*_axes(frame, x_ticks, y_ticks, metric)]
    names = [str(run.start.get("name", run.path.name)) for run in runs]
    if len(set(names)) < len(names):  # several runs of one recipe: their folders tell them apart
        names = [run.path.name for run in runs]
    for i, (run, colour, trained, measured) in enumerate(curves):
        parts += _curve(frame, run, colour, trained, measured)
        x, y = LEFT + 8 + i % 4 * 170, 14 + i // 4 * 16
        parts.append(f'<circle cx="{x}" cy="{y}" r="5" fill="{colour}"/>')
        parts.append(f'<text x="{x + 10}" y="{y + 4}">{_text(names[i])}</text>')
    kinds = "thin: training, thick: validation" if metric == "loss" else "validation"
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 10}">{kinds}</text>')
    style = "text{font:12px system-ui,sans-serif;fill:#333}.grid{stroke:#ddd}.axis{stroke:#888}"
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="cutaway-plot" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="{_text(metric)} by step"><style>{style}</style>'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


@dataclass(frozen=True)
class _Frame:
    left: float
    right: float
    low: float
    high: float

    def x(self, value: float) -> float:
        return LEFT + (value - self.left) / (self.right - self.left) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (value - self.low) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM)


def _points(events: dict[int, Event], metric: str) -> list[tuple[float, float]]:
    found = sorted(events.items())
    return [(float(step), float(event[metric])) for step, event in found if is_number(event.get(metric))]


def _smooth(points: list[tuple[float, float]], most: int = 300) -> list[tuple[float, float]]:
    """Means of neighbours, where there are more points than one can see."""
    n = max(1, len(points) // most)
    groups = [points[i : i + n] for i in range(0, len(points), n)]
    return [(group[-1][0], sum(y for _, y in group) / len(group)) for group in groups]


def _ticks(low: float, high: float) -> list[float]:
    """Five or so round numbers that enclose the range."""
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-9):
        high = low + max(1.0, abs(low))
    size = 10 ** floor(log10((high - low) / 5))
    step = next(size * k for k in (1, 2, 5, 10) if (high - low) / (size * k) <= 6)
    return [float(step * i) for i in range(floor(low / step + 1e-9), ceil(high / step - 1e-9) + 1)]


def _axes(frame: _Frame, x_ticks: list[float], y_ticks: list[float], metric: str) -> list[str]:
    parts = []
    for value in x_ticks:
        x = frame.x(value)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{value:,.10g}</text>')
    for value in y_ticks:
        y = frame.y(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:.6g}</text>')
    base = HEIGHT - BOTTOM
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 10}" text-anchor="end">step</text>')
    parts.append(f'<text x="{LEFT - 48}" y="{TOP - 12}">{_text(metric)}</text>')
    return parts


def _curve(
    frame: _Frame,
    run: RunRecord,
    colour: str,
    trained: list[tuple[float, float]],
    measured: list[tuple[float, float]],
) -> list[str]:
    def line(points: list[tuple[float, float]], width: float, opacity: float) -> str:
        path = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in points)
        return (
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" opacity="{opacity}" '
            f'stroke-linejoin="round"/>'
        )

    parts = [line(trained, 1.2, 0.45)] if len(trained) > 1 else []
    if len(trained) == 1:  # a line through one point is not seen
        ((x, y),) = trained
        parts.append(f'<circle cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}" r="3" fill="{colour}" opacity="0.45"/>')
    parts += [line(measured, 2.2, 1.0)] if len(measured) > 1 else []
    for x, y in measured:
        title = _text(f"{run.start.get('name', run.path.name)}, step {x:,.0f}: {y:.4f}")
        parts.append(
            f'<circle cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}" r="3" fill="{colour}"><title>{title}</title></circle>'
        )
    return parts
