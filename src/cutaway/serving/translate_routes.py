"""LibreTranslate's API, as its clients use it: translations, languages, and which language a text is in.

Fields come as JSON or as a form. Beside theirs are our own: `beam`, `terms`, `prefix`, `align`, `watch`, `model`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal

import torch
from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from cutaway.arguments import Options, fits, option, same_option
from cutaway.decoding.alignment import Alignment, identical, word_spans
from cutaway.decoding.engine.scheduler import Cancellation
from cutaway.decoding.engine.worker import Ticket
from cutaway.decoding.options import TranslationOptions
from cutaway.decoding.search.search import Hypothesis
from cutaway.decoding.translate import Translation, TranslationPlan
from cutaway.decoding.translate_sentences import Candidate
from cutaway.errors import CutawayError, InputError
from cutaway.model.model import EncoderDecoderModel
from cutaway.serving.detection import detect
from cutaway.serving.gates import check_key
from cutaway.serving.html import translate_html
from cutaway.serving.languages import AUTO, Pair, all_pairs, find_pair, language_name
from cutaway.serving.metrics import Tally
from cutaway.serving.schemas import OptionsRoute, aside, json_object, read_options
from cutaway.serving.service import ReadyService, Service, finished
from cutaway.serving.streams import unless_gone
from cutaway.serving.watching import Shown, WatchRequest

router = APIRouter(tags=["LibreTranslate"], route_class=OptionsRoute)
MOST_ALTERNATIVES = 16
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


@dataclass(frozen=True, kw_only=True)
class TranslationRequest(Options):
    """`/translate`"""

    q: str | Sequence[str] = option(MISSING, "A text, or several.")
    source: str = option(AUTO, 'The language of the text; "auto" detects it.')
    target: str = option(MISSING, "The language of the translation.")
    format: Literal["text", "html"] = option(
        "text", "html keeps tags as they are and translates the text between them."
    )
    alternatives: int = option(0, "Number of further translations.", least=0, most=MOST_ALTERNATIVES)
    api_key: str = option("", "The key, if the server needs one.")

    # ours, as in `cutaway.translate`
    model: str | None = option(None, "The name of a model; by default the first one that knows both languages.")
    beam: int = same_option(TranslationOptions, "beam")
    length_penalty: float = same_option(TranslationOptions, "length_penalty")
    prune: float | None = same_option(TranslationOptions, "prune")
    terms: Mapping[str, str] | None = same_option(TranslationOptions, "terms")
    prefix: str | None = same_option(TranslationOptions, "prefix")
    align: bool = same_option(TranslationOptions, "align")
    watch: Mapping[str, Any] | None = option(None, "What to show of the inside: see docs/serving.md.")

    def check(self) -> None:
        if self.format == "html" and (self.align or self.watch or self.prefix or self.alternatives):
            raise InputError('format="html" has no align, watch, prefix or alternatives: leave them out')

    @property
    def texts(self) -> list[str]:
        return [self.q] if isinstance(self.q, str) else list(self.q)

    def options(self, pair: Pair) -> TranslationOptions:
        best = 1 + self.alternatives
        return TranslationOptions.of(self, to=pair.tag, n_best=best, beam=max(self.beam, best))


@dataclass(frozen=True, kw_only=True)
class DetectionRequest(Options):
    """`/detect`"""

    q: str = option(MISSING, "A text.")
    api_key: str = same_option(TranslationRequest, "api_key")


def fields_of(kind: type[Options]) -> Callable[[Request], Awaitable[Any]]:
    """A dependency that reads the fields of a request, JSON or a form; without a key that fits it refuses them."""

    async def read(request: Request) -> Any:
        size, values = await _with_key(kind, request)
        return await aside(request, size, lambda: read_options(kind, values))

    read.reads = kind  # type: ignore[attr-defined]  # for `OptionsRoute`
    return read


async def _with_key(kind: type[Options], request: Request) -> tuple[int, Mapping[str, Any]]:
    """The size of a body, and its fields. A key in the header is checked before they are read."""
    service: Service = request.app.state.service
    if request.state.key:
        check_key(service, request.state.key)
    try:
        size, values = await _fields(kind, request, service.limits.max_body)
    except (CutawayError, HTTPException):
        check_key(service, request.state.key)  # whoever has no key is told nothing else
        raise
    check_key(service, request.state.key, str(values.get("api_key", "")))
    return size, values


async def _fields(kind: type[Options], request: Request, most: int) -> tuple[int, Mapping[str, Any]]:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() in FORMS:
        async with request.form(max_files=0, max_part_size=most) as form:
            size = sum(len(name) + len(value) for name, value in form.multi_items() if isinstance(value, str))
            given = {name: form.getlist(name) for name in form}
        return size, await aside(request, size, lambda: {name: _typed(kind, name, its) for name, its in given.items()})
    data = await request.body()
    return len(data), await aside(request, len(data), lambda: json_object(data)) if data else {}


def _typed(kind: type[Options], name: str, values: Sequence[Any]) -> Any:
    """A form has texts only: whatever is no text is written as in JSON."""
    if len(values) > 1:
        return list(values)
    (value,) = values
    if name not in kind.__dataclass_fields__ or fits(value, kind.__dataclass_fields__[name].type):
        return value
    try:
        (read,) = json_object(f'{{"value": {value}}}'.encode()).values()
    except ValueError:  # an InputError is one
        return value
    return read


# --- translations -----------------------------------------------------------------------------------------------------


@router.post("/translate", response_model=None)
async def translate(
    request: Request,
    service: ReadyService,
    asked: Annotated[TranslationRequest, Depends(fields_of(TranslationRequest))],
) -> Response:
    """Translate a text, or several."""
    texts = asked.texts
    if len(texts) > service.limits.max_texts:
        raise InputError(f"q: {len(texts):,} texts are more than the {service.limits.max_texts:,} of a request")
    answers = await unless_gone(request, _answers(service, asked))
    request.state.facts.update(texts=len(texts))
    if isinstance(asked.q, str):
        return JSONResponse(answers[0])
    return JSONResponse(
        {key: [one[key] for one in answers] for key in answers[0]} if answers else {"translatedText": []}
    )


async def _answers(service: Service, asked: TranslationRequest) -> list[dict[str, Any]]:
    """The answer to each text. Those in one language are translated together."""
    answers: list[dict[str, Any]] = [{} for _ in asked.texts]
    rows: dict[Pair | None, list[int]] = {}
    for row, text in enumerate(asked.texts):
        source = asked.source
        if source == AUTO:
            guess = await service.in_thread(partial(guessed, service, text, asked.target))
            answers[row]["detectedLanguage"], source = guess, guess["language"]
        rows.setdefault(find_pair(service, source, asked.target, asked.model), []).append(row)
    for pair, its in rows.items():
        texts = [asked.texts[row] for row in its]
        if pair is None:
            found = await service.in_thread(partial(_unchanged, asked, texts))
        elif asked.format == "html":
            found = await _html(service, asked, pair, texts)
        else:
            found = await _plain(service, asked, pair, texts)
        for row, one in zip(its, found, strict=True):
            answers[row] = one | answers[row]
    return answers


async def _html(service: Service, asked: TranslationRequest, pair: Pair, pages: Sequence[str]) -> list[dict[str, Any]]:
    model, tokenizer, options = _translator(pair), pair.served.text_tokenizer(), asked.options(pair)
    tally = Tally()

    def work(cancellation: Cancellation) -> list[str]:
        def translated(texts: list[str]) -> list[str]:
            plan = TranslationPlan(model, tokenizer, texts, options)
            return [one.text for one in _translations(service, plan, tally, cancellation)]

        return [translate_html(page, translated) for page in pages]

    found = await service.blocking(work)
    service.metrics.count(pair.served.name, tally)
    return [{"translatedText": page} for page in found]


async def _plain(service: Service, asked: TranslationRequest, pair: Pair, texts: Sequence[str]) -> list[dict[str, Any]]:
    model, tokenizer, options = _translator(pair), pair.served.text_tokenizer(), asked.options(pair)
    wished = WatchRequest.read(asked.watch)
    if asked.align:
        wished = replace(wished, alignment=True)
    watch = None if wished == WatchRequest() else wished.watch(model, options.search)
    tally = Tally()
    plan = await service.in_thread(lambda: TranslationPlan(model, tokenizer, texts, options))
    if any(plan.sentences.terms):
        if asked.watch:
            raise InputError("watch: a translation with terms is searched for twice; leave out one of the two")
        done = await service.blocking(partial(_translations, service, plan, tally))
        service.metrics.count(pair.served.name, tally)
        return [_answer(asked, one) for one in done]
    tickets = service.scheduler.submit_all(model, plan.sentences.jobs, options.search, watch=watch)
    try:
        async with service.in_time():
            found = [await finished(ticket) for ticket in tickets]
    finally:
        for ticket in tickets:
            ticket.cancel()
    _tally(tally, plan, tickets, found)
    service.metrics.count(pair.served.name, tally)
    join = partial(_joined, asked, wished, plan, tickets, found)
    return await (service.in_thread(join) if watch is None else service.compute(join))


def _translations(
    service: Service, plan: TranslationPlan, tally: Tally, cancellation: Cancellation
) -> list[Translation]:
    """The translations of a plan, for a thread that waits for them."""
    tickets: list[Ticket] = []
    run = partial(service.scheduler.run_jobs, cancellation=cancellation, on_submit=tickets.extend)
    found = dict(plan.sentences.run(run))
    _tally(tally, plan, tickets, [found[number] for number in range(len(found))])
    return plan.translations(plan.sentences.candidates(iter(found.items())))


def _tally(
    tally: Tally, plan: TranslationPlan, tickets: Sequence[Ticket], found: Sequence[Sequence[Hypothesis]]
) -> None:
    ends = plan.model.config.end_ids or ()
    tally.prompts += [len(job.source) for job in plan.sentences.jobs]
    best = [one for its in found for one in its[:1]]
    tally.texts += [(len(one.ids), "end" if {*one.ids[-1:]} & {*ends} else "limit") for one in best]
    tally.started += [ticket.started for ticket in tickets]


def _joined(
    asked: TranslationRequest,
    wished: WatchRequest,
    plan: TranslationPlan,
    tickets: Sequence[Ticket],
    found: Sequence[list[Hypothesis]],
) -> list[dict[str, Any]]:
    """The answers to some texts from the hypotheses of their sentences, with what was watched."""
    sentences = plan.sentences
    candidates = sentences.candidates(iter(enumerate(found)))
    shown: dict[int, Shown] = {}  # by sentence; one without tokens is left as it is
    if wished != WatchRequest():
        for number, rows in enumerate(sentences.rows):
            best = found[number][0].ids
            one = Shown(wished, plan.model, plan.tokenizer, sentences.jobs[number], tickets[number], best)
            shown |= dict.fromkeys(rows, one)
    alignments = None
    if wished.alignment:
        alignments = [
            shown[row].alignment(source, candidates[row][0].text.strip()) if row in shown else identical(source)
            for row, source in enumerate(sentences.sentences)
        ]
    done = plan.translations(candidates, alignments)
    answers = [_answer(asked, translation) for translation in done]
    if asked.watch:
        search = plan.options.search
        views = iter([shown[row].to_dict(search) if row in shown else {} for row in range(len(candidates))])
        for answer, translation in zip(answers, done, strict=True):
            answer["watch"] = [
                {"source": its.source, "text": its.candidates[0].text} | next(views) for its in translation.sentences
            ]
    return answers


def _unchanged(asked: TranslationRequest, texts: Sequence[str]) -> list[dict[str, Any]]:
    """The answers to texts that are in the target language already: they have the same keys as translations."""
    aligned = asked.align or WatchRequest.read(asked.watch).alignment
    answers = []
    for text in texts:
        alignment = _word_for_word(text) if aligned else None
        answer = _answer(asked, Translation(text, 0.0, [Candidate(text, 0.0)], [], alignment))
        answers.append(answer | ({"watch": []} if asked.watch else {}))
    return answers


def _word_for_word(text: str) -> Alignment:
    """The alignment of a text with itself. Each word is a block, as a matrix of a long text's words would be huge."""
    words = word_spans(text)
    return Alignment(text, text, words, words, [torch.ones(1, 1)] * len(words))


