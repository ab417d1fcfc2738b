"""What models do besides writing: fill blanks, classify, and turn texts into tokens and back.

Texts come as JSON. Pictures come as base64, `{"image": "iVBORw0…"}` or a data URL, or as files of a form; URLs are
never fetched. The routes of tokens have the form of vLLM's, which lm-eval asks.
"""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass
from functools import partial
from itertools import count
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Request
from starlette.datastructures import UploadFile

from cutaway.arguments import Options, option, same_option
from cutaway.data.images import decode_image
from cutaway.decoding.classify import Label, classify
from cutaway.decoding.fill import fill
from cutaway.decoding.options import ClassificationOptions
from cutaway.errors import InputError
from cutaway.serving.openai_requests import MODEL
from cutaway.serving.schemas import OptionsRoute, aside, body, read_options
from cutaway.serving.service import ReadyService, ServedModel, Service
from cutaway.serving.streams import unless_gone
from cutaway.tokens import Tokenizer

router = APIRouter(tags=["tasks"], route_class=OptionsRoute)
FORM = "multipart/form-data"
FIRST = "By default the first model that writes texts, or else the first that reads them."
MOST_WORDS = 1000  # for a blank


# --- blanks -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FillRequest(Options):
    """`/fill`"""

    model: str = option(MISSING, MODEL)
    text: str | Sequence[str] = option(MISSING, "A text with blanks, [MASK], <mask> or ___, or several.")
    k: int = option(5, "Number of words for each blank.", least=1, most=MOST_WORDS)


@router.post("/fill")
async def fill_blanks(
    request: Request, service: ReadyService, asked: Annotated[FillRequest, Depends(body(FillRequest))]
) -> dict[str, Any]:
    """The likeliest words for the blanks of a text."""
    served = service.model(asked.model)
    texts = _several(service, "text", asked.text)
    tokenizer = served.text_tokenizer()
    found = await unless_gone(
        request,
        service.compute(lambda: fill(served.model, tokenizer, texts, k=asked.k, as_trained=served.as_trained)),
    )
    return {"model": served.name, "results": [asdict(one) for one in found]}


# --- classes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ClassifyRequest(Options):
    """`/classify`"""

    model: str = option(MISSING, MODEL)
    text: str | Sequence[str | Sequence[str]] | None = option(
        None, "A text, or several; a pair of texts is a list of two within the list."
    )
    image: str | Sequence[str] | None = option(None, "A picture in base64, or several: PNG, JPEG, WebP …")
    cut: int | None = same_option(ClassificationOptions, "cut")

    def check(self) -> None:
        if (self.text is None) == (self.image is None):
            raise InputError("text or image: give one of the two")


