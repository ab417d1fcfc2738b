"""Limits how much longer a tokenizer.json may make a text, before the library reads it.

A chain of steps that each double a text makes 12 GB of one letter; the library then aborts the process, which nothing
can catch. So the factors of the steps, the most that each makes of one character, are multiplied along the chain:

    Replace a → aa     2, unless nothing before it can have written an a: then a character is replaced once at most
    Prepend            adds, and what follows multiplies it
    NFKC, Lowercase …  nothing the first time (a character or two become 18), their most from the second time on
"""

import base64
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from cutaway.errors import CheckpointError

MOST_TIMES = 256  # as long as the text
MOST_MORE = 1 << 20  # characters that are put around it
MOST_STEPS = 256
MOST_AROUND = 64  # tokens, and steps that put them there
LONGEST_PIECE = 1 << 12  # bytes: the library goes through a piece letter by letter, a call inside a call for each
MOST_LETTERS = 1 << 21  # of all pieces, those that begin alike counted once: the library takes 350 bytes for each
LONGEST_WORD = 1 << 10  # letters of a word that WordPiece cuts, which takes the third power of them
LONGEST_AFFIX = 1 << 8

Step = Mapping[str, Any]
CHAINS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}
# What others make of one character at most. Those in SETTLED change nothing when they come twice, or little.
SETTLED = {"NFC": 3, "NFD": 4, "NFKC": 18, "NFKD": 18, "Lowercase": 3, "BertNormalizer": 12, "Precompiled": 18}
FACTORS = {"ByteLevel": 2, "Metaspace": 2, "WordPiece": 2, "BPEDecoder": 2, "CTC": 2}
UNDONE = ("ByteLevel", "Metaspace")  # by a decoder, which makes a text shorter
UNTYPED = {
    "precompiled_charsmap": "Precompiled", "prepend": "Prepend", "content": "Replace", "suffix": "BPEDecoder",
    "pad_token": "CTC", "prefix": "WordPiece", "replacement": "Metaspace", "add_prefix_space": "ByteLevel",
    "single": "TemplateProcessing",
}  # fmt: skip
# a regular expression, each match of which has a letter: characters and classes, with + or {2,} behind them
WITH_A_LETTER = re.compile(r"((\\[wsdpPSWDnrt](\{\w+\})?|\\\W|\[[^][]+\]|[^][\\(){}?*+|^$])(\+|\{[1-9]\d*(,\d*)?\})?)+")


def refuse_growth(description: Mapping[str, Any], file: Path) -> None:
    """Refuses a tokenizer that would make a text far longer, or needs a deeper recursion than the library has."""
    for name, inner in CHAINS.items():
        _check_chain(name, list(_steps(description.get(name), inner)), file)
    _check_processors(list(_steps(description.get("post_processor"), "processors")), file)
    model = description.get("model")
    if isinstance(model, dict):
        _check_model(model, file)


def _steps(node: Any, inner: str) -> Iterator[Step]:
    """The steps of a chain, however nested."""
    if isinstance(node, dict):
        if isinstance(within := node.get(inner), list) and node.get("type", "Sequence") == "Sequence":
            for step in within:
                yield from _steps(step, inner)
        else:
            yield node


def _kind(step: Step) -> str:
    """The type of a step; the library infers a missing one from the fields."""
    return str(step["type"]) if "type" in step else next((kind for key, kind in UNTYPED.items() if key in step), "")


def _check_chain(name: str, steps: list[Step], file: Path) -> None:
    if len(steps) > MOST_STEPS:
        raise CheckpointError(f"{file}: its {name} has {len(steps):,} steps; at most {MOST_STEPS} are read")
    growth = _Growth(decodes=name == "decoder")
    for step in steps:
        if step.get("length") == 0:
            raise CheckpointError(f"{file}: its {name} cuts a text into pieces of no length")
        with suppress(
            AttributeError, KeyError, TypeError, ValueError
        ):  # a value of another kind is the library's to refuse
            growth.add(step)
        if growth.times > MOST_TIMES or growth.more > MOST_MORE:
            raise CheckpointError(
                f"{file}: its {name} could make a text more than {MOST_TIMES} times as long, or put {MOST_MORE:,} "
                f"characters before it; a valid tokenizer does neither"
            )


