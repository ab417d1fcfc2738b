"""Pictures: each is plain data, drawn as SVG, as a web page, in a notebook and in a terminal.

    picture = HeatMap(pattern, rows=tokens, columns=tokens, title="Head 3.7")
    picture.save("head.html")      # or .svg, .txt, .json; `read_picture` reads .html, .svg and .json back
    picture                        # in a notebook
    print(picture)                 # in a terminal; `picture.show()` in colours

Numbers that are not finite are hatched, or shown as –, and never get a colour. The text of tokens is always escaped.
A picture of 512 tokens takes less than 5 MB and 2 seconds.
"""

from typing import TYPE_CHECKING

from cutaway.lazy import lazy_names

if TYPE_CHECKING:
    from cutaway.pictures.attention_heads import Heads, head_maps
    from cutaway.pictures.circuit_graph import CircuitGraph
    from cutaway.pictures.dots import Dots
    from cutaway.pictures.heat_map import HeatMap
    from cutaway.pictures.image_evidence import PatchEvidence
    from cutaway.pictures.lens_table import LensGrid
    from cutaway.pictures.line_plot import Lines
    from cutaway.pictures.picture import Picture, read_picture
    from cutaway.pictures.picture_data import visible_text
    from cutaway.pictures.word_links import Arcs, ColouredText

__all__ = [
    "Arcs",
    "CircuitGraph",
    "ColouredText",
    "Dots",
    "Heads",
    "HeatMap",
    "LensGrid",
    "Lines",
    "PatchEvidence",
    "Picture",
    "head_maps",
    "read_picture",
    "visible_text",
]

HOMES = {
    "Arcs": "cutaway.pictures.word_links",
    "CircuitGraph": "cutaway.pictures.circuit_graph",
    "ColouredText": "cutaway.pictures.word_links",
    "Dots": "cutaway.pictures.dots",
    "Heads": "cutaway.pictures.attention_heads",
    "HeatMap": "cutaway.pictures.heat_map",
    "LensGrid": "cutaway.pictures.lens_table",
    "Lines": "cutaway.pictures.line_plot",
    "PatchEvidence": "cutaway.pictures.image_evidence",
    "Picture": "cutaway.pictures.picture",
    "head_maps": "cutaway.pictures.attention_heads",
    "read_picture": "cutaway.pictures.picture",
    "visible_text": "cutaway.pictures.picture_data",
}
__getattr__, __dir__ = lazy_names(__name__, HOMES)
