"""`cutaway classify`: what a fine-tuned model says of texts, pairs of texts, or pictures."""

import json
from dataclasses import asdict
from typing import Any

from cutaway.cli.asking import In, Precision, Texts, Where, as_trained, reading, ready, table, texts_of
from cutaway.cli.options import Json


def classify(model: Where, texts: Texts = None, precision: In = Precision.fp32, as_json: Json = False) -> None:
    """Classes, numbers or tags of texts; the two of a pair have a tab between them; pictures are files.

    With --json one line for each text or picture.
    """
    from rich.console import Console

    from cutaway.decoding.classify import classify as answer
    from cutaway.evaluation.examples import picture_numbers

    asked = texts_of(texts)
    loaded, tokenizer = ready(model, precision)
    if loaded.config.family == "vit":
        found = answer(loaded, list(asked), **picture_numbers(model))
    else:
        pairs = [tuple(text.split("\t", 1)) if "\t" in text else text for text in asked]
        found = answer(loaded, reading(tokenizer, model), pairs, as_trained=as_trained(model))
    if as_json:
        for text, said in zip(asked, found, strict=True):
            print(json.dumps({"input": text, **_plain(said)}, ensure_ascii=False, allow_nan=False))
    else:
        Console(highlight=False).print(_table(asked, found))


def _plain(said: Any) -> dict[str, Any]:
    if isinstance(said, float):
        return {"value": said}
    return {"tags": [asdict(tag) for tag in said]} if isinstance(said, list) else asdict(said)


def _table(asked: list[str], found: list[Any]) -> Any:
    from rich.text import Text

    if isinstance(found[0], list):
        shown = table("word", "tag", "")
        for number, tags in enumerate(found):
            if number:
                shown.add_row()
            for tag in tags:
                shown.add_row(Text(tag.word), Text(tag.tag, "bold"), f"{tag.probability:.1%}")
        return shown
    shown = table("", "", "")
    for text, said in zip(asked, found, strict=True):
        text = text.replace("\t", " · ")
        if isinstance(said, float):
            shown.add_row(Text(f"{said:.4f}", "bold"), "", Text(text))
        else:
            shown.add_row(Text(said.label, "bold"), f"{said.probability:.1%}", Text(text))
    return shown
