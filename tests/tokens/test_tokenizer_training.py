"""Training tokenizers: laws that hold for every kind, then worked examples."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.varied_texts import FRAGMENTS, varied_texts
from hypothesis import assume, given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from cutaway.errors import ConfigError, InputError
from cutaway.tokens import Tokenizer, train_tokenizer, word_counts
from cutaway.tokens.tokenizer_training import KINDS

SIZES = {"word": None, "char": None, "byte": None, "bpe": 700, "wordpiece": 800, "unigram": 560}
# Fragments of special tokens, so that texts are often on the edge of one.
TRICKY = st.lists(
    st.one_of(
        st.text(max_size=6),
        st.sampled_from(
            [
                "<pad>",
                "<unk>",
                "<UNK>",
                "＜eos＞",
                "[MASK]",
                "[mask]",
                "<2de>",
                "##",
                "▁",
                " ",
                "Ġ",
                "\n",
                "\r\n",
                "\u0301",
            ]
        ),
        st.sampled_from(FRAGMENTS),
    ),
    max_size=6,
).map("".join)


def trained(kind: str, **options: object) -> Tokenizer:
    return train_tokenizer(iter(varied_texts()), **{"kind": kind, "vocab_size": SIZES[kind], **options})


@pytest.fixture(scope="module")
def by_kind() -> dict[str, Tokenizer]:
    return {kind: trained(kind) for kind in KINDS}


@pytest.fixture(scope="module")
def lowercased() -> dict[str, Tokenizer]:
    return {kind: trained(kind, lowercase=True) for kind in KINDS}


# --- there and back ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["byte", "bpe"])
@given(text=st.text() | TRICKY)
def test_bytes_come_back_exactly_whatever_the_text(kind: str, text: str, by_kind: dict[str, Tokenizer]):
    tokenizer = by_kind[kind]
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids, skip_special=False) == text
    if not any(token in text for token in tokenizer.special_ids()):
        assert tokenizer.decode(ids) == text
    assert tokenizer.unk_id is None


@given(text=st.text(alphabet=sorted(set("".join(FRAGMENTS)))))
def test_known_characters_come_back_exactly(text: str, by_kind: dict[str, Tokenizer]):
    tokenizer = by_kind["char"]
    assume(not any(token in text for token in tokenizer.special_ids()))
    ids = tokenizer.encode(text)
    assert tokenizer.unk_id not in ids
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@given(text=TRICKY)
def test_what_comes_back_comes_back_again(
    kind: str, lower: bool, text: str, by_kind: dict[str, Tokenizer], lowercased: dict[str, Tokenizer]
):
    tokenizer = (lowercased if lower else by_kind)[kind]
    once = tokenizer.decode(tokenizer.encode(text, special=False), skip_special=False)
    assert tokenizer.decode(tokenizer.encode(once, special=False), skip_special=False) == once


@given(text=TRICKY)
def test_unigram_gives_back_the_normalised_text(text: str, by_kind: dict[str, Tokenizer]):
    tokenizer = by_kind["unigram"]
    ids = tokenizer.encode(text)
    if not {tokenizer.unk_id, *tokenizer.special_ids().values()} & set(ids):
        normal = tokenizer.backend.normalizer.normalize_str(text)
        assert tokenizer.decode(ids) == normal.removeprefix(" ")


@pytest.mark.parametrize("kind", KINDS)
@given(text=TRICKY)
def test_only_a_special_token_itself_is_read_as_one(kind: str, text: str, lowercased: dict[str, Tokenizer]):
    """«<EOS>» in lower case and «＜eos＞» in NFKC look like <eos>, but are text."""
    tokenizer = lowercased[kind]
    unknown = tokenizer.unk_id
    for token, id in tokenizer.special_ids().items():
        if token not in text and id != unknown:
            assert id not in tokenizer.encode(text, special=False)


@pytest.mark.parametrize("kind", ["word", "wordpiece", "unigram"])
def test_words_of_known_characters_are_known(kind: str, by_kind: dict[str, Tokenizer]):
    tokenizer = by_kind[kind]
    text = "jumps over" if kind == "word" else "zxq ovzr Drevo"
    assert tokenizer.unk_id not in tokenizer.encode(text)
    assert tokenizer.unk_id in tokenizer.encode("ꙮ")


def test_unigram_makes_text_plain(by_kind: dict[str, Tokenizer]):
    tokenizer = by_kind["unigram"]
    assert tokenizer.decode(tokenizer.encode("  ﬁne\tＴhe \n▁x  ")) == "fine The x "


@pytest.mark.parametrize("text", ["<eos>", "<EOS>", "＜eos＞"])
def test_no_special_token_is_a_piece_too(text: str):
    seen = " ".join(f"{before}{text}{behind}" for before in "abc" for behind in "abc")
    tokenizer = train_tokenizer([seen] * 9, kind="unigram", vocab_size=40, lowercase=True)
    entries = [piece for piece, _ in json.loads(tokenizer.backend.to_str())["model"]["vocab"]]
    assert len(set(entries)) == len(entries)


def test_no_special_token_is_read_where_its_characters_were_never_seen():
    tokenizer = train_tokenizer(["the cat sat on the mat"], kind="unigram", vocab_size=60, lowercase=True)
    for text in ("<EOS>", "＜eos＞", "a<PAD>"):
        assert not set(tokenizer.special_ids().values()) & set(tokenizer.encode(text))


# --- the same every time ----------------------------------------------------------------------------------------------

TRAIN = """
import sys
from helpers.varied_texts import varied_texts
from cutaway.tokens import train_tokenizer
size = int(sys.argv[2]) or None
print(train_tokenizer(varied_texts(), kind=sys.argv[1], vocab_size=size, tags=["de"]).backend.to_str(), end="")
"""


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_text_gives_the_same_file(kind: str):
    here = trained(kind, tags=["de"]).backend.to_str()
    assert trained(kind, tags=["de"]).backend.to_str() == here
    command = [sys.executable, "-c", TRAIN, kind, str(SIZES[kind] or 0)]
    tests = str(Path(__file__).parents[1])
    there = subprocess.run(command, cwd=tests, capture_output=True, text=True, check=True).stdout
    assert there == here


@pytest.mark.parametrize("kind", KINDS)
def test_how_the_texts_are_parted_makes_no_difference(kind: str):
    lines = [text.strip() for text in varied_texts() if text.strip()]
    if kind in ("bpe", "char"):  # where line ends count
        lines = [f"{line}\n" for line in lines]
    whole = ("" if kind in ("bpe", "char") else "\n").join(lines)
    one, many = (
        train_tokenizer(texts, kind=kind, vocab_size=SIZES[kind]).backend.to_str() for texts in ([whole], lines)
    )
    assert one == many


# --- sizes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["word", "bpe", "wordpiece", "unigram"])
def test_the_vocabulary_has_the_size_asked_for(kind: str):
    size = 100 if kind == "word" else SIZES[kind]
    tokenizer = trained(kind, vocab_size=size, mask=True, tags=["de", "en"], special=["<delim>"])
    assert tokenizer.vocab_size == size
    assert len(tokenizer.backend.get_vocab()) == size
    assert tokenizer.encode("<2de>", special=False) == [tokenizer.tag_id("de")]


@pytest.mark.parametrize("kind", KINDS)
def test_with_little_text_it_is_smaller(kind: str):
    tokenizer = trained(kind, vocab_size=50_000)
    assert 20 < tokenizer.vocab_size < 5000
    assert sorted(tokenizer.backend.get_vocab().values()) == list(range(tokenizer.vocab_size))


@pytest.mark.parametrize("kind", KINDS)
def test_too_small_a_vocabulary_names_the_smallest(kind: str):
    with pytest.raises(ConfigError, match=r"vocab_size=4 is too small.* make ([\d,]+)") as told:
        trained(kind, vocab_size=4)
    smallest = int(str(told.value).partition(" make ")[2].split()[0].replace(",", ""))
    assert trained(kind, vocab_size=smallest).vocab_size == smallest
    with pytest.raises(ConfigError, match="is too small"):
        trained(kind, vocab_size=smallest - 1)


@pytest.mark.parametrize("kind", ["char", "wordpiece", "unigram"])
def test_rare_characters_can_be_left_out(kind: str):
    often, rare = "the cat sat on the mat. " * 10, "日本"
    all_, some = (
        train_tokenizer([often, rare], kind=kind, vocab_size=SIZES[kind] and 60, min_frequency=n) for n in (1, 2)
    )
    assert all_.unk_id not in all_.encode("日")
    assert some.unk_id in some.encode("日")
    assert some.unk_id not in some.encode("the cat")


def test_rare_words_and_pairs_can_be_left_out():
    text = ["low low low lower lower newest"]
    assert "newest" not in train_tokenizer(text, kind="word", min_frequency=2)
    assert "Ġnewest" in train_tokenizer(text, kind="bpe", vocab_size=400)
    assert "Ġnewest" not in train_tokenizer(text, kind="bpe", vocab_size=400, min_frequency=2)
    assert "Ġlower" in train_tokenizer(text, kind="bpe", vocab_size=400, min_frequency=2)


# --- special tokens ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_have_their_roles_and_come_first(kind: str):
    tokenizer = trained(kind, mask=True, tags=["de", "pt-BR"])
    if kind == "wordpiece":
        first = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        assert (tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id) == (2, 3, 4)
        assert (tokenizer.bos_id, tokenizer.eos_id) == (None, None)
        assert tokenizer.encode("the") == [2, tokenizer.id("the"), 3]
        assert tokenizer.encode_pair("the", "the").segments == [0, 0, 0, 1, 1]
    else:
        unk = [] if kind in ("byte", "bpe") else ["<unk>"]
        first = ["<pad>", *unk, "<sos>", "<eos>", "<mask>"]
        assert tokenizer.bos_id == first.index("<sos>")
        assert tokenizer.eos_id == first.index("<eos>")
        assert tokenizer.mask_id == first.index("<mask>")
        assert tokenizer.encode("the") == tokenizer.encode("the", special=False)  # nothing around a text
    assert tokenizer.pad_id == 0
    assert list(tokenizer.special_ids()) == [*first, "<2de>", "<2pt-BR>"]
    assert list(tokenizer.special_ids().values()) == list(range(len(first) + 2))


def test_an_unknown_tag_names_those_there_are(by_kind: dict[str, Tokenizer]):
    tokenizer = trained("bpe", tags=["de", "en"])
    assert tokenizer.token(tokenizer.tag_id("en")) == "<2en>"
    with pytest.raises(InputError, match=r"no tag 'fr' \(<2fr>\); it has de, en"):
        tokenizer.tag_id("fr")
    with pytest.raises(InputError, match="it has none"):
        by_kind["bpe"].tag_id("fr")
    with pytest.raises(InputError, match="is not a language tag"):
        tokenizer.tag_id("f r")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "bqe"}, "kind='bqe' is not one of word, char"),
        ({"kind": "bpe"}, "needs a vocab_size"),
        ({"kind": "word", "vocab_size": 0}, "vocab_size=0"),
        ({"kind": "word", "vocab_size": 1 << 30}, "vocab_size=1,073,741,824"),
        ({"kind": "word", "min_frequency": 0}, "min_frequency=0"),
        ({"kind": "word", "tags": ["de", "de"]}, "<2de> is given twice"),
        ({"kind": "word", "tags": ["d e"]}, "'d e' is not a language tag"),
        ({"kind": "word", "special": ["delim"]}, "'delim': write <name>"),
        ({"kind": "word", "special": ["<pad>"]}, "<pad> is given twice"),
    ],
)
def test_wrong_wishes_are_told(options: dict[str, object], message: str):
    with pytest.raises((ConfigError, InputError)) as told:
        train_tokenizer(["a text"], **options)
    assert message in str(told.value)


# --- texts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "byte"])
@pytest.mark.parametrize("texts", [[], ["", ""]])
def test_no_text_is_told(kind: str, texts: list[str]):
    with pytest.raises(InputError, match="are empty"):
        train_tokenizer(iter(texts), kind=kind, vocab_size=300)


@pytest.mark.parametrize("kind", ["word", "wordpiece", "unigram"])
def test_texts_without_words_are_told(kind: str):
    with pytest.raises(InputError, match="no words"):
        train_tokenizer([" \n ", "\t"], kind=kind, vocab_size=300)
    if kind != "unigram":  # which knows at least the characters of its special tokens
        with pytest.raises(InputError, match="no words that occur 9 times"):
            train_tokenizer(["a b c"], kind=kind, vocab_size=300, min_frequency=9)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "byte"])
def test_a_stream_that_breaks_keeps_its_error(kind: str):
    def lines() -> Iterator[str]:
        yield "the first"
        raise InputError("file.txt, line 2: not UTF-8")

    with pytest.raises(InputError, match="line 2"):
        train_tokenizer(lines(), kind=kind, vocab_size=300)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "byte"])
def test_what_is_no_text_is_told(kind: str):
    for texts, message in (("abc", "put it in a list"), (iter([b"abc"]), "not bytes"), (["\ud800"], "surrogates")):
        with pytest.raises(InputError, match=message):
            train_tokenizer(texts, kind=kind, vocab_size=300)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "byte"])
def test_texts_are_read_as_they_come(kind: str, monkeypatch: pytest.MonkeyPatch):
    """At no time are many of them alive."""
    monkeypatch.setattr(word_counts, "BATCH", 10_000)

    class Text(str):
        alive = most = 0

        def __new__(cls, text: str) -> "Text":
            cls.alive += 1
            cls.most = max(cls.most, cls.alive)
            return super().__new__(cls, text)

        def __del__(self) -> None:
            Text.alive -= 1

    train_tokenizer((Text("the cat sat on the mat. " * 40) for _ in range(2000)), kind=kind, vocab_size=400)
    assert 10 <= Text.most < 30


# --- files and other tools --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_gives_the_same_ids(kind: str, tmp_path: Path):
    ours = trained(kind, mask=True, tags=["de"])
    ours.save(tmp_path)
    theirs = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    again = Tokenizer.load(tmp_path)
    for text in [*varied_texts(), "<2de> the <mask> [MASK] fox <eos>"]:
        ids = ours.encode(text)
        assert theirs.encode(text) == again.encode(text) == ids, text
        assert theirs.decode(ids) == ours.decode(ids, skip_special=False), text
    assert (theirs.pad_token_id, theirs.mask_token_id) == (ours.pad_id, ours.mask_id)
    assert (theirs.bos_token_id, theirs.eos_token_id) == (ours.bos_id, ours.eos_id)
    assert again.roles == ours.roles
    assert json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]


# --- dropout ----------------------------------------------------------------------------------------------------------


def test_dropout_cuts_another_way_each_time_and_means_the_same(tmp_path: Path, by_kind: dict[str, Tokenizer]):
    whole = by_kind["bpe"]
    text = "The quick brown fox jumps over the lazy dog."
    dropping = whole.with_dropout(0.3)
    ways = {tuple(dropping.encode(text)) for _ in range(20)}
    assert len(ways) > 5
    assert {dropping.decode(way) for way in ways} == {text}
    assert len({tuple(whole.encode(text)) for _ in range(20)}) == 1
    assert dropping.roles == whole.roles
    dropping.save(tmp_path)  # a file says how to cut, not how to train
    whole.save(tmp_path / "whole")
    assert (tmp_path / "tokenizer.json").read_bytes() == (tmp_path / "whole" / "tokenizer.json").read_bytes()


def test_a_file_that_asks_for_dropout_does_not_get_it(tmp_path: Path, by_kind: dict[str, Tokenizer]):
    by_kind["bpe"].with_dropout(0.9).backend.save(str(tmp_path / "tokenizer.json"))
    assert "0.9" in (tmp_path / "tokenizer.json").read_text()
    tokenizer = Tokenizer.load(tmp_path)
    assert len({tuple(tokenizer.encode("The quick brown fox")) for _ in range(20)}) == 1


def test_only_merges_can_be_dropped(by_kind: dict[str, Tokenizer]):
    with pytest.raises(InputError, match="only BPE has merges to drop; this is a Unigram"):
        by_kind["unigram"].with_dropout(0.1)
    for wrong in (-0.1, 1.0, float("nan")):
        with pytest.raises(InputError, match="must be at least 0 and below 1"):
            by_kind["bpe"].with_dropout(wrong)


# --- worked examples --------------------------------------------------------------------------------------------------


def test_the_lectures_sentences():
    """`I ate an apple <eos>` and `<sos> Ich habe einen Apfel gegessen <eos>`, as words. (mission: part 8)"""
    tokenizer = train_tokenizer(["I ate an apple", "Ich habe einen Apfel gegessen"], kind="word", tags=["de"])
    english = [*tokenizer.encode("I ate an apple"), tokenizer.eos_id]
    german = [tokenizer.bos_id, *tokenizer.encode("Ich habe einen Apfel gegessen"), tokenizer.eos_id]
    assert tokenizer.decode(english, skip_special=False) == "I ate an apple <eos>"
    assert tokenizer.decode(german, skip_special=False) == "<sos> Ich habe einen Apfel gegessen <eos>"
    assert tokenizer.decode(german) == "Ich habe einen Apfel gegessen"
    assert tokenizer.vocab_size == 4 + 1 + 9  # equally frequent words stand in the order of their characters
    assert [tokenizer.token(id) for id in range(5, 14)] == "Apfel I Ich an apple ate einen gegessen habe".split()


def test_bpe_merges_the_most_frequent_pair_first():
    """Sennrich's example: low ×5, lower ×2, newest ×6, widest ×3 (Sennrich 2016, section 3.2), on bytes.

    Counted by hand: e+s 9 (6 + 3), es+t 9, l+o 7, lo+w 7. Then many pairs stand 6 times, and the smaller ids win: those
    of bytes first, in the order e n w Ġ, then earlier merges. (The first word has no space: Ġ+low is 6, not 7.)
    """
    text = " ".join(["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3)
    tokenizer = train_tokenizer([text], kind="bpe", vocab_size=3 + 256 + 9)
    merges = [" + ".join(merge) for merge in json.loads(tokenizer.backend.to_str())["model"]["merges"]]
    first = ["e + s", "es + t", "l + o", "lo + w"]
    assert merges == [*first, "e + w", "n + ew", "Ġ + low", "Ġ + new", "Ġnew + est"]
    assert tokenizer.encode_full("lowest").tokens == ["low", "est"]  # a word that was never seen


def test_bytes_keep_their_order(by_kind: dict[str, Tokenizer]):
    tokenizer = by_kind["byte"]
    assert tokenizer.vocab_size == 3 + 256
    assert tokenizer.encode("aß\n") == [3 + byte for byte in "aß\n".encode()]


def test_line_ends_are_learnt():
    assert "ĊĊ" in train_tokenizer(["One.\n\n\nTwo."] * 3, kind="bpe", vocab_size=300)
    assert "\n" in train_tokenizer(["a\n"], kind="char")
