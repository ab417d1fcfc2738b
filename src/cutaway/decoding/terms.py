"""Terms: words of a source that have to be translated in a given way, as in a company's glossary.

    translate(model, tokenizer, "The dog barks.", terms={"dog": "Rüde"})

A term is looked for as whole words, in the case in which it is written, or with a capital where it begins a sentence;
of two that overlap the first counts, of two that begin together the longer. A translation that has its terms anyway
stays as it is. Any other is searched again with them (`cutaway.decoding.grid`), and the best of all texts that were
found and have them is taken. Where more than one is wanted and too few have them, the grid finds those that follow.

Why a grid, and not the best translation with the term put in wherever the model likes it best? Because a term changes
the words before it, too: with `cat=Kater`, "Die Katze" has to become "Der Kater".
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

import torch

from cutaway.decoding.engine import Engine
from cutaway.decoding.grid import Borders, GridSearch, TermJob, Way
from cutaway.decoding.search import Hypothesis, Job
from cutaway.decoding.sentences import split_sentences
from cutaway.decoding.write import written
from cutaway.errors import InputError
from cutaway.files import MEGABYTE, read_bytes
from cutaway.model.model import DecoderModel
from cutaway.tokens import Tokenizer

# scripts that are written without spaces: Thai to Myanmar, Khmer, kana, Han
SPACELESS = re.compile("[\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


class Glossary:
    """Terms and their translations, each in the tokens that write it; those that cannot be written are refused."""

    def __init__(self, terms: Mapping[str, str], tokenizer: Tokenizer) -> None:
        if not isinstance(terms, Mapping):
            raise InputError(f"terms is a {type(terms).__name__}; write it as {{'dog': 'Rüde'}}")
        self.tokenizer = tokenizer
        self.targets: dict[str, str] = {}
        self.ways: dict[str, tuple[Way, ...]] = {}
        self.begin: dict[str, list[str]] = {}  # the terms that begin with a word, in either case
        for source, target in terms.items():
            for text in (source, target):
                if not isinstance(text, str) or not text.strip():
                    raise InputError(f"terms: {source!r} = {target!r} has an empty side: give a word on either")
            said, ways = self._written(target.strip())
            source = source.strip()
            if source not in self.targets:
                for first in {_first(source), _first(capital(source))}:
                    self.begin.setdefault(first, []).append(source)
            self.targets[source], self.ways[said] = said, ways

    @property
    def borders(self) -> Borders:
        return borders(self.tokenizer)

    def _written(self, target: str) -> tuple[str, tuple[Way, ...]]:
        """A term as the tokenizer spells it, and the ways to write it."""
        plain = ids_of(target, self.tokenizer)
        if plain is None:
            raise InputError(f"terms: this model's tokenizer has no tokens for {target!r}: choose another word")
        ways = {plain: Way(plain)}
        if not self.borders.opens[plain[0]] and (spaced := ids_of(f" {target}", self.tokenizer)):  # it needs its space
            ways.setdefault(spaced, Way(spaced))
        if first := ids_of(capital(target), self.tokenizer):
            ways.setdefault(first, Way(first, only_first=True))
        return self.tokenizer.decode(plain).strip(), tuple(ways.values())

    def wanted(self, text: str) -> tuple[str, ...]:
        """What the translation of a text has to contain."""
        # a source may stand under two first words that are both in the text
        able = {source: None for first in _firsts(text) for source in self.begin.get(first, ())}
        spans = sorted(
            (start, -stop, source)
            for source in able
            if all(word in text for word in source[1:].split())
            for start, stop in places(text, source)
        )
        found: dict[str, None] = {}
        free = 0
        for start, minus_stop, source in spans:
            if start >= free:
                found[self.targets[source]], free = None, -minus_stop
        return tuple(term for term in found if not any(contains(other, term) for other in found if other != term))


def ids_of(text: str, tokenizer: Tokenizer, *, spaces: bool = True) -> tuple[int, ...] | None:
    """What writes a text; None where something else would come of it. White space counts, unless `spaces` is False."""
    ids, normalizer = tokenizer.encode(text, special=False), tokenizer.backend.normalizer
    both = [one if spaces else "".join(one.split()) for one in (tokenizer.decode(ids), text)]
    said, wanted = ((one if normalizer is None else normalizer.normalize_str(one)).strip() for one in both)
    return None if tokenizer.unk_id in ids or not both[0].strip() or said != wanted else tuple(ids)


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
    return next(places(text, term), None) is not None


def places(text: str, term: str) -> Iterator[tuple[int, int]]:
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
    return "".join(takewhile(_in_run, term)) or term[0]


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


def with_terms(
    model: DecoderModel,
    jobs: Sequence[Job],
    wanted: Sequence[Sequence[str]],
    glossary: Glossary,
    spell: Callable[[Job, Hypothesis], str],
    *,
    most: int,
    n_best: int = 1,
    rows: int | None = None,
    **search: Any,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """What `written` gives, where each text contains what is wanted; `most` tokens have room in a target.

    `n_best` of each are looked for. The best of them does not depend on how many: what a grid finds besides a
    translation that has its terms comes after it, or not at all.
    """

    def kept(number: int, found: Sequence[Hypothesis]) -> list[Hypothesis]:
        terms = wanted[number]
        return [one for one in found if all(contains(spell(jobs[number], one), term) for term in terms)]

    ends = set(search["end_ids"])
    there: dict[int, list[Hypothesis]] = {}
    best: dict[int, float] = {}
    again: dict[int, dict[int, TermJob]] = {}  # by the tokens that they owe: a grid has a bank for each
    for job, terms in zip(jobs, wanted, strict=True):
        if terms:
            _term_job(job, terms, glossary, most, ends)  # what is impossible is said before anything is written
    for number, found in written(model, jobs, rows=rows, **search):
        good = kept(number, found)
        stays = bool(good) and good[0] is found[0]
        if stays and (len(good) >= n_best or not wanted[number]):
            yield number, good
        else:
            job = _term_job(jobs[number], wanted[number], glossary, most, ends)
            again.setdefault(job.owed, {})[number] = job
            there[number], best[number] = good, good[0].score if stays else float("inf")
    for some in again.values():
        numbers = list(some)
        engine = _engine(model, list(some.values()), glossary.borders, rows, **search)
        for at, found in engine.run(some.values()):
            number = numbers[at]
            more = [one for one in kept(number, found) if one.score <= best[number]]
            every: dict[tuple[int, ...], Hypothesis] = {}
            for one in [*there[number], *more]:
                every.setdefault(tuple(one.ids), one)
            if not every:
                raise InputError(f"no translation with the terms {', '.join(wanted[number])} was found: widen the beam")
            yield number, sorted(every.values(), key=lambda one: -one.score)


def _term_job(job: Job, wanted: Sequence[str], glossary: Glossary, most: int, ends: set[int]) -> TermJob:
    """The same job, with these terms, and room for them."""
    terms = tuple(tuple(way for way in glossary.ways[term] if not ends.intersection(way.ids)) for term in wanted)
    for term, ways in zip(wanted, terms, strict=True):
        if not ways:
            raise InputError(f"terms: {term!r} holds a token that ends a text in this model: choose another word")
    room = most - len(job.prompt) + 1
    made = TermJob(
        prompt=job.prompt, source=job.source, limit=job.limit, rules=job.rules, terms=terms, fresh=len(job.prompt) == 1
    )
    if made.owed > room:
        raise InputError(
            f"the terms {', '.join(map(repr, wanted))} take {made.owed} tokens, but only {room} have room in a"
            " translation: leave some out, or cut the text"
        )
    return TermJob(**{**vars(made), "limit": min(room, job.limit + made.owed)})


def _engine(
    model: DecoderModel,
    jobs: Sequence[TermJob],
    known: Borders,
    rows: int | None,
    *,
    beam: int,
    end_ids: Sequence[int],
    **search: Any,
) -> Engine:
    extra = torch.zeros(max(0, model.config.vocab_size - len(known.opens)), dtype=torch.bool)  # type: ignore[attr-defined]
    opens, closes = torch.cat([known.opens, extra]), torch.cat([known.closes, extra])
    opens[list(end_ids)] = True
    rows = min(len(jobs), max(1, (rows or 32) // (1 + jobs[0].owed)))
    source = max(len(job.source) for job in jobs)
    prompt = max(len(job.prompt) for job in jobs)
    grid = GridSearch(
        max(2, beam),  # in a bank of one, the first place for a term is the last
        jobs,
        Borders(opens.to(model.device), closes.to(model.device)),
        rows=rows,
        most=max(job.limit for job in jobs),
        ends=end_ids,
        device=model.device,
        dtype=torch.promote_types(model.dtype, torch.float32),
        prompt=prompt,
        **search,
    )
    return Engine(model, grid, rows=rows, prompt=prompt, source=source)
