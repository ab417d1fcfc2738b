"""Fault 33: tokens such as `<script>` or `</script>` are text in every HTML and SVG we write."""

import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from helpers.picture_examples import KINDS, example
from hypothesis import given
from hypothesis import strategies as st

from cutaway.pictures import HeatMap, Lines, Picture, head_maps, visible_text
from cutaway.pictures.html import SCRIPT

HOSTILE = [
    "<script>alert(1)</script>", "</script>", "</style><b>", "<!--", "-->", "]]>", "<![CDATA[", '"', "'", "&", "&lt;",
    "&#60;", "\0", "\x07", "\x1b[31m", "\r\n", "\t", " ", "\x85", "\u2028", "\u202eevil", "שלום", "العربية", "👩", "é",
    "\ud800", "\ufffe", "<svg onload=x>", "</title>", "</textarea>", "javascript:x", "${x}", "`", "\\", "{{x}}",
]  # fmt: skip
ELEMENTS = set(
    "html head meta title style body main section h1 p div span svg desc metadata g path rect circle image text img "
    "button bdi output details summary table thead tbody tr th td script".split()
)
ATTRIBUTES = set(
    "alt aria-label aria-live aria-pressed charset class content cx cy d data-at data-from data-high data-node "
    "data-palette data-to fill font-size height href http-equiv image-rendering lang name opacity open "
    "preserveaspectratio r role rx scope src stroke stroke-dasharray stroke-linejoin stroke-opacity stroke-width "
    "style tabindex text-anchor title transform type viewbox width x xmlns y".split()
)
TOKENS = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=12), min_size=3, max_size=6, unique_by=visible_text)
every_kind = pytest.mark.parametrize("kind", KINDS)


class Page(HTMLParser):
    """What a reader of HTML finds: elements, attributes, texts and scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: dict[str, set[str]] = {}
        self.texts: set[str] = set()
        self.scripts: list[str] = []
        self.now = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.now = tag
        self.elements.add(tag)
        for name, value in attributes:
            self.attributes.setdefault(name, set()).add(value or "")
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.now == "script":
            self.scripts[-1] += data
        else:
            self.texts.add(data)

    def handle_endtag(self, tag: str) -> None:
        self.now = ""

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")


def strings(value: object) -> set[str]:
    if isinstance(value, str):
        return {value}
    if isinstance(value, dict):
        return set().union(*(strings(inner) | {name} for name, inner in value.items()))
    return set().union(*map(strings, value)) if isinstance(value, list) else set()


def drawn(picture: Picture, tokens: list[str]) -> list[str]:
    """The tokens that this picture has: six maps and three lines are enough for the others."""
    return tokens[:3] if picture.kind == "lines" else tokens


@every_kind
@given(tokens=TOKENS, title=st.sampled_from(HOSTILE))
def test_fault_33_tokens_are_text_in_every_page(kind: str, tokens: list[str], title: str) -> None:
    picture = example(kind, len(tokens), tokens, title=title)
    page = Page(picture.html())
    assert page.elements <= ELEMENTS
    assert page.attributes.keys() <= ATTRIBUTES
    assert page.attributes["name"] == {"viewport"}
    data, script = page.scripts
    assert script == SCRIPT
    found = strings(json.loads(data))
    assert {title, *drawn(picture, tokens)} <= found  # exactly as they were
    shown = page.texts | {text for values in page.attributes.values() for text in values}
    for token in drawn(picture, tokens):
        assert visible_text(token) in shown or not token
    assert visible_text(title) in page.texts


@every_kind
@given(tokens=TOKENS, title=st.sampled_from(HOSTILE))
def test_fault_33_tokens_are_text_in_every_drawing(kind: str, tokens: list[str], title: str) -> None:
    picture = example(kind, len(tokens), tokens, title=title)
    root = ElementTree.fromstring(picture.svg())
    space = "{http://www.w3.org/2000/svg}"
    assert all(element.tag.removeprefix(space) in ELEMENTS for element in root.iter())
    assert {name.lower() for element in root.iter() for name in element.attrib} <= ATTRIBUTES
    assert not list(root.iter(f"{space}script"))
    assert root.findtext(f"{space}title") == visible_text(title)
    data = strings(json.loads(root.findtext(f"{space}metadata") or ""))
    assert {title, *drawn(picture, tokens)} <= data
    if kind != "heads":  # its drawing has no tokens, only pictures of them
        texts = {text for element in root.iter() for text in element.itertext()}
        assert all(visible_text(token) in texts or not token for token in drawn(picture, tokens))


@given(st.text())
def test_fault_33_what_is_visible_is_xml_and_stays_so(text: str) -> None:
    shown = visible_text(text)
    assert visible_text(shown) == shown
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", shown)
    assert ElementTree.fromstring(f"<t>{shown.replace('&', '&amp;').replace('<', '&lt;')}</t>").text == (shown or None)


def test_fault_33_a_terminal_gets_no_escape_sequences_of_a_token() -> None:
    for kind in KINDS:
        assert "\x1b" not in example(kind, 4, ["\x1b[2J", "\x1b]0;x\x07", "a\rb", "c"], title="\x1b[2J").text()
    evil = "\x1b[2J"
    lines = Lines([1.0, 2.0], {evil: [1.0, 2.0]}, title=evil, x_name=evil, y_name=evil)
    several = head_maps([[[[1.0]]]], [evil], [evil], layers=[evil])
    for picture in (lines, several, HeatMap([[1.0]], [evil], [evil], evil, evil, evil, evil)):
        assert "\x1b" not in picture.text() + picture.html() + picture.svg()
