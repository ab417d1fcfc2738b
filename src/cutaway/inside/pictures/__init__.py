"""Pictures without a server: each is plain data, drawn as SVG, as a page, in a notebook and in letters.

    picture = HeatMap(pattern, rows=tokens, columns=tokens, title="Head 3.7")
    picture.save("head.html")      # or .svg, .txt, .json; `read_picture` reads all but .txt back
    picture                        # in a notebook
    print(picture)                 # in a terminal; `picture.show()` in colours

Kinds: `HeatMap`, `heads`, `Arcs`, `ColouredText`, `LensGrid`, `CircuitGraph`, `PatchEvidence`, `Lines`,
`Dots`. Whatever is not finite is hatched or –, never a colour. A token is text, whatever it contains. 512 tokens fit
into 5 MB and 2 seconds.
"""

from cutaway.inside.pictures.base import Picture, read_picture
from cutaway.inside.pictures.data import visible
from cutaway.inside.pictures.dots import Dots
from cutaway.inside.pictures.graph import CircuitGraph
from cutaway.inside.pictures.grid import HeatMap
from cutaway.inside.pictures.head_maps import Heads, heads, merged, word_spans
from cutaway.inside.pictures.image import PatchEvidence
from cutaway.inside.pictures.lens import LensGrid
from cutaway.inside.pictures.lines import Lines
from cutaway.inside.pictures.words import Arcs, ColouredText

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
    "visible",
    "word_spans",
]
