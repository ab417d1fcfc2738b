"""The roles of special tokens: which one pads, which begins and which ends a sentence.

`I ate an apple <eos>`; `<sos> Ich habe einen Apfel gegessen <eos>`. A tokenizer.json says that a token is special, not
what it is for. That is in `tokenizer_config.json`; otherwise the usual names decide. A tag, as in `<2de> I ate an
apple <eos>`, selects the target language of a model that knows several.
"""

import re
from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from typing import Any

from cutaway.errors import CheckpointError, InputError
from cutaway.files import MEGABYTE, read_bytes, read_json

USUAL_NAMES = {
    "unk": ("<unk>", "[UNK]"),
    "pad": ("<pad>", "[PAD]", "<|pad|>", "<|padding|>", "<|finetune_right_pad_id|>"),
    "bos": ("<sos>", "<s>", "<bos>", "[BOS]", "<|startoftext|>", "<|begin_of_text|>"),
    "eos": ("<eos>", "</s>", "[EOS]", "<|endoftext|>", "<|end_of_text|>"),
    "cls": ("[CLS]", "<cls>"),
    "sep": ("[SEP]", "<sep>"),
    "mask": ("[MASK]", "<mask>"),
}
CONFIG = "tokenizer_config.json"
TEMPLATE = "chat_template.jinja"
OLD_CONFIG = "special_tokens_map.json"


def find_roles(special: Set[str], stated: Mapping[str, str]) -> dict[str, str]:
    """The token of each role: the stated one, else the first usual name among the special tokens."""
    roles = {}
    for role, names in USUAL_NAMES.items():
        found = [stated[role]] if role in stated else [name for name in names if name in special]
        if found:
            roles[role] = found[0]
    return roles


def stated_roles(folder: Path) -> dict[str, str]:
    """The roles that the JSON files beside a tokenizer state."""
    roles: dict[str, str] = {}
    for name in (OLD_CONFIG, CONFIG):  # the newer file wins
        if (folder / name).exists():
            roles.update(_roles_in(read_json(folder / name)))
    return roles


def _roles_in(config: Mapping[str, Any]) -> dict[str, str]:
    """Entries such as `"eos_token": "</s>"` or `"eos_token": {"content": "</s>", …}`."""
    roles = {}
    for role in USUAL_NAMES:
        token = config.get(f"{role}_token")
        content = token.get("content") if isinstance(token, dict) else token
        if isinstance(content, str):
            roles[role] = content
    return roles


def stated_template(folder: Path) -> str | None:
    """The chat template beside a tokenizer: in a file of its own, or in its config, there also as one of several."""
    if (folder / TEMPLATE).exists():
        data = read_bytes(folder / TEMPLATE, MEGABYTE)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{folder / TEMPLATE} is not UTF-8 at byte {error.start}") from None
    found = read_json(folder / CONFIG).get("chat_template") if (folder / CONFIG).exists() else None
    if isinstance(found, list):
        found = next(
            (one.get("template") for one in found if isinstance(one, dict) and one.get("name") == "default"), None
        )
    if found is not None and not isinstance(found, str):
        raise CheckpointError(f"{folder / CONFIG}: chat_template is neither a text nor a list of named ones")
    return found


def tag_token(tag: str) -> str:
    """The special token that asks for a translation to a language: de → <2de>. (Johnson 2017)"""
    if not re.fullmatch(r"[\w-]+", tag):
        raise InputError(f"{tag!r} is not a language tag: use letters, digits, - and _, as in de or pt-BR")
    return f"<2{tag}>"


def find_tags(special: Iterable[str]) -> list[str]:
    """The languages of the tags among the special tokens."""
    return [found[1] for token in special if (found := re.fullmatch(r"<2([\w-]+)>", token))]
