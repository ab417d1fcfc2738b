"""Translates texts: splits them into sentences, searches for many translations at a time, and joins them again.

    translate(model, tokenizer, "I ate an apple. It was good.")     # 'Ich habe einen Apfel gegessen. Er war gut.'
    translate(model, tokenizer, lines, beam=8, n_best=3)            # a `Translation` for each line

The model reads a sentence as in training: the tag of the target language, if it knows several; the sentence; the end
token. White space between sentences, blank lines included, is kept.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from cutaway.arguments import Progress, no_progress, with_options
from cutaway.decoding.engine.engine import Job
from cutaway.decoding.engine.run import finished_jobs
from cutaway.decoding.options import SearchOptions, TranslationOptions
from cutaway.decoding.search.search import Hypothesis
from cutaway.decoding.sentences import cut_sentence, split_sentences
from cutaway.errors import InputError
from cutaway.model.model import EncoderDecoderModel
from cutaway.tokens import Tokenizer

if TYPE_CHECKING:
    from cutaway.decoding.alignment import Alignment
    from cutaway.decoding.rules.terms import Glossary, Looks

RunJobs = Callable[[EncoderDecoderModel, Sequence[Job], SearchOptions], Iterator[tuple[int, list[Hypothesis]]]]
TAG = re.compile(r"<2(.+)>|>>(.+)<<")  # a token that names a target language: ours, OPUS-MT's


@dataclass(frozen=True)
class Candidate:
    """One translation; its score is log p / length^length_penalty, of a text the mean over its sentences."""

    text: str
    score: float


@dataclass(frozen=True, eq=False)
class Sentence:
    """A sentence without the white space around it, its candidates, and the alignment of the best if asked for."""

    source: str
    candidates: list[Candidate]
    alignment: "Alignment | None" = None


@dataclass(frozen=True, eq=False)
class Translation:
    """A text's translation. `n_best` begins with it; it may hold fewer candidates than were `requested`."""

    text: str
    score: float
    n_best: list[Candidate]
    sentences: list[Sentence]
    alignment: "Alignment | None" = None
    requested: int = 1

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        found: dict[str, Any] = {"text": self.text, "score": self.score}
        if self.requested > 1:
            found["n_best"] = [{"text": one.text, "score": one.score} for one in self.n_best]
        if self.alignment is not None:
            links = [{"source": a, "target": b, "weight": weight} for a, b, weight in self.alignment.links()]
            found |= {"alignment": self.alignment.pharaoh(), "links": links}
        return found


@with_options
def translate(
    model: EncoderDecoderModel,
    tokenizer: Tokenizer,
    text: str | Sequence[str],
    *,
    scores: bool = False,
    options: TranslationOptions,
) -> Any:
    """The translation of a text, or of each of several: a text, or a `Translation` with `scores`, `align` or `n_best`.

    `prefix` may be a list, one for each text.
    """
    found = translations(model, tokenizer, [text] if isinstance(text, str) else text, options=options)
    answers = found if scores or options.align or options.n_best > 1 else [one.text for one in found]
    return answers[0] if isinstance(text, str) else answers


@with_options
def translations(
    model: EncoderDecoderModel,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    progress: Progress = no_progress,
    run: RunJobs | None = None,
    options: TranslationOptions,
) -> list[Translation]:
    """The translation of each text, with its candidates, scores and sentences. `progress` counts sentences.

    `run` is who runs the jobs: by default `finished_jobs`; a server's is `Scheduler.run_jobs`.
    """
    tag = tag_for(tokenizer, options.to)
    parts = [_split(model, tokenizer, text, options, tag is not None) for text in texts]
    given = options.prefix
    prefixes = [given] * len(texts) if given is None or isinstance(given, str) else list(given)
    if len(prefixes) != len(texts):
        raise InputError(f"{len(prefixes)} prefixes for {len(texts)} texts: give one for all, or one for each")
    begins = [first if number == 0 else None for its, first in zip(parts, prefixes, strict=True)
              for number in range(sum(bool(part.strip()) for part in its))]  # fmt: skip
    sources = [part.strip() for its in parts for part in its if part.strip()]
    found = translate_sentences(
        model, tokenizer, sources, prefixes=begins, tag=tag, progress=progress, run=run, options=options
    )
    # a sentence without tokens, such as a lone control character, is left as it is
    found = [its or [Candidate(source, 0.0)] for source, its in zip(sources, found, strict=True)]
    stripped = [_unique(Candidate(one.text.strip(), one.score) for one in its) for its in found]
    alignments: Sequence[Alignment | None] = [None] * len(sources)
    if options.align:
        from cutaway.decoding.alignment import align

        alignments = align(model, tokenizer, sources, [its[0].text for its in stripped], tag=tag)
    sentences = iter([Sentence(*one) for one in zip(sources, stripped, alignments, strict=True)])
    return [_join(its, [next(sentences) for part in its if part.strip()], options) for its in parts]


