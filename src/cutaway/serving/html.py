"""Translates the text of an HTML page, and leaves everything else as it is.

    translate_html("<p>I <b>love</b> dogs.</p>", translate)         # '<p>Ich <b>liebe</b> Hunde.</p>'

The text is taken a sentence at a time, without the tags within (`<b>`, `<a>` …), so that they part no sentence. They
go around the same words again: what stands between them is translated by itself, too, and looked for in the
translation; where it is not found, they go where they stood, in proportion. Tags, attributes, comments, scripts,
`<pre>`, `<code>` and what is marked `translate="no"` come back to the character, however broken the page is.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape, unescape
from itertools import accumulate, dropwhile, takewhile

from cutaway.decoding.sentences import split_sentences

INLINE = set(
    """a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd label mark nobr q s samp small span
    strike strong sub sup time tt u var wbr""".split()
)
VOID = {"br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}  # hold nothing
RAW = {"iframe", "noembed", "noframes", "plaintext", "script", "style", "textarea", "xmp"}  # hold no tags, nor text
KEPT = {"code", "kbd", "math", "pre", "samp", "svg", "var"}  # whose text is not for translation
MOST_TAGS = 64  # of a sentence; if there are more, none is looked for
MOST_NESTED = 16

# A tag, from behind its name on. Quotes count behind `=` only, and no page takes more than one pass (++, *+).
REST_OF_TAG = re.compile(r"""(?:[^>=]++|=\s*+(?:"[^"]*+"|'[^']*+'|(?!["'])))*+>""")
NAME = re.compile(r"</?([a-zA-Z][^\s/>]*+)")
NOT_FOR_TRANSLATION = re.compile(r"""\s(?:translate\s*=\s*["']?no\b|class\s*=\s*["']?[^"'>]*\bnotranslate\b)""", re.I)
ENTITY = re.compile(r"&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[a-zA-Z][a-zA-Z0-9]*);?")
WHITE = re.compile(r"[ \t\n\r\f]+")
BREAKS = str.maketrans("\t\n\r\f", "    ")
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Piece:
    """A part of a page: how it is written there, and how it reads (a tag: as nothing)."""

    raw: str
    text: str = ""
    name: str = ""  # of a tag, or of an element that is not for translation
    closes: bool = False

    @property
    def opens(self) -> bool:
        return bool(self.name) and not self.closes and not self.text and self.name not in VOID

    @property
    def is_plain(self) -> bool:
        return self.raw == self.text

    def cut(self, start: int, stop: int | None) -> "Piece":
        return Piece(self.raw[start:stop], self.text[start:stop])


def translate_html(html: str, translate: Callable[[list[str]], list[str]]) -> str:
    """The page, with its text as `translate` translates texts. Whatever it is, no error comes of it."""
    parts = list(_sentences(html))
    wanted = list(dict.fromkeys(text for part in parts if isinstance(part, Sentence) for text in part.wanted()))
    known = dict(zip(wanted, translate(wanted) if wanted else [], strict=True))
    entities = str.maketrans(_entities(html))
    return "".join(
        part if isinstance(part, str) else part.translated(known, lambda text: escape(text, False).translate(entities))
        for part in parts
    )


def _entities(html: str) -> dict[str, str]:
    """How the page writes characters for which it has entities, such as &nbsp;"""
    found: dict[str, str] = {}
    for entity in ENTITY.finditer(html):
        char = unescape(entity[0])
        if len(char) == 1 and char not in "&<>;" and not (char.isascii() and (char.isalnum() or char.isspace())):
            found.setdefault(char, entity[0] if entity[0].endswith(";") else f"{entity[0]};")
    return found


# --- the parts of a page ----------------------------------------------------------------------------------------------


def _pieces(html: str) -> Iterator[Piece]:
    """Texts, entities and tags, in order; together they are the page."""
    at = 0
    for found in re.finditer(r"<(?=/?[a-zA-Z]|[!?/])", html):  # a < b is a text
        start = found.start()
        if start < at:
            continue
        yield from _texts(html[at:start])
        at, name = _end(html, start), NAME.match(html, start)
        closes = html.startswith("</", start)
        yield Piece(html[start:at], name=name[1].lower() if name else "!", closes=closes)
        if name and name[1].lower() in RAW and not closes:
            last = re.compile(rf"</{re.escape(name[1])}(?=[\s/>])", re.I).search(html, at)
            stop = last.start() if last else len(html)
            yield Piece(html[at:stop], name="!")
            at = stop
    yield from _texts(html[at:])


def _texts(raw: str) -> Iterator[Piece]:
    at = 0
    for entity in ENTITY.finditer(raw):
        yield from (Piece(raw[at : entity.start()], raw[at : entity.start()]), Piece(entity[0], unescape(entity[0])))
        at = entity.end()
    yield Piece(raw[at:], raw[at:])


def _end(html: str, start: int) -> int:
    """Where a tag or a comment ends that begins at `start`; if nowhere, the rest of the page belongs to it."""
    if html.startswith("<!--", start):
        end = html.find("-->", start + 2)
        return len(html) if end < 0 else end + 3
    if name := NAME.match(html, start):
        found = REST_OF_TAG.match(html, name.end())
        return found.end() if found else len(html)
    end = html.find(">", start)
    return len(html) if end < 0 else end + 1


def _whole_elements(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """The pieces, with each element that is not for translation as one of them."""
    for piece in pieces:
        if not piece.opens or not (piece.name in KEPT or NOT_FOR_TRANSLATION.search(piece.raw)):
            yield piece
            continue
        inside, depth = [piece], 1
        while depth and (one := next(pieces, None)) is not None:
            inside.append(one)
            if one.name == piece.name:
                depth += -1 if one.closes else not one.raw.endswith("/>")
        raw, text = "".join(one.raw for one in inside), "".join(one.text for one in inside)
        if depth or piece.name not in INLINE:  # what is never closed takes the rest of the page
            yield Piece(raw, name="!")
        else:
            yield Piece(raw, text, piece.name, not text)


def _sentences(html: str) -> "Iterator[str | Sentence]":
    """The sentences, each with the tags inside it, and what stands between them."""
    run: list[Piece] = []
    for piece in _whole_elements(_pieces(html)):
        if not piece.name or piece.name in INLINE:
            run.append(piece)
        else:
            yield from _sentences_of(run)
            yield piece.raw
            run = []
    yield from _sentences_of(run)


def _sentences_of(run: Sequence[Piece]) -> "Iterator[str | Sentence]":
    text = "".join(piece.text for piece in run).translate(BREAKS)  # a line break of a page parts no sentence
    ends = list(accumulate(map(len, split_sentences(text))))
    its: list[Piece] = []
    at, number = 0, 0
    for piece in run:
        start, stop, at = at, at + len(piece.text), at + len(piece.text)
        while number < len(ends) and stop > ends[number]:
            if piece.is_plain and start < ends[number]:  # an entity is not cut
                its.append(piece.cut(start - stop, ends[number] - stop))
                start = ends[number]
            yield from _around(its)
            its, number = [], number + 1
        its.append(piece.cut(start - stop, None) if piece.is_plain and piece.text else piece)
    yield from _around(its)


def _around(pieces: list[Piece]) -> "Iterator[str | Sentence]":
    """The sentence, and the white space and tags before and behind it."""
    before = len(list(takewhile(lambda one: not one.text.strip(), pieces)))
    behind = len(list(dropwhile(lambda one: not one.text.strip(), reversed(pieces))))
    if before >= behind:
        yield "".join(one.raw for one in pieces)
        return
    closed, opened = _halves(pieces[before:behind])
    while closed and before and pieces[before - 1].opens:  # a tag in front whose other half is inside
        before, closed = before - 1, closed - 1
    while opened and behind < len(pieces) and pieces[behind].closes:
        behind, opened = behind + 1, opened - 1
    inside, first, last = pieces[before:behind], "", ""
    if inside[0].is_plain:
        text = inside[0].text.lstrip()
        first, inside[0] = inside[0].raw[: len(inside[0].raw) - len(text)], Piece(text, text)
    if inside[-1].is_plain:
        text = inside[-1].text.rstrip()
        last, inside[-1] = inside[-1].raw[len(text) :], Piece(text, text)
    yield "".join(one.raw for one in pieces[:before]) + first
    yield Sentence(inside)
    yield last + "".join(one.raw for one in pieces[behind:])


def _halves(pieces: Sequence[Piece]) -> tuple[int, int]:
    """How many tags close what is not open, and how many open what is not closed."""
    closed, opened = 0, 0
    for piece in pieces:
        if piece.opens:
            opened += 1
        elif piece.closes:
            closed, opened = closed + (not opened), max(0, opened - 1)
    return closed, opened


# --- one sentence -----------------------------------------------------------------------------------------------------


@dataclass
class Element:
    """A pair of tags and what stands between them, from character `start` to `stop` of the sentence."""

    start: int
    stop: int
    opening: str
    closing: str
    inside: "list[Element]" = field(default_factory=list)
    whole: str = ""  # written as it is, if it is not for translation
    place: tuple[int, int] = (0, 0)  # in the translation


class Sentence:
    """A sentence with the tags inside it."""

    def __init__(self, pieces: list[Piece]) -> None:
        self.raw = "".join(piece.raw for piece in pieces)
        self.text = "".join(piece.text for piece in pieces)
        self.tags: list[tuple[int, Piece]] = []
        at = 0
        for piece in pieces:
            if piece.name:
                self.tags.append((at, piece))
            at += len(piece.text)
        self.elements = self._tree() if len(self.tags) <= MOST_TAGS else None

    def wanted(self) -> list[str]:
        """The texts whose translation is needed."""
        if not any(map(str.isalpha, self.text)):
            return []
        return [self._part(), *(self._part(one) for one in _all(self.elements or []) if not one.whole)]

    def _part(self, element: Element | None = None) -> str:
        """The text of an element, or all, with single spaces."""
        text = self.text if element is None else self.text[element.start : element.stop]
        return WHITE.sub(" ", text).strip()

    def translated(self, known: Mapping[str, str], write: Callable[[str], str]) -> str:
        """As it is written in the page of the translation."""
        text = known.get(self._part(), self._part())
        if text == self._part():
            return self.raw
        if self.elements is not None and self._locate(self.elements, (0, len(text)), text, known):
            return _with_tags(self.elements, text, 0, len(text), write)
        return self._in_proportion(text, write)

    def _tree(self) -> list[Element] | None:
        """The elements; None if there are other tags than pairs of them."""
        open_ = [Element(0, len(self.text), "", "")]
        for at, piece in self.tags:
            if piece.text:
                open_[-1].inside.append(Element(at, at + len(piece.text), "", "", whole=piece.raw))
            elif piece.opens and len(open_) < MOST_NESTED:
                open_.append(Element(at, at, piece.raw, piece.name))
            elif piece.closes and piece.name == open_[-1].closing:
                done = open_.pop()
                done.stop, done.closing = at, piece.raw
                open_[-1].inside.append(done)
            else:
                return None
        return open_[0].inside if len(open_) == 1 else None

    def _locate(
        self, elements: Sequence[Element], within: tuple[int, int], text: str, known: Mapping[str, str]
    ) -> bool:
        """Finds the place of each element in the translation; False if that of some is not there."""
        taken: list[tuple[int, int]] = []
        for one in elements:
            source = self._part(one)
            target = source if one.whole else known.get(source, source).strip().rstrip(".!?…")
            if not target:
                return False
            near = len(text) * one.start // len(self.text)
            pattern = rf"(?<!\w){re.escape(target)}(?!\w)"
            places = [
                found.span()
                for found in re.compile(pattern, 0 if one.whole else re.I).finditer(text, *within)
                if all(found.end() <= a or b <= found.start() for a, b in taken)
            ]
            if not places:
                return False
            one.place = min(places, key=lambda place: abs(place[0] - near))
            taken.append(one.place)
            if not self._locate(one.inside, one.place, text, known):
                return False
        return True

    def _in_proportion(self, text: str, write: Callable[[str], str]) -> str:
        """The tags in their order, each at the border of words that is as far into the text as it was."""
        ours = [found.start() for found in WORD.finditer(self.text)]
        theirs = [found.span() for found in WORD.finditer(text)]
        written, at, before = [], 0, 0
        for place, piece in self.tags:
            while before < len(ours) and ours[before] < place:
                before += 1
            n = round(len(theirs) * before / max(1, len(ours)))
            border = (theirs[n - 1][1] if n else 0) if piece.closes else theirs[n][0] if n < len(theirs) else len(text)
            to = max(at, border)
            written += [write(text[at:to]), piece.raw]
            at = to
        return "".join([*written, write(text[at:])])


def _all(elements: Sequence[Element]) -> Iterator[Element]:
    for one in elements:
        yield one
        yield from _all(one.inside)


def _with_tags(elements: Sequence[Element], text: str, start: int, stop: int, write: Callable[[str], str]) -> str:
    written = []
    for one in sorted(elements, key=lambda one: one.place):
        a, b = one.place
        inside = one.whole or one.opening + _with_tags(one.inside, text, a, b, write) + one.closing
        written += [write(text[start:a]), inside]
        start = b
    return "".join([*written, write(text[start:stop])])
