"""Every number of a picture can be read back, none has a wrong colour, and 512 tokens stay small."""

import base64
import io
import json
import re
import subprocess
import sys
import zlib
from collections.abc import Callable
from dataclasses import fields
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from helpers.picture_examples import KINDS, example
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from cutaway.errors import CheckpointError, InputError
from cutaway.pictures import (
    Arcs,
    CircuitGraph,
    ColouredText,
    Dots,
    HeatMap,
    LensGrid,
    Lines,
    PatchEvidence,
    Picture,
    head_maps,
    read_picture,
    visible_text,
)
from cutaway.pictures.colour import ANCHORS, AT_NIGHT, SERIES, STEPS, Scale, max_pool, png, ramp, text_colour
from cutaway.pictures.line_plot import nice_ticks
from cutaway.pictures.picture import strongest
from cutaway.pictures.picture_data import SMALL, check_numbers, pack_array, unpack_array
from cutaway.pictures.svg import cells, width_of
from cutaway.pictures.terminal import level as level_of

every_kind = pytest.mark.parametrize("kind", KINDS)
MEGABYTE = 1_000_000


def numbers_of(picture: Picture) -> list[np.ndarray]:
    def found(value: object) -> list[np.ndarray]:
        if isinstance(value, np.ndarray):
            return [value]
        return [array for inner in value.values() for array in found(inner)] if isinstance(value, dict) else []

    return [
        array for field in fields(picture) for array in found(getattr(picture, field.name)) if array.dtype.kind in "fu"
    ]


# --- numbers ----------------------------------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("suffix", [".html", ".svg", ".json"])
@pytest.mark.parametrize("n", [5, 130])
def test_every_number_and_name_is_read_back_from_what_was_saved(kind: str, suffix: str, n: int, tmp_path: Path) -> None:
    picture = example(kind, n, holes=True)
    again = read_picture(picture.save(tmp_path / f"picture{suffix}"))
    assert type(again) is type(picture)
    ours, theirs = picture.to_dict(), again.to_dict()
    assert ours.keys() == theirs.keys()
    for field in fields(again):
        if isinstance(value := getattr(again, field.name), str | tuple | bool | float | None):
            assert value == getattr(picture, field.name)
    for before, after in zip(numbers_of(picture), numbers_of(again), strict=True):
        largest = np.abs(before[np.isfinite(before)]).max()
        near = (1e-5, 0) if before.size <= SMALL else (2**-11, 2**-24 * largest)
        np.testing.assert_allclose(after, before, *near)
    again_saved = again.save(tmp_path / f"again{suffix}").read_bytes()
    assert read_picture(tmp_path / f"again{suffix}").to_dict() == theirs, again_saved[:80]


def test_every_kind_is_read_back_by_a_process_that_has_drawn_none(tmp_path: Path) -> None:
    saved = [str(example(kind, 5).save(tmp_path / f"{number}.json")) for number, kind in enumerate(KINDS)]
    one_each = (
        "import sys; from cutaway.pictures import read_picture as read; [print(read(p).kind) for p in sys.argv[1:]]"
    )
    for order in (saved, saved[::-1]):
        read = subprocess.run([sys.executable, "-c", one_each, *order], capture_output=True, text=True, timeout=60)
        assert (read.returncode, read.stderr) == (0, "")
        assert len(set(read.stdout.splitlines())) == len(KINDS)


@given(arrays.arrays(np.float64, arrays.array_shapes(max_dims=3, max_side=6)))
def test_packed_numbers_have_six_digits_whatever_they_are(values: np.ndarray) -> None:
    packed = json.loads(json.dumps(pack_array(values), allow_nan=False))
    np.testing.assert_allclose(unpack_array(packed), values, rtol=5.1e-6, atol=1e-300)
    assert pack_array(unpack_array(packed)) == packed


@given(scale=st.floats(1e-200, 1e200), seed=st.integers(0, 99))
def test_many_numbers_are_halves_as_precise_as_is_said(scale: float, seed: int) -> None:
    values = np.random.default_rng(seed).standard_normal((101, 100)) * scale
    values[3, :4] = [np.nan, np.inf, -np.inf, 0]
    packed = json.loads(json.dumps(pack_array(values), allow_nan=False))
    largest = np.abs(values[np.isfinite(values)]).max()
    np.testing.assert_allclose(unpack_array(packed), values, rtol=2**-11, atol=2**-24 * largest)


def test_damaged_numbers_are_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    whole = example("heat map", 130).save(page).read_text()
    for damage in (
        lambda text: text.replace('"shape":[130,130]', '"shape":[131,130]'),
        lambda text: text.replace('"shape":[130,130]', '"shape":[-1,130]'),
        lambda text: text.replace('"shape":[130,130]', '"shape":[100000,100000]'),
        lambda text: re.sub('"float16":"....', '"float16":"????', text),
        lambda text: text.replace('"kind":"heat map"', '"kind":"Picture"'),
        lambda text: text.replace('"row_name":', '"__class__":'),
        lambda text: text.replace("cutaway-data", "other"),
        lambda text: text.replace('"title":"', '"title":["a"],"what":"', 1),
        lambda text: text.replace('"colours":"auto"', '"colours":"loud"'),
        lambda text: text.replace('"low":null', '"low":"0"'),
        lambda text: text.replace('"root":false', '"root":[1]'),
    ):
        assert damage(whole) != whole
        page.write_text(damage(whole))
        with pytest.raises((CheckpointError, InputError), match=r"page\.html"):
            read_picture(page)


def test_a_small_table_has_every_number_and_a_large_one_the_strongest() -> None:
    values = np.random.default_rng(0).standard_normal((4, 3))
    headings, rows = HeatMap(values, columns=["x", "y", "z"]).table()
    assert headings[1:] == ["x", "y", "z"]
    shown = [[float(cell.replace("−", "-")) for cell in row[1:]] for row in rows]
    np.testing.assert_allclose(shown, values, rtol=5.1e-3)
    many = np.random.default_rng(0).standard_normal((60, 60))
    many[7, 9] = -50
    _, rows = HeatMap(many).table()
    assert len(list(rows)) == 100
    assert rows[0] == ["7", "9", "7", "9", "−50"]