def _split(
    model: EncoderDecoderModel, tokenizer: Tokenizer, text: str, options: TranslationOptions, tagged: bool
) -> list[str]:
    """The sentences of a text; those that are longer than the model can or should read, in pieces."""
    if not options.split:
        return [text] if text else []
    longest = options.longest if model.max_len is None else min(options.longest, model.max_len - 1 - tagged)

    def place(part: str, n: int) -> int | None:
        encoding = tokenizer.encoding(part, special=False)
        span = encoding.token_to_chars(n) if len(encoding) > n else None
        return None if span is None else span[0]

    return [piece for sentence in split_sentences(text) for piece in cut_sentence(sentence, longest, place)]


def sentences_of(model: EncoderDecoderModel, tokenizer: Tokenizer, text: str) -> list[str]:
    """The sentences that `translations` translates one by one, without the white space around them."""
    parts = _split(model, tokenizer, text, TranslationOptions(), bool(languages(tokenizer)))
    return [part.strip() for part in parts if part.strip()]


def _unique(found: Iterable[Candidate]) -> list[Candidate]:
    """The first candidate of each text: a text may be cut into tokens in several ways."""
    best: dict[str, Candidate] = {}
    for one in found:
        best.setdefault(one.text, one)
    return list(best.values())


class Beginning(NamedTuple):
    """The translation of a sentence and, linked, those of the sentences before it, so that nothing is copied."""

    before: "Beginning | None"
    text: str


def _join(parts: list[str], sentences: list[Sentence], options: TranslationOptions) -> Translation:
    """The translation of a text from its sentences', with the white space between them; its n best from theirs."""
    best: list[tuple[float, Beginning | None]] = [(0.0, None)]
    for sentence in sentences:  # scores add up, so the n best beginnings are enough
        longer = (
            (score + one.score, Beginning(before, one.text))
            for (score, before), one in product(best, sentence.candidates)
        )
        best = nlargest(options.n_best, longer, key=lambda pair: pair[0])
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
    texts = [Candidate(_fill_frame(frame, last), score / max(1, len(sentences))) for score, last in best]
    alignment = None
    if options.align:
        from cutaway.decoding.alignment import joined_alignment

        alignment = joined_alignment("".join(parts), texts[0].text, links)
    return Translation(texts[0].text, texts[0].score, texts, sentences, alignment, options.n_best)


def _fill_frame(frame: list[str | None], last: Beginning | None) -> str:
    """A text from its white space and its sentences, of which `last` is the last."""
    last_first = []
    while last is not None:
        last_first.append(last.text)
        last = last.before
    return "".join(last_first.pop() if part is None else part for part in frame)


def languages(tokenizer: Tokenizer) -> dict[str, int]:
    """The target languages that a model knows, and the tag of each; empty where it knows only one."""
    found = [(TAG.fullmatch(token), id) for token, id in tokenizer.special_ids().items()]
    return {match[1] or match[2]: id for match, id in found if match}


def tag_for(tokenizer: Tokenizer, to: str | None) -> int | None:
    """The tag of a target language; None where a model knows only one."""
    known = languages(tokenizer)
    if not known and to is not None:
        raise InputError(f"to={to!r}: this model has no language tags and knows one language only: leave it out")
    if not known:
        return None
    if to is None:
        raise InputError(f"the target language is missing: choose {' or '.join(f'to={name}' for name in known)}")
    if to not in known:
        raise InputError(f"to={to!r}: this model knows {', '.join(known)}")
    return known[to]


# --- sentences --------------------------------------------------------------------------------------------------------


@with_options
def translate_all(
    model: EncoderDecoderModel,
    tokenizer: Tokenizer,
    sentences: Sequence[str],
    *,
    tag: int | None = None,
    progress: Progress = no_progress,
    options: TranslationOptions,
) -> list[str]:
    """The best translation of each sentence, exactly as the model writes it."""
    found = translate_sentences(model, tokenizer, sentences, tag=tag, progress=progress, options=options)
    return [its[0].text if its else "" for its in found]


