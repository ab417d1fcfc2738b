"""Which language a model translates into which: by its tags (<2de>), and by a name such as `en-de`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from cutaway.decoding.translate import languages
from cutaway.errors import InputError
from cutaway.model.model import EncoderDecoderModel
from cutaway.serving.service import ServedModel, Service

AUTO = "auto"
NAMED = re.compile(r"([a-z]{2,3})-([a-z]{2,3})", re.ASCII)
NAMES = {
    "ar": "Arabic", "bg": "Bulgarian", "ca": "Catalan", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek",
    "en": "English", "eo": "Esperanto", "es": "Spanish", "et": "Estonian", "fa": "Persian", "fi": "Finnish",
    "fr": "French", "ga": "Irish", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian",
    "id": "Indonesian", "is": "Icelandic", "it": "Italian", "ja": "Japanese", "ko": "Korean", "la": "Latin",
    "lt": "Lithuanian", "lv": "Latvian", "nl": "Dutch", "no": "Norwegian", "pl": "Polish", "pt": "Portuguese",
    "ro": "Romanian", "ru": "Russian", "sk": "Slovak", "sl": "Slovenian", "sv": "Swedish", "tr": "Turkish",
    "uk": "Ukrainian", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """A model that translates from a language into another; `tag` asks for the target, where it knows several."""

    served: ServedModel
    source: str
    target: str
    tag: str | None


def language_name(code: str) -> str:
    return NAMES.get(code, code)


def pairs_of(served: ServedModel) -> Iterator[Pair]:
    """What a model translates; nothing where neither its tags nor its name say so."""
    if not isinstance(served.model, EncoderDecoderModel) or served.tokenizer is None:
        return
    tags, named = list(languages(served.tokenizer)), NAMED.fullmatch(served.name)
    targets = tags or ([named[2]] if named else [])
    sources = list(dict.fromkeys([*tags, *(named.groups() if named else ())])) if tags else [named[1]] if named else []
    for source in sources:
        for target in targets:
            if source != target:
                yield Pair(served, source, target, target if tags else None)


def all_pairs(service: Service) -> list[Pair]:
    return [pair for served in service.models.values() for pair in pairs_of(served)]


def find_pair(service: Service, source: str, target: str, name: str | None) -> Pair | None:
    """The first model, or the one of that name, that translates so; None where there is nothing to translate."""
    pairs = all_pairs(service) if name is None else list(pairs_of(service.model(name)))
    if source == target and any(source in (pair.source, pair.target) for pair in pairs):
        return None
    for pair in pairs:
        if (pair.source, pair.target) == (source, target):
            return pair
    known = ", ".join(f"{pair.source} → {pair.target}" for pair in pairs) or "no translator"
    asked = "target" if any(pair.source == source for pair in pairs) else "source"
    raise InputError(f"{asked}: no model here translates {source!r} into {target!r}; there is {known}")
