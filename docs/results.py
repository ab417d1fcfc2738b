"""Makes docs/results.md and docs/results.svg from docs/results.toml, where every figure stands once.

python docs/results.py
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
Row = dict[str, Any]
Test = dict[str, Any]
RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
COLUMNS, GAP, WIDTH, HEIGHT = 2, 28, 366, 268  # of panels
LEFT, RIGHT, TOP, BOTTOM = 44, 10, 52, 42  # inside of a panel
LEGEND = 22
STYLE = """
text{font:12px system-ui,-apple-system,"Segoe UI",sans-serif;fill:#1f2328}
text{stroke:#fff;stroke-width:4px;stroke-linejoin:round;paint-order:stroke}
.title{font-weight:600;font-size:14px} .muted{fill:#59636e;font-size:11px} .ours{fill:#0969da;font-weight:600}
.grid{stroke:#e4e8ec} .axis{stroke:#818b98} .level{stroke:#818b98;stroke-dasharray:5 4}
.mark{fill:#0969da} .line{stroke:#0969da;fill:none;stroke-linejoin:round}
.peer{stroke:#59636e;fill:none;stroke-width:1.6}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3;stroke:#0d1117} .muted{fill:#9198a1} .ours{fill:#58a6ff} .grid{stroke:#262c34}
.axis,.level{stroke:#656c76} .mark{fill:#58a6ff} .line{stroke:#58a6ff} .peer{stroke:#9198a1}}
"""


def main() -> None:
    for file, text in made().items():
        file.write_text(text, encoding="utf-8")


def made() -> dict[Path, str]:
    """What each file should hold."""
    told = tomllib.loads((HERE / "results.toml").read_text(encoding="utf-8"))
    tests = [test for test in told["test"] if any(row.get("ours") for row in test["row"])]
    return {HERE / "results.md": page(told["top"], tests), HERE / "results.svg": picture(tests)}


# --- the page ---------------------------------------------------------------------------------------------------------


def page(top: str, tests: list[Test]) -> str:
    return top + "".join(_section(test) for test in tests)


def _section(test: Test) -> str:
    rows = "\n".join(_line(row) for row in test["row"])
    commands = "\n".join(row["command"] for row in test["row"] if row.get("ours"))
    return f"""
## {test["title"]}

| | {test["what"]}, {test["better"]} is better | parameters | data | FLOPs of training |
|---|---|---|---|---|
{rows}

```
{commands}
```

{test["note"]}
"""


def _line(row: Row) -> str:
    flops = f"{_power(row['flops'])} ({row['how']})" if "flops" in row else ""
    cells = (row["who"], row["score"], row["size"], row["data"], flops)
    return f"| {' | '.join(f'**{cell}**' if cell and row.get('ours') else cell for cell in cells)} |"


def _power(value: float) -> str:
    """6.8·10¹⁶"""
    n = floor(log10(value))
    digits = f"{value / 10**n:.2f}".rstrip("0").rstrip(".")
    return ("" if digits == "1" else f"{digits}·") + "10" + str(n).translate(RAISED)


# --- the plot ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Frame:
    """Where a panel's numbers lie: the logarithm of FLOPs, and the score."""

    x0: float
    y0: float
    decades: tuple[float, float]
    ticks: list[float]

    def x(self, flops: float) -> float:
        low, high = self.decades
        return self.x0 + LEFT + (log10(flops) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        low, high = self.ticks[0], self.ticks[-1]
        return self.y0 + HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)


def picture(tests: list[Test]) -> str:
    """A panel for each test in which one of ours has a value and its FLOPs."""
    some = [test for test in tests if any(row.get("ours") and {"value", "flops"} <= {*row} for row in test["row"])]
    parts = [
        part
        for n, test in enumerate(some)
        for part in _panel(test, n % COLUMNS * (WIDTH + GAP), n // COLUMNS * (HEIGHT + GAP))
    ]
    width = COLUMNS * (WIDTH + GAP) - GAP
    height = ceil(len(some) / COLUMNS) * (HEIGHT + GAP) + LEGEND
    body = "\n".join([*parts, *_legend(height - LEGEND / 2)])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="Quality against the FLOPs of training"><style>{STYLE}</style>\n{body}\n</svg>\n'
    )


def _panel(test: Test, x0: float, y0: float) -> Iterator[str]:
    rows = [row for row in test["row"] if "value" in row]
    frame = Frame(x0, y0, _decades(rows), _ticks([y for row in rows for y in _heights(row)]))
    arrow = {"higher": "↑", "lower": "↓"}[test["better"]]
    yield _text(x0, y0 + 16, test["title"], "title")
    yield _text(x0, y0 + 33, f"{test.get('drawn', test['what'])} · {arrow} {test['better']} is better", "muted")
    yield from _axes(frame)
    for row in sorted(rows, key=lambda row: row.get("ours", False)):  # ours above all others
        yield from _measured(frame, row) if "flops" in row else _level(frame, row)


def _heights(row: Row) -> list[float]:
    return [row["value"], *row.get("interval", []), *(y for _, y in row.get("curve", []))]


def _decades(rows: list[Row]) -> tuple[float, float]:
    """The powers of ten around all points; two of them at least are in sight."""
    logs = [log10(x) for row in rows if "flops" in row for x in (row["flops"], *(x for x, _ in row.get("curve", [])))]
    middle, half = (min(logs) + max(logs)) / 2, (max(logs) - min(logs)) / 2
    half = max(1.1, 1.12 * half + 0.2)
    return middle - half, middle + half


def _ticks(values: list[float]) -> list[float]:
    """Round numbers around the values, with a little air."""
    air = 0.08 * (max(values) - min(values) or 1)
    low, high = min(values) - air, max(values) + air
    size = 10 ** floor(log10((high - low) / 4))
    step = next(size * k for k in (1, 2, 5, 10) if (high - low) / (size * k) <= 5)
    return [step * i for i in range(floor(low / step), ceil(high / step) + 1)]


def _axes(frame: Frame) -> Iterator[str]:
    left, right, base = frame.x0 + LEFT, frame.x0 + WIDTH - RIGHT, frame.y0 + HEIGHT - BOTTOM
    for value in frame.ticks:
        y = frame.y(value)
        kind = "axis" if value == frame.ticks[0] else "grid"
        yield f'<line class="{kind}" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield _text(left - 7, y + 4, f"{value:.6g}", "muted", "end")
    low, high = ceil(frame.decades[0]), floor(frame.decades[1])
    fine = [k * 10.0**n for n in range(low - 1, high + 1) for k in range(1, 10)]
    for flops in (value for value in fine if frame.decades[0] < log10(value) < frame.decades[1]):
        x, length = frame.x(flops), 6 if log10(flops).is_integer() else 3
        yield f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{base}" y2="{base + length}"/>'
    for decade in range(low, high + 1):
        yield _text(frame.x(10.0**decade), base + 20, _power(10.0**decade), "muted", "middle")
    yield _text((left + right) / 2, base + 36, "FLOPs of training", "muted", "middle")


def _level(frame: Frame, row: Row) -> Iterator[str]:
    """Somebody whose FLOPs nobody knows: a line at the score."""
    left, right, y = frame.x0 + LEFT, frame.x0 + WIDTH - RIGHT, frame.y(row["value"])
    yield f'<line class="level" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
    yield _text(left + 8, y - 5, _label(row), "muted")


def _measured(frame: Frame, row: Row) -> Iterator[str]:
    x, y, ours = frame.x(row["flops"]), frame.y(row["value"]), row.get("ours", False)
    if curve := row.get("curve"):
        points = " ".join(f"{frame.x(a):.1f},{frame.y(b):.1f}" for a, b in curve)
        yield f'<polyline class="line" stroke-width="2" points="{points}"/>'
        yield from (f'<circle class="mark" cx="{frame.x(a):.1f}" cy="{frame.y(b):.1f}" r="2.2"/>' for a, b in curve)
    if interval := row.get("interval"):
        low, high = (frame.y(end) for end in interval)
        path = f"M{x:.1f} {low:.1f}V{high:.1f}M{x - 4:.1f} {low:.1f}h8M{x - 4:.1f} {high:.1f}h8"
        yield f'<path class="line" stroke-width="1.6" d="{path}"/>'
    title = f"<title>{escape(_label(row))} after {_power(row['flops'])} FLOPs</title>"
    yield f'<circle class="{"mark" if ours else "peer"}" cx="{x:.1f}" cy="{y:.1f}" r="5.5">{title}</circle>'
    dx, dy, anchor = {
        "right": (11, 4, "start"),
        "left": (-11, 4, "end"),
        "above": (0, -12, "middle"),
        "below": (0, 21, "middle"),
    }[row.get("beside", "right")]
    yield _text(x + dx, y + dy, _label(row), "ours" if ours else "", anchor)


def _legend(y: float) -> Iterator[str]:
    for x, mark, words in (
        (8, '<circle class="mark" cx="{x}" cy="{y}" r="5.5"/>', "ours, FLOPs counted; the bar is its 95 % interval"),
        (314, '<circle class="peer" cx="{x}" cy="{y}" r="5.5"/>', "others, FLOPs published or estimated"),
        (566, '<path class="level" d="M{x} {y}h22"/>', "others, FLOPs not published"),
    ):
        yield mark.format(x=x, y=y)
        yield _text(x + (30 if "path" in mark else 14), y + 4, words, "muted")


def _label(row: Row) -> str:
    """Who, and the first number of the score."""
    number = next(word for word in row["score"].split() if word.replace(".", "").isdigit())
    return f"{row.get('label', row['who']).replace('`', '')} {number}"


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    kind = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{escape(words)}</text>'


if __name__ == "__main__":
    main()