@with_options
def translate_sentences(
    model: EncoderDecoderModel,
    tokenizer: Tokenizer,
    sentences: Sequence[str],
    *,
    prefixes: Sequence[str | None] | None = None,
    tag: int | None = None,
    progress: Progress = no_progress,
    run: RunJobs | None = None,
    options: TranslationOptions,
) -> list[list[Candidate]]:
    """The `n_best` candidates of each sentence; none for one without tokens. `tag` asks for the target language.

    What is found for a sentence does not depend on the others in its batch.
    """
    start_id, end_ids = model.config.start_id, model.config.end_ids
    if not end_ids or start_id is None:
        raise InputError("this model does not say what begins and ends a text: set start_id and end_ids in its config")
    sources = encode_sources(model, tokenizer, sentences, tag, end_ids[0])
    begins = {prefix: prefix_ids(tokenizer, prefix) for prefix in dict.fromkeys(prefixes or [None])}
    forced = [begins[prefix] for prefix in prefixes or [None] * len(sentences)]
    glossary = _glossary(options.terms, tokenizer)
    # equal sentences are translated once
    same: dict[tuple[tuple[int, ...], tuple[int, ...], Looks], list[int]] = {}
    for row in sorted((row for row in range(len(sources)) if sources[row]), key=lambda row: -len(sources[row])):
        looks = glossary.looks(sentences[row], int(tag is not None)) if glossary is not None else ()
        same.setdefault((tuple(sources[row]), forced[row], looks), []).append(row)
    most = options.max_len if model.max_len is None else min(options.max_len, model.max_len)
    jobs = [_job(source, begin, start_id, most, options.growth) for source, begin, _ in same]
    whose = list(same.values())

    def text_of(job: Job, one: Hypothesis) -> str:
        # a vocabulary may be padded to a round number: those ids stand for nothing
        ids = [id for id in one.ids if id not in end_ids and id < tokenizer.vocab_size]
        return tokenizer.decode([*job.prompt[1:], *ids])

    run = _run_here if run is None else run
    if glossary is not None and any(looks for *_, looks in same):
        from cutaway.decoding.translate_with_terms import search_with_terms

        wanted = [looks for *_, looks in same]
        found = search_with_terms(
            model, jobs, wanted, glossary, text_of, n_best=options.n_best, most=most, options=options.search, run=run
        )
    else:
        found = run(model, jobs, options.search)
    answers: list[list[Candidate]] = [[] for _ in sentences]
    done = len(sentences) - sum(map(len, whose))
    for number, hypotheses in found:
        best = [Candidate(text_of(jobs[number], one), one.score) for one in hypotheses[: options.n_best]]
        for row in whose[number]:
            answers[row] = best
        done += len(whose[number])
        progress(done, len(sentences))
    return answers


def _run_here(
    model: EncoderDecoderModel, jobs: Sequence[Job], options: SearchOptions
) -> Iterator[tuple[int, list[Hypothesis]]]:
    return finished_jobs(model, jobs, options=options)


def _job(source: Sequence[int], begin: Sequence[int], start_id: int, most: int, growth: tuple[float, float]) -> Job:
    """The search for one translation of at most `most` tokens, those it has to begin with included."""
    if len(begin) >= most:
        raise InputError(f"a prefix of {len(begin)} tokens leaves no room in a translation of at most {most}")
    limit = min(most, math.ceil(growth[0] * len(source) + growth[1]))
    return Job(prompt=[start_id, *begin], source=source, limit=max(1, min(limit, most - len(begin))))


def _glossary(terms: Mapping[str, str] | None, tokenizer: Tokenizer) -> "Glossary | None":
    if not terms:
        return None
    from cutaway.decoding.rules.terms import Glossary

    return terms if isinstance(terms, Glossary) else Glossary(terms, tokenizer)


def prefix_ids(tokenizer: Tokenizer, prefix: str | None) -> tuple[int, ...]:
    """The tokens of the beginning that a translation has to have; one that they cannot write is refused."""
    if prefix is None or not prefix.strip():
        return ()
    from cutaway.decoding.rules.terms import term_ids

    prefix = prefix.rstrip()  # the space belongs to the next word
    ids = term_ids(prefix, tokenizer, spaces=False)
    if ids is None:
        lost = next((word for word in prefix.split() if term_ids(word, tokenizer, spaces=False) is None), prefix)
        raise InputError(f"prefix: this model's tokenizer has no tokens for {lost!r}: choose other words")
    return ids


def encode_sources(
    model: EncoderDecoderModel, tokenizer: Tokenizer, texts: Sequence[str], tag: int | None, end_id: int
) -> list[list[int]]:
    """The tag, the tokens and the end token of each text; nothing for one without tokens."""
    front = [] if tag is None else [tag]
    sources = [[*front, *ids, end_id] if ids else [] for ids in tokenizer.encode_batch(texts, special=False)]
    for row, source in enumerate(sources):
        if model.max_len is not None and len(source) > model.max_len:
            raise InputError(f"text {row + 1} has {len(source)} tokens; this model reads at most {model.max_len}")
    return sources
