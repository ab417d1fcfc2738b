"""Terms: words of a source that have to be translated in a given way, as in a company's glossary.

    translate(model, tokenizer, "The dog barks.", terms={"dog": "Rüde"})

A term is looked for as whole words, in the case in which it is written, or with a capital where it begins a sentence;
of two that overlap the first counts, of two that begin together the longer. A translation that has its terms anyway
stays as it is. Any other is searched again with them (`cutaway.decoding.search.constrained_beam`), and the best of all
texts found that have them is taken. Where more than one is wanted and too few have them, the grid finds the rest.

Why a grid, and not the best translation with the term put in wherever the model likes it best? Because a term changes
the words before it, too: with `cat=Kater`, "Die Katze" has to become "Der Kater".
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby, takewhile
from pathlib import Path

import torch

from cutaway.decoding.search.constrained_beam import Borders, Way
from cutaway.decoding.sentences import split_sentences
from cutaway.errors import InputError
from cutaway.files import MEGABYTE, read_bytes
from cutaway.tokens import Tokenizer

# scripts that are written without spaces: Thai to Myanmar, Khmer, kana, Han
SPACELESS = re.compile("[\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
Looks = tuple[tuple[str, tuple[int, ...]], ...]  # terms, and the places of their words among the source's tokens


class Glossary(Mapping[str, str]):
    """Terms and their translations, each in the tokens that write it; those that cannot be written are refused."""

    def __init__(self, terms: Mapping[str, str], tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.targets: dict[str, str] = {}
        self.spelled: dict[str, str] = {}  # each target as it was given, by how the tokenizer spells it
        self.begin: dict[str, list[str]] = {}  # the terms that begin with a word, in either case
        for source, target in terms.items():
            for text in (source, target):
                if not isinstance(text, str) or not text.strip():
                    raise InputError(f"terms: {source!r} = {target!r} has an empty side: give a word on either")
        written = self._written(list(dict.fromkeys(target.strip() for target in terms.values())))
        for source, target in terms.items():
            said = written[target.strip()]
            source = source.strip()
            if source not in self.targets:
                for first in {_first(source), _first(capital(source))}:
                    self.begin.setdefault(first, []).append(source)
            self.targets[source], self.spelled[said] = said, target.strip()

    def __getitem__(self, term: str) -> str:
        return self.targets[term]

    def __iter__(self) -> Iterator[str]:
        return iter(self.targets)

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def borders(self) -> Borders:
        return borders(self.tokenizer)

    def _written(self, targets: list[str]) -> dict[str, str]:
        """Each term as the tokenizer spells it."""
        found = all_ids_of(targets, self.tokenizer)
        for target, ids in zip(targets, found, strict=True):
            if ids is None:
                raise InputError(f"terms: this model's tokenizer has no tokens for {target!r}: choose another word")
        texts = self.tokenizer.backend.decode_batch([list(ids or ()) for ids in found])
        return {target: text.strip() for target, text in zip(targets, texts, strict=True)}

    def ways(self, term: str) -> tuple[Way, ...]:
        """The ways to write a term: of those that some text wants, which are few."""
        target = self.spelled[term]
        plain, spaced, first = all_ids_of([target, f" {target}", capital(target)], self.tokenizer)
        assert plain is not None
        ways = {plain: Way(plain)}
        if spaced and not self.borders.opens[plain[0]]:  # it needs its space
            ways.setdefault(spaced, Way(spaced))
        if first:
            ways.setdefault(first, Way(first, only_first=True))
        return tuple(ways.values())

    def wanted(self, text: str) -> tuple[str, ...]:
        """What the translation of a text has to contain."""
        return tuple(self.spans(text))

    def looks(self, text: str, front: int = 0) -> "Looks":
        """The same, and which tokens of the source, `front` tokens before it, are to be translated so."""
        spans = self.spans(text)
        tokens = self.tokenizer.encoding(text, special=False).offsets if spans else []
        return tuple(
            (
                term,
                tuple(n for n, (begin, end) in enumerate(tokens, front) if any(begin < b and a < end for a, b in its)),
            )
            for term, its in spans.items()
        )

    def spans(self, text: str) -> dict[str, list[tuple[int, int]]]:
        """The same, and where the words stand in the text that are to be translated so."""
        # a source may stand under two first words that are both in the text
        able = {source: None for first in _firsts(text) for source in self.begin.get(first, ())}
        spans = sorted(
            (start, -stop, source)
            for source in able
            if all(word in text for word in source[1:].split())
            for start, stop in places_of_term(text, source)
        )
        found: dict[str, list[tuple[int, int]]] = {}
        free = 0
        for start, minus_stop, source in spans:
            if start >= free:
                free = -minus_stop
                found.setdefault(self.targets[source], []).append((start, free))
        return {
            term: its
            for term, its in found.items()
            if not any(contains(other, term) for other in found if other != term)
        }


def term_ids(text: str, tokenizer: Tokenizer, *, spaces: bool = True) -> tuple[int, ...] | None:
    """What writes a text; None where something else would come of it. White space counts, unless `spaces` is False."""
    return all_ids_of([text], tokenizer, spaces=spaces)[0]


def all_ids_of(texts: Sequence[str], tokenizer: Tokenizer, *, spaces: bool = True) -> list[tuple[int, ...] | None]:
    """The same for each of many, at once."""
    every, normalizer = tokenizer.encode_batch(texts, special=False), tokenizer.backend.normalizer
    found: list[tuple[int, ...] | None] = []
    for text, ids, back in zip(texts, every, tokenizer.backend.decode_batch(every), strict=True):
        both = [one if spaces else "".join(one.split()) for one in (back, text)]
        said, wanted = ((one if normalizer is None else normalizer.normalize_str(one)).strip() for one in both)
        found.append(None if tokenizer.unk_id in ids or not both[0].strip() or said != wanted else tuple(ids))
    return found


def read_terms(file: Path) -> dict[str, str]:
    """A glossary's lines: a word, a tab, its translation."""
    try:
        lines = read_bytes(file, 64 * MEGABYTE).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is no UTF-8 at byte {error.start}") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        columns = [column.strip() for column in line.split("\t")]
        if not line.strip():
            continue
        if len(columns) != 2 or not all(columns):
            raise InputError(f"{file}, line {number}: {line[:80]!r} is not a word, a tab and its translation")
        if found.setdefault(*columns) != columns[1]:
            raise InputError(
                f"{file}, line {number}: {columns[0]!r} is {columns[1]!r} here and {found[columns[0]]!r} above"
            )
    return found


