"""Texts, translated: cut into sentences and tokens, searched side by side, and put together as they were.

    translate(model, tokenizer, "I ate an apple. It was good.")     # 'Ich habe einen Apfel gegessen. Er war gut.'
    translate(model, tokenizer, lines, beam=8, n_best=3)            # a `Translation` for each line

A source is read as in training: the tag of the wanted language, where a model knows several; the text; the end token.
The white space between sentences, empty lines included, stays as it was.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import product
from typing import Any, NamedTuple

from cutaway.arguments import checked
from cutaway.decoding.alignment import Alignment, align, joined_alignment
from cutaway.decoding.engine.engine import Job
from cutaway.decoding.rules.terms import Glossary, Looks, term_ids
from cutaway.decoding.search.beam import EarlyStopping
from cutaway.decoding.search.search import Hypothesis
from cutaway.decoding.sentences import cut_sentence, split_sentences
from cutaway.decoding.translate_with_terms import search_with_terms
from cutaway.errors import InputError
from cutaway.model.model import EncoderDecoderModel
from cutaway.tokens import Tokenizer

Report = Callable[[int, int], None]
TAG = re.compile(r"<2(.+)>|>>(.+)<<")  # a token that asks for a language: ours, OPUS-MT's
LONGEST = 200  # tokens of a sentence; longer ones are rare in training, and cut here


@dataclass(frozen=True)
class Candidate:
    """One translation; its score is log p / length^length_penalty, of a text the mean over its sentences."""

    text: str
    score: float


@dataclass(frozen=True, eq=False)
class Sentence:
    """A sentence without the white space around it, its candidates, and the words of the best, aligned if asked."""

    source: str
    candidates: list[Candidate]
    alignment: Alignment | None = None


@dataclass(frozen=True, eq=False)
class Translation:
    """A text's translation; `n_best` begins with it, and has as many as were `asked` for, if there are."""

    text: str
    score: float
    n_best: list[Candidate]
    sentences: list[Sentence]
    alignment: Alignment | None = None
    asked: int = 1

    def to_dict(self) -> dict[str, Any]:
        """As JSON writes it."""
        said: dict[str, Any] = {"text": self.text, "score": self.score}
        if self.asked > 1:
            said["n_best"] = [{"text": one.text, "score": one.score} for one in self.n_best]
        if self.alignment is not None:
            links = [{"source": a, "target": b, "weight": weight} for a, b, weight in self.alignment.links()]
            said |= {"alignment": self.alignment.pharaoh(), "links": links}
        return said


@checked
def translate(
    model: EncoderDecoderModel,
    tokenizer: Tokenizer,
    text: str | Sequence[str],
    *,
    n_best: int = 1,
    scores: bool = False,
    align: bool = False,
    **options: Any,
) -> Any:
    """The translation of a text, or of each of several; as a `Translation` if more than its words is asked for.

    The options are those of `translations`.
    """
    texts = [text] if isinstance(text, str) else text
    found = translations(model, tokenizer, texts, n_best=n_best, aligned=align, **options)
    answers = found if scores or align or n_best > 1 else [one.text for one in found]
    return answers[0] if isinstance(text, str) else answers


@checked
def translations(
    model: EncoderDecoderModel,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    to: str | None = None,
    beam: int = 4,
    length_penalty: float = 1.0,
    prune: float | None = None,
    n_best: int = 1,
    aligned: bool = False,
    prefix: str | Sequence[str | None] | None = None,
    terms: Mapping[str, str] | Glossary | None = None,
    split: bool = True,
    longest: int = LONGEST,
    rows: int | None = None,
    report: Report = lambda done, total: None,
) -> list[Translation]:
    """All that is known of the translation of each text.

    `to` names the language, where the model knows several. `prefix` is how the translation has to begin, one for all
    texts or one for each; of a text of several sentences, the first. `terms` say how words of the source have to be
    translated, such as {"dog": "Rüde"}: see `cutaway.decoding.rules.terms`. `split=False` takes each text as one
    sentence. `prune` drops hypotheses that are this far behind the best of their beam, in log p.
    `report` is told how many sentences of how many are done.
    """
    if n_best < 1 or n_best > beam:
        raise InputError(f"n_best={n_best}: a beam of {beam} finds 1 to {beam}; widen the beam")
    tag = tag_for(tokenizer, to)
    parts = [_parts(model, tokenizer, text, split, longest, tag is not None) for text in texts]
    prefixes = [prefix] * len(texts) if prefix is None or isinstance(prefix, str) else list(prefix)
    if len(prefixes) != len(texts):
        raise InputError(f"{len(prefixes)} prefixes for {len(texts)} texts: give one for all, or one for each")
    begins = [first if number == 0 else None for its, first in zip(parts, prefixes, strict=True)
              for number in range(sum(bool(part.strip()) for part in its))]  # fmt: skip
    sources = [part.strip() for its in parts for part in its if part.strip()]
    search = {"beam": beam, "length_penalty": length_penalty, "prune": prune, "rows": rows, "tag": tag,
              "report": report, "terms": terms}  # fmt: skip
    found = candidates(model, tokenizer, sources, prefixes=begins, n_best=n_best, **search)  # type: ignore[arg-type]
    # what has no tokens, such as a lone control character, is left as it is
    found = [its or [Candidate(source, 0.0)] for source, its in zip(sources, found, strict=True)]
    stripped = [_once(Candidate(one.text.strip(), one.score) for one in its) for its in found]
    links: Sequence[Alignment | None] = [None] * len(sources)
    if aligned:
        links = align(model, tokenizer, sources, [its[0].text for its in stripped], tag=tag)
    sentences = iter([Sentence(*one) for one in zip(sources, stripped, links, strict=True)])
    return [_together(its, [next(sentences) for part in its if part.strip()], n_best, aligned) for its in parts]


