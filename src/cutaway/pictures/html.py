"""A picture as a page that asks nobody for anything: its style, its one script, its table and its numbers are inside.

Everything is visible without the script; with it the numbers can be read under the pointer, or with the arrow keys. The
page's policy allows no request and no script but this one, by its hash.
"""

import base64
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path

from cutaway.pictures.svg import STYLE, Markup, tag

Table = tuple[Sequence[str], Iterable[Sequence[str]]]  # headings, rows; the first of a row is its name
SCRIPT = (Path(__file__).parent / "page.js").read_text(encoding="utf-8")
PAGE = (
    ":root{color-scheme:light dark}body{margin:0;background:#ffffff}"
    "@media (prefers-color-scheme:dark){body{background:#0d1117}}"
)
FIGURE = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")


def figure(title: str, sentence: str, body: str, table: Table, data: str) -> Markup:
    """What a notebook shows: a heading, a sentence, the picture, the table behind it and its numbers."""
    summary = tag("summary", "The numbers as a table")
    return tag(
        "section",
        tag("style", Markup(STYLE + FIGURE)),
        tag("h1", title),
        tag("p", sentence),
        body,
        tag("output", aria_live="polite"),
        tag(
            "details",
            summary,
            tag("div", table_of(table), class_="table", tabindex="0", role="region", aria_label="Table"),
        ),
        tag("script", Markup(data), type="application/json", class_="cutaway-data"),
        tag("script", Markup(SCRIPT)),
        class_="cutaway",
        aria_label=title,
    )


def page(title: str, inside: Markup) -> str:
    """A whole page around a figure."""
    digest = base64.b64encode(sha256(SCRIPT.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup(PAGE)),
    )
    return "<!doctype html>\n" + tag("html", head, tag("body", tag("main", inside)), lang="en") + "\n"


def table_of(table: Table) -> Markup:
    headings, rows = table
    head = tag("tr", *(tag("th", tag("bdi", heading), scope="col") for heading in headings))
    lines = [
        tag("tr", tag("th", tag("bdi", row[0]), scope="row"), *(tag("td", tag("bdi", cell)) for cell in row[1:]))
        for row in rows
    ]
    return tag("table", tag("thead", head), tag("tbody", *lines))


def scroller(svg: str, name: str) -> Markup:
    """Room that a drawing may scroll in where the window is narrow."""
    return tag("div", svg, class_="view", tabindex="0", role="region", aria_label=name)
