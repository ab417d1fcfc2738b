"""Models and tokenizers, ours and in the layouts of others."""

import contextlib
import json
import struct
from pathlib import Path
from random import Random
from typing import Any

from campaign.reader import WORDS, Reader, files_of, sentences, small

# --- models -----------------------------------------------------------------------------------------------------------


def _opened(path: Path, out: Path) -> None:
    """Described, listed, and made a folder of our own."""
    from cutaway.checkpoints import import_model, load, read_config

    read_config(path)
    load(path)
    import_model(path, out / "model")


def _model_file(folder: Path) -> Path:
    return next(path for path in folder.iterdir() if path.stem == "model")


def _gguf(place: Path) -> Reader:
    from helpers.parity.foreign_files import gguf_metadata, gguf_tensors, write_gguf
    from parity.test_gguf import made

    theirs = made()
    numbers, tensors = gguf_metadata(theirs.config), gguf_tensors(theirs)
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(20)), *"▁abcdefghijklmnopqrstuvwxyz"]
    tokens += [f"▁{word}" for word in WORDS][: theirs.config.vocab_size - len(tokens)]
    tokens += [f"x{i}" for i in range(theirs.config.vocab_size - len(tokens))]
    words = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [-float(i) for i in range(len(tokens))],
        "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 20, *[1] * (len(tokens) - 23)],
    }
    letters = [
        *"etabcdfghijklmnopqrsuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[: theirs.config.vocab_size - 3],
        "h",
        "th",
        "the",
    ]
    letters = list(dict.fromkeys(letters))
    merged = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": letters,
        "tokenizer.ggml.merges": ["t h", "th e"],
    }
    write_gguf(place / "a.gguf", numbers | words, tensors)
    write_gguf(place / "b.gguf", numbers | merged, tensors)
    write_gguf(place / "c.gguf", numbers | words, tensors, "F16")
    samples = [{"model.gguf": path.read_bytes()} for path in sorted(place.iterdir())]
    return Reader("GGUF", samples, lambda folder, out: _opened(_model_file(folder), out), 1.5)


def _llama2c(place: Path) -> Reader:
    from helpers.parity.foreign_files import write_llama2c
    from parity.test_gguf import made

    theirs = made()
    tokens = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *(b"<0x%02X>" % i for i in range(20))]
    tokens += [b"w%d" % i for i in range(theirs.config.vocab_size - len(tokens))]
    words = struct.pack("<i", 8) + b"".join(
        struct.pack("<fi", -float(i), len(token)) + token for i, token in enumerate(tokens)
    )
    samples = []
    for version in (0, 1):
        write_llama2c(place / "model.bin", theirs, version)
        data = (place / "model.bin").read_bytes()
        samples += [{"model.bin": data}, {"model.bin": data, "tokenizer.bin": words}]
    return Reader("llama2.c", samples, lambda folder, out: _opened(_model_file(folder), out))


def _weights(place: Path) -> Reader:
    from cutaway.checkpoints import save

    samples = []
    for i, (family, options) in enumerate(
        (
            ("gpt2", {}),
            ("gpt2", {"store": "int8"}),
            ("gpt2", {"shard_size": 10_000}),
            ("transformer", {}),
            ("vit", {}),
            ("lstm", {}),
        )
    ):
        save(small(family), place / str(i), **options)
        samples.append(files_of(place / str(i)))
    return Reader("safetensors", samples, _opened, 1.5, only=".safetensors .index.json")


def _configs(place: Path) -> Reader:
    from cutaway.checkpoints import save

    samples = []
    for family in ("gpt2", "llama", "bert", "transformer", "t5", "roformer", "vit", "lstm", "lstm-translator"):
        save(small(family), place / family)
        samples.append(files_of(place / family))
    return Reader("config.json, ours", samples, _opened, 1.5, only="config.json")


def _published(place: Path) -> Reader:
    from cutaway.checkpoints import export

    samples = []
    for family in ("gpt2", "gpt", "llama", "bert", "roberta", "roformer", "transformer", "t5", "vit"):
        with contextlib.suppress(Exception):
            export(small(family), place / family)
            samples.append(files_of(place / family))
    return Reader("config.json, published", samples, _opened, 1.5, only="config.json")