def _parts(
    model: EncoderDecoderModel, tokenizer: Tokenizer, text: str, split: bool, longest: int, tagged: bool
) -> list[str]:
    """The sentences of a text; those that are longer than the model can or should read, in pieces."""
    if not split:
        return [text] if text else []
    budget = longest if model.max_len is None else min(longest, model.max_len - 1 - tagged)
    if budget < 1:
        raise InputError(f"longest={longest}: a sentence has at least one token")

    def place(part: str, n: int) -> int | None:
        encoding = tokenizer.encoding(part, special=False)
        span = encoding.token_to_chars(n) if len(encoding) > n else None
        return None if span is None else span[0]

    return [piece for sentence in split_sentences(text) for piece in cut_sentence(sentence, budget, place)]


def sentences_of(model: EncoderDecoderModel, tokenizer: Tokenizer, text: str) -> list[str]:
    """What of a text is translated by itself: its sentences, without the white space around them."""
    parts = _parts(model, tokenizer, text, True, LONGEST, bool(languages(tokenizer)))
    return [part.strip() for part in parts if part.strip()]


def _once(found: Iterable[Candidate]) -> list[Candidate]:
    """Two ways to cut one text into tokens are one candidate."""
    best: dict[str, Candidate] = {}
    for one in found:
        best.setdefault(one.text, one)
    return list(best.values())


class SaidBefore(NamedTuple):
    """A sentence, and what was said before it, so that no beginning is ever copied."""

    before: "SaidBefore | None"
    text: str


def _together(parts: list[str], sentences: list[Sentence], n_best: int, aligned: bool) -> Translation:
    """A text from its sentences, with the white space that stood around them; its n best, from theirs."""
    best: list[tuple[float, SaidBefore | None]] = [(0.0, None)]
    for sentence in sentences:  # scores add up, so that the best of the beginnings are enough
        longer = (
            (score + one.score, SaidBefore(said, one.text)) for (score, said), one in product(best, sentence.candidates)
        )
        best = nlargest(n_best, longer, key=lambda pair: pair[0])
    rest, links = iter(sentences), []
    read = written = 0  # characters
    frame: list[str | None] = []  # white space; None stands for a sentence
    for part in parts:
        core = part.strip()
        before, _, behind = part.partition(core) if core else (part, "", "")
        frame += [before, None, behind] if core else [before]
        if core:
            one = next(rest)
            if one.alignment is not None:
                links.append(one.alignment.moved(read + len(before), written + len(before)))
            written += len(one.candidates[0].text)
        written += len(before) + len(behind)
        read += len(part)
    texts = [Candidate(_woven(frame, said), score / max(1, len(sentences))) for score, said in best]
    alignment = joined_alignment("".join(parts), texts[0].text, links) if aligned else None
    return Translation(texts[0].text, texts[0].score, texts, sentences, alignment, n_best)


def _woven(frame: list[str | None], said: SaidBefore | None) -> str:
    last_first = []
    while said is not None:
        last_first.append(said.text)
        said = said.before
    return "".join(last_first.pop() if part is None else part for part in frame)


def languages(tokenizer: Tokenizer) -> dict[str, int]:
    """The languages that can be asked for, and the token that does; none where a model knows but one."""
    found = [(TAG.fullmatch(token), id) for token, id in tokenizer.special_ids().items()]
    return {match[1] or match[2]: id for match, id in found if match}


def tag_for(tokenizer: Tokenizer, to: str | None) -> int | None:
    """The token that asks for a language; None where a model knows but one, which nothing can be said of."""
    known = languages(tokenizer)
    if not known and to is not None:
        raise InputError(f"to={to!r}: this model has no language tags and knows one language only: leave it out")
    if not known:
        return None
    if to is None:
        raise InputError(f"which language is wanted? Say {' or '.join(f'to={name}' for name in known)}")
    if to not in known:
        raise InputError(f"to={to!r}: this model knows {', '.join(known)}")
    return known[to]


def translate_all(model: EncoderDecoderModel, tokenizer: Tokenizer, texts: Sequence[str], **search: Any) -> list[str]:
    """The best translation of each text, taken for one sentence, to the letter; the options are `candidates`'."""
    return [found[0].text if found else "" for found in candidates(model, tokenizer, texts, **search)]


