"""Several pictures on one page.

page_of("The ship", "What the model answers, and why.", [picture, other])
"""

from collections.abc import Iterable

from cutaway.pictures.html import page
from cutaway.pictures.picture import Picture
from cutaway.pictures.svg import Markup, tag

TITLE = 160  # characters
LEAD = (
    ".lead{font:15px/1.5 system-ui,-apple-system,'Segoe UI',sans-serif;color:#1f2328;padding:28px 24px 4px;margin:0}"
    ".lead h1,.lead h2{font-size:25px;line-height:1.25;margin:0 0 6px;overflow-wrap:anywhere}.lead h2{font-size:21px}"
    ".lead p{margin:0;color:#59636e;max-width:80ch}.lead b{color:#1f2328;font-weight:600}"
    ".cutaway{border-top:1px solid #d1d9e0}main{max-width:1240px;margin:0 auto}"
    "@media (prefers-color-scheme:dark){.lead,.lead b{color:#e6edf3}.lead p{color:#9198a1}"
    ".cutaway{border-color:#3d444d}}"
)


def page_of(title: str, lead: Markup | str, parts: Iterable[Picture | Markup]) -> str:
    """A page of pictures, or of sections, that loads nothing from elsewhere."""
    title = title if len(title) <= TITLE else f"… {title[-TITLE:]}"  # the end of a long text: there the answer is
    top = tag("header", tag("style", Markup(LEAD)), tag("h1", title), tag("p", lead), class_="lead")
    return page(title, Markup(top + page_parts(parts)))


def page_section(title: str, lead: Markup | str, pictures: Iterable[Picture]) -> Markup:
    """Pictures below a heading of their own."""
    return Markup(tag("header", tag("h2", title), tag("p", lead), class_="lead") + page_parts(pictures))


def page_parts(parts: Iterable[Picture | Markup]) -> Markup:
    """Pictures and sections, one below the other."""
    return Markup("".join(one if isinstance(one, Markup) else one._repr_html_() for one in parts))
