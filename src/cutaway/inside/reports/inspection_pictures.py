"""The pictures of an inspection."""

import re
from typing import TYPE_CHECKING

import numpy as np

from cutaway.inside.reports.axes import strip_spaces
from cutaway.inside.reports.to_picture import to_picture
from cutaway.pictures import Heads, PatchEvidence, Picture, head_maps

if TYPE_CHECKING:
    from cutaway.inside.reports.inspection import Inspection

LARGEST = 12  # heads of a block that are drawn over an image
ATTENTIONS = {  # the parts of a kind of attention → the title of their picture
    r"encoder\.(\d+)\.attention": "The encoder's heads",
    r"decoder\.(\d+)\.attention": "The decoder's heads",
    r"decoder\.(\d+)\.cross": "Cross-attention: where each head looks in the source",
}


def inspection_pictures(found: "Inspection") -> dict[str, Picture]:
    """Every picture of an inspection, by what it shows."""
    pictures: dict[str, Picture] = {}
    if found.attribution is not None:
        pictures["attribution"] = to_picture(found.attribution, found.tokenizer, image=found.image)
    if found.alignment is not None:
        pictures["alignment"] = to_picture(found.alignment)
    if found.writers is not None:
        pictures["writers"] = to_picture(found.writers)
    if found.patterns and found.image is not None:
        pictures["heads"] = _class_token_looks(found.image, found)
    for number, one in enumerate(_head_pictures(found)):
        pictures[f"heads {number}" if "heads" in pictures else "heads"] = one
    return pictures


def _head_pictures(found: "Inspection") -> list[Heads]:
    """A picture for each kind of attention."""
    patterns, pictures = found.patterns or {}, []
    for regex, title in ATTENTIONS.items():
        layers = {match[1]: part for part in patterns if (match := re.fullmatch(regex, part))}
        if not layers:
            continue
        queries, keys = map(strip_spaces, found.axis_names(next(iter(layers.values()))))
        show = [] if found.head is None else [(layer, found.head) for layer in range(len(layers))]
        values = [patterns[part] for part in layers.values()]
        pictures.append(head_maps(values, queries, keys, title=title, layers=list(layers), show=show))
    return pictures


def _class_token_looks(image: np.ndarray, found: "Inspection") -> PatchEvidence:
    """Where the class token looks in an image: the heads of the last block that was kept."""
    part, pattern = list((found.patterns or {}).items())[-1]
    side = int((pattern.shape[-1] - 1) ** 0.5)
    maps = {f"head {head}": weights[0, 1:].reshape(side, side) for head, weights in enumerate(pattern[:LARGEST])}
    title = f"Where the class token looks: layer {part.split('.')[1]}"
    return PatchEvidence(image, maps, title, "weight", "sequential", root=True)