def _answer(asked: TranslationRequest, found: Translation) -> dict[str, Any]:
    answer: dict[str, Any] = {"translatedText": found.text}
    if asked.alternatives:
        answer["alternatives"] = [one.text for one in found.n_best[1:]]
    if found.alignment is not None:
        answer |= {key: value for key, value in found.to_dict().items() if key in ("alignment", "links")}
    return answer


def _translator(pair: Pair) -> EncoderDecoderModel:
    assert isinstance(pair.served.model, EncoderDecoderModel)
    return pair.served.model


# --- languages --------------------------------------------------------------------------------------------------------


def guessed(service: Service, text: str, target: str) -> dict[str, Any]:
    """The likeliest language of a text, of those that are translated into the target."""
    among = list(dict.fromkeys(pair.source for pair in all_pairs(service) if target in ("", pair.target)))
    if not among:
        find_pair(service, AUTO, target, None)  # raises: there is no such target
    language, confidence = detect(text, [*among, *([target] if target else [])])[0]
    return {"confidence": _percent(confidence), "language": language}


def _percent(confidence: float) -> float:
    return round(100 * confidence, 1)


@router.post("/detect", response_model=None)
async def detect_language(
    service: ReadyService, asked: Annotated[DetectionRequest, Depends(fields_of(DetectionRequest))]
) -> Response:
    """Which language a text is in, the likeliest first."""
    among = list(dict.fromkeys(pair.source for pair in all_pairs(service)))
    if not among:
        raise InputError("no model here translates: start the server with a translator")
    found = await service.in_thread(lambda: detect(asked.q, among))
    return JSONResponse([{"confidence": _percent(one.confidence), "language": one.language} for one in found])


async def _key_anywhere(request: Request) -> None:
    """libretranslatepy sends its key in the body of a GET, too."""
    await _with_key(DetectionRequest, request)


@router.get("/languages", dependencies=[Depends(_key_anywhere)])
async def known_languages(service: ReadyService) -> list[dict[str, Any]]:
    """The languages that are translated, and into which."""
    targets: dict[str, list[str]] = {}
    for pair in all_pairs(service):
        targets.setdefault(pair.source, [])
        if pair.target not in targets[pair.source]:
            targets[pair.source].append(pair.target)
    return [{"code": code, "name": language_name(code), "targets": its} for code, its in targets.items()]


@router.get("/frontend/settings")
async def settings(service: ReadyService) -> dict[str, Any]:
    """What LibreTranslate's page asks for first."""
    pairs = all_pairs(service)
    first = {"source": pairs[0].source, "target": pairs[0].target} if pairs else {}
    return {
        "apiKeys": service.key is not None,
        "charLimit": service.limits.max_body,
        "frontendTimeout": 500,
        "keyRequired": service.key is not None,
        "language": {side: {"code": code, "name": language_name(code)} for side, code in first.items()},
        "suggestions": False,
        "supportedFilesFormat": [],
    }