def candidates(
    model: EncoderDecoderModel,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    prefixes: Sequence[str | None] | None = None,
    terms: Mapping[str, str] | Glossary | None = None,
    n_best: int = 1,
    beam: int = 4,
    length_penalty: float = 1.0,
    early_stopping: EarlyStopping = False,
    prune: float | None = None,
    max_len: int = 256,
    growth: tuple[float, float] = (2.0, 20.0),
    rows: int | None = None,
    tag: int | None = None,
    start_id: int | None = None,
    end_ids: Sequence[int] | None = None,
    report: Report = lambda done, total: None,
) -> list[list[Candidate]]:
    """The best `n_best` of each text, which is one sentence; nothing for one without any token.

    A source of n tokens gets a target of at most min(max_len, a·n + b) tokens, (a, b) = `growth`, whatever else is in
    its batch. `rows` are worked on at a time. `report` is told how many texts of how many are done.
    """
    end_ids = model.config.end_ids or () if end_ids is None else end_ids
    if not end_ids:
        raise InputError("this model does not say what ends a text: give `end_ids`")
    start_id = model.config.start_id if start_id is None else start_id
    if start_id is None:
        raise InputError("this model does not say what a target begins with: give `start_id`")
    sources = encode_sources(model, tokenizer, texts, tag, end_ids[0])
    begins = {prefix: prefix_ids(tokenizer, prefix) for prefix in dict.fromkeys(prefixes or [None])}
    forced = [begins[prefix] for prefix in prefixes or [None] * len(texts)]
    longest = max_len if model.max_len is None else min(max_len, model.max_len)
    (a, b), front = growth, int(tag is not None)
    glossary = terms if isinstance(terms, Glossary) else Glossary(terms or {}, tokenizer)
    same: dict[tuple[tuple[int, ...], tuple[int, ...], Looks], list[int]] = {}  # what stands twice, once
    for row in sorted((row for row in range(len(texts)) if sources[row]), key=lambda row: -len(sources[row])):
        same.setdefault((tuple(sources[row]), forced[row], glossary.looks(texts[row], front)), []).append(row)
    jobs = []
    for source, begin, _ in same:
        if len(begin) >= longest:
            raise InputError(f"a prefix of {len(begin)} tokens leaves no room in a target of at most {longest}")
        limit = min(longest, math.ceil(a * len(source) + b))
        jobs.append(Job(prompt=[start_id, *begin], source=source, limit=max(1, min(limit, longest - len(begin)))))
    answers: list[list[Candidate]] = [[] for _ in texts]
    done = len(texts) - sum(map(len, same.values()))
    search = {"beam": beam, "length_penalty": length_penalty, "early_stopping": early_stopping, "prune": prune}
    whose = list(same.items())

    def spell(job: Job, one: Hypothesis) -> str:
        # a model's vocabulary may be padded to a round number: those places stand for nothing
        said = [id for id in one.ids if id not in end_ids and id < tokenizer.vocab_size]
        return tokenizer.decode([*job.prompt[1:], *said])

    wanted = [terms for (_, _, terms), _ in whose]
    more: dict[str, Any] = {"most": longest, "n_best": n_best, "rows": rows, "end_ids": end_ids, **search}
    for number, found in search_with_terms(model, jobs, wanted, glossary, spell, **more):
        _, twins = whose[number]
        texts_ = [spell(jobs[number], one) for one in found[:n_best]]
        for row in twins:
            answers[row] = [Candidate(text, one.score) for text, one in zip(texts_, found, strict=False)]
        done += len(twins)
        report(done, len(texts))
    return answers


def prefix_ids(tokenizer: Tokenizer, prefix: str | None) -> tuple[int, ...]:
    """The tokens that write how a translation has to begin; what they cannot write is refused."""
    if prefix is None or not prefix.strip():
        return ()
    prefix = prefix.rstrip()  # the space belongs to the next word
    ids = term_ids(prefix, tokenizer, spaces=False)
    if ids is None:
        lost = next((word for word in prefix.split() if term_ids(word, tokenizer, spaces=False) is None), prefix)
        raise InputError(f"prefix: this model's tokenizer has no tokens for {lost!r}: choose other words")
    return ids


def encode_sources(
    model: EncoderDecoderModel, tokenizer: Tokenizer, texts: Sequence[str], tag: int | None, end_id: int
) -> list[list[int]]:
    """Tag, text, end; nothing for a text without tokens. A text that is longer than the model can read is refused."""
    front = [] if tag is None else [tag]
    sources = [[*front, *ids, end_id] if ids else [] for ids in tokenizer.encode_batch(texts, special=False)]
    for row, source in enumerate(sources):
        if model.max_len is not None and len(source) > model.max_len:
            raise InputError(f"text {row + 1} has {len(source)} tokens; this model reads at most {model.max_len}")
    return sources
