"""How a text goes on, in one line.

    generate(model, tokenizer, "Once upon a time")                                     # the likeliest words
    generate(model, tokenizer, "Once upon a time", temperature=0.8, top_p=0.9, seed=7) # drawn ones
    for piece in generate(model, tokenizer, "Once upon a time", stream=True): print(piece, end="")

Several prompts are written side by side; each text is the same as if it were written alone.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Literal

from cutaway.arguments import checked
from cutaway.decoding.detokenize import Speller
from cutaway.decoding.engine.engine import Engine
from cutaway.decoding.engine.run import check_jobs, engine_for
from cutaway.decoding.options import Allow
from cutaway.decoding.options import GenerationOptions as GenerationOptions
from cutaway.decoding.rules.regex import UNKNOWN, Matching
from cutaway.decoding.rules.scores import Rule
from cutaway.decoding.search.search import Hypothesis, Job
from cutaway.errors import InputError
from cutaway.model.model import DecoderModel, EncoderDecoderModel
from cutaway.tokens import Tokenizer

Ended = Literal["end", "stop", "limit", "full"]


@dataclass(frozen=True)
class Generated:
    """One text, and why it ended: the model ended it, a stop string or the limit did, or the model is full."""

    text: str
    ids: list[int]
    score: float  # log p of its tokens, divided by how many they are
    ended: Ended


@partial(checked, but=[field.name for field in fields(GenerationOptions)])  # which look at themselves
def generate(
    model: DecoderModel,
    tokenizer: Tokenizer,
    prompt: str | Sequence[str],
    *,
    max_tokens: int = 100,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float = 1.0,
    presence_penalty: float = 0.0,
    no_repeat_ngram: int | None = None,
    bad_words: Sequence[str | Sequence[int]] = (),
    min_tokens: int = 0,
    allow: Allow | None = None,
    rules: Sequence[Rule] = (),
    stop: str | Sequence[str] = (),
    beam: int = 1,
    n_best: int = 1,
    groups: int = 1,
    diversity: float | None = None,
    prune: float | None = None,
    seed: int | Sequence[int] = 0,
    stream: bool = False,
    draft: DecoderModel | None = None,
) -> Any:
    """How each prompt goes on: a text, for several prompts a list of texts, with `n_best` a list for each prompt.

    At most `max_tokens` are written, fewer where the model ends the text, is full (`max_len`), or writes one of `stop`,
    which is left out; of a beam, texts that are then the same are given once. At temperature 0 the likeliest token is
    taken, or the likeliest text of a `beam`, whose `groups` avoid each other's words: one that another has just taken
    costs `diversity` (0.5); what falls more than `prune` behind the best, in log p, is given up. Above, words are
    drawn, the same for the same `seed` (one for all prompts, or one for each; the second of `n_best` has the next).
    `bad_words` are texts that the text never holds, or ids; `allow` is a regular expression that all of it matches, or
    says which ids may follow given ids. `cutaway.decoding.rules.scores` explains the others, and its `rules` may also
    be given themselves. With `stream`, the text of one prompt comes in pieces as it is written. A `draft` is a smaller
    model of the same vocabulary that guesses ahead: the likeliest words are the same, and come sooner.
    """
    wishes = GenerationOptions(
        max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
        repetition_penalty=repetition_penalty, presence_penalty=presence_penalty, no_repeat_ngram=no_repeat_ngram,
        bad_words=bad_words, min_tokens=min_tokens, allow=allow, rules=rules, stop=stop, beam=beam, n_best=n_best,
        groups=groups, diversity=diversity, prune=prune, seed=seed,
    )  # fmt: skip
    if not isinstance(prompt, Sequence):
        raise InputError(f"the prompt is a {type(prompt).__name__}, not a text")
    if draft is not None:
        from cutaway.decoding.generate_with_draft import write_drafted

        if stream:
            raise InputError("stream=True and a draft: leave out one of the two")
        drafted = write_drafted(model, draft, tokenizer, [prompt] if isinstance(prompt, str) else prompt, wishes)
        return drafted[0].text if isinstance(prompt, str) else [one.text for one in drafted]
    if stream:
        if not isinstance(prompt, str) or n_best > 1:
            raise InputError("stream=True gives the pieces of one text: give one prompt, and n_best=1")
        return pieces(model, tokenizer, prompt, wishes)
    found = write_texts(model, tokenizer, [prompt] if isinstance(prompt, str) else prompt, wishes)
    texts = [[one.text for one in each] if n_best > 1 else each[0].text for each in found]
    return texts[0] if isinstance(prompt, str) else texts


def write_texts(
    model: DecoderModel, tokenizer: Tokenizer, prompts: Sequence[str], wishes: GenerationOptions
) -> list[list[Generated]]:
    """What `generate` gives, with all that is known about each text; the best first, drawn ones by their seeds."""
    if not prompts:
        return []
    plan = _Plan(model, tokenizer, prompts, wishes)
    found = dict(plan.engine().run(plan.jobs))
    answers = [plan.told(number, found[number]) for number in range(len(plan.jobs))]
    each = len(plan.jobs) // len(prompts)  # drawn texts have a job each, those of a beam share one
    return [
        [one for job in answers[first : first + each] for one in job][: wishes.n_best]
        for first in range(0, len(answers), each)
    ]


def pieces(
    model: DecoderModel,
    tokenizer: Tokenizer,
    prompt: str,
    wishes: GenerationOptions,
    tell: Callable[[Generated], None] = lambda whole: None,
) -> Iterator[str]:
    """The text of one prompt as it is written; at last `tell` is told all of it.

    All that can be wrong with the request is said at once.
    """
    plan = _Plan(model, tokenizer, [prompt], wishes, hearing=True)
    engine = plan.engine()

    def speak() -> Iterator[str]:
        (speller,), said = plan.spellers, 0
        for done in engine.steps(plan.jobs):
            text = speller.said
            for number, found in done:
                whole = plan.told(number, found)[0]
                text = whole.text
            if len(text) > said:
                yield text[said:]
                said = len(text)
        tell(whole)

    return speak()


class _Plan:
    """The jobs that write some texts, and who spells what they write."""

    def __init__(
        self,
        model: DecoderModel,
        tokenizer: Tokenizer,
        prompts: Sequence[str],
        wishes: GenerationOptions,
        hearing: bool = False,
    ) -> None:
        if isinstance(model, EncoderDecoderModel):
            raise InputError("this model reads a source and writes a target: use translate")
        check_jobs(model, [], wishes.beam)
        self.model, self.wishes = model, wishes
        self.ends = set(model.config.end_ids or ())
        vocab_size = model.config.vocab_size  # type: ignore[attr-defined]
        if wishes.beam > vocab_size:
            raise InputError(f"beam={wishes.beam:,} is more than this model's vocabulary of {vocab_size:,}: lower it")
        if wishes.beam > 1 and wishes.stops and not self.ends:
            raise InputError(f"stop and beam={wishes.beam}, but this model has no end token: leave out one of the two")
        hearing = (hearing or bool(wishes.stops)) and wishes.beam == 1
        self.jobs: list[Job] = []
        self.spellers: list[Speller] = []
        for text, seed in zip(prompts, wishes.seeds(len(prompts)), strict=True):
            ids = prompt_ids(model, tokenizer, text)
            limit = room(model, ids, wishes)
            rules = wishes.all_rules(tokenizer, vocab_size, limit)
            self._check_room(rules, ids, limit)
            for extra in range(wishes.n_best if wishes.beam == 1 else 1):
                speller = Speller(tokenizer, ids, ends=self.ends, stops=wishes.stops)
                self.spellers.append(speller)
                self.jobs.append(
                    Job(
                        prompt=ids,
                        limit=limit,
                        rules=rules,
                        seed=seed + extra if wishes.temperature else None,
                        hear=speller.hear if hearing else None,
                    )
                )

    def engine(self) -> Engine:
        wishes = self.wishes
        beams: dict[str, Any] = {"groups": wishes.groups, "diversity": wishes.price, "prune": wishes.prune}
        return engine_for(self.model, self.jobs, beam=wishes.beam, **beams)

    def _check_room(self, rules: Sequence[Rule], ids: list[int], limit: int) -> None:
        for rule in rules:
            if isinstance(rule, Matching) and limit < (needs := rule.needs(ids)) < UNKNOWN:
                raise InputError(f"{rule} may need {needs:,} tokens, but {self._bound(limit)}")

    def _bound(self, limit: int) -> str:
        if limit == self.wishes.max_tokens:
            return f"max_tokens={limit:,}: raise it"
        return f"this model has room for {limit:,} behind this prompt (max_len={self.model.max_len:,})"

    def told(self, number: int, found: Sequence[Hypothesis]) -> list[Generated]:
        """The texts of one job, the best first. Those that a stop string has made equal are one."""
        texts = []
        for place, hypothesis in enumerate(found):
            speller = self.spellers[number]
            if place:  # each has a speller of its own
                speller = Speller(speller.tokenizer, self.jobs[number].prompt, ends=self.ends, stops=self.wishes.stops)
            texts.append(self._written(hypothesis, speller, self.jobs[number].limit))
        texts = self._matching(texts, self.jobs[number])
        texts.sort(key=lambda one: -one.score)
        once: dict[str, Generated] = {}
        for one in texts:
            once.setdefault(one.text, one)
        return list(once.values()) if self.wishes.stops else texts

    def _matching(self, texts: list[Generated], job: Job) -> list[Generated]:
        """What other rules have kept from becoming a match is no text."""
        for rule in job.rules:
            if isinstance(rule, Matching):
                kept = [one for one in texts if one.ended == "stop" or rule.matches(one.text)]
                if not kept:
                    raise InputError(
                        f"{rule} and the other rules: {texts[0].text!r} is no match, but {self._bound(job.limit)}"
                    )
                texts = kept
        return texts

    def _written(self, found: Hypothesis, speller: Speller, limit: int) -> Generated:
        ids, score, ended = found.ids, found.score, found.ids[-1] in self.ends
        if speller.hear(ids[:-1]) and ended:  # the end says no more than the stop string did: see `Stopping`
            ids, score = ids[:-1], score * len(ids) / (len(ids) - 1)
        speller.hear(ids)
        text = speller.close()
        return Generated(text, ids, score, ending(speller, ended, limit < self.wishes.max_tokens))


def room(model: DecoderModel, prompt: Sequence[int], wishes: GenerationOptions) -> int:
    """How many tokens may be written behind a prompt: as many as wished, or as the model has room for."""
    if model.max_len is None:
        return wishes.max_tokens
    return min(wishes.max_tokens, model.max_len - len(prompt) + 1)


def ending(speller: Speller, by_itself: bool, is_full: bool) -> Ended:
    return "stop" if speller.stopped else "end" if by_itself else "full" if is_full else "limit"


def prompt_ids(model: DecoderModel, tokenizer: Tokenizer, text: str) -> list[int]:
    """A prompt as the model reads it: behind its start token, if that stands before texts (`Tokenizer.begins_with`)."""
    if not isinstance(text, str):
        raise InputError(f"the prompt is a {type(text).__name__}, not a text")
    ids = tokenizer.encode(text, special=False)
    start = model.config.start_id
    if start is not None and (not ids or tokenizer.begins_with(start, model.config.end_ids or ())):
        ids = [start, *ids]
    if not ids:
        raise InputError(f"the prompt {text!r} has no tokens, and this model has no start token: write a beginning")
    if model.max_len is not None and len(ids) > model.max_len:
        raise InputError(f"the prompt has {len(ids):,} tokens; this model reads at most max_len={model.max_len:,}")
    vocab_size = model.config.vocab_size  # type: ignore[attr-defined]
    if max(ids) >= vocab_size:
        raise InputError(
            f"token {max(ids)} is outside the model's vocabulary 0 … {vocab_size - 1}: another tokenizer's?"
        )
    return ids