class _Growth:
    """How much longer a chain makes a text: a factor, and a number of characters."""

    def __init__(self, decodes: bool) -> None:
        self.decodes = decodes
        self.multiplied, self.at_once, self.more = 1.0, 1.0, 0.0
        self.written: set[str] = set()  # characters that the steps so far can have written
        self.seen: set[str] = set()

    @property
    def times(self) -> float:
        return self.multiplied * self.at_once

    def add(self, step: Step) -> None:
        kind = _kind(step)
        factor = float(FACTORS.get(kind, 1))
        if kind == "Replace":
            factor = self._replace(step.get("pattern"), str(step.get("content")))
        elif kind == "Prepend":
            self._write(text := str(step.get("prepend")))
            self.more += len(text)
        elif kind in SETTLED:
            again = SETTLED[kind] if kind in self.seen else 1
            factor = again * (_longest_replacement(step) / 18 if kind == "Precompiled" else 1.0)
        elif self.decodes and kind in UNDONE:
            factor = 1.0
        self._write(str(step.get("replacement", "")))
        self.seen.add(kind)
        self.multiplied *= max(1.0, factor)
        self.more *= max(1.0, factor)

    def _replace(self, pattern: Any, content: str) -> float:
        """The factor; a pattern that nothing before can have written takes each character of the text at most once."""
        forms = pattern if isinstance(pattern, dict) else {"String": str(pattern)}
        text, regex = (str(forms.get(form, "")) for form in ("String", "Regex"))
        fed = not {*_alike(text)}.isdisjoint(self.written)
        self._write(content)
        if not text and not regex:
            return MOST_TIMES + 1.0  # between all characters; the library loses count of them, too
        if regex:
            return float(len(content) + (WITH_A_LETTER.fullmatch(regex) is None))
        factor = len(content) / len(text)
        if fed:
            return factor
        self.at_once = max(self.at_once, factor)
        return 1.0

    def _write(self, text: str) -> None:
        self.written.update(_alike(text))
        if len(unicodedata.normalize("NFKD", text)) > len(text):  # may grow again
            self.seen.update(SETTLED)


def _alike(text: str) -> str:
    """A text with its other cases and normal forms."""
    forms: list[Callable[[str], str]] = [str.lower, lambda t: unicodedata.normalize("NFKD", t).lower()]
    return "".join([text, *(form(text) for form in forms)])


def _longest_replacement(step: Step) -> int:
    """SentencePiece's table, which is sound so far: the size of a trie, the trie, and texts that each end with a 0."""
    try:
        table = base64.b64decode(str(step.get("precompiled_charsmap")))
    except ValueError:  # the library's to refuse
        return 1
    return max(map(len, table[4 + int.from_bytes(table[:4], "little") :].split(b"\0")))


def _check_processors(steps: list[Step], file: Path) -> None:
    templates = [step for step in steps if _kind(step) == "TemplateProcessing"]
    if len(templates) > 1 or len(steps) > MOST_AROUND:
        raise CheckpointError(
            f"{file}: its post_processor has {len(steps):,} steps, {len(templates):,} of them templates; at most "
            f"{MOST_AROUND} are read, and one template"
        )
    for step in templates:
        tokens = step.get("special_tokens")
        for parts in (step.get("single"), step.get("pair")):
            _check_template(parts if isinstance(parts, list) else [], tokens if isinstance(tokens, dict) else {}, file)


def _check_template(parts: list[Any], tokens: Mapping[str, Any], file: Path) -> None:
    around, sides = 0, list[str]()
    for part in parts:
        if isinstance(part, dict):
            for kind, named in part.items():
                id = str(named.get("id")) if isinstance(named, dict) else ""
                sides += [id] if kind == "Sequence" else []
                token = tokens.get(id)
                ids = token.get("ids") if isinstance(token, dict) else None
                around += len(ids) if kind != "Sequence" and isinstance(ids, list) else 1
    if len(set(sides)) < len(sides) or around > MOST_AROUND:
        raise CheckpointError(
            f"{file}: its post_processor repeats a text, or puts more than {MOST_AROUND} tokens around it"
        )


def _check_model(model: Mapping[str, Any], file: Path) -> None:
    longest = model.get("max_input_chars_per_word")
    if isinstance(longest, int) and longest > LONGEST_WORD:
        raise CheckpointError(f"{file}: max_input_chars_per_word={longest:,}; at most {LONGEST_WORD:,} are read")
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        affix = model.get(name)
        if isinstance(affix, str) and len(affix) > LONGEST_AFFIX:
            raise CheckpointError(f"{file}: {name} has {len(affix):,} characters; at most {LONGEST_AFFIX} are read")
    vocab = model.get("vocab")
    with suppress(TypeError):  # an id that is none
        if isinstance(vocab, dict) and len(set(vocab.values())) < len(vocab):
            raise CheckpointError(f"{file} gives two tokens the same id")
    if isinstance(vocab, list):  # Unigram's
        _check_pieces([str(entry[0]) for entry in vocab if isinstance(entry, list) and entry], file)


def _check_pieces(pieces: list[str], file: Path) -> None:
    lengths = [len(piece) for piece in pieces]
    if max(lengths, default=0) > LONGEST_PIECE >> 2:
        longest = max(len(piece.encode("utf-8", "replace")) for piece in pieces)
        if longest > LONGEST_PIECE:
            raise CheckpointError(f"{file} has a piece of {longest:,} bytes; at most {LONGEST_PIECE:,} are read")
    if sum(lengths) > MOST_LETTERS >> 2:
        letters = sum(_new(first, second) for first, second in pairwise(["", *sorted(pieces)]))
        if letters > MOST_LETTERS:
            raise CheckpointError(f"{file} has pieces of {letters:,} bytes together; at most {MOST_LETTERS:,} are read")


def _new(before: str, piece: str) -> int:
    """The bytes of a piece that the one before it in sorted order does not begin with."""
    same = next(
        (i for i, (a, b) in enumerate(zip(before, piece, strict=False)) if a != b), min(len(before), len(piece))
    )
    return len(piece[same:].encode("utf-8", "replace"))
