"""OpenAI's API, as its clients use it: models, completions, chat, embeddings."""

import base64
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response

from cutaway.decoding.embed import embed_rows
from cutaway.decoding.engine.row_watch import TokenScore
from cutaway.decoding.options import GenerationOptions
from cutaway.decoding.single_pass import Row, rows_of
from cutaway.decoding.token_scores import prompt_scores
from cutaway.errors import InputError
from cutaway.serving import chat_template
from cutaway.serving.generation import Piece, Texts, Whole, start
from cutaway.serving.openai_requests import ChatRequest, CompletionRequest, EmbeddingRequest, Prompt, TextRequest
from cutaway.serving.schemas import OptionsRoute, body
from cutaway.serving.service import ReadyService, ServedModel, Service
from cutaway.serving.streams import EventStream, unless_gone
from cutaway.serving.token_names import Offsets, TokenNames
from cutaway.serving.watching import Shown
from cutaway.tokens import Tokenizer

router = APIRouter(tags=["OpenAI"], route_class=OptionsRoute)
Scored = Sequence[tuple[int, TokenScore | None]]  # tokens; nothing precedes the first of a prompt
LEAST = -9999.0  # a log p of −∞, which JSON does not have, in OpenAI's numbers


# --- models -----------------------------------------------------------------------------------------------------------


@router.get("/v1/models")
async def models(service: ReadyService) -> dict[str, Any]:
    """The models that are served."""
    return {"object": "list", "data": [_described(served) for served in service.models.values()]}


@router.get("/v1/models/{name:path}")
async def model(name: str, service: ReadyService) -> dict[str, Any]:
    """One of them."""
    return _described(service.model(name))


def _described(served: ServedModel) -> dict[str, Any]:
    return {"id": served.name, "object": "model", "created": served.created, "owned_by": "cutaway"}


# --- completions ------------------------------------------------------------------------------------------------------


@router.post("/v1/completions", response_model=None)
async def completions(
    request: Request, service: ReadyService, asked: Annotated[CompletionRequest, Depends(body(CompletionRequest))]
) -> Response:
    """Continue texts."""
    served, prompts = service.model(asked.model), asked.prompts()
    options = asked.generation(len(prompts), service.limits, max_tokens=asked.max_tokens)
    answer = CompletionAnswer(request, service, served, asked)
    return await unless_gone(request, answer.response(prompts, options))


def why_it_ended(whole: Whole, asked: TextRequest) -> str:
    """In OpenAI's words. A text of a given form is complete, if with its very last token."""
    return "stop" if whole.generated.ended in ("end", "stop") or asked.has_form else "length"


def of_tokens(scores: Sequence[TokenScore]) -> list[tuple[int, TokenScore | None]]:
    return [(one.token, one) for one in scores]


def finite(log_p: float) -> float:
    return max(log_p, LEAST)


