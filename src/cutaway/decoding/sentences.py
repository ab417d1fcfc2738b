"""Paragraphs → sentences, by rules for English, German and French; a model is trained on sentences.

    split_sentences("Dr. Weiß kam am 3. Mai. »Gut!« Er ging.")   # ['Dr. Weiß kam am 3. Mai. ', '»Gut!« ', 'Er ging.']

The parts keep their white space, so that together they are the text again, to the character. A line break always parts.
A full stop does not behind an abbreviation, an initial or an ordinal, nor does anything before a small letter: where in
doubt, two sentences stay together, which a model forgives more easily than half a one.
"""

import re
from collections.abc import Callable

OPENING = "\"'“”„‚‘’«»‹›([{¿¡-–—*_ \u00a0\u202f"
# possessive (++): 1 MB of full stops is read once, not once for every way to part them
END = re.compile(
    r"""(?<![.!?…]) (?P<mark>[.!?…؟۔।]++)
        (?: ["'“”’‘»«›‹)\]}]++ | [ \u00a0\u202f][»›](?=\s|$) )*+ (?P<space>\s++)
      | [。！？]++ [」』”’）]*+ \s*+
      | [\r\n]\s*+""",
    re.VERBOSE,
)
WORD = re.compile(r"[^\s\"'“”„‚‘’«»‹›(\[{¿¡/–—-]*\Z")  # the word that a full stop ends
# Abbreviations that a capital letter follows all the same; one that a sentence may end with (etc., usw.) is not here.
TITLES = frozenset(
    """
    mr mrs ms dr prof st gen col sgt capt lt cmdr rev hon sen rep gov pres messrs mt ft
    hr hrn fr frl dipl ing med phil jur mag mme mlle mgr mm me pr
    bzw vgl ca ggf evtl sog inkl exkl zzgl bspw geb gest verh hrsg hl z.b d.h u.a u.u i.d.r o.g s.o v.a z.t z.zt
    e.g i.e cf vs viz al approx ex p.ex c.-à-d
    """.split()
)
# … and those that only a number follows: "No. 5", but "No. Never."
COUNTED = frozenset(
    """
    no nos nr nrn art abs kap bd bde fig figs abb tab vol vols p pp s sec ch chap eq ziff zi § par ann
    jan feb mar apr jun jul aug sep sept oct nov dec okt dez janv févr avr juil déc tel tél str av bd n
    """.split()
)
# Words that begin a sentence more often than they follow "U.S.", "II." or "7."
BEGINNERS = frozenset(
    """
    the a an this that these those it its he she they we you i there here then but and so however if when
    while after before in on at for as his her their our my what who where why how not no yes
    der die das ein eine es er sie wir ihr ich dies diese dieser dieses da dann aber und doch wenn als nach vor im in
    il elle ils elles on nous vous je ce cette ces un une mais et puis quand si dans c'est
    """.split()
)
ROMAN = re.compile(r"[IVX]{1,6}")
FAR = 40  # characters that are looked at on either side


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, each with the white space around it; joined they are the text."""
    parts, start = [], 0
    for found in END.finditer(text):
        if found["mark"] is None or "\n" in found["space"] or "\r" in found["space"] or _ends(text, start, found):
            parts.append(text[start : found.end()])
            start = found.end()
    return [*parts, text[start:]] if start < len(text) else parts


def _ends(text: str, start: int, found: re.Match[str]) -> bool:
    """Whether these marks end a sentence."""
    after = text[found.end() : found.end() + FAR].lstrip(OPENING)
    if after[:1].islower():
        return False
    if found["mark"] != "." or text[found.start("mark") + 1 : found.start("space")]:
        return True
    before = WORD.search(text[max(start, found.start() - FAR) : found.start()])
    word = before[0] if before else ""
    return _full_stop_ends(word, after, first=found.start() - len(word) == start)


def _full_stop_ends(word: str, after: str, *, first: bool) -> bool:
    """Whether the full stop behind `word` ends a sentence; `first`: the word is all that the sentence has so far."""
    lower = word.lower()
    if lower in TITLES:
        return False
    if lower in COUNTED and after[:1].isdigit():
        return False
    begins = re.split(r"[\s.,;:!?]", after, maxsplit=1)[0].lower() in BEGINNERS
    if (word.isdecimal() and len(word) <= 2) or ROMAN.fullmatch(word):  # "3. Mai", "Ludwig XIV."; "1. The first item"
        return begins and not first
    if (len(word) == 1 and word.isalpha()) or re.fullmatch(r"(?:\w\.)+\w", word):  # "J. Doe", "z. B.", "U.S."
        return begins
    return True


CLAUSE, SPACE = re.compile(r"[,;:–—)]\s"), re.compile(r"\s")


def cut_sentence(text: str, budget: int, place: Callable[[str, int], int | None]) -> list[str]:
    """A text in parts of at most `budget` tokens, cut behind a clause, else at a space, else anywhere.

    `place(text, n)` is the character at which token n begins, None where there are no more than n tokens. It is asked
    about a window at a time, so that a text without any space takes no longer than others.
    """
    start = 0
    parts: list[str] = []
    while start < len(text):
        window = text[start : start + 6 * budget]
        most = place(window, budget)
        if most is None and start + len(window) == len(text):
            return [*parts, window]
        at = _cut_before(window, len(window) if most is None else max(1, most))
        while at > 1 and place(window[:at], budget) is not None:  # alone, a part may take more tokens than in the whole
            at -= max(1, at // 8)
        parts.append(window[:at])
        start += at
    return parts


def _cut_before(text: str, most: int) -> int:
    """The last good place among the first `most` characters, none before the middle."""
    for marks in (CLAUSE, SPACE):
        ends = [found.end() for found in marks.finditer(text, most // 2, most + 1)]  # the space itself costs nothing
        if ends:
            return ends[-1]
    return most
