"""How entries are spelled, and which of them go on with a word."""

import pytest
import tokenizers
from helpers import token_reference as reference
from helpers.varied_texts import varied_texts
from tokenizers import models, pre_tokenizers

from cutaway.errors import InputError
from cutaway.tokens import Tokenizer, train_tokenizer
from cutaway.tokens.marks import visible_bytes

TEXT = "We're unhappily untying 3 knots, naïvely: «Ärger» 日本 हिन्दी"


def words_of(tokenizer: Tokenizer, text: str) -> list[list[str]]:
    """The tokens of a text, grouped as whole-word masking would; the first begins a word whatever it is."""
    goes_on = tokenizer.continues_word()
    encoded = tokenizer.encode_full(text, special=False)
    groups: list[list[str]] = []
    for id, token in zip(encoded.ids, encoded.tokens, strict=True):
        if groups and goes_on[id]:
            groups[-1].append(token)
        else:
            groups.append([token])
    return groups


@pytest.mark.parametrize(("kind", "size"), [("bpe", 300), ("unigram", 560), ("char", None), ("byte", None)])
def test_every_word_after_a_space_is_one_group(kind: str, size: int | None):
    tokenizer = train_tokenizer([*varied_texts(), TEXT * 2], kind=kind, vocab_size=size)
    spaces = "Ġ▁ "
    groups = ["".join(group) for group in words_of(tokenizer, " the untying of knots for naïve Ärger हिन्दी ")]
    text = tokenizer.decode(tokenizer.encode("the untying of knots for naïve Ärger हिन्दी"))
    found = [group.lstrip(spaces) for group in groups if group.strip(spaces)]
    assert len(found) == len(text.split())
    if kind in ("unigram", "char"):
        assert found == text.split()


def test_wordpiece_says_it_itself():
    tokenizer = train_tokenizer([TEXT], kind="wordpiece", vocab_size=200)
    goes_on = tokenizer.continues_word()
    assert goes_on == [tokenizer.token(id).startswith("##") for id in range(tokenizer.vocab_size)]
    assert ["".join(group).replace("##", "") for group in words_of(tokenizer, "untying 3 knots!")[:3]] == [
        "untying",
        "3",
        "knots",
    ]


def test_words_and_special_tokens_never_go_on():
    tokenizer = train_tokenizer([TEXT], kind="word", tags=["de"])
    assert not any(tokenizer.continues_word())
    tagged = train_tokenizer([TEXT], kind="bpe", vocab_size=300, tags=["de"], mask=True)
    assert not any(tagged.continues_word()[id] for id in tagged.special_ids().values())


def test_bytes_and_parts_of_characters():
    """æĹ¥ is 日 and âĢĵ the dash –; Ã and ä begin a character (0xC3, 0xE4), ¤ and Ģ are inside of one (0xA4, 0x80)."""
    expected = {
        "a": True,
        "Ġa": False,
        ",": False,
        "æĹ¥": True,
        "âĢĵ": False,
        "Ã": True,
        "ä": True,
        "¤": True,
        "Ģ": True,
    }
    backend = tokenizers.Tokenizer(models.BPE({token: id for id, token in enumerate(expected)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    assert Tokenizer(backend).continues_word() == list(expected.values())


def test_fallback_bytes():
    vocab = ["<unk>", "▁a", "b", "<0x41>", "<0x20>", "<0x80>", "<0xE2>"]
    backend = tokenizers.Tokenizer(
        models.BPE({token: id for id, token in enumerate(vocab)}, [], unk_token="<unk>", byte_fallback=True)
    )
    assert Tokenizer(backend).continues_word() == [False, False, True, True, False, True, True]


def test_entries_that_only_end_words_are_told():
    backend = tokenizers.Tokenizer(models.BPE({"a</w>": 0, "a": 1}, [], end_of_word_suffix="</w>"))
    with pytest.raises(InputError, match=r"where a word ends \(</w>\)"):
        Tokenizer(backend).continues_word()


def test_the_visible_bytes_are_gpt2s():
    assert visible_bytes() == [reference.visible_bytes()[byte] for byte in range(256)]
    assert sorted(visible_bytes()) == sorted(pre_tokenizers.ByteLevel.alphabet())
