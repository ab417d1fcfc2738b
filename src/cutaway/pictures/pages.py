"""Several pictures on one page: all that an inspection found, or a circuit with its scores.

found = look_inside(model, tokenizer, text)
page_of(text, "What the model answers, and why.", pictures_of(found, tokenizer).values())
"""

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from torch import Tensor

from cutaway.inside.report import Inspection
from cutaway.pictures import Heads, PatchEvidence, Picture
from cutaway.pictures import heads as heads_of
from cutaway.pictures.html import page
from cutaway.pictures.svg import Markup, tag
from cutaway.pictures.to_picture import bare, to_picture
from cutaway.tokens import Tokenizer

TITLE = 160  # letters
LEAD = (
    ".lead{font:15px/1.5 system-ui,-apple-system,'Segoe UI',sans-serif;color:#1f2328;padding:28px 24px 4px;margin:0}"
    ".lead h1,.lead h2{font-size:25px;line-height:1.25;margin:0 0 6px;overflow-wrap:anywhere}.lead h2{font-size:21px}"
    ".lead p{margin:0;color:#59636e;max-width:80ch}.lead b{color:#1f2328;font-weight:600}"
    ".cutaway{border-top:1px solid #d1d9e0}main{max-width:1240px;margin:0 auto}"
    "@media (prefers-color-scheme:dark){.lead,.lead b{color:#e6edf3}.lead p{color:#9198a1}"
    ".cutaway{border-color:#3d444d}}"
)


def heads_pictures(
    patterns: Mapping[str, Tensor],
    names: Mapping[str, tuple[Sequence[str], Sequence[str]]],
    *,
    head: int | None = None,
) -> list[Heads]:
    """A picture for each kind of attention: those of the encoder, of the decoder, and across."""
    found = []
    for title, pattern in (
        ("The encoder's heads", r"encoder\.(\d+)\.attention"),
        ("The decoder's heads", r"decoder\.(\d+)\.attention"),
        ("Cross-attention: where each head looks in the source", r"decoder\.(\d+)\.cross"),
    ):
        some = {match[1]: part for part in patterns if (match := re.fullmatch(pattern, part))}
        if not some:
            continue
        queries, keys = names[next(iter(some.values()))]
        show = [] if head is None else [(layer, head) for layer in range(len(some))]
        values = [patterns[part] for part in some.values()]
        found.append(heads_of(values, bare(queries), bare(keys), title=title, layers=list(some), show=show))
    return found


def class_looks(image: np.ndarray, patterns: Mapping[str, Tensor]) -> PatchEvidence:
    """Where the class token looks in a picture: the heads of the last block that there is."""
    part, pattern = list(patterns.items())[-1]
    side = int((pattern.shape[-1] - 1) ** 0.5)
    maps = {f"head {head}": weights[0, 1:].reshape(side, side) for head, weights in enumerate(pattern[:12])}
    title = f"Where the class token looks: layer {part.split('.')[1]}"
    return PatchEvidence(image, maps, title, "weight", "sequential", root=True)


def pictures_of(found: Inspection, tokenizer: Tokenizer | None, *, head: int | None = None) -> dict[str, Picture]:
    """Every picture of an inspection, by what it shows."""
    pictures: dict[str, Picture] = {}
    if found.attribution is not None:
        pictures["attribution"] = to_picture(found.attribution, tokenizer, image=found.image)
    if found.alignment is not None:
        pictures["alignment"] = to_picture(found.alignment)
    if found.writers is not None:
        pictures["writers"] = to_picture(found.writers)
    if found.patterns and found.image is not None:
        pictures["heads"] = class_looks(found.image, found.patterns)
    if found.patterns:
        names = {part: found.names_of(part) for part in found.patterns}
        for number, one in enumerate(heads_pictures(found.patterns, names, head=head)):
            pictures[f"heads {number}" if "heads" in pictures else "heads"] = one
    return pictures


def page_of(title: str, lead: Markup | str, pictures: Iterable[Picture | Markup]) -> str:
    """Several pictures, or parts that have some, on one page that asks nobody for anything."""
    title = title if len(title) <= TITLE else f"… {title[-TITLE:]}"  # of a long text its end, where the answer is
    top = tag("header", tag("style", Markup(LEAD)), tag("h1", title), tag("p", lead), class_="lead")
    return page(title, Markup(top + _in_a_row(pictures)))


def part_of_page(title: str, lead: Markup | str, pictures: Iterable[Picture]) -> Markup:
    """A part with a heading of its own."""
    return Markup(tag("header", tag("h2", title), tag("p", lead), class_="lead") + _in_a_row(pictures))


def _in_a_row(pictures: Iterable[Picture | Markup]) -> Markup:
    return Markup("".join(one if isinstance(one, Markup) else one._repr_html_() for one in pictures))
