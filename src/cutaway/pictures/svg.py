"""Markup that cannot be broken by a token, and the pieces of a drawing: labels, legends, hatching.

`tag` escapes every string that is not itself `Markup`, so text stays text by construction. No drawing has an `id`:
several may stand in one notebook, the same one twice, and nothing can clash. Hence no gradients, markers or patterns;
the legend's bar is an image, and what is not finite is a hole in front of hatching.
"""

import unicodedata
from collections.abc import Sequence
from html import escape

import numpy as np

from cutaway.pictures.colour import AT_NIGHT, SERIES, Scale
from cutaway.pictures.picture_data import number, visible_text

Value = str | int | float | None  # of an attribute
Length = int | float
LEAVES = {"rect", "path", "line", "circle", "image", "img", "meta", "br"}
SIZE = 12  # of letters, in pixels
STYLE = (
    ".cutaway-svg{font:12px system-ui,-apple-system,'Segoe UI',sans-serif;background:#ffffff}"
    ".cutaway-svg text{fill:#1f2328;white-space:pre}.cutaway-svg .dim{fill:#59636e}"
    ".cutaway-svg .strong{font-weight:600}"
    ".cutaway-svg .rule{stroke:#d1d9e0;fill:none}.cutaway-svg .hatch{stroke:#818b98;fill:none}"
    ".cutaway-svg .node{fill:#f6f8fa;stroke:#818b98}.cutaway-svg image{image-rendering:pixelated}"
    ".cutaway-svg .halo{stroke:#ffffff;stroke-width:4px;stroke-linejoin:round;paint-order:stroke}"
    "@media (prefers-color-scheme:dark){.cutaway-svg{background:#0d1117}.cutaway-svg text{fill:#e6edf3}"
    ".cutaway-svg .dim{fill:#9198a1}.cutaway-svg .rule{stroke:#3d444d}.cutaway-svg .hatch{stroke:#656c76}"
    ".cutaway-svg .node{fill:#151b23;stroke:#656c76}.cutaway-svg .halo{stroke:#0d1117}}"
    + "".join(f".cutaway-svg .s{i}{{stroke:{c}}}.cutaway-svg .f{i}{{fill:{c}}}" for i, c in enumerate(SERIES))
    + "@media (prefers-color-scheme:dark){"
    + "".join(f".cutaway-svg .s{i}{{stroke:{c}}}.cutaway-svg .f{i}{{fill:{c}}}" for i, c in enumerate(AT_NIGHT))
    + "}.cutaway-svg .one:focus{outline:none}"
    ".cutaway-svg:has(.one:hover) .one:not(:hover),.cutaway-svg:has(.one:focus) .one:not(:focus):not(:hover)"
    "{opacity:.12}.cutaway-svg .one:hover text,.cutaway-svg .one:focus text{font-weight:700}"
)


class Markup(str):
    """A string that is markup already; any other is text."""


def tag(_name: str, *inside: str, **attributes: Value) -> Markup:
    """An element. `class_` is class, `font_size` is font-size; None leaves an attribute out."""
    written = [_name]
    for name, value in attributes.items():
        if value is not None:
            shown = value if isinstance(value, str) else plain(value)
            written.append(f'{name.rstrip("_").replace("_", "-")}="{safe(shown)}"')
    opening = " ".join(written)
    if _name in LEAVES:
        return Markup(f"<{opening}/>")
    return Markup(f"<{opening}>{''.join(map(safe, inside))}</{_name}>")


def safe(text: str) -> str:
    return text if isinstance(text, Markup) else escape(visible_text(text))


