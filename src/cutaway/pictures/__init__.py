"""Pictures without a server: each is plain data, drawn as SVG, as a page, in a notebook and in letters.

    picture = HeatMap(pattern, rows=tokens, columns=tokens, title="Head 3.7")
    picture.save("head.html")      # or .svg, .txt, .json; `read_picture` reads all but .txt back
    picture                        # in a notebook
    print(picture)                 # in a terminal; `picture.show()` in colours

Kinds: `HeatMap`, `heads`, `Arcs`, `ColouredText`, `LensGrid`, `CircuitGraph`, `PatchEvidence`, `Lines`,
`Dots`. Whatever is not finite is hatched or –, never a colour. A token is text, whatever it contains. 512 tokens fit
into 5 MB and 2 seconds.
"""

from cutaway.pictures.circuit_graph import CircuitGraph
from cutaway.pictures.dots import Dots
from cutaway.pictures.head_maps import Heads, heads, merged, word_spans
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
    "heads",
    "merged",
    "read_picture",
    "visible_text",
    "word_spans",
]
