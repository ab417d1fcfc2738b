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
    from cutaway.pictures.attention_heads import Heads as Heads
    from cutaway.pictures.attention_heads import head_maps as head_maps
    from cutaway.pictures.circuit_graph import CircuitGraph as CircuitGraph
    from cutaway.pictures.dots import Dots as Dots
    from cutaway.pictures.heat_map import HeatMap as HeatMap
    from cutaway.pictures.image_evidence import PatchEvidence as PatchEvidence
    from cutaway.pictures.lens_table import LensGrid as LensGrid
    from cutaway.pictures.line_plot import Lines as Lines
    from cutaway.pictures.picture import Picture as Picture
    from cutaway.pictures.picture import read_picture as read_picture
    from cutaway.pictures.picture_data import visible_text as visible_text
    from cutaway.pictures.word_links import Arcs as Arcs
    from cutaway.pictures.word_links import ColouredText as ColouredText

__getattr__, __dir__ = lazy_names(__name__)
