"""Translates texts: splits them into sentences, searches for many translations at a time, and joins them again.

    translate(model, tokenizer, "I ate an apple. It was good.")     # 'Ich habe einen Apfel gegessen. Er war gut.'
    translate(model, tokenizer, lines, beam=8, n_best=3)            # a `Translation` for each line

The model reads a sentence as in training: the tag of the target language, if it knows several; the sentence; the end
token. White space between sentences, blank lines included, is kept.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from cutaway.arguments import Progress, no_progress, with_options
from cutaway.decoding.options import TranslationOptions
from cutaway.decoding.sentences import cut_sentence, split_sentences
from cutaway.decoding.translate_sentences import Candidate, RunJobs, SentencePlan, run_here
from cutaway.errors import InputError
from cutaway.model.model import EncoderDecoderModel
from cutaway.tokens import Tokenizer

if TYPE_CHECKING:
    from cutaway.decoding.alignment import Alignment

TAG = re.compile(r"<2(.+)>|>>(.+)<<")  # a token that names a target language: ours, OPUS-MT's


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
    plan = TranslationPlan(model, tokenizer, texts, options)
    found = plan.sentences.candidates(plan.sentences.run(run_here if run is None else run), progress)
    return plan.translations(found)


class TranslationPlan:
    """The sentences of some texts, with their jobs, and how the translations of sentences become those of texts."""

    def __init__(
        self, model: EncoderDecoderModel, tokenizer: Tokenizer, texts: Sequence[str], options: TranslationOptions
    ) -> None:
        self.model, self.tokenizer, self.options = model, tokenizer, options
        self.tag = tag_for(tokenizer, options.to)
        self.parts = [_split(model, tokenizer, text, options, self.tag is not None) for text in texts]
        given = options.prefix
        prefixes = [given] * len(texts) if given is None or isinstance(given, str) else list(given)
        if len(prefixes) != len(texts):
            raise InputError(f"{len(prefixes)} prefixes for {len(texts)} texts: give one for all, or one for each")
        begins = [first if number == 0 else None for its, first in zip(self.parts, prefixes, strict=True)
                  for number in range(sum(bool(part.strip()) for part in its))]  # fmt: skip
        sources = [part.strip() for its in self.parts for part in its if part.strip()]
        self.sentences = SentencePlan(model, tokenizer, sources, options, prefixes=begins, tag=self.tag)

    def translations(
        self, found: Sequence[Sequence[Candidate]], alignments: "Sequence[Alignment] | None" = None
    ) -> list[Translation]:
        """The translation of each text from the candidates of its sentences, and their alignments if they are known."""
        sources = self.sentences.sentences
        # a sentence without tokens, such as a lone control character, is left as it is
        found = [its or [Candidate(source, 0.0)] for source, its in zip(sources, found, strict=True)]
        stripped = [_unique(Candidate(one.text.strip(), one.score) for one in its) for its in found]
        if self.options.align and alignments is None:
            from cutaway.decoding.alignment import align

            best = [its[0].text for its in stripped]
            alignments = align(self.model, self.tokenizer, sources, best, tag=self.tag)
        each = [None] * len(sources) if alignments is None else alignments
        sentences = iter([Sentence(*one) for one in zip(sources, stripped, each, strict=True)])
        return [_join(its, [next(sentences) for part in its if part.strip()], self.options) for its in self.parts]


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
    if links or options.align:
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