# --- tokenizers -------------------------------------------------------------------------------------------------------


def _cuts(folder: Path, out: Path) -> None:
    from cutaway.tokens import find_tokenizer

    tokenizer = find_tokenizer(folder)
    if tokenizer is None:
        return
    for text in ("The cat sat on the mat.", "", "aaaa bbbb\n漢字 é\u0301 \U0001f600 <s> [MASK]", "a" * 2000):
        ids = tokenizer.encode(text)
        tokenizer.decode(ids[:500])
    tokenizer.encode_pair("a cat", "a dog")
    tokenizer.save(out / "model")


def _tokenizers(place: Path) -> Reader:
    from cutaway.tokens.tokenizer_training import train_tokenizer

    samples = []
    for kind in ("bpe", "wordpiece", "unigram", "word", "char", "byte"):
        size = {} if kind in ("byte",) else {"vocab_size": 120 if kind != "bpe" else 300}
        with contextlib.suppress(Exception):
            train_tokenizer(sentences(40, Random(5)), kind=kind, **size).save(place / kind)
            samples.append(files_of(place / kind))
    rich = json.loads(samples[0]["tokenizer.json"])
    steps: dict[str, list[Any]] = {
        "normalizer": [
            {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"},
            {"type": "Prepend", "prepend": "▁"},
            {"type": "NFKC"},
            {"type": "Replace", "pattern": {"Regex": "b+"}, "content": "cc"},
            {"type": "Lowercase"},
        ],
        "decoder": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
        "pre_tokenizer": [
            {"type": "Split", "pattern": {"Regex": "\\w+|\\s"}, "behavior": "Isolated", "invert": False},
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        ],
    }
    inner = {"normalizer": "normalizers", "decoder": "decoders", "pre_tokenizer": "pretokenizers"}
    for name, its in steps.items():
        rich[name] = {"type": "Sequence", inner[name]: its}
    rich["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {},
    }
    samples += [{"tokenizer.json": json.dumps(rich).encode()}] * 6
    return Reader("tokenizer.json", samples, _cuts, 3.0)


def _vocabularies(place: Path) -> Reader:
    letters = [chr(i) for i in (*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324))]
    merges = ["t h", "th e", "Ġ th", "Ġ c", "c a"]
    vocab = {token: i for i, token in enumerate([*letters, *("".join(m.split()) for m in merges), "<|endoftext|>"])}
    roberta = (
        {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3} | {token: i + 4 for token, i in vocab.items()} | {"<mask>": 999}
    )
    gpt = {
        token: i
        for i, token in enumerate(
            [
                *"abcdefghijklmnopqrstuvwxyz.",
                *(f"{c}</w>" for c in "abcdefghijklmnopqrstuvwxyz."),
                "th",
                "the</w>",
                "<unk>",
            ]
        )
    }
    bert = [
        "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", *(f"##{c}" for c in "abcdefgh"),
        "the",
    ]  # fmt: skip
    text = ("#version: 0.2\n" + "\n".join(merges) + "\n").encode()
    config = json.dumps(
        {
            "tokenizer_class": "X",
            "unk_token": "[UNK]",
            "do_lower_case": True,
            "strip_accents": None,
            "cls_token": {"content": "[CLS]", "lstrip": False},
            "additional_special_tokens": ["[X]"],
        }
    ).encode()
    samples = [
        {"vocab.json": json.dumps(vocab).encode(), "merges.txt": text},
        {
            "vocab.json": json.dumps(roberta).encode(),
            "merges.txt": text,
            "special_tokens_map.json": b'{"bos_token": "<s>"}',
        },
        {"vocab.json": json.dumps(gpt).encode(), "merges.txt": b"t h\nth e</w>\n"},
        {"vocab.txt": "\n".join(bert).encode(), "tokenizer_config.json": config},
    ]
    return Reader("vocab and merges", samples, _cuts, 1.5)


MAKERS = [_gguf, _llama2c, _weights, _configs, _published, _tokenizers, _vocabularies]