@given(
    arrays.arrays(np.float64, (7, 9), elements=st.floats(-3, 3) | st.sampled_from([np.nan, np.inf])), st.integers(1, 70)
)
def test_the_strongest_are_the_furthest_from_zero_in_reading_order(values: np.ndarray, most: int) -> None:
    finite = [(r, c) for r in range(7) for c in range(9) if np.isfinite(values[r, c])]
    assert strongest(values, most) == sorted(finite, key=lambda place: -abs(values[place]))[:most]


@every_kind
def test_the_same_data_give_the_same_bytes(kind: str) -> None:
    one, other = example(kind, 6), example(kind, 6)
    assert one.html() == other.html()
    assert one.svg() == other.svg()
    assert one.text() == other.text()


# --- colours ----------------------------------------------------------------------------------------------------------


def brightness(colour: np.ndarray) -> float:
    share = colour / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_the_larger_the_number_the_brighter_its_colour() -> None:
    shades = [brightness(colour) for colour in ramp("sequential")]
    assert all(a < b for a, b in zip(shades[::4], shades[4::4], strict=False))
    shades = [brightness(colour) for colour in ramp("diverging")]
    middle = STEPS // 2
    assert all(a < b for a, b in zip(shades[: middle + 1 : 4], shades[4 : middle + 1 : 4], strict=False))
    assert all(a > b for a, b in zip(shades[middle::4], shades[middle + 4 :: 4], strict=False))
    for kind, anchors in ANCHORS.items():
        ends = [bytes(ramp(kind)[i].tolist()).hex() for i in (0, -1)]
        assert ends == [anchors.split()[0], anchors.split()[-1]]


@pytest.mark.parametrize(("colours", "paper"), [(SERIES, 255), (AT_NIGHT, 14)])
def test_lines_stand_out_from_their_paper(colours: tuple[str, ...], paper: int) -> None:
    back = brightness(np.array([paper] * 3))
    for colour in colours:
        front = brightness(np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]))
        assert (max(front, back) + 0.05) / (min(front, back) + 0.05) >= 3.0, colour


def test_letters_on_a_cell_can_be_read() -> None:
    for kind in ANCHORS:
        for colour in ramp(kind):
            back = brightness(colour)
            front = brightness(
                np.array([255 if text_colour("#" + bytes(colour.tolist()).hex()) == "#ffffff" else 0] * 3)
            )
            assert (max(front, back) + 0.05) / (min(front, back) + 0.05) >= 4.5


