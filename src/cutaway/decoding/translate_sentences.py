"""Translates sentences: one search for each, many at a time; equal sentences are translated once.

`translate` does it for texts. A `SentencePlan` has the jobs and knows what their hypotheses say, whoever runs them: an
engine here, or a server's scheduler.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cutaway.arguments import Progress, no_progress, with_options
from cutaway.decoding.engine.run import finished_jobs
from cutaway.decoding.options import SearchOptions, TranslationOptions
from cutaway.decoding.search.search import Hypothesis, Job
from cutaway.errors import InputError
from cutaway.model.model import EncoderDecoderModel
from cutaway.tokens import Tokenizer

if TYPE_CHECKING:
    from cutaway.decoding.rules.terms import Glossary, Looks

Found = Iterator[tuple[int, list[Hypothesis]]]  # the number of a job, and what was found for it
RunJobs = Callable[[EncoderDecoderModel, Sequence[Job], SearchOptions], Found]


@dataclass(frozen=True)
class Candidate:
    """One translation; its score is log p / length^length_penalty, of a text the mean over its sentences."""

    text: str
    score: float


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
    options: TranslationOptions,
) -> list[list[Candidate]]:
    """The `n_best` candidates of each sentence; none for one without tokens. `tag` asks for the target language.

    What is found for a sentence does not depend on the others in its batch.
    """
    plan = SentencePlan(model, tokenizer, sentences, options, prefixes=prefixes, tag=tag)
    return plan.candidates(plan.run(run_here), progress)


def run_here(model: EncoderDecoderModel, jobs: Sequence[Job], options: SearchOptions) -> Found:
    return finished_jobs(model, jobs, options=options)


class SentencePlan:
    """The jobs for some sentences. `sentences[rows[n]]` are those that job n translates."""

    def __init__(
        self,
        model: EncoderDecoderModel,
        tokenizer: Tokenizer,
        sentences: Sequence[str],
        options: TranslationOptions,
        *,
        prefixes: Sequence[str | None] | None = None,
        tag: int | None = None,
    ) -> None:
        start_id, end_ids = model.config.start_id, model.config.end_ids
        if not end_ids or start_id is None:
            raise InputError(
                "this model does not say what begins and ends a text: set start_id and end_ids in its config"
            )
        self.model, self.tokenizer, self.sentences, self.options = model, tokenizer, sentences, options
        self.glossary = _glossary(options.terms, tokenizer)
        sources = encode_sources(model, tokenizer, sentences, tag, end_ids[0])
        begins = {prefix: prefix_ids(tokenizer, prefix) for prefix in dict.fromkeys(prefixes or [None])}
        forced = [begins[prefix] for prefix in prefixes or [None] * len(sentences)]
        same: dict[tuple[tuple[int, ...], tuple[int, ...], Looks], list[int]] = {}
        for row in sorted((row for row in range(len(sources)) if sources[row]), key=lambda row: -len(sources[row])):
            looks = self.glossary.looks(sentences[row], int(tag is not None)) if self.glossary is not None else ()
            same.setdefault((tuple(sources[row]), forced[row], looks), []).append(row)
        self.most = options.max_len if model.max_len is None else min(options.max_len, model.max_len)
        self.jobs = [_job(source, begin, start_id, self.most, options.growth) for source, begin, _ in same]
        self.rows = list(same.values())
        self.terms = [looks for *_, looks in same]  # that each job has to use

    def run(self, run: RunJobs) -> Found:
        """What is found for each job; with terms in two searches."""
        if self.glossary is None or not any(self.terms):
            return run(self.model, self.jobs, self.options.search)
        from cutaway.decoding.translate_with_terms import search_with_terms

        options = self.options
        return search_with_terms(
            self.model, self.jobs, self.terms, self.glossary, self.text_of,
            n_best=options.n_best, most=self.most, options=options.search, run=run,
        )  # fmt: skip

    def candidates(self, found: Found, progress: Progress = no_progress) -> list[list[Candidate]]:
        """The candidates of each sentence. `progress` counts sentences."""
        answers: list[list[Candidate]] = [[] for _ in self.sentences]
        done = len(self.sentences) - sum(map(len, self.rows))
        for number, hypotheses in found:
            job = self.jobs[number]
            best = [Candidate(self.text_of(job, one), one.score) for one in hypotheses[: self.options.n_best]]
            for row in self.rows[number]:
                answers[row] = best
            done += len(self.rows[number])
            progress(done, len(self.sentences))
        return answers

    def text_of(self, job: Job, one: Hypothesis) -> str:
        # a vocabulary may be padded to a round number: those ids stand for nothing
        ends, vocab_size = self.model.config.end_ids or (), self.tokenizer.vocab_size
        return self.tokenizer.decode([*job.prompt[1:], *(id for id in one.ids if id not in ends and id < vocab_size)])


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
