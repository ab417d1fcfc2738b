"""Published forms other than tokenizer.json, against transformers on the same files."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from helpers.varied_texts import FRAGMENTS, varied_texts
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import models, normalizers, pre_tokenizers, trainers
from transformers import BertTokenizer, GPT2Tokenizer, OpenAIGPTTokenizer, RobertaTokenizer

from cutaway.errors import CheckpointError
from cutaway.tokens import Tokenizer, find_tokenizer
from cutaway.tokens.roles import find_roles, stated_roles


def write_wordpiece(folder: Path, **config: object) -> None:
    """A vocab.txt learnt from the fragments."""
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=bool(config.get("do_lower_case", True)))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    backend.train_from_iterator(
        FRAGMENTS, trainers.WordPieceTrainer(vocab_size=500, special_tokens=special, show_progress=False)
    )
    vocab = backend.get_vocab()
    (folder / "vocab.txt").write_text("\n".join(sorted(vocab, key=lambda token: vocab[token])) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def write_bpe(folder: Path, special: list[str], suffix: str = "") -> None:
    """vocab.json and merges.txt learnt from the fragments."""
    options = {"end_of_word_suffix": suffix} if suffix else {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
    backend = tokenizers.Tokenizer(models.BPE(end_of_word_suffix=suffix, unk_token="<unk>") if suffix else models.BPE())
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer() if suffix else pre_tokenizers.ByteLevel(False)
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=special, show_progress=False, **options)
    backend.train_from_iterator([text.lower() for text in FRAGMENTS] if suffix else FRAGMENTS, trainer)
    backend.model.save(str(folder))


def same(ours: Tokenizer | None, peer: object) -> Tokenizer:
    assert ours is not None
    for text in varied_texts():
        assert ours.encode(text) == peer.encode(text), text
        assert ours.encode(text, special=False) == peer.encode(text, add_special_tokens=False), text
    pair = peer("I ate", "an apple")
    assert ours.encode_pair("I ate", "an apple").ids == pair["input_ids"]
    return ours


@pytest.mark.parametrize(
    "config", [{}, {"do_lower_case": False}, {"strip_accents": False}, {"tokenize_chinese_chars": False}]
)
def test_bert_from_vocab_txt(tmp_path: Path, config: dict[str, bool]):
    write_wordpiece(tmp_path, **config)
    peer = BertTokenizer.from_pretrained(tmp_path)
    ours = same(find_tokenizer(tmp_path), peer)
    assert ours.encode_pair("I ate", "an apple").segments == peer("I ate", "an apple")["token_type_ids"]
    assert (ours.pad_id, ours.unk_id, ours.cls_id, ours.sep_id, ours.mask_id) == (0, 1, 2, 3, 4)
    assert (ours.bos_id, ours.eos_id) == (None, None)
    assert ours.encode("a [MASK] b")[2] == ours.mask_id


def test_gpt2_from_vocab_and_merges(tmp_path: Path):
    write_bpe(tmp_path, ["<|endoftext|>"])
    ours = same(find_tokenizer(tmp_path), GPT2Tokenizer.from_pretrained(tmp_path))
    assert ours.bos_id == ours.eos_id == ours.id("<|endoftext|>")
    assert ours.encode("a<|endoftext|>")[-1] == ours.eos_id
    assert all(ours.decode(ours.encode(text)) == text for text in varied_texts())


def test_roberta_from_vocab_and_merges(tmp_path: Path):
    write_bpe(tmp_path, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    ours = same(find_tokenizer(tmp_path), RobertaTokenizer.from_pretrained(tmp_path))
    assert (ours.bos_id, ours.pad_id, ours.eos_id, ours.unk_id, ours.mask_id) == (0, 1, 2, 3, 4)
    assert (ours.cls_id, ours.sep_id) == (0, 2)
    the, fox = ours.encode("the", special=False), ours.encode(" fox", special=False)
    assert ours.encode("the <mask> fox") == [0, *the, 4, *fox, 2]  # the mask takes the space before it


def test_gpt_from_vocab_and_merges(tmp_path: Path):
    write_bpe(tmp_path, ["<unk>"], suffix="</w>")
    ours = same(find_tokenizer(tmp_path), OpenAIGPTTokenizer.from_pretrained(tmp_path))
    assert ours.unk_id == 0
    assert ours.decode(ours.encode("The Quick brown fox")) == "the quick brown fox"


@given(text=st.text(max_size=50))
def test_wordpiece_gives_back_the_normalised_text(text: str, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.getbasetemp() / "wordpiece"
    if not folder.exists():
        folder.mkdir()
        write_wordpiece(folder)
    tokenizer = find_tokenizer(folder)
    assert tokenizer is not None
    assume(not any(token in text for token in tokenizer.special_ids()))
    once = tokenizer.decode(tokenizer.encode(text))
    known = tokenizer.unk_id not in tokenizer.encode(text)
    assert not known or tokenizer.encode(once) == tokenizer.encode(text)


def test_windows_line_ends_change_nothing(tmp_path: Path):
    write_wordpiece(tmp_path)
    before = find_tokenizer(tmp_path)
    (tmp_path / "vocab.txt").write_bytes((tmp_path / "vocab.txt").read_bytes().replace(b"\n", b"\r\n"))
    after = find_tokenizer(tmp_path)
    assert before is not None
    assert after is not None
    assert after.encode("an apple") == before.encode("an apple")


def test_tokenizer_json_comes_first_and_nothing_is_none(tmp_path: Path):
    assert find_tokenizer(tmp_path) is None
    write_wordpiece(tmp_path)
    tokenizers.Tokenizer(models.WordLevel({"only": 0}, unk_token="only")).save(str(tmp_path / "tokenizer.json"))
    found = find_tokenizer(tmp_path)
    assert found is not None
    assert found.vocab_size == 1


ROLES = ["unk", "pad", "bos", "eos", "cls", "sep", "mask"]


@pytest.mark.parametrize("as_object", [False, True])
def test_of_two_files_of_roles_the_newer_one_counts(tmp_path: Path, as_object: bool):
    def said(mark: str, roles: list[str]) -> str:
        return json.dumps({f"{role}_token": {"content": mark + role} if as_object else mark + role for role in roles})

    (tmp_path / "special_tokens_map.json").write_text(said("old ", ROLES))
    assert stated_roles(tmp_path) == {role: f"old {role}" for role in ROLES}
    (tmp_path / "tokenizer_config.json").write_text(said("new ", ROLES[:4]))
    assert stated_roles(tmp_path) == {role: ("new " if role in ROLES[:4] else "old ") + role for role in ROLES}
    (tmp_path / "special_tokens_map.json").unlink()
    assert stated_roles(tmp_path) == {role: f"new {role}" for role in ROLES[:4]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({f"{role}_token": None for role in ROLES}))
    assert stated_roles(tmp_path) == {}


USUAL = {
    "unk": ["<unk>", "[UNK]"],
    "pad": ["<pad>", "[PAD]", "<|pad|>", "<|padding|>", "<|finetune_right_pad_id|>"],
    "bos": ["<sos>", "<s>", "<bos>", "[BOS]", "<|startoftext|>", "<|begin_of_text|>"],
    "eos": ["<eos>", "</s>", "[EOS]", "<|endoftext|>", "<|end_of_text|>"],
    "cls": ["[CLS]", "<cls>"],
    "sep": ["[SEP]", "<sep>"],
    "mask": ["[MASK]", "<mask>"],
}


@pytest.mark.parametrize("role", USUAL)
def test_a_token_of_a_usual_name_has_its_role_unless_another_is_stated(role: str):
    names = USUAL[role]
    for name in names:
        assert find_roles({name, "<odd>"}, {}) == {role: name}
    assert find_roles({*names}, {}) == {role: names[0]}
    assert find_roles({*names, "<odd>"}, {role: "<odd>"}) == {role: "<odd>"}
    assert find_roles({"<odd>"}, {}) == {}


TEMPLATE = "{{ messages }}"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"tokenizer_config.json": {"chat_template": TEMPLATE}}, TEMPLATE),
        ({"tokenizer_config.json": {"chat_template": None}}, None),
        ({"tokenizer_config.json": {"chat_template": "old"}, "chat_template.jinja": TEMPLATE}, TEMPLATE),
        (
            {
                "tokenizer_config.json": {
                    "chat_template": [{"name": "tools", "template": "x"}, {"name": "default", "template": TEMPLATE}]
                }
            },
            TEMPLATE,
        ),
        ({"tokenizer_config.json": {"chat_template": [{"name": "tools", "template": "x"}, 5]}}, None),
    ],
)
@pytest.mark.parametrize("form", ["tokenizer.json", "vocab.txt"])
def test_a_chat_template_is_read_and_written_again(
    tmp_path: Path, form: str, files: dict[str, Any], expected: str | None
):
    folder = tmp_path / "from"
    folder.mkdir()
    if form == "vocab.txt":
        (folder / form).write_text("[UNK]\n[CLS]\n[SEP]\na\n")
    else:
        (folder / form).write_text(tokenizers.Tokenizer(models.WordLevel({"a": 0}, "a")).to_str())
    for name, content in files.items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    found = find_tokenizer(folder)
    assert found.chat_template == expected
    found.save(tmp_path / "to")
    assert Tokenizer.load(tmp_path / "to").chat_template == expected
    (tmp_path / "to" / "chat_template.jinja").write_text("of an earlier one")
    found.save(tmp_path / "to")
    assert Tokenizer.load(tmp_path / "to").chat_template == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer_config.json", b'{"chat_template": 5}', "chat_template is neither a text nor a list of named ones"),
        ("tokenizer_config.json", b'{"chat_template": [{"name": "default", "template": 5}]}', "neither a text nor"),
        ("chat_template.jinja", b"a\xff", r"chat_template\.jinja is not UTF-8 at byte 1"),
        ("chat_template.jinja", b"a" * ((1 << 20) + 1), r"chat_template\.jinja"),
    ],
)
def test_a_chat_template_that_is_none(tmp_path: Path, name: str, content: bytes, message: str):
    (tmp_path / "tokenizer.json").write_text(tokenizers.Tokenizer(models.WordLevel({"a": 0}, "a")).to_str())
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        find_tokenizer(tmp_path)