@given(arrays.arrays(np.float64, 20, elements=st.floats(width=32)), st.booleans())
def test_a_scale_keeps_the_order_and_gives_holes_no_colour(values: np.ndarray, root: bool) -> None:
    scale = Scale.of(values, "diverging", root=root)
    steps, finite = scale.steps(values), np.isfinite(values)
    assert (steps[~finite] == 0).all()
    assert (steps[finite] > 0).all()
    assert [colour is None for colour in scale.colours(values)] == (~finite).tolist()
    order = np.argsort(values[finite], kind="stable")
    assert (np.diff(steps[finite][order].astype(int)) >= 0).all()
    assert (steps[finite][values[finite] == 0] == 1 + STEPS // 2).all()


def test_zero_is_in_the_middle_of_a_scale_with_negative_numbers() -> None:
    scale = Scale.of(np.array([-1.0, 4.0]))
    assert (scale.kind, scale.low, scale.high) == ("diverging", -4.0, 4.0)
    assert Scale.of(np.array([0.5, 4.0])) == Scale(0.0, 4.0, "sequential")
    assert [number for _, number in Scale(0.0, 1.0, "sequential", root=True).ticks()] == [0, 1 / 16, 1 / 4, 9 / 16, 1]
    with pytest.raises(InputError, match="needs low = -high"):
        Scale.of(np.array([-1.0, 4.0]), "diverging", low=-1, high=4)


def decoded(image: bytes) -> np.ndarray:
    """The bytes of a PNG without a filter."""
    width, height, _, kind = np.frombuffer(image[16:24], ">u4").tolist() + list(image[24:26])
    start = image.index(b"IDAT") + 4
    size = int.from_bytes(image[start - 8 : start - 4], "big")
    channels = {0: 1, 2: 3, 3: 1, 6: 4}[kind]
    rows = np.frombuffer(zlib.decompress(image[start : start + size]), np.uint8).reshape(height, 1 + width * channels)
    assert (rows[:, 0] == 0).all()
    return rows[:, 1:].reshape((height, width, channels) if channels > 1 else (height, width))


@pytest.mark.parametrize("shape", [(3, 5), (3, 5, 3), (3, 5, 4)])
def test_a_png_holds_its_pixels(shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    assert (decoded(png(pixels)) == pixels).all()
    image = Image.open(io.BytesIO(png(pixels)))
    assert (np.asarray(image) == pixels).all()
    palette = Scale(0.0, 1.0, "sequential").palette()
    if len(shape) == 2:
        image = Image.open(io.BytesIO(png(pixels, palette)))
        assert (np.asarray(image) == pixels).all()
        assert image.info["transparency"] == 0


@given(
    arrays.arrays(np.float32, (3, 11, 7), elements=st.floats(-2, 2, width=32) | st.just(np.nan)),
    st.integers(1, 12),
    st.booleans(),
)
def test_a_pooled_pixel_is_the_strongest_of_its_neighbours(values: np.ndarray, most: int, positive: bool) -> None:
    values = np.abs(np.nan_to_num(values)) if positive else values
    small = max_pool(values, most)
    rows, columns = -(-11 // most), -(-7 // most)
    assert max(small.shape[1:]) <= most
    for i in np.ndindex(small.shape):
        near = values[i[0], i[1] * rows : (i[1] + 1) * rows, i[2] * columns : (i[2] + 1) * columns]
        finite = np.abs(near[np.isfinite(near)])
        if finite.size:
            assert small[i] in near
            assert abs(small[i]) == finite.max()
        else:
            assert np.isnan(small[i])


# --- what is not finite -----------------------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("n", [5, 60])
def test_nothing_says_nan_and_a_picture_without_any_number_is_still_one(kind: str, n: int) -> None:
    for picture in (example(kind, n, holes=True), example(kind, n, only_holes=True)):
        shown = picture.html().partition('<script type="application/json"')[0] + picture.text() + picture.sentence()
        drawn = re.sub('<metadata.*?</metadata>|base64,[^"]*', "", picture.svg())
        for text in (re.sub('base64,[^"]*', "", shown), drawn):
            assert not re.search(r"\b(nan|inf|infinity)\b", text, re.I)
        assert "–" in picture.text() + str(picture.table()) or kind == "heads"


def test_a_hole_is_hatched_and_has_no_colour() -> None:
    values = np.zeros((2, 3))
    assert 'class="hatch"' not in HeatMap(values).svg()
    values[1, 1] = np.nan
    svg = ElementTree.fromstring(HeatMap(values).svg())
    filled = [g.get("fill") for g in svg.iter("{http://www.w3.org/2000/svg}g") if g.get("fill")]
    assert len(filled) == 5
    assert 'class="hatch"' in HeatMap(values).svg()


# --- what is refused --------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "no rows": (lambda: HeatMap(np.zeros((0, 3)), row_name="layer"), "heat map is empty: there is no layer"),
    "one axis": (lambda: HeatMap([1, 2]), "needs 2 axes"),
    "ragged": (lambda: HeatMap([[1, 2], [3]]), "rows of one length"),
    "words": (lambda: HeatMap([["a"]]), "needs numbers"),
    "too many": (lambda: HeatMap(np.zeros((2000, 2000))), "at most 2,097,152"),
    "names": (lambda: HeatMap(np.zeros((2, 2)), rows=["a"]), r"the rows \(row\): 1 names for 2"),
    "one string": (lambda: HeatMap(np.zeros((2, 2)), rows="ab"), "must be a list of strings"),
    "colours": (lambda: HeatMap(np.zeros((2, 2)), colours="jet").svg(), "'jet' is not known"),
    "no heads": (lambda: head_maps(np.zeros((0, 2, 3, 3))), "there is no layer"),
    "no such head": (lambda: head_maps(np.zeros((1, 2, 3, 3)), show=[(0, 2)]), r"no head \(0, 2\): 1 layers"),
    "uneven heads": (lambda: head_maps([np.zeros((1, 2, 2)), np.zeros((2, 2, 2))]), "several shapes"),
    "no words": (lambda: Arcs(np.zeros((0, 0))), "the weights of arcs is empty"),
    "no source": (lambda: ColouredText(np.zeros((2, 0))), "there is no source"),
    "no lens": (lambda: LensGrid([], np.zeros((0, 2))), "there is no layer"),
    "lens tokens": (lambda: LensGrid([["a"]], np.zeros((1, 2))), "each layer needs 2"),
    "no nodes": (lambda: CircuitGraph([], [], []), "the nodes of a circuit are empty"),
    "downwards": (lambda: CircuitGraph(["a", "b"], [1, 0], [(0, 1, 1.0)]), "a → b does not go up"),
    "sideways": (lambda: CircuitGraph(["a", "b"], [0, 0], [(0, 1, 1.0)]), "a → b does not go up"),
    "nowhere": (lambda: CircuitGraph(["a", "b"], [0, 1], [(0, 2, 1.0)]), "nodes are numbered 0…1"),
    "no lines": (lambda: Lines([1, 2], {}), "there are no lines"),
    "short line": (lambda: Lines([1, 2], {"a": [1.0]}), "the line 'a' has 1 points, x has 2"),
    "band alone": (lambda: Lines([1.0], {"a": [1.0]}, {"b": [[0.0], [1.0]]}), "a band needs its line: b"),
    "log of 0": (lambda: Lines([0, 1], {"a": [1.0, 2.0]}, log_x=True), "above 0"),
    "no dots": (lambda: Dots(["a"], {}), "there are no dots"),
    "dots without rows": (lambda: Dots([], {"a": []}), "there are no dots"),
    "too few dots": (lambda: Dots(["a", "b"], {"c": [1.0]}), "the dots 'c' are 1, and there are 2 rows"),
    "intervals alone": (lambda: Dots(["a"], {"b": [1.0]}, {"c": [[0.0], [1.0]]}), "intervals need their dots: c"),
    "odd intervals": (lambda: Dots(["a"], {"b": [1.0]}, {"b": [[0.0, 1.0]]}), "have shape .1, 2., not .2, 1."),
    "seven series": (lambda: Dots(["a"], {str(i): [1.0] for i in range(7)}), "7 series are more than 6"),
    "no maps": (lambda: PatchEvidence(np.zeros((4, 4)), {}), "there are no maps"),
    "normalised": (lambda: PatchEvidence(np.full((4, 4), -1.0), {"a": [[1.0]]}), "undo the model's normalisation"),
    "two channels": (lambda: PatchEvidence(np.zeros((4, 4, 2)), {"a": [[1.0]]}), "height width rgb"),
    "suffix": (lambda: HeatMap([[1.0]]).save("a.pdf"), "a.pdf: a picture is saved as .html, .svg, .txt, .json"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_drawn_is_refused_by_name(what: str) -> None:
    make, message = REFUSED[what]
    with pytest.raises(InputError, match=message):
        make()


def test_as_much_as_a_picture_carries_is_drawn_and_no_more() -> None:
    """Two to the power of 21 numbers, 600 nodes; of edges the 1,500 strongest."""
    most = np.zeros((1024, 2048))
    assert check_numbers("the map", most, "row", "column").shape == most.shape
    with pytest.raises(InputError, match="2,099,200 numbers; a picture carries at most 2,097,152"):
        check_numbers("the map", np.zeros((1025, 2048)), "row", "column")
    for n in (599, 600):
        assert len(CircuitGraph([str(i) for i in range(n)], [0] * n, []).nodes) == n
    with pytest.raises(InputError, match="601 nodes are more than 600: leave the weakest out"):
        CircuitGraph(["a"] * 601, [0] * 601, [])
    edges = [(a, 40 + b, 40.0 * a + b) for a in range(40) for b in range(40)]
    names = [str(i) for i in range(80)]
    for n in (1500, 1501):
        graph = CircuitGraph(names, [i // 40 for i in range(80)], edges[-n:])
        assert ("The 1,500 strongest are drawn." in graph.sentence()) == (n > 1500)
        titles = [str(title.text) for title in ElementTree.fromstring(graph.svg()).iter(f"{SVG}title")]
        drawn = {title.partition(":")[0] for title in titles if " → " in title}
        assert drawn == {f"{a} → {b}" for a, b, _ in edges[-1500:]}


# --- pages ------------------------------------------------------------------------------------------------------------


@every_kind
def test_512_tokens_stay_below_5_megabytes(kind: str) -> None:
    picture = example(kind, 512)
    assert len(picture.html().encode()) < 5 * MEGABYTE
    assert len(picture.svg().encode()) < 5 * MEGABYTE
    assert len(picture.text().splitlines()) < 700


@every_kind
@pytest.mark.parametrize("n", [5, 130])
def test_a_page_asks_nobody_for_anything_and_has_no_ids(kind: str, n: int) -> None:
    picture = example(kind, n)
    for made in (picture.html(), picture.svg(), picture._repr_html_()):
        assert not re.search(r'\s(id|name|for|xlink:href)="(?!viewport)', made)  # several in one notebook cannot clash
        links = re.findall(r'\s(?:href|src|action)="([^"]*)"', made)
        assert all(link.startswith("data:image/png;base64,") for link in links)
        assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", made)
    assert "script-src 'sha256-" in picture.html().replace("&#x27;", "'")


@every_kind
def test_a_page_is_well_formed_and_says_in_words_what_it_shows(kind: str) -> None:
    picture = example(kind, 6)
    open_: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            if tag != "meta":
                open_.append(tag)

        def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            pass

        def handle_endtag(self, tag: str) -> None:
            assert open_.pop() == tag

    Reader().feed(picture.html())
    assert open_ == []
    svg = ElementTree.fromstring(picture.svg())
    space = {"": "http://www.w3.org/2000/svg"}
    assert svg.findtext("title", namespaces=space) == picture.heading
    assert svg.findtext("desc", namespaces=space) == visible_text(picture.sentence())
    assert picture.sentence().endswith(".")
    headings, rows = picture.table()
    assert all(len(row) == len(headings) for row in rows)
    assert "prefers-color-scheme:dark" in picture.svg()


def test_the_drawing_of_a_small_map_has_each_number_behind_its_cell() -> None:
    values = np.random.default_rng(0).random((3, 4))
    svg = ElementTree.fromstring(HeatMap(values, rows=list("abc"), columns=list("wxyz")).svg())
    said = [title.text for title in svg.iter("{http://www.w3.org/2000/svg}title")][1:]
    assert said == [
        f"row «{row}» → column «{column}»: {values[r, c]:.3g}"
        for r, row in enumerate("abc")
        for c, column in enumerate("wxyz")
    ]


def test_a_file_is_whole_or_absent(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be written"):
        HeatMap([[1.0]]).save(tmp_path / "absent" / "a.html")
    path = HeatMap([[1.0]], title="é").save(tmp_path / "a.TXT")
    assert path.read_text(encoding="utf-8").startswith("é\n")


# --- heads, words, letters --------------------------------------------------------------------------------------------


def test_heads_keep_what_was_asked_for_exactly_and_pool_the_rest() -> None:
    patterns = torch.rand(2, 3, 100, 100).softmax(-1)
    picture = head_maps(patterns, show=[(1, 2), (0, 1)])
    assert picture.small.shape == (2, 3, 50, 50)
    np.testing.assert_array_equal(picture.whole["1.2"], patterns[1, 2].numpy())
    np.testing.assert_array_equal(picture.large().values, patterns[1, 2].numpy())
    assert picture.shown == "1.2"
    assert head_maps(list(patterns)).to_dict() == head_maps(patterns).to_dict()
    short = head_maps(patterns[:, :, :9, :9])
    assert short.whole == {}
    np.testing.assert_array_equal(short.small, patterns[:, :, :9, :9].numpy())


def test_the_open_head_is_one_that_looks_somewhere() -> None:
    patterns = np.zeros((2, 2, 6, 6))
    patterns[..., 0] = 1  # all look at the first token
    patterns[1, 0] = np.eye(6)  # this one at itself
    patterns[0, 1] = np.roll(np.eye(6), -2, axis=1)
    assert head_maps(patterns).shown == "0.1"


@every_kind
@pytest.mark.parametrize("n", [5, 40, 512])
def test_letters_fit_and_are_the_same_without_colours(kind: str, n: int) -> None:
    picture = example(kind, n)
    plain, coloured = picture.text(80), picture.text(80, colour=True)
    assert "\x1b" not in plain
    bare = re.sub("\x1b\\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in bare.splitlines()] == plain.splitlines()
    assert max(map(len, plain.splitlines())) <= 80


def test_many_heads_and_wide_letters_fit_too() -> None:
    many = head_maps(np.full((2, 40, 3, 3), 1 / 3), title="long " * 30)
    wide = ColouredText(np.ones((2, 60)), ["数学"] * 60, ["译", "文"], "long " * 30)
    for picture in (many, wide):
        for colour in (False, True):
            lines = re.sub("\x1b\\[[0-9;]*m", "", picture.text(80, colour)).splitlines()
            assert max(map(cells, lines)) <= 80
    assert many.text(80).splitlines()[3].count("█") == 40
    assert wide.text(80).count("数学") == 120


def test_names_of_lines_stay_on_the_paper() -> None:
    """Six lines that end at the bottom: their names stand apart, and not below the axis."""
    svg = ElementTree.fromstring(Lines([0, 1], {f"line {i}": [1.0, i / 100] for i in range(6)}).svg())
    space = "{http://www.w3.org/2000/svg}"
    names = [text for text in svg.iter(f"{space}text") if (text.text or "").startswith("line")]
    places = sorted(float(text.get("y", 0)) for text in names)
    assert len(places) == 6
    assert all(b - a >= 14 for a, b in pairwise(places))
    assert places[-1] <= 30 + 280 + 5


def test_few_points_are_their_own_ticks() -> None:
    assert Lines([8, 2, 4], {"a": [1.0, 2.0, 3.0]}, log_x=True).x_ticks() == [2.0, 4.0, 8.0]
    assert Lines(range(1, 101), {"a": range(100)}, log_x=True).x_ticks() == [1, 2, 5, 10, 20, 50, 100]


def test_a_level_has_no_points_of_its_own() -> None:
    svg = Lines([0, 1, 2], {"measured": [1.0, 2.0, 2.0], "level": [1.5] * 3, "alone": [np.nan, 1.5, np.nan]}).svg()
    space = "{http://www.w3.org/2000/svg}"
    groups = [
        group for group in ElementTree.fromstring(svg).iter(f"{space}g") if group.find(f"{space}title") is not None
    ]
    assert [len(group.findall(f"{space}circle")) for group in groups] == [3, 0, 1]


def test_dots_stand_where_their_numbers_are() -> None:
    dots = Dots(["a", "b", "c"], {"x": [0.0, 10.0, 2.5]}, {"x": [[0.0, 5.0, 2.5], [5.0, 10.0, np.nan]]}, level=5.0)
    svg = ElementTree.fromstring(dots.svg())
    space = "{http://www.w3.org/2000/svg}"
    circles = [(float(dot.get("cx", 0)), float(dot.get("cy", 0))) for dot in svg.iter(f"{space}circle")]
    (left, first), (right, second), (quarter, third) = circles
    assert quarter == pytest.approx(left + (right - left) / 4, abs=0.02)
    assert first < second < third
    strokes = [path.get("d", "") for path in svg.iter(f"{space}path") if path.get("class") == "s0"]
    assert len(strokes) == 2  # the third interval has an end that is no number
    middle = (left + right) / 2
    ends = [tuple(map(float, re.findall(r"[MH]([\d.]+)", stroke))) for stroke in strokes]
    assert ends == [pytest.approx((left, middle), abs=0.02), pytest.approx((middle, right), abs=0.02)]
    (level,) = (path.get("d", "") for path in svg.iter(f"{space}path") if path.get("class") == "hatch")
    assert float(re.findall(r"M([\d.]+)", level)[0]) == pytest.approx(middle, abs=0.02)


def test_a_level_that_is_no_number_is_not_drawn() -> None:
    for level in (None, np.nan, np.inf):
        dots = Dots(["a", "b"], {"x": [1.0, 2.0]}, level=level)
        assert (dots.ticks()[0], dots.ticks()[-1]) == (1.0, 2.0)
        assert 'class="hatch"' not in dots.svg()


def test_dots_in_letters() -> None:
    one = Dots(["a", "b"], {"x": [0.0, 10.0]}, {"x": [[0.0, 5.0], [5.0, 10.0]]}).text(23).splitlines()
    assert one[1:] == ["a  ●──────            0", "b        ──────●     10", "   0          10"]
    two = Dots(["a"], {"x": [0.0], "y": [np.nan], "z": [10.0]}).text(40).splitlines()
    assert two[1:] == ["a  ●                ◆      0     –    10", "   0               10", "● x ○ y ◆ z"]


def test_show_has_colours_only_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    picture = example("heat map", 40)
    picture.show()
    assert capsys.readouterr().out == picture.text() + "\n"


def test_a_lens_says_from_which_layer_on_a_token_stays() -> None:
    lens = LensGrid([["a", "b"], ["c", "b"], ["c", "b"]], np.full((3, 2), 0.5), positions=["x", "y"])
    assert [lens.settles(i) for i in range(2)] == [1, 0]
    assert lens.text().splitlines()[2].split() == ["2", "c", ".50", "b", ".50"]


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_round_and_reach_as_far_as_the_line(low: float, span: float) -> None:
    high = low + span
    inner, outer = nice_ticks(low, high), nice_ticks(low, high, whole=True)
    slack = span * 1e-6
    assert outer[0] <= low + slack
    assert outer[-1] >= high - slack
    assert all(low - slack <= tick <= high + slack for tick in inner)
    assert 2 <= len(outer) <= 9


def test_numbers_come_from_wherever_they_are() -> None:
    for given_ in (
        [[1, 2]],
        np.array([[1, 2]]),
        torch.tensor([[1.0, 2.0]], requires_grad=True),
        torch.tensor([[1, 2]]).bfloat16(),
    ):
        assert check_numbers("x", given_, "a", "b").tolist() == [[1.0, 2.0]]


def _texts(picture: Picture) -> dict[str, ElementTree.Element]:
    root = ElementTree.fromstring(picture.svg())
    return {one.text or "": one for one in root.iter("{http://www.w3.org/2000/svg}text")}


@pytest.mark.parametrize("words", [["."], ["Donaudampfschifffahrt"]])
def test_names_of_both_sides_of_arcs_stay_on_the_paper(words: list[str]) -> None:
    picture = Arcs([[1.0]], words, words, "Alignment", "translation", "the source")
    (width, _), _ = picture.drawing()
    shown = _texts(picture)
    assert float(shown["translation"].attrib["x"]) - width_of("translation", 11) >= 0
    assert float(shown["the source"].attrib["x"]) + width_of("the source", 11) <= width


def test_a_scale_from_zero_stays_one_where_a_number_is_slightly_below() -> None:
    values = np.array([[0.0, 1.0, 2.0], [-1e-6, 3.0, 0.5]])
    scale = HeatMap(values, low=0).scale
    assert (scale.kind, scale.low, scale.high) == ("sequential", 0, 3)
    assert len(set(scale.colours(values))) == 5  # all but the two that are next to nothing
    assert HeatMap(values).scale.kind == "diverging"
    assert HeatMap(values, low=0, colours="diverging").scale.high == 3


def test_cells_say_a_hundredth_of_the_largest_and_the_numbers_behind_them_all() -> None:
    picture = HeatMap([[1e-9, 0.123456], [-0.0001234, 3.0]])
    assert {"0", "0.12", "3"} <= _texts(picture).keys()
    assert not any("e" in text or len(text) > 5 for text in _texts(picture) if text[:1].isdigit())
    assert "−0.000123" in picture.svg()
    assert "e−" not in picture.text()


def test_names_of_heads_stay_whole_in_a_row() -> None:
    assert "decoder.12.attention.heads" in _texts(HeatMap([[1.0]], ["decoder.12.attention.heads"]))


@every_kind
def test_pixels_stay_squares_without_a_style(kind: str) -> None:
    for image in ElementTree.fromstring(example(kind, 5).svg()).iter("{http://www.w3.org/2000/svg}image"):
        assert image.attrib["image-rendering"] == "optimizeSpeed"


def test_a_picture_that_was_saved_before_a_field_came_is_read() -> None:
    data = CircuitGraph(["a", "b"], [0, 1], [(0, 1, 1.0)]).to_dict()
    del data["layer_names"]
    assert Picture.from_dict(data).to_dict()["layer_names"] == []
    del data["nodes"]
    with pytest.raises(CheckpointError, match="look at nodes"):
        Picture.from_dict(data)
    with pytest.raises(InputError, match="1 for 2"):
        CircuitGraph(["a", "b"], [0, 1], [], layer_names=["x"])


@pytest.mark.parametrize("values", [[-3.0, 1.0], [-1.0, 3.0], [-3.0, -1.0], [-3.0, 0.0], [-3.0, 3.0]])
@pytest.mark.parametrize("kind", ["auto", "diverging"])
def test_a_scale_reaches_as_far_as_the_number_furthest_from_0(kind: str, values: list[float]) -> None:
    scale = Scale.of(np.array(values), kind)
    assert (scale.low, scale.high, scale.kind) == (-3.0, 3.0, "diverging")
    steps = scale.steps(np.array([-3.0, -1.5, 0.0, 1.5, 3.0])).tolist()
    assert steps == [1, 65, 128, 191, 255]
    assert Scale.of(-np.array(values), kind).low == (-3.0 if kind == "diverging" or max(values) > 0 else 0.0)


QUARTERS = st.integers(-400, 400).map(lambda n: n / 4)


@settings(max_examples=30)
@given(
    arrays.arrays(np.float64, 4, elements=QUARTERS),
    arrays.arrays(np.float64, (2, 4), elements=QUARTERS),
    QUARTERS | st.none(),
)
def test_dots_intervals_and_level_all_lie_on_the_axis(x: np.ndarray, pair: np.ndarray, level: float | None) -> None:
    dots = Dots(list("abcd"), {"x": x}, {"x": np.sort(pair, axis=0)}, level=level)
    ticks = dots.ticks()
    assert ticks[0] <= min(x.min(), pair.min(), *([] if level is None else [level]))
    assert ticks[-1] >= max(x.max(), pair.max(), *([] if level is None else [level]))
    (width, _), _ = dots.drawing()
    strokes = re.findall(r' d="(M[^"]*H[^"]*)"', dots.svg())
    ends = [float(end) for stroke in strokes for end in re.findall(r"[MH](-?[\d.]+)", stroke)]
    assert all(0 <= end <= width for end in ends)
    assert {len(line) for line in dots.text(40).splitlines()[1:5]} == {40}


def test_the_table_of_pooled_heads_names_the_words_of_the_strongest_weight() -> None:
    """A pixel of a thumbnail stands for several: what is named is the first of them, in the numbers of all words."""
    words = [f"word{n}" for n in range(200)]
    patterns = np.full((1, 3, 200, 200), 1e-3)
    places = [(0, 0), (137, 61), (199, 198)]
    for head, (query, key) in enumerate(places):
        patterns[0, head, query, key] = 0.9
    picture = head_maps(patterns, words, words)
    assert picture.pools == (4, 4)
    _, rows = picture.table()
    for (query, key), row in zip(places, rows, strict=True):
        first = (query // 4 * 4, key // 4 * 4)
        assert row[2:] == ["0.9", words[first[0]], words[first[1]], f"{first[0]} → {first[1]}"]


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("largest", [1e-30, 3.0, 7e4, 1e30, 1e300])
def test_large_numbers_of_either_sign_come_back(largest: float, sign: float) -> None:
    values = np.random.default_rng(0).random(SMALL + 1)
    values = sign * largest * values / values.max()
    packed = pack_array(values)
    assert "float16" in packed
    assert np.abs(unpack_array(packed) - values).max() <= largest * 2**-11
    both = np.concatenate([values, -values / 1e6])
    assert np.abs(unpack_array(pack_array(both)) - both).max() <= largest * 2**-11


def test_arcs_of_negative_weights_are_lines_of_another_colour() -> None:
    arcs = Arcs([[-0.9, 0.02], [0.5, -0.04]], ["a", "b"], ["c", "d"], least=0.03)
    assert set(arcs.drawn) == {(0, 0), (1, 0), (1, 1)}
    space = "{http://www.w3.org/2000/svg}"
    every = ElementTree.fromstring(arcs.svg()).iter(f"{space}g")
    groups = [group for group in every if group.get("class") in ("s0", "s1")]
    found = {group.findtext(f"{space}title"): group.get("class") for group in groups}
    assert found == {"«a» → «c»: −0.9": "s1", "«b» → «c»: 0.5": "s0", "«b» → «d»: −0.04": "s1"}
    wide = {group.findtext(f"{space}title"): group.find(f"{space}path").get("stroke-width") for group in groups}
    assert float(wide["«a» → «c»: −0.9"]) == max(map(float, wide.values())) == 4.0


# --- every number stands where it belongs -----------------------------------------------------------------------------

SVG = "{http://www.w3.org/2000/svg}"


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", path)]


@pytest.mark.parametrize("log_x", [False, True])
def test_lines_stand_where_their_numbers_are_in_whatever_order_they_come(log_x: bool) -> None:
    """Also below 0, beyond a hole, and with bands that reach further than the lines."""
    x, y = [100.0, 1.0, 10.0, 1000.0], [-2.0, 4.0, np.nan, 1.0]
    bands = {"a": [[-7.0, 3.0, 0.0, 0.0], [-1.0, 9.0, 1.0, 2.0]]}
    picture = Lines(x, {"a": y, "b": [0.0, 1.0, 2.0, 3.0]}, bands, x_name="step", y_name="score", log_x=log_x)
    ticks = picture.y_ticks()
    assert ticks[0] <= -7 < 9 <= ticks[-1]
    svg = ElementTree.fromstring(picture.svg())
    groups = [g for g in svg.iter(f"{SVG}g") if g.findtext(f"{SVG}title") in ("a", "b")]
    dots = {g.findtext(f"{SVG}title"): list(g.iter(f"{SVG}circle")) for g in groups}
    circles = {name: [(float(c.get("cx", 0)), float(c.get("cy", 0))) for c in some] for name, some in dots.items()}
    assert [len(circles[name]) for name in "ab"] == [3, 4]
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = circles["b"]  # from left to right: 1, 10, 100, 1000, which are 1, 2, 0, 3
    assert x0 < x1 < x2 < x3
    shares = [0, 1 / 3, 2 / 3, 1] if log_x else [0, 9 / 999, 99 / 999, 1]
    assert [(at - x0) / (x3 - x0) for at in (x0, x1, x2, x3)] == pytest.approx(shares, abs=1e-3)
    unit = (y2 - y3) / 3
    assert unit > 0
    assert [y0, y1, y2, y3] == pytest.approx([y2 - n * unit for n in (1, 2, 0, 3)], abs=0.05)
    assert [at for _, at in circles["a"]] == pytest.approx([y2 - n * unit for n in (4, -2, 1)], abs=0.05)
    areas = [path.get("d", "") for path in svg.iter(f"{SVG}path") if path.get("class") == "f0"]
    (area,) = [points(d) for d in areas]
    wanted = [(x0, 9), (x1, 1), (x2, -1), (x3, 2), (x3, 0), (x2, -7), (x1, 0), (x0, 3)]
    assert area == [pytest.approx((at, y2 - n * unit), abs=0.05) for at, n in wanted]
    said = picture.sentence()
    assert "score against step, 4 points." in said
    assert "a: 4 at 1, 1 at 1000." in said
    assert "b: 1 at 1, 3 at 1000." in said
    headings, rows = picture.table()
    assert headings == ["step", "a", "a, low", "a, high", "b"]
    assert rows[0] == ["100", "−2", "−7", "−1", "0"]
    shares = [(n - ticks[0]) / (ticks[-1] - ticks[0]) for n in (1, 2, 0, 3)]  # from left to right, each twice
    wanted = "".join("▁▂▃▄▅▆▇█"[int(8 * share)] * 2 for share in shares)
    assert picture.text(60).splitlines()[2].split() == ["b", wanted]


def test_a_line_is_broken_where_it_has_no_number() -> None:
    picture = Lines(range(30), {"a": [float(n) if n not in (3, 4, 20) else np.nan for n in range(30)]})
    (group,) = (g for g in ElementTree.fromstring(picture.svg()).iter(f"{SVG}g") if g.findtext(f"{SVG}title") == "a")
    assert [len(points(path.get("d", ""))) for path in group.iter(f"{SVG}path")] == [3, 15, 9]


def test_the_last_layer_of_a_lens_is_drawn_on_top_and_named_by_its_number() -> None:
    tokens = [["a", "b", "c"], ["d", "b", "c"], ["e", "b", "f"], ["e", "g", "f"]]
    values = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.8, 0.9], [0.25, 0.35, 0.45]])
    lens = LensGrid(tokens, values, positions=["x", "y", "z"], layers=["in", "one", "two", "out"])
    headings, rows = lens.table()
    assert headings[-1] == "said from"
    assert rows == [["x", "0", "e", "0.25", "two"], ["y", "1", "g", "0.35", "out"], ["z", "2", "f", "0.45", "two"]]
    assert "0 of 3 positions keep one token" in lens.sentence()
    assert "it says «c» in row «in», «f» (0.45) in row «out»." in lens.sentence()
    drawn = [title.text for title in ElementTree.fromstring(lens.svg()).iter(f"{SVG}title")]
    assert drawn[1:4] == ["out, x: e 0.25", "out, y: g 0.35", "out, z: f 0.45"]
    assert drawn[-1] == "in, z: c 0.3"
    assert [line.split()[0] for line in lens.text().splitlines()[2:]] == ["out", "two", "one", "in"]
    narrow = lens.text(20).splitlines()
    assert "the last 1 of 3 positions" in narrow[0]
    assert narrow[2].split() == ["out", "f", ".45"]
    assert (lens.scale.low, lens.scale.high) == (0.0, 1.0)
    assert LensGrid(tokens, values * 9, what="KL").scale.high == pytest.approx(8.1)
    assert LensGrid(tokens, values, high=0.5).scale.high == 0.5


def test_of_a_circuit_the_strongest_edges_come_first_whatever_their_sign() -> None:
    edges = [(0, 2, 0.5), (1, 2, -2.0), (0, 1, np.nan), (2, 3, 1.0)]
    graph = CircuitGraph(["in", "a", "b", "out"], [-1, 0, 1, 2], edges)
    assert [row[:2] for row in graph.table()[1]] == [["a", "b"], ["b", "out"], ["in", "b"], ["in", "a"]]
    assert "The strongest is a → b: −2." in graph.sentence()
    lines = graph.text().splitlines()[1:]
    assert [line.count("█") for line in lines] == [0, 10, 5, 0]
    assert [line.count("▒") for line in lines] == [20, 0, 0, 0]
    svg = ElementTree.fromstring(graph.svg())
    drawn = {g.findtext(f"{SVG}title"): g.find(f"{SVG}path") for g in svg.iter(f"{SVG}g") if g.get("class") == "edge"}
    assert {name: path.get("class") for name, path in drawn.items()} == {
        "a → b: −2": "s1", "b → out: 1": "s0", "in → b: 0.5": "s0", "in → a: –": "hatch",
    }  # fmt: skip
    wide = [float(drawn[name].get("stroke-width")) for name in ("a → b: −2", "b → out: 1", "in → b: 0.5", "in → a: –")]
    assert wide == pytest.approx([5.8, 3.3, 2.05, 0.8])
    where, _, _ = graph.places()
    assert where[3][1] < where[2][1] < where[1][1] < where[0][1]  # the output stands on top
    assert [graph.layer_name(layer) for layer in (-1, 0, 2)] == ["input", "layer 0", "layer 2"]
    assert graph.ties(2) == "b; from a −2, in 0.5; to out 1"
    assert graph.ties(3) == "out; from b 1; to nowhere"
    many = CircuitGraph([str(n) for n in range(60)], range(60), [(n, n + 1, n - 29.5) for n in range(59)])
    assert many.text().splitlines()[-1] == "… and 19 weaker edges"


def test_a_map_in_letters_says_every_number_or_the_strongest_of_its_neighbours() -> None:
    values = np.zeros((4, 200))
    values[1, 7], values[2, 190] = -5.0, 5.0
    picture = HeatMap(values, rows=["aa", "bb", "cc", "dd"], columns=[f"c{n}" for n in range(200)])
    assert "The strongest, −5, is row «bb» → column «c7»." in picture.sentence()
    *lines, key = picture.text(56).splitlines()[1:]
    assert [line.split()[0] for line in lines] == ["aa", "bb", "cc", "dd"]
    assert "each block is the strongest of 1 × 4" in key
    assert "−5 … 5" in key
    assert len({*lines[0].split()[1:]}) <= 1
    drawn = [line[4:].ljust(50) for line in lines]
    assert drawn[1].index(drawn[1].strip()) == 7 // 4
    assert drawn[2].index(drawn[2].strip()) == 190 // 4
    assert drawn[1].strip() != drawn[2].strip()  # one is for, one is against
    few = HeatMap([[1.0, -2.0], [np.nan, 0.25]], rows=["a", "b"], columns=["x", "y"]).text(40).splitlines()
    assert [line.split() for line in few[1:]] == [["x", "y"], ["a", "1", "−2"], ["b", "–", "0.25"]]


@pytest.mark.parametrize(("root", "levels"), [(False, [0, 0, 1, 2, 4]), (True, [0, 1, 2, 3, 4])])
def test_blocks_follow_the_scale_as_colours_do(root: bool, levels: list[int]) -> None:
    """0, ░, ▒, ▓ and █ for five equal parts of the scale, or of its root."""
    values = [0.0, 0.08, 0.25, 0.49, 1.0]
    assert [level_of(value, Scale(0.0, 1.0, "sequential", root)) for value in values] == levels
    assert [level_of(2 * value, Scale(-2.0, 2.0, "diverging", root)) for value in values] == levels
    assert [level_of(-2 * value, Scale(-2.0, 2.0, "diverging", root)) for value in values] == [-n for n in levels]


def test_pooled_rows_have_the_name_of_their_first() -> None:
    values = np.zeros((200, 3))
    values[190, 1] = 5.0
    *lines, key = HeatMap(values, rows=[f"r{n}" for n in range(200)], columns=["a", "b", "c"]).text(40).splitlines()[1:]
    assert "each block is the strongest of 4 × 1" in key
    assert lines[0].split() == ["a", "b", "c"]
    assert [line.split()[0] for line in lines[1:]] == [f"r{n}" for n in range(0, 200, 4)]
    assert [line.split()[0] for line in lines[1:] if "█" in line] == ["r188"]


@pytest.mark.parametrize("root", [False, True])
@pytest.mark.parametrize(("low", "high", "kind"), [(0.0, 4.0, "sequential"), (-3.0, 3.0, "diverging")])
def test_a_legend_has_all_colours_evenly_spread_and_numbers_where_theirs_are(
    low: float, high: float, kind: str, root: bool
) -> None:
    scale = Scale(low, high, kind, root)
    svg = ElementTree.fromstring(HeatMap([[low, high]], low=low, high=high, colours=kind, root=root).svg())
    bar = [image for image in svg.iter(f"{SVG}image") if image.get("height") == "10"]
    (uri,) = (value for value in bar[0].attrib.values() if value.startswith("data:"))
    steps = decoded(base64.b64decode(uri.partition(",")[2])).ravel().astype(int)
    wanted = np.linspace(1, 255, len(steps))
    assert np.abs(steps - wanted).max() <= 1
    for share, value in scale.ticks():
        assert abs(int(scale.steps(np.array([value]))[0]) - (1 + share * 254)) <= 1
