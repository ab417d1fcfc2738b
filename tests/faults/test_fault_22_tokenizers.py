"""Fault 22: a malformed tokenizer gives our error, also when the Rust library panics or would end the process."""

import base64
import copy
import json
import os
import re
import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest
from helpers.limits import limits
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.pre_tokenizers import FixedLength

from cutaway.errors import CheckpointError, CutawayError, InputError
from cutaway.files import MEGABYTE
from cutaway.tokens import Tokenizer, find_tokenizer, gguf_tokenizer, llama2c_tokenizer
from cutaway.tokens.library_errors import damaged_tokenizer
from cutaway.tokens.tokenizer import LIMIT

BPE = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}
SOUND: dict[str, Any] = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": None,
    "post_processor": None,
    "decoder": None,
    "model": BPE,
}


def but(**changes: Any) -> bytes:
    return json.dumps(copy.deepcopy(SOUND) | changes).encode()


def charsmap(table: str) -> bytes:
    return but(normalizer={"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": table}]})


def template(**parts: Any) -> bytes:
    return but(post_processor={"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}} | parts)


HOSTILE = {
    "empty": b"",
    "null": b"null",
    "an array": b"[]",
    "nothing in it": b"{}",
    "not UTF-8": but().replace(b'"ab"', b'"\xff"'),
    "nested": b"[" * 200_000,
    "nested objects": b'{"a":' * 200_000,
    "nested normalizers": b'{"normalizer":' + b'{"type":"Sequence","normalizers":[' * 900,
    "version 9": but(version="9.9"),
    "a key twice": but().replace(b'"padding"', b'"truncation"'),
    "merge of no token": but(model=BPE | {"merges": ["a c"]}),
    "merge of one token": but(model=BPE | {"merges": ["a"]}),
    "id −1": but(model=BPE | {"vocab": {"a": -1}}),
    "id 2^32−1": but(model=BPE | {"vocab": {"a": 2**32 - 1}, "merges": []}),
    "id 2^64": but(model=BPE | {"vocab": {"a": 2**64}, "merges": []}),
    "dropout 5": but(model=BPE | {"dropout": 5}),
    "unknown model": but(model={"type": "Oracle"}),
    "unigram without its unknown": but(model={"type": "Unigram", "unk_id": 7, "vocab": [["a", -1.0]]}),
    "a regex that is none": but(
        pre_tokenizer={"type": "Split", "pattern": {"Regex": "(("}, "behavior": "Isolated", "invert": False}
    ),
    "panics while loading: charsmap": charsmap("AAAA"),
    "panics while loading: empty charsmap": charsmap(""),
    "ends the process: charsmap of 4 GB": charsmap("/////w=="),
    "ends the process: charsmap without a type": but(normalizer={"precompiled_charsmap": "/////w=="}),
    "charsmap is no base64": charsmap("%%%"),
    "panics while encoding: charsmap": charsmap("CAAAAP//////////AAAA"),
    "panics while encoding: template": template(single=[{"SpecialToken": {"id": "X", "type_id": 0}}]),
    "panics while encoding a pair: template": template(pair=[{"SpecialToken": {"id": "X", "type_id": 0}}]),
    "panics while encoding: length 0": but(pre_tokenizer={"type": "FixedLength", "length": 0}),
    "added token 2^32−1": but(
        added_tokens=[
            {"id": 2**32 - 1, "content": "x", "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
        ],
        model={"type": "WordLevel", "vocab": {"x": 2**32 - 1}, "unk_token": "x"},
    ),
}  # fmt: skip


def test_the_sound_file_is_read(tmp_path: Path):
    (tmp_path / "tokenizer.json").write_bytes(but())
    assert Tokenizer.load(tmp_path).encode("ab") == [2]


@pytest.mark.parametrize("case", HOSTILE)
def test_fault_22_a_malformed_tokenizer_json_is_refused(tmp_path: Path, case: str):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(HOSTILE[case])
    with limits(30, 500), pytest.raises(CheckpointError):
        Tokenizer.load(path)


def test_fault_22_a_panic_later_on_is_our_error_too(tmp_path: Path):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(but(model=BPE | {"vocab": {"aa": 0, "b": 1, "aab": 2}, "merges": []}))
    tokenizer = Tokenizer.load(path)
    tokenizer.backend.pre_tokenizer = FixedLength(0)
    for encode in (tokenizer.encode, tokenizer.encode_full, lambda text: tokenizer.encode_batch([text])):
        with pytest.raises(CheckpointError, match=rf"^the tokenizer in {path} is damaged"):
            encode("b")


def test_fault_22_ctrl_c_is_not_taken_for_a_panic(monkeypatch, tmp_path: Path):
    (tmp_path / "tokenizer.json").write_bytes(but())

    def interrupt(data: bytes) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cutaway.tokens.tokenizer.stated_roles", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Tokenizer.load(tmp_path)


def test_fault_22_an_oversized_tokenizer_is_not_read(tmp_path: Path):
    with (tmp_path / "tokenizer.json").open("wb") as file:
        file.truncate(LIMIT + 1)
    with limits(30, 100), pytest.raises(CheckpointError, match="at most 134,217,728 are read"):
        Tokenizer.load(tmp_path)
    assert LIMIT == 128 * MEGABYTE


DATA = but(
    added_tokens=[
        {"id": 3, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}
    ],
    normalizer={"type": "NFC"},
    pre_tokenizer={"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    decoder={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
)  # fmt: skip


@settings(max_examples=300)
@given(at=st.integers(0, len(DATA) - 1), new=st.binary(min_size=0, max_size=4), gone=st.integers(0, 6))
def test_fault_22_bytes_changed_anywhere_give_our_error_or_a_tokenizer(
    at: int, new: bytes, gone: int, tmp_path_factory: pytest.TempPathFactory
):
    path = tmp_path_factory.getbasetemp() / "flipped" / "tokenizer.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(DATA[:at] + new + DATA[at + gone :])
    try:
        with limits():
            tokenizer = Tokenizer.load(path)
            tokenizer.decode(tokenizer.encode("ab <s> 日本"))
    except CutawayError:
        pass


# --- what a text may become -------------------------------------------------------------------------------------------


def chain(place: str, *steps: dict[str, Any]) -> bytes:
    inner = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}
    inner["post_processor"] = "processors"
    return but(**{place: {"type": "Sequence", inner[place]: list(steps)}})


def replace(old: str, new: str, kind: str = "String") -> dict[str, Any]:
    return {"type": "Replace", "pattern": {kind: old}, "content": new}


def template_of(*parts: Any) -> dict[str, Any]:
    return {"type": "TemplateProcessing", "single": list(parts), "pair": [A, B], "special_tokens": {"x": X}}


A, B = ({"Sequence": {"id": id, "type_id": 0}} for id in "AB")
X = {"id": "x", "ids": [0] * 40, "tokens": ["a"] * 40}
MARK = {"SpecialToken": {"id": "x", "type_id": 0}}
PREFIX = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False}
WIDE = {"type": "Metaspace", "prepend_scheme": "always", "split": True}
CTC = {"type": "CTC", "pad_token": "b", "word_delimiter_token": "", "cleanup": True}
FOURFOLD = chain("normalizer", *[replace("a", "aaaa")] * 3)
GROWING = {
    "one letter becomes two, nine times": chain("normalizer", *[replace("a", "aa")] * 9),
    "in turns": chain("normalizer", *[replace("a", "bb"), replace("b", "aa")] * 5),
    "in capitals": chain("normalizer", *[replace("a", "AA"), {"type": "Lowercase"}] * 9),
    "by an expression": chain("normalizer", *[replace("a?", "b", "Regex")] * 9),
    "by a class": chain("normalizer", *[replace("[ab]", "ab", "Regex")] * 9),
    "between all letters": chain("normalizer", replace("", "a")),
    "between all letters, by an expression": chain("normalizer", replace("", "a", "Regex")),
    "without a type": chain("normalizer", *[{"pattern": {"String": "a"}, "content": "aa"}] * 9),
    "in front, then more": chain("normalizer", {"type": "Prepend", "prepend": "b" * 9000}, replace("b", "b" * 200)),
    "in front": chain("normalizer", {"type": "Prepend", "prepend": "a" * (1 << 20) + "a"}),
    "sequences in sequences": chain("normalizer", *[json.loads(FOURFOLD)["normalizer"]] * 2),
    "a ligature that opens again": chain("normalizer", *[replace("ل", "ﷺ"), {"type": "NFKC"}] * 3),
    "bytes of bytes": chain("normalizer", *[{"type": "ByteLevel"}] * 9),
    "bytes of bytes of words": chain("pre_tokenizer", *[PREFIX] * 9),
    "words in turns": chain("pre_tokenizer", *[WIDE | {"replacement": mark} for mark in "▁_"] * 5),
    "put together": chain("decoder", *[replace("a", "aa")] * 9),
    "spaces put together": chain("decoder", *[CTC] * 9),
    "suffixes put together": chain("decoder", *[{"type": "BPEDecoder", "suffix": ""}] * 9),
    "a text twice": but(post_processor=template_of(A, A)),
    "a pair's text twice": but(post_processor=template_of(A) | {"pair": [A, B, A]}),
    "templates of templates": chain("post_processor", template_of(A), template_of(A)),
    "many tokens around": but(post_processor=template_of(MARK, A, MARK)),
    "many steps around": chain("post_processor", *[{"type": "BertProcessing", "sep": ["a", 0], "cls": ["a", 0]}] * 65),
    "many steps": chain("normalizer", *[{"type": "NFC"}] * 257),
    "a charsmap that writes much": charsmap(base64.b64encode(bytes(4) + b"a" * 5000 + b"\0").decode()),
    "a piece too deep for the library": but(
        model={"type": "Unigram", "unk_id": 0, "vocab": [["a", 0.0], ["b" * 4097, -1.0]], "byte_fallback": False}
    ),
    "pieces of too many letters": but(
        model={"type": "Unigram", "unk_id": 0, "byte_fallback": False,
               "vocab": [["a", 0.0], *([f"{i:04}" + "b" * 4000, -1.0] for i in range(530))]}
    ),
    "words of any length": but(
        model={"type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "##", "vocab": {"a": 0},
               "max_input_chars_per_word": 10**9}
    ),
    "a prefix of a megabyte": but(model=BPE | {"merges": [], "continuing_subword_prefix": "#" * (1 << 20)}),
    "two tokens of one id": but(model=BPE | {"vocab": {"a": 0, "b": 0, "ab": 2}}),
}  # fmt: skip


@pytest.mark.parametrize("case", GROWING)
def test_fault_22_a_tokenizer_that_multiplies_a_text_is_refused_before_the_library_reads_it(tmp_path: Path, case: str):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(GROWING[case])
    with limits(30, 700), pytest.raises(CheckpointError, match=re.escape(str(path))):
        Tokenizer.load(path)


SOUND_CHAINS = {
    "Llama's": [{"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")],
    "CLIP's": [{"type": "NFC"}, replace(r"\s+", " ", "Regex"), {"type": "Lowercase"}],
    "ALBERT's": [replace("``", '"'), replace("''", '"'), {"type": "NFKD"}, {"type": "StripAccents"},
                 {"type": "Lowercase"}, replace(" {2,}", " ", "Regex")],
    "of many signs": [replace(sign, "...") for sign in "…‥⋯“”„«»‹›‘’‚–—―•·※№℡™©®€£¥"],
}  # fmt: skip


@pytest.mark.parametrize("case", SOUND_CHAINS)
def test_chains_as_published_tokenizers_have_them_are_read(tmp_path: Path, case: str):
    (tmp_path / "tokenizer.json").write_bytes(chain("normalizer", *SOUND_CHAINS[case]))
    assert Tokenizer.load(tmp_path).encode("ab")


def test_fault_22_what_is_read_makes_no_text_much_longer(tmp_path: Path):
    """Of chains drawn at random, those that are read never exceed what the check allows."""
    random, text = Random(22), "ab A…é  ﷺ日"
    kinds = [{"type": kind} for kind in ("NFC", "NFKC", "Lowercase", "ByteLevel", "StripAccents")]
    words = ["a", "b", "A", "aa", "ab", "é", "ﷺ", " ", "bbb", "Ã"]
    read = 0
    for _ in range(400):
        steps = [
            random.choice([
                replace(random.choice(words), random.choice(words) * random.choice((1, 1, 2, 3))),
                replace(random.choice(["a+", "[ab]", ".", "b*", "(?=a)"]), random.choice(words), "Regex"),
                {"type": "Prepend", "prepend": random.choice(words)},
                random.choice(kinds),
            ])
            for _ in range(random.randrange(1, 10))
        ]  # fmt: skip
        (tmp_path / "tokenizer.json").write_bytes(chain("normalizer", *steps))
        try:
            normalizer = Tokenizer.load(tmp_path).backend.normalizer
        except CheckpointError:
            continue
        read += 1
        assert len(normalizer.normalize_str(text)) <= 256 * 72 * len(text), steps
    assert read > 100


def test_fault_22_a_panic_writes_no_note_of_its_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(template(single=[{"SpecialToken": {"id": "X", "type_id": 0}}]))
    with pytest.raises(CheckpointError):
        Tokenizer.load(path)
    assert capfd.readouterr().err == ""


def test_what_others_write_while_a_tokenizer_is_read_is_not_lost(capfd: pytest.CaptureFixture[str]):
    with damaged_tokenizer("x"):
        os.write(2, b"from another thread\n")
    assert capfd.readouterr().err == "from another thread\n"


# --- other forms ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"vocab.txt": b"\xff"}, "not UTF-8"),
        ({"vocab.txt": b"a\nb\n"}, r"lacks \[UNK\], \[CLS\], \[SEP\]"),
        ({"vocab.txt": b"[UNK]\n[CLS]\n[SEP]\n[UNK]\n"}, "an entry twice"),
        ({"vocab.txt": b"[UNK]\n[CLS]\n[SEP]\n", "tokenizer_config.json": b'{"strip_accents": "x"}'}, "not a valid"),
        ({"vocab.txt": b"", "tokenizer_config.json": b'{"tokenizer_class": "RoFormerTokenizer"}'}, "jieba"),
        ({"vocab.json": b'{"a": 0}', "merges.txt": b"a b\n"}, "not a valid tokenizer"),
        ({"vocab.json": b'{"a": "0"}', "merges.txt": b""}, "must map each token to its id"),
        ({"vocab.json": b'{"a": 0, "b": 0}', "merges.txt": b""}, "gives two tokens the same id"),
        ({"vocab.json": b'{"a": -1}', "merges.txt": b""}, "must map each token to its id"),
        ({"vocab.json": b'{"a": 99999999}', "merges.txt": b""}, "has the id 99,999,999"),
        ({"vocab.json": b'{"a": 0}', "merges.txt": b"a\n"}, "which is not two tokens"),
        ({"vocab.json": b'{"a": 0}', "merges.txt": b"a b c\n"}, "which is not two tokens"),
        ({"spiece.model": b""}, "SentencePiece model, which is not supported; supported are tokenizer.json, vocab.txt"),
        ({"source.spm": b"", "vocab.json": b"{}"}, r"`--no-tokenizer`, in Python `import_model\(…, tokenizer=False\)`"),
    ],
)
def test_fault_22_other_forms_are_refused_with_the_reason(tmp_path: Path, files: dict[str, bytes], reason: str):
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(CheckpointError, match=reason):
        find_tokenizer(tmp_path)


