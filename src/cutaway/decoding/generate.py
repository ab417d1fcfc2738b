"""Continues texts: greedy decoding, sampling or beam search, in one line.

    generate(model, tokenizer, "Once upon a time")                                     # greedy
    generate(model, tokenizer, "Once upon a time", temperature=0.8, top_p=0.9, seed=7) # sampled
    for piece in generate(model, tokenizer, "Once upon a time", stream=True): print(piece, end="")

Several prompts are decoded at the same time; each text is the same as if it were decoded alone.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cutaway.arguments import with_options
from cutaway.decoding.detokenize import Speller
from cutaway.decoding.engine.engine import Engine
from cutaway.decoding.engine.run import check_jobs, engine_for
from cutaway.decoding.options import GenerationOptions
from cutaway.decoding.rules.from_options import rules_of
from cutaway.decoding.rules.regex import UNKNOWN, Matching
from cutaway.decoding.rules.scores import Rule
from cutaway.decoding.search.search import Hypothesis, Job
from cutaway.errors import InputError
from cutaway.model.model import DecoderModel, EncoderDecoderModel
from cutaway.tokens import Tokenizer

Ended = Literal["end", "stop", "limit", "full"]


@dataclass(frozen=True)
class Generated:
    """One text, and why it ended: by an end token, a stop string, the limit, or because the model is full."""

    text: str
    ids: list[int]
    score: float  # log p of its tokens, divided by how many they are
    ended: Ended


@with_options
def generate(
    model: DecoderModel,
    tokenizer: Tokenizer,
    prompt: str | Sequence[str],
    *,
    stream: bool = False,
    draft: DecoderModel | None = None,
    options: GenerationOptions,
) -> Any:
    """Continues a prompt: a text; for several prompts a list of texts; with `n_best`, a list for each prompt.

    A text ends where the model ends it, before one of the `stop` strings, after `max_tokens`, or where the model is
    full (`max_len`). With `stream=True` the text of one prompt comes in pieces, as it is generated. A `draft` is a
    smaller model with the same vocabulary that proposes tokens: greedy decoding gives the same text, sooner.

    A seed may be a list, one for each prompt; the second of `n_best` sampled texts has the next seed. `bad_words` may
    also be lists of ids, and `allow` a function that names the ids that may follow given ids.
    """
    prompts = [prompt] if isinstance(prompt, str) else prompt
    if draft is not None:
        from cutaway.decoding.generate_with_draft import write_drafted

        if stream:
            raise InputError("stream=True and a draft: leave out one of the two")
        drafted = write_drafted(model, draft, tokenizer, prompts, options)
        return drafted[0].text if isinstance(prompt, str) else [one.text for one in drafted]
    if stream:
        if not isinstance(prompt, str) or options.n_best > 1:
            raise InputError("stream=True gives the pieces of one text: give one prompt, and n_best=1")
        return stream_text(model, tokenizer, prompt, options)
    found = write_texts(model, tokenizer, prompts, options)
    texts = [[one.text for one in each] if options.n_best > 1 else each[0].text for each in found]
    return texts[0] if isinstance(prompt, str) else texts


def write_texts(
    model: DecoderModel, tokenizer: Tokenizer, prompts: Sequence[str], options: GenerationOptions
) -> list[list[Generated]]:
    """The texts of `generate` with ids, scores and endings; the best first, sampled ones by their seeds."""
    if not prompts:
        return []
    plan = GenerationPlan(model, tokenizer, prompts, options)
    found = dict(plan.engine().run(plan.jobs))
    return plan.texts([found[number] for number in range(len(plan.jobs))])


def stream_text(
    model: DecoderModel,
    tokenizer: Tokenizer,
    prompt: str,
    options: GenerationOptions,
    on_end: Callable[[Generated], None] = lambda whole: None,
) -> Iterator[str]:
    """The text of one prompt in pieces, as it is generated; at the end `on_end` is called with all of it.

    Whatever is wrong with the request is raised by the call, not by the iterator.
    """
    plan = GenerationPlan(model, tokenizer, [prompt], options, streaming=True)
    engine = plan.engine()

    def pieces() -> Iterator[str]:
        (speller,), n_sent = plan.spellers, 0
        for done in engine.steps(plan.jobs):
            text = speller.said
            for number, found in done:
                whole = plan.texts_of(number, found)[0]
                text = whole.text
            if len(text) > n_sent:
                yield text[n_sent:]
                n_sent = len(text)
        on_end(whole)

    return pieces()


class GenerationPlan:
    """The jobs for some prompts, texts or ids, and how their tokens become text, whoever runs the jobs.

    plan = GenerationPlan(model, tokenizer, ["Once"], GenerationOptions(max_tokens=20))
    plan.texts([scheduler.submit(model, job, plan.options.search).result() for job in plan.jobs])
    """

    def __init__(
        self,
        model: DecoderModel,
        tokenizer: Tokenizer,
        prompts: Sequence[str | Sequence[int]],
        options: GenerationOptions,
        streaming: bool = False,
    ) -> None:
        if isinstance(model, EncoderDecoderModel):
            raise InputError("this model reads a source and writes a target: use translate")
        check_jobs(model, [], options.beam)
        self.model, self.options = model, options
        self.ends = set(model.config.end_ids or ())
        vocab_size = model.config.vocab_size  # type: ignore[attr-defined]
        if options.beam > vocab_size:
            raise InputError(f"beam={options.beam:,} is more than this model's vocabulary of {vocab_size:,}: lower it")
        if options.beam > 1 and options.stops and not self.ends:
            raise InputError(f"stop and beam={options.beam}, but this model has no end token: leave out one of the two")
        streaming = (streaming or bool(options.stops)) and options.beam == 1
        self.jobs: list[Job] = []
        self.spellers: list[Speller] = []
        for prompt, seed in zip(prompts, options.seeds(len(prompts)), strict=True):
            ids = prompt_ids(model, tokenizer, prompt)
            limit = room(model, ids, options)
            rules = rules_of(options, tokenizer, vocab_size, limit)
            self._check_room(rules, ids, limit)
            for extra in range(options.n_best if options.beam == 1 else 1):
                speller = Speller(tokenizer, ids, ends=self.ends, stops=options.stops)
                self.spellers.append(speller)
                self.jobs.append(
                    Job(
                        prompt=ids,
                        limit=limit,
                        rules=rules,
                        seed=seed + extra if options.temperature else None,
                        hear=speller.hear if streaming else None,
                    )
                )

    def engine(self) -> Engine:
        return engine_for(self.model, self.jobs, options=self.options.search)

    def _check_room(self, rules: Sequence[Rule], ids: list[int], limit: int) -> None:
        for rule in rules:
            if isinstance(rule, Matching) and limit < (needs := rule.needs(ids)) < UNKNOWN:
                raise InputError(f"{rule} may need {needs:,} tokens, but {self._bound(limit)}")

    def _bound(self, limit: int) -> str:
        if limit == self.options.max_tokens:
            return f"max_tokens={limit:,}: raise it"
        return f"this model has room for {limit:,} after this prompt (max_len={self.model.max_len:,})"

    def texts(self, found: Sequence[Sequence[Hypothesis]]) -> list[list[Generated]]:
        """The texts of each prompt, from the hypotheses of all jobs."""
        answers = [self.texts_of(number, its) for number, its in enumerate(found)]
        each = (
            self.options.n_best if self.options.beam == 1 else 1
        )  # sampled texts have a job each, those of a beam one
        return [
            [one for job in answers[first : first + each] for one in job][: self.options.n_best]
            for first in range(0, len(answers), each)
        ]

    def texts_of(self, number: int, found: Sequence[Hypothesis]) -> list[Generated]:
        """The texts of one job, the best first; those that are equal after a stop string are given once."""
        texts = []
        for place, hypothesis in enumerate(found):
            speller = self.spellers[number]
            if place:  # the first has one already
                speller = Speller(speller.tokenizer, self.jobs[number].prompt, ends=self.ends, stops=self.options.stops)
            texts.append(self._written(hypothesis, speller, self.jobs[number].limit))
        texts = self._matching(texts, self.jobs[number])
        texts.sort(key=lambda one: -one.score)
        once: dict[str, Generated] = {}
        for one in texts:
            once.setdefault(one.text, one)
        return list(once.values()) if self.options.stops else texts

    def _matching(self, texts: list[Generated], job: Job) -> list[Generated]:
        """Drops texts that do not match `allow` because other rules were in the way."""
        for rule in job.rules:
            if isinstance(rule, Matching):
                kept = [one for one in texts if one.ended == "stop" or rule.matches(one.text)]
                if not kept:
                    raise InputError(
                        f"{rule} and the other rules: {texts[0].text!r} does not match, but {self._bound(job.limit)}"
                    )
                texts = kept
        return texts

    def _written(self, found: Hypothesis, speller: Speller, limit: int) -> Generated:
        ids, score, ended = found.ids, found.score, found.ids[-1] in self.ends
        if speller.hear(ids[:-1]) and ended:  # the end token came after the stop string: see `Stopping`
            ids, score = ids[:-1], score * len(ids) / (len(ids) - 1)
        speller.hear(ids)
        text = speller.close()
        return Generated(text, ids, score, ending(speller, ended, limit < self.options.max_tokens))


def room(model: DecoderModel, prompt: Sequence[int], options: GenerationOptions) -> int:
    """How many tokens may be generated after a prompt: `max_tokens`, or as many as the model has room for."""
    if model.max_len is None:
        return options.max_tokens
    return min(options.max_tokens, model.max_len - len(prompt) + 1)


def ending(speller: Speller, by_itself: bool, is_full: bool) -> Ended:
    return "stop" if speller.stopped else "end" if by_itself else "full" if is_full else "limit"


def prompt_ids(model: DecoderModel, tokenizer: Tokenizer, prompt: str | Sequence[int]) -> list[int]:
    """A prompt's tokens: ids as they are, a text after the start token if texts begin with it (see `begins_with`)."""
    if not isinstance(prompt, str):
        ids = list(prompt)
    else:
        ids = tokenizer.encode(prompt, special=False)
        start = model.config.start_id
        if start is not None and (not ids or tokenizer.begins_with(start, model.config.end_ids or ())):
            ids = [start, *ids]
    if not ids:
        raise InputError(f"the prompt {prompt!r} has no tokens, and this model has no start token: write some text")
    if model.max_len is not None and len(ids) > model.max_len:
        raise InputError(f"the prompt has {len(ids):,} tokens; this model reads at most max_len={model.max_len:,}")
    vocab_size = model.config.vocab_size  # type: ignore[attr-defined]
    if not 0 <= min(ids) <= max(ids) < vocab_size:
        wrong = next(id for id in ids if not 0 <= id < vocab_size)
        raise InputError(f"token {wrong} is outside the model's vocabulary 0 … {vocab_size - 1}: another tokenizer's?")
    return ids