class TextAnswer:
    """What answers with texts share: they are written at once, or sent as they come."""

    prefix: str
    kind: str
    kind_of_chunk: str

    def __init__(self, request: Request, service: Service, served: ServedModel, asked: TextRequest) -> None:
        self.request, self.service, self.served, self.asked = request, service, served, asked
        self.names = TokenNames(served.text_tokenizer())
        self.head = {"id": f"{self.prefix}-{request.state.id}", "created": int(time.time()), "model": served.name}

    async def response(self, prompts: Sequence[Prompt], options: GenerationOptions) -> Response:
        """Submits the jobs, so that what is wrong with them is a status; then sends what they write."""
        asked = self.asked
        texts = await start(self.service, self.served, prompts, options, stream=asked.stream, watch=asked.engine_watch)
        self.each = texts.jobs_per_prompt
        try:
            await self.prepare(prompts, texts)
        except BaseException:
            texts.cancel()
            raise
        if asked.stream:
            return EventStream(self.request, self.chunks(texts), texts.cancel)
        found = await texts.whole()
        run = self.service.compute if asked.watch else self.service.in_thread  # a lens reads the model's head
        choices = await run(lambda: self.choices(texts, found))
        usage = self.usage(texts, [one for each in found for one in each])
        return JSONResponse({**self.head, "object": self.kind, "choices": choices, "usage": usage})

    async def prepare(self, prompts: Sequence[Prompt], texts: Texts) -> None:
        """What has to be known before the first text."""

    def choices(self, texts: Texts, found: Sequence[Sequence[Whole]]) -> list[dict[str, Any]]:
        """The texts of each prompt, the best `n` of them if there are more."""
        choices: list[dict[str, Any]] = []
        for first in range(0, len(found), self.each):
            wholes = [one for job in found[first : first + self.each] for one in job]
            if self.asked.texts_per_prompt > self.asked.n:
                wholes.sort(key=lambda one: -one.generated.score)
            for one in wholes[: self.asked.n]:
                choice = self.choice(first // self.each, len(choices), one)
                choices.append({**choice, **self.shown(texts, one)})
        return choices

    def shown(self, texts: Texts, whole: Whole) -> dict[str, Any]:
        """The inside of a text, if it was asked for."""
        if not self.asked.watch:
            return {}
        plan, number = texts.plan, whole.number
        job, ticket = plan.jobs[number], texts.tickets[number]
        shown = Shown(self.asked.wished, plan.model, self.names.tokenizer, job, ticket, whole.generated.ids)
        return {"watch": shown.to_dict(plan.options.search)}

    def choice(self, prompt: int, index: int, whole: Whole) -> dict[str, Any]:
        raise NotImplementedError

    async def chunks(self, texts: Texts) -> AsyncIterator[dict[str, Any] | None]:
        """The answer in pieces."""
        usage: dict[str, Any] = {"usage": None} if self.asked.includes_usage else {}
        wholes: list[Whole] = []

        def chunk(choice: dict[str, Any]) -> dict[str, Any]:
            return {**self.head, "object": self.kind_of_chunk, "choices": [choice], **usage}

        for choice in self.first_choices(texts):
            yield chunk(choice)
        async for piece in texts.pieces():
            if piece is None:
                yield None
                continue
            shown: dict[str, Any] = {}
            if piece.whole is not None:
                wholes.append(piece.whole)
                if self.asked.watch:
                    shown = await self.service.compute(partial(self.shown, texts, piece.whole))
            yield chunk({**self.choice_of_piece(piece), **shown})
        total = self.usage(texts, wholes)
        if self.asked.includes_usage:
            yield {**self.head, "object": self.kind_of_chunk, "choices": [], "usage": total}

    def first_choices(self, texts: Texts) -> list[dict[str, Any]]:
        return []

    def choice_of_piece(self, piece: Piece) -> dict[str, Any]:
        raise NotImplementedError

    def usage(self, texts: Texts, wholes: Sequence[Whole]) -> dict[str, int]:
        prompt = sum(map(len, texts.prompts))
        completion = sum(len(one.generated.ids) for one in wholes)
        self.request.state.facts.update(model=self.served.name, prompt_tokens=prompt, generated_tokens=completion)
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


class CompletionAnswer(TextAnswer):
    """The answer of `/v1/completions`."""

    prefix, kind, kind_of_chunk = "cmpl", "text_completion", "text_completion"
    asked: CompletionRequest

    async def prepare(self, prompts: Sequence[Prompt], texts: Texts) -> None:
        """With `echo`, the texts of the prompts, and the scores of their tokens."""
        self.echoed = [""] * len(prompts)
        self.scored: list[Scored] = [[] for _ in prompts]
        if not self.asked.echo:
            return
        decode = self.served.text_tokenizer().decode
        self.echoed = [one if isinstance(one, str) else decode(one) for one in prompts]
        if (k := self.asked.top_scores) is not None:
            rows = texts.prompts
            found = await self.service.compute(lambda: prompt_scores(texts.plan.model, rows, max(1, k)))
            self.scored = [[(row[0], None), *of_tokens(scores)] for row, scores in zip(rows, found, strict=True)]

    def choice(self, prompt: int, index: int, whole: Whole) -> dict[str, Any]:
        text, scores = self.echoed[prompt] + whole.generated.text, [*self.scored[prompt], *of_tokens(whole.scores)]
        return {
            "index": index,
            "text": text,
            "logprobs": self.logprobs(scores, Offsets(self.names)),
            "finish_reason": why_it_ended(whole, self.asked),
        }

    def first_choices(self, texts: Texts) -> list[dict[str, Any]]:
        self.offsets = [Offsets(self.names) for _ in texts.tickets]
        if not self.asked.echo:
            return []
        prompts = [number // self.each for number in range(len(texts.tickets))]
        return [self._sent(number, self.echoed[p], self.scored[p]) for number, p in enumerate(prompts)]

    def choice_of_piece(self, piece: Piece) -> dict[str, Any]:
        reason = None if piece.whole is None else why_it_ended(piece.whole, self.asked)
        return self._sent(piece.number, piece.text, of_tokens(piece.scores), reason)

    def _sent(self, index: int, text: str, scores: Scored, reason: str | None = None) -> dict[str, Any]:
        logprobs = self.logprobs(scores, self.offsets[index])
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}

    def logprobs(self, scored: Scored, offsets: Offsets) -> dict[str, Any] | None:
        """As parallel lists; in each place the token itself stands among the likeliest ones."""
        if self.asked.top_scores is None:
            return None
        tops: list[dict[str, float] | None] = []
        for _, score in scored:
            if score is None:
                tops.append(None)
                continue
            pairs = [*score.top[: self.asked.top_scores], (score.token, score.log_p)]
            top: dict[str, float] = {}
            for token, log_p in pairs:
                top.setdefault(self.names.name(token), finite(log_p))
            tops.append(top)
        return {
            "tokens": [self.names.name(token) for token, _ in scored],
            "token_logprobs": [None if score is None else finite(score.log_p) for _, score in scored],
            "top_logprobs": tops,
            "text_offset": [offsets.next(token) for token, _ in scored],
        }


# --- chat -------------------------------------------------------------------------------------------------------------


@router.post("/v1/chat/completions", response_model=None)
async def chat_completions(
    request: Request, service: ReadyService, asked: Annotated[ChatRequest, Depends(body(ChatRequest))]
) -> Response:
    """Answer in a conversation, which the model's own template makes into a prompt."""
    served = service.model(asked.model)
    tokenizer = served.text_tokenizer()
    prompt = await service.in_thread(lambda: chat_prompt(served.name, tokenizer, asked.conversation()))
    allow = await service.in_thread(asked.allowed)
    most = service.limits.max_tokens if asked.most_tokens is None else asked.most_tokens
    options = asked.generation(1, service.limits, max_tokens=most, allow=allow)
    return await unless_gone(request, ChatAnswer(request, service, served, asked).response([prompt], options))


def chat_prompt(name: str, tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """The tokens of a conversation. The template writes special tokens where they belong, so none are added."""
    if tokenizer.chat_template is None:
        raise InputError(f"model={name!r} has no chat template: it continues texts, at /v1/completions")
    text = chat_template.render(tokenizer.chat_template, messages, tokens=chat_template.special_tokens(tokenizer))
    return tokenizer.encode(text, special=False)


class ChatAnswer(TextAnswer):
    """The answer of `/v1/chat/completions`."""

    prefix, kind, kind_of_chunk = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def choice(self, prompt: int, index: int, whole: Whole) -> dict[str, Any]:
        return {
            "index": index,
            "message": {"role": "assistant", "content": whole.generated.text, "refusal": None},
            "logprobs": self.logprobs(whole.scores),
            "finish_reason": why_it_ended(whole, self.asked),
        }

    def first_choices(self, texts: Texts) -> list[dict[str, Any]]:
        first = {"role": "assistant", "content": "", "refusal": None}
        return [self._sent(number, first) for number in range(len(texts.tickets))]

    def choice_of_piece(self, piece: Piece) -> dict[str, Any]:
        reason = None if piece.whole is None else why_it_ended(piece.whole, self.asked)
        delta = {"content": piece.text} if piece.text or piece.scores else {}
        return self._sent(piece.number, delta, self.logprobs(piece.scores), reason)

    def _sent(
        self, index: int, delta: dict[str, Any], logprobs: Any = None, reason: str | None = None
    ) -> dict[str, Any]:
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}

    def logprobs(self, scores: Sequence[TokenScore]) -> dict[str, Any] | None:
        if self.asked.top_scores is None:
            return None
        ends = set(self.served.model.config.end_ids or ())  # which are no part of the message
        content = [
            {
                **self._token(one.token, one.log_p),
                "top_logprobs": [self._token(*pair) for pair in one.top[: self.asked.top_scores]],
            }
            for one in scores
            if one.token not in ends
        ]
        return {"content": content, "refusal": None}

    def _token(self, id: int, log_p: float) -> dict[str, Any]:
        return {"token": self.names.name(id), "logprob": finite(log_p), "bytes": list(self.names.bytes_of(id))}


# --- embeddings -------------------------------------------------------------------------------------------------------


@router.post("/v1/embeddings", response_model=None)
async def embeddings(
    request: Request, service: ReadyService, asked: Annotated[EmbeddingRequest, Depends(body(EmbeddingRequest))]
) -> Response:
    """Texts as vectors of length 1."""
    served, inputs = service.model(asked.model), asked.inputs()
    if len(inputs) > service.limits.max_texts:
        raise InputError(f"input: {len(inputs):,} texts are more than the {service.limits.max_texts:,} of a request")
    tokenizer = served.text_tokenizer()
    rows = await service.in_thread(
        lambda: [
            rows_of(tokenizer, [one], None, as_trained=served.as_trained)[0]
            if isinstance(one, str)
            else Row(list(one), [0] * len(one))
            for one in inputs
        ]
    )
    vectors = await unless_gone(request, service.compute(lambda: embed_rows(served.model, rows, pool=asked.pool)))
    if asked.dimensions not in (None, vectors.shape[1]):
        raise InputError(f"dimensions={asked.dimensions}: the vectors of this model have {vectors.shape[1]}")
    n_tokens = sum(len(row.ids) for row in rows)
    request.state.facts.update(model=served.name, prompt_tokens=n_tokens)
    data = [
        {"object": "embedding", "index": index, "embedding": _encoded(vector, asked.encoding_format)}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    return JSONResponse({"object": "list", "data": data, "model": served.name, "usage": usage})


def _encoded(vector: Any, format: str) -> Any:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode() if format == "base64" else vector.tolist()