LLAMA = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "a"],
    "tokenizer.ggml.scores": [0.0, 0.0, 0.0, -1.0],
    "tokenizer.ggml.token_type": [2, 3, 3, 1],
}
GPT2 = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a", "b", "ab"], "tokenizer.ggml.merges": ["a b"]}


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({}, "kind None; supported are 'gpt2' and 'llama'"),
        (LLAMA | {"tokenizer.ggml.model": "bert"}, "kind 'bert'"),
        (LLAMA | {"tokenizer.ggml.tokens": 5}, "no list of tokens"),
        (LLAMA | {"tokenizer.ggml.tokens": []}, "no list of tokens"),
        (LLAMA | {"tokenizer.ggml.tokens": ["a", 1, 2, 3]}, "no list of tokens"),
        (LLAMA | {"tokenizer.ggml.tokens": ["a", "a", "b", "c"]}, "a piece twice"),
        (LLAMA | {"tokenizer.ggml.scores": [0.0]}, "does not have one value for each"),
        (LLAMA | {"tokenizer.ggml.token_type": [[], 1, 1, 1]}, "something other than numbers"),
        (LLAMA | {"tokenizer.ggml.eos_token_id": 4}, "eos_token_id is 4, outside its 4 tokens"),
        (LLAMA | {"tokenizer.ggml.eos_token_id": -1}, "eos_token_id is -1, outside"),
        (LLAMA | {"tokenizer.ggml.eos_token_id": "x"}, "eos_token_id is x, outside"),
        (GPT2 | {"tokenizer.ggml.merges": ["a c"]}, "not a valid tokenizer"),
        (GPT2 | {"tokenizer.ggml.merges": ["ab"]}, "not two tokens"),
        (GPT2 | {"tokenizer.ggml.merges": 7}, "no list of merges"),
        (GPT2 | {"tokenizer.ggml.pre": "tekken"}, "splits words as 'tekken'.*supported are gpt-2"),
        (GPT2 | {"tokenizer.ggml.add_bos_token": True}, "adds a token to every text"),
    ],
)
def test_fault_22_gguf_tokenizers_are_refused_with_the_reason(metadata: dict[str, Any], reason: str):
    with pytest.raises(CheckpointError, match=reason):
        gguf_tokenizer(metadata)