def plain(value: Length) -> str:
    """A coordinate: two decimals are a hundredth of a pixel."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value % 1 else str(int(value))


def document(
    size: tuple[Length, Length], title: str, description: str, *inside: str, data: str | None = None, role: str = "img"
) -> Markup:
    """A drawing. With `data` it stands alone, with its style and numbers; without, in a page that has both."""
    width, height = (float(np.ceil(side)) for side in size)
    alone = data is not None
    head = [tag("title", title), tag("desc", description)]
    if alone:
        head += [tag("style", Markup(STYLE)), tag("metadata", Markup(data), class_="cutaway-data")]
    attributes: dict[str, Value] = {
        "xmlns": "http://www.w3.org/2000/svg" if alone else None,
        "class_": "cutaway-svg",
        "role": role,
        "aria_label": title,
        "viewBox": f"0 0 {plain(width)} {plain(height)}",
        "width": width,
        "height": height,
        "style": None if alone else f"max-width:{plain(width)}px;min-width:{plain(min(width, 0.6 * width + 80))}px",
    }
    return tag("svg", *head, *inside, **attributes)


# --- letters ----------------------------------------------------------------------------------------------------------


def cells(text: str) -> int:
    """How many columns of a terminal `text` takes: two for wide letters, none for marks on top of others."""
    if text.isascii():
        return len(text)
    wide = (0 if unicodedata.combining(c) or c in "\u200b\u200d\ufe0f" else 2 if _is_wide(c) else 1 for c in text)
    return sum(wide)


def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in "WF"


def width_of(text: str, size: Length = SIZE) -> float:
    """About how wide a label is drawn; rather too wide than too narrow."""
    narrow = sum(text.count(c) for c in "ijlft.,:;'|!I()[] ")
    broad = sum(text.count(c) for c in "mwMW@%") + sum(c.isupper() for c in text) * 0.5
    return size * (0.6 * cells(text) - 0.26 * narrow + 0.2 * broad)


def cut_label(text: str, most: int) -> str:
    """`text` in at most so many columns; what was cut ends with …"""
    text = visible_text(text)
    if cells(text) <= most:
        return text
    kept = ""
    for character in text:
        if cells(kept + character) > most - 1:
            break
        kept += character
    return kept + "…"


def text_label(text: str, x: Length, y: Length, most: int = 18, **attributes: Value) -> Markup:
    """A name in a drawing, cut where it is long; then its whole length is behind it."""
    short = cut_label(text, most)
    whole = [tag("title", text)] if short != visible_text(text) else []
    return tag("text", short, *whole, x=x, y=y, **attributes)


def label_step(n: int, room: Length, need: Length = 12.5) -> int:
    """Each how-manieth label has room, where each cell is `room` wide; 1, 2, 5, 10, 20 …"""
    for step in (1, 2, 5, 10, 20, 50, 100, 200, 500):
        if step * room >= need or step >= n:
            return step
    return n


# --- pieces -----------------------------------------------------------------------------------------------------------


def hatch(x: Length, y: Length, width: Length, height: Length, gap: Length = 7) -> Markup:
    """Slanted lines over a rectangle: here is no number."""
    parts = []
    for start in np.arange(gap, width + height, gap).tolist():
        left, right = max(0.0, start - height), min(start, width)
        parts.append(f"M{plain(x + left)} {plain(y + start - left)}L{plain(x + right)} {plain(y + start - right)}")
    return tag("path", d="".join(parts), class_="hatch")


def pixels(uri: str, **box: Value) -> Markup:
    """An image whose pixels stay squares, also where a style is not read."""
    return tag("image", href=uri, **box, preserveAspectRatio="none", image_rendering="optimizeSpeed")


def legend(scale: Scale, x: Length, y: Length, holes: bool, name: str = "", width: Length = 220) -> Markup:
    """The bar of colours with its numbers; 34 pixels high."""
    bar = scale.image(np.array([[value for _, value in _spread(scale)]]))
    parts = [pixels(bar, x=x, y=y, width=width, height=10)]
    for share, value in scale.ticks():
        anchor = "start" if share == 0 else "end" if share == 1 else "middle"
        parts.append(
            tag("text", number(value, 2), x=x + share * width, y=y + 23, text_anchor=anchor, class_="dim", font_size=11)
        )
    after = x + width + 12
    if name:
        parts.append(tag("text", name, x=after, y=y + 9, class_="dim", font_size=11))
        after += width_of(name, 11) + 14
    if holes:
        box = tag("rect", x=after, y=y - 1, width=22, height=12, class_="rule")
        parts += [
            box,
            hatch(after, y - 1, 22, 12, 5),
            tag("text", "no number", x=after + 28, y=y + 9, class_="dim", font_size=11),
        ]
    return tag("g", *parts)


def _spread(scale: Scale) -> list[tuple[float, float]]:
    """Numbers whose colours are evenly spread along the bar."""
    shares = np.linspace(0, 1, 128).tolist()
    if scale.kind == "diverging":
        bent = [np.sign(2 * s - 1) * abs(2 * s - 1) ** (2 if scale.root else 1) for s in shares]
        return [(s, b * scale.high) for s, b in zip(shares, bent, strict=True)]
    return [(s, scale.low + (s * s if scale.root else s) * (scale.high - scale.low)) for s in shares]


def axis_names(texts: Sequence[str], most: int = 18) -> float:
    """How wide the widest label is."""
    return max((width_of(cut_label(text, most)) for text in texts), default=0.0)
