"""The requests of OpenAI's API, with our own options of `generate` beside theirs."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, replace
from typing import Any, Literal

from cutaway.arguments import Options, option, same_option
from cutaway.decoding.engine.row_watch import Watch
from cutaway.decoding.options import GenerationOptions, SearchOptions
from cutaway.decoding.rules.json_schema import any_object, pattern_of
from cutaway.errors import InputError
from cutaway.model.model import DecoderModel
from cutaway.serving.limits import Limits
from cutaway.serving.watching import WatchRequest

TOP = 20  # likeliest tokens that are shown at most
MODEL = "The name of a model: /v1/models lists them."
TEMPERATURE = 1.0
DEVELOPER, SYSTEM = "developer", "system"  # OpenAI's newer name, and the one that templates know
Prompt = str | Sequence[int]


@dataclass(frozen=True, kw_only=True)
class TextRequest(Options):
    """What requests for texts share."""

    model: str = option(MISSING, MODEL)
    n: int = same_option(GenerationOptions, "n_best")
    temperature: float | None = same_option(GenerationOptions, "temperature", None)  # 1, but with a beam
    top_p: float | None = same_option(GenerationOptions, "top_p")
    stop: str | Sequence[str] = same_option(GenerationOptions, "stop")
    seed: int | None = same_option(GenerationOptions, "seed", None)
    presence_penalty: float = same_option(GenerationOptions, "presence_penalty")
    frequency_penalty: float = same_option(GenerationOptions, "frequency_penalty")
    logit_bias: Mapping[str, int | float] | None = same_option(GenerationOptions, "logit_bias")
    stream: bool = option(False, "Send the text in pieces, as it is generated.")
    stream_options: Mapping[str, Any] | None = option(None, 'Of a stream: {"include_usage": true} counts tokens.')

    # ours, as in `cutaway.generate`
    top_k: int | None = same_option(GenerationOptions, "top_k")
    min_p: float | None = same_option(GenerationOptions, "min_p")
    repetition_penalty: float = same_option(GenerationOptions, "repetition_penalty")
    no_repeat_ngram: int | None = same_option(GenerationOptions, "no_repeat_ngram")
    bad_words: str | Sequence[str | Sequence[int]] = same_option(GenerationOptions, "bad_words")
    min_tokens: int = same_option(GenerationOptions, "min_tokens")
    allow: str | None = same_option(GenerationOptions, "allow")
    beam: int = same_option(GenerationOptions, "beam")
    groups: int = same_option(GenerationOptions, "groups")
    diversity: float | None = same_option(GenerationOptions, "diversity")
    prune: float | None = same_option(GenerationOptions, "prune")
    watch: Mapping[str, Any] | None = option(None, "What to show of the inside of each text: see docs/serving.md.")

    def check(self) -> None:
        if self.stream_options is not None and not self.stream:
            raise InputError("stream_options: this is no stream; leave them out, or set stream")
        if unknown := set(self.stream_options or {}) - {"include_usage", "include_obfuscation"}:
            raise InputError(f"stream_options: {min(unknown)!r} is unknown; there is include_usage")
        if self.stream and self.beam > 1 and self.n > 1:
            raise InputError(f"n={self.n} texts of a beam are there at its end only: leave out stream")
        if self.n > 1 and not self._is_sampled and self.n > self.beam:
            raise InputError(f"n={self.n} texts at temperature=0 would all be the same: set a temperature above 0")

    @property
    def top_scores(self) -> int | None:
        """How many of the likeliest tokens to show in the place of each token; None for no log p at all."""
        raise NotImplementedError

    @property
    def wished(self) -> WatchRequest:
        """What to show of the inside."""
        return WatchRequest.read(self.watch)

    def engine_watch(self, model: DecoderModel, search: SearchOptions) -> Watch | None:
        """What the engine keeps of the texts while it generates them, if anything."""
        if self.top_scores is None and not self.watch:
            return None
        kept = self.wished.watch(model, search)
        return kept if self.top_scores is None else replace(kept, top=max(kept.top, self.top_scores, 1))

    @property
    def texts_per_prompt(self) -> int:
        return self.n

    @property
    def has_form(self) -> bool:
        """Whether the text is complete whenever it ends, since it has to be JSON."""
        return False

    @property
    def includes_usage(self) -> bool:
        return bool((self.stream_options or {}).get("include_usage"))

    @property
    def _is_sampled(self) -> bool:
        return (TEMPERATURE if self.temperature is None else self.temperature) > 0 and self.beam == 1

    def generation(self, n_prompts: int, limits: Limits, **more: Any) -> GenerationOptions:
        """The options of `generate` for so many prompts."""
        if n_prompts * self.texts_per_prompt > limits.max_texts:
            raise InputError(
                f"n={self.texts_per_prompt} for {n_prompts:,} prompts is more than the {limits.max_texts:,} texts that "
                "this server writes for a request"
            )
        if more["max_tokens"] > limits.max_tokens:
            raise InputError(
                f"max_tokens={more['max_tokens']:,} is more than this server allows: at most {limits.max_tokens:,}"
            )
        if self.temperature is None:
            more["temperature"] = 0.0 if self.beam > 1 else TEMPERATURE
        if not self._is_sampled:  # the likeliest token is among the likeliest
            more |= {"top_p": None, "top_k": None, "min_p": None}
        elif self.top_p == 1:
            more["top_p"] = None
        seeds = [self.seed if self.seed is not None else secrets.randbelow(2**48) for _ in range(n_prompts)]
        more |= {"seed": seeds, "n_best": self.texts_per_prompt, "logit_bias": self._bias()}
        return GenerationOptions.of(self, **more)

    def _bias(self) -> dict[int, float] | None:
        """JSON has no keys but texts."""
        if self.logit_bias is None:
            return None
        for id in self.logit_bias:
            if not (id.isascii() and id.isdigit() and len(id) < 10):
                raise InputError(f"logit_bias: {id!r} is not the id of a token")
        return {int(id): float(bias) for id, bias in self.logit_bias.items()}


@dataclass(frozen=True, kw_only=True)
class CompletionRequest(TextRequest):
    """`/v1/completions`"""

    prompt: str | Sequence[int] | Sequence[str | Sequence[int]] = option(
        MISSING, "A text, the ids of its tokens, or a list of these."
    )
    max_tokens: int = same_option(GenerationOptions, "max_tokens", 16)
    best_of: int | None = option(None, "Write so many texts, and return the N likeliest of them.", least=1)
    echo: bool = option(False, "Begin the text with the prompt.")
    logprobs: int | None = option(
        None, "Show the log p of each token, and of so many likeliest ones in its place.", least=0, most=TOP
    )
    suffix: str | None = option(None, "What follows the text: no model here knows how to use it.")

    def check(self) -> None:
        super().check()
        if self.best_of is not None and self.best_of < self.n:
            raise InputError(f"best_of={self.best_of} is less than n={self.n}")
        if self.best_of is not None and self.best_of > max(self.n, self.beam) and not self._is_sampled:
            raise InputError(f"best_of={self.best_of} texts at temperature=0 would all be the same")
        if self.texts_per_prompt > self.n and self.stream:
            raise InputError("best_of: a stream cannot choose the best text before it is written")
        if self.suffix:
            raise InputError("suffix: no model here writes what stands before a text; leave it out")

    @property
    def top_scores(self) -> int | None:
        return self.logprobs

    @property
    def texts_per_prompt(self) -> int:
        return max(self.n, self.best_of or 1)

    def prompts(self) -> list[Prompt]:
        """The prompts one by one."""
        if isinstance(self.prompt, str):
            prompts: list[Any] = [self.prompt]
        elif self.prompt and isinstance(self.prompt[0], int):
            prompts = [self.prompt]
        else:
            prompts = list(self.prompt)
        if not all(prompts) or not prompts:
            raise InputError("prompt: it is empty; write some text, or send the id of the token that starts one")
        return prompts


@dataclass(frozen=True, kw_only=True)
class ChatRequest(TextRequest):
    """`/v1/chat/completions`"""

    messages: Sequence[Mapping[str, Any]] = option(MISSING, "The conversation: objects with role and content.")
    max_tokens: int | None = same_option(GenerationOptions, "max_tokens", None)
    max_completion_tokens: int | None = same_option(GenerationOptions, "max_tokens", None)
    logprobs: bool = option(False, "Show the log p of each token.")
    top_logprobs: int | None = option(
        None, "With logprobs, show so many likeliest tokens in its place.", least=0, most=TOP
    )
    response_format: Mapping[str, Any] | None = option(
        None, 'What form the text has to have: {"type": "text"}, "json_object", or "json_schema" with a schema.'
    )
    modalities: Sequence[Literal["text"]] | None = option(None, "Text is all that a model here writes.")
    tools: Sequence[Any] = option((), "No model here calls tools.")
    tool_choice: Any = option(None, "No model here calls tools.")

    def check(self) -> None:
        super().check()
        if not self.messages:
            raise InputError("messages: there are none")
        if self.tools:
            raise InputError("tools: no model here calls tools; leave them out")
        if self.top_logprobs is not None and not self.logprobs:
            raise InputError(f"top_logprobs={self.top_logprobs} goes with logprobs=true")

    @property
    def top_scores(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def most_tokens(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def has_form(self) -> bool:
        return self.response_format is not None and self.response_format.get("type") != "text"

    def conversation(self) -> list[dict[str, Any]]:
        """The messages as templates know them: a role, and a text."""
        return [_message(number, one) for number, one in enumerate(self.messages)]

    def allowed(self) -> str | None:
        """The expression that the text has to match, by `allow` or by `response_format`."""
        match self.response_format:
            case None | {"type": "text"}:
                return self.allow
            case _ if self.allow is not None:
                raise InputError("response_format: so does allow say what form the text has; leave out one of the two")
            case {"type": "json_object"}:
                return any_object()
            case {"type": "json_schema", "json_schema": {"schema": Mapping() as schema}}:
                return pattern_of(schema)
        raise InputError(
            'response_format: it is none of {"type": "text"}, {"type": "json_object"} and '
            '{"type": "json_schema", "json_schema": {"schema": …}}'
        )


def _message(number: int, message: Mapping[str, Any]) -> dict[str, Any]:
    where = f"messages[{number}]"
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str):
        raise InputError(f"{where}: a message has a role, which is a text")
    if isinstance(content, Sequence) and not isinstance(content, str):
        content = "".join(_text_of(where, part) for part in content)
    if not isinstance(content, str):
        raise InputError(f"{where}: its content is no text")
    return {**message, "role": SYSTEM if role == DEVELOPER else role, "content": content}


def _text_of(where: str, part: object) -> str:
    match part:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": str(kind)}:
            raise InputError(f"{where}: a part of type {kind!r}; the models here read text only")
    raise InputError(f'{where}: a part of its content is not {{"type": "text", "text": …}}')


@dataclass(frozen=True, kw_only=True)
class EmbeddingRequest(Options):
    """`/v1/embeddings`"""

    model: str = option(MISSING, MODEL)
    input: str | Sequence[int] | Sequence[str | Sequence[int]] = option(MISSING, "A text, or a list of texts.")
    encoding_format: Literal["float", "base64"] = option("float", "Numbers, or their bytes in base64.")
    dimensions: int | None = option(None, "How long a vector is: as long as the model makes it.", least=1)
    tokenizer: str | None = option(
        None, "Whose tokens the input has, if it is ids: the model's own name. A model knows only its own tokens."
    )
    pool: Literal["mean", "first"] = option("mean", "The mean of all tokens' states, or the first token's state.")

    def inputs(self) -> list[Prompt]:
        """The texts one by one, or their ids."""
        if isinstance(self.input, str):
            inputs: list[Any] = [self.input]
        elif self.input and isinstance(self.input[0], int):
            inputs = [self.input]
        else:
            inputs = list(self.input)
        if not inputs or not all(inputs):
            raise InputError("input: it is empty, or one of its texts is")
        if self.tokenizer != self.model and not all(isinstance(one, str) for one in inputs):
            raise InputError(
                f"input: these are ids of a tokenizer, and whose is not said; send texts (in LangChain: "
                f"check_embedding_ctx_length=False), or say tokenizer={self.model!r} if they are this model's"
            )
        return inputs