def capital(term: str) -> str:
    return term[0].upper() + term[1:]


def contains(text: str, term: str) -> bool:
    return next(places_of_term(text, term), None) is not None


def places_of_term(text: str, term: str) -> Iterator[tuple[int, int]]:
    """Where a term stands in a text, as whole words."""
    begins: set[int] | None = None
    for match in _pattern(term).finditer(text):
        start, stop = match.span()
        if (start and not _border(text[start - 1], text[start])) or not _border(text[stop - 1], text[stop : stop + 1]):
            continue
        if not match[0].startswith(term[0]):
            begins = _begins(text) if begins is None else begins
            if start not in begins:
                continue
        yield start, stop


@lru_cache(maxsize=1 << 16)
def _pattern(term: str) -> re.Pattern[str]:
    ways = (r"\s+".join(map(re.escape, way.split())) for way in dict.fromkeys((term, capital(term))))
    return re.compile("|".join(ways))


def _begins(text: str) -> set[int]:
    """Where the first word of each sentence stands."""
    found, at = set(), 0
    for sentence in split_sentences(text):
        found.add(at + next((i for i, char in enumerate(sentence) if _in_word(char)), 0))
        at += len(sentence)
    return found


def _firsts(text: str) -> set[str]:
    """What a term in a text may begin with: a whole run of letters, or a character that is a word by itself."""
    runs = groupby(text, _in_run)
    return {one for inside, run in runs for one in (["".join(run)] if inside else run)}


def _first(term: str) -> str:
    word = term.split(None, 1)[0]
    return word if word.isascii() and word.isalnum() else "".join(takewhile(_in_run, term)) or term[0]


@lru_cache(maxsize=1 << 12)
def _in_run(char: str) -> bool:
    """Whether no word may begin between this character and another such."""
    return _in_word(char) and not SPACELESS.match(char)


def _in_word(char: str) -> bool:
    return char.isalnum() or char == "_" or unicodedata.category(char)[0] == "M"


def _border(before: str, after: str) -> bool:
    """Whether a word may end between two characters."""
    return not (before and after and _in_run(before) and _in_run(after))


@lru_cache(maxsize=8)
def borders(tokenizer: Tokenizer) -> Borders:
    """Which tokens begin a word and which end one, by what each adds to a text that has begun."""
    ids = range(tokenizer.vocab_size)
    backend = tokenizer.backend
    if suffix := getattr(backend.decoder, "suffix", ""):  # what ends a word is part of its last token
        texts = [(backend.id_to_token(id) or "").replace(suffix, " ") for id in ids]
    else:
        anchor = next(([id] for id in ids if tokenizer.decode([id]).isalnum()), [])
        skip = len(tokenizer.decode(anchor))
        texts = [text[skip:] for text in backend.decode_batch([[*anchor, id] for id in ids])]
    special = set(tokenizer.special_ids().values())
    # of part of a character nothing is known
    known = ["" if id in special else text for id, text in enumerate(texts)]
    opens = [bool(text) and text[0] != "\ufffd" and _border("a", text[0]) for text in known]
    closes = [bool(text) and text[-1] != "\ufffd" and _border(text[-1], "a") for text in known]
    return Borders(torch.tensor(opens), torch.tensor(closes))