async def _classify_fields(request: Request) -> tuple[ClassifyRequest, list[bytes]]:
    """The fields of a request and its pictures, from JSON or a form with files."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        asked = await body(ClassifyRequest)(request)
        images = [asked.image] if isinstance(asked.image, str) else asked.image or ()
        return asked, await aside(request, sum(map(len, images)), lambda: list(map(_from_base64, count(1), images)))
    service: Service = request.app.state.service
    async with request.form(max_files=service.limits.max_texts, max_fields=8) as form:
        files = [one for one in form.getlist("image") if isinstance(one, UploadFile)]
        fields: dict[str, Any] = {name: one for name, one in form.items() if isinstance(one, str)}
        if fields.get("cut", "").isdecimal():
            fields["cut"] = int(fields["cut"][:18])
        return read_options(ClassifyRequest, fields | {"image": "in a file"} if files else fields), [
            await one.read() for one in files
        ]


_classify_fields.reads = ClassifyRequest  # type: ignore[attr-defined]  # for `OptionsRoute`


@router.post("/classify")
async def classify_inputs(
    request: Request,
    service: ReadyService,
    fields: Annotated[tuple[ClassifyRequest, list[bytes]], Depends(_classify_fields)],
) -> dict[str, Any]:
    """The class of texts, pairs of texts or pictures; of a tagger the tag of each word, of a regression the number."""
    asked, images = fields
    served = service.model(asked.model)
    reads_pictures = served.model.config.family == "vit"
    if reads_pictures != (asked.image is not None):
        raise InputError(f"model={served.name!r} reads {'pictures: send an image' if reads_pictures else 'text'}")
    options = ClassificationOptions.of(asked, as_trained=served.as_trained)
    if reads_pictures:
        _several(service, "image", images)
        numbers = served.model.config.to_dict()
        size, channels = numbers["image_size"], numbers["n_channels"]
        pixels = await service.in_thread(lambda: _pixels(images, size, channels))
        work = partial(classify, served.model, pixels, options=options)
    else:
        texts, tokenizer = _texts_and_pairs(service, asked.text), served.text_tokenizer()
        work = partial(classify, served.model, tokenizer, texts, options=options)
    found = await unless_gone(request, service.compute(work))
    return {"model": served.name, "results": [_shown(one) for one in found]}


def _from_base64(number: int, text: str) -> bytes:
    if text.startswith(("http:", "https:", "file:", "ftp:")):
        raise InputError(f"image {number} is an address, and nothing is fetched: send the picture in base64")
    if text.startswith("data:"):
        head, _, text = text.partition(",")
        if not head.endswith(";base64"):
            raise InputError(f"image {number} is no data URL in base64, such as data:image/png;base64,iVBORw0…")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(f"image {number} is not in base64: {error}") from None


def _pixels(images: Sequence[bytes], size: int, channels: int) -> list[np.ndarray]:
    return [
        decode_image(data, size=size, channels=channels, name=f"image {number}")
        for number, data in enumerate(images, 1)
    ]


def _texts_and_pairs(service: Service, text: Any) -> list[Any]:
    texts = [one if isinstance(one, str) else tuple(one) for one in _several(service, "text", text)]
    for number, one in enumerate(texts, 1):
        if len(one) != 2 and not isinstance(one, str):
            raise InputError(f"text {number} is a list of {len(one)}: a pair has two")
    return texts


def _shown(answer: Any) -> Any:
    """An answer of `classify` as JSON."""
    if isinstance(answer, Label):
        return asdict(answer)
    return [asdict(tag) for tag in answer] if isinstance(answer, list) else {"value": answer}


def _several(service: Service, name: str, value: Any) -> list[Any]:
    several = [value] if isinstance(value, str) else list(value)
    if not several:
        raise InputError(f"{name}: the list is empty")
    if len(several) > service.limits.max_texts:
        raise InputError(f"{name}: {len(several):,} are more than the {service.limits.max_texts:,} of a request")
    return several


# --- tokens -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TokenizeRequest(Options):
    """`/tokenize`"""

    prompt: str = option(MISSING, "A text.")
    model: str | None = option(None, FIRST)
    add_special_tokens: bool = option(True, "With the tokens that the tokenizer puts around a text.")
    return_token_strs: bool = option(False, "Also show the tokens as the vocabulary spells them.")


@dataclass(frozen=True, kw_only=True)
class DetokenizeRequest(Options):
    """`/detokenize`"""

    tokens: Sequence[int] = option(MISSING, "The ids of tokens.")
    model: str | None = option(None, FIRST)


def _reader(service: Service, name: str | None) -> tuple[ServedModel, Tokenizer]:
    """The model of that name, or else one that reads text: clients that ask for tokens often name none."""
    if name is not None:
        served = service.model(name)
        return served, served.text_tokenizer()
    readers = [one for one in service.models.values() if one.tokenizer is not None]
    if not readers:
        raise InputError("no model here has a tokenizer")
    served = next((one for one in readers if one.task == "language_model"), readers[0])
    return served, served.text_tokenizer()


@router.post("/tokenize")
async def tokenize(
    service: ReadyService, asked: Annotated[TokenizeRequest, Depends(body(TokenizeRequest))]
) -> dict[str, Any]:
    """The tokens of a text."""
    served, tokenizer = _reader(service, asked.model)
    ids = await service.in_thread(lambda: tokenizer.encode(asked.prompt, special=asked.add_special_tokens))
    names = [tokenizer.token(id) for id in ids] if asked.return_token_strs else None
    return {"count": len(ids), "max_model_len": served.model.max_len, "tokens": ids, "token_strs": names}


@router.post("/detokenize")
async def detokenize(
    service: ReadyService, asked: Annotated[DetokenizeRequest, Depends(body(DetokenizeRequest))]
) -> dict[str, str]:
    """The text of tokens, special ones included."""
    _, tokenizer = _reader(service, asked.model)
    return {"prompt": await service.in_thread(lambda: tokenizer.decode(asked.tokens, skip_special=False))}


@router.get("/tokenizer_info")
async def tokenizer_info(service: ReadyService, model: str | None = None) -> dict[str, Any]:
    """The special tokens of a model, and its chat template."""
    served, tokenizer = _reader(service, model)
    roles = {f"{role}_token": token for role, token in tokenizer.roles.items()}
    return {"tokenizer_class": "PreTrainedTokenizerFast", "model": served.name, "vocab_size": tokenizer.vocab_size} | {
        **roles,
        "chat_template": tokenizer.chat_template,
    }
