"""From the options of `generate` to the rules that change the scores."""

from collections.abc import Mapping, Sequence

from cutaway.decoding.options import GenerationOptions
from cutaway.decoding.rules.allowed import Allowed
from cutaway.decoding.rules.bad_words import bad_word_rules
from cutaway.decoding.rules.regex import Matching
from cutaway.decoding.rules.scores import (
    BadWords,
    FrequencyPenalty,
    LogitBias,
    MinLength,
    MinP,
    NoRepeat,
    PresencePenalty,
    RepetitionPenalty,
    Rule,
    Temperature,
    TopK,
    TopP,
    in_order,
)
from cutaway.decoding.rules.stop_strings import Stopping
from cutaway.errors import InputError
from cutaway.tokens import Tokenizer


def rules_of(options: GenerationOptions, tokenizer: Tokenizer, vocab_size: int, limit: int) -> tuple[Rule, ...]:
    """The rules that change anything, for a text of at most `limit` tokens."""
    for rule in options.rules:
        if not isinstance(rule, Rule):
            raise InputError(f"rules: {rule!r} is not a Rule of cutaway.decoding.rules.scores")
    found: list[Rule] = list(options.rules)  # type: ignore[arg-type]
    if options.top_k is not None:
        found.append(TopK(options.top_k))
    if options.top_p is not None:
        found.append(TopP(options.top_p))
    if options.min_p is not None:
        found.append(MinP(options.min_p))
    if options.temperature:
        found.append(Temperature(options.temperature))
    if options.no_repeat_ngram is not None:
        found.append(NoRepeat(options.no_repeat_ngram))
    if options.repetition_penalty != 1:
        found.append(RepetitionPenalty(options.repetition_penalty))
    if options.presence_penalty:
        found.append(PresencePenalty(options.presence_penalty))
    if options.frequency_penalty:
        found.append(FrequencyPenalty(options.frequency_penalty))
    if options.logit_bias:
        found.append(_logit_bias(options.logit_bias, vocab_size))
    if options.min_tokens:
        found.append(MinLength(options.min_tokens))
    if options.bad_words:
        found += _bad_words(tokenizer, options.bad_words, vocab_size)
    if isinstance(options.allow, str):
        found.append(Matching(options.allow, tokenizer, limit))
    elif options.allow is not None:
        found.append(Allowed(options.allow))
    if options.stops and options.beam > 1:
        found.append(Stopping(options.stops, tokenizer))
    return in_order(found)


def _logit_bias(biases: Mapping[int, float], vocab_size: int) -> LogitBias:
    for id in biases:
        if not 0 <= id < vocab_size:
            raise InputError(f"logit_bias names token {id}, outside the vocabulary 0 … {vocab_size - 1}")
    return LogitBias(tuple(sorted((int(id), float(bias)) for id, bias in biases.items())))


def _bad_words(tokenizer: Tokenizer, words: str | Sequence[str | Sequence[int]], vocab_size: int) -> list[Rule]:
    """Texts are hidden however they are tokenized, ids as they are."""
    words = [words] if isinstance(words, str) else words
    texts = [word for word in words if isinstance(word, str)]
    ids = [tuple(word) for word in words if not isinstance(word, str)]
    for word in words:
        if isinstance(word, str):
            fits = bool(word.encode(errors="ignore"))  # half a surrogate pair is in no text
        else:
            fits = bool(word) and 0 <= min(word) <= max(word) < vocab_size
        if not fits:
            raise InputError(f"bad_words: {word!r} has no tokens of this model's vocabulary 0 … {vocab_size - 1}")
    by_ids: list[Rule] = [BadWords(tuple(dict.fromkeys(ids)))] if ids else []
    return by_ids + (bad_word_rules(tuple(dict.fromkeys(texts)), tokenizer, vocab_size) if texts else [])