def llama2c(pieces: int = 300, **bad: Any) -> bytes:
    data = struct.pack("<I", 10)
    for id in range(pieces):
        text = bad.get("text", f"p{id}".encode()) if id == 270 else f"p{id}".encode()
        data += struct.pack("<fi", -float(id), bad.get("length", len(text)) if id == 270 else len(text)) + text
    return data


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "ends at piece 0"),
        (llama2c()[:-9], "ends at piece|claims to have"),
        (llama2c(299), "ends at piece 299 of 300"),
        (llama2c() + b"x", "1 bytes behind its last piece"),
        (llama2c(length=-1), "piece 270 claims to have -1 bytes"),
        (llama2c(length=2**31 - 1), "piece 270 claims to have"),
        (llama2c(text=b"\xff\xff"), "piece 270 is not UTF-8"),
        (llama2c(text=b"p280"), "a piece twice"),
    ],
)
def test_fault_22_llama2c_tokenizers_are_refused_with_the_reason(data: bytes, reason: str):
    assert llama2c_tokenizer(llama2c(), 300).vocab_size == 300
    with limits(), pytest.raises(CheckpointError, match=reason):
        llama2c_tokenizer(data, 300)


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_text_that_is_no_unicode_is_told(tmp_path: Path, text: str):
    (tmp_path / "tokenizer.json").write_bytes(but())
    with pytest.raises(InputError, match="no lone surrogates"):
        Tokenizer.load(tmp_path).encode(text)
