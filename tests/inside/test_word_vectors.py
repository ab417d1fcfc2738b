"""Words as points: nearest words and analogies, of files and of every family's own embedding."""

import json

import numpy as np
import pytest
import torch
from helpers.pair_models import hiding
from helpers.tiny_models import DECODERS, ENCODERS, TRANSLATORS, tiny
from helpers.tokenizers_of_bytes import byte_level
from hypothesis import given
from hypothesis import strategies as st

from cutaway import watch
from cutaway.errors import InputError
from cutaway.inside.word_vectors import WordVectors
from cutaway.tokens.tokenizer_training import train_tokenizer

WORDS = [f"w{i}" for i in range(40)]
VECTORS = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
HAND = WordVectors.make(
    ["man", "woman", "king", "queen", "apple"],
    np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1], [-1, 0.2, -1]], dtype=np.float32),
)


def test_the_lectures_analogy_by_hand():
    assert HAND.analogy("man", "woman", "king", 1).words == ["queen"]
    assert HAND.analogy("man", "woman", "king", 1, by="mul").words == ["queen"]
    assert HAND.similarity("man", "woman") == pytest.approx(0.5**0.5)
    assert HAND.nearest("King", 9).words[-1] == "apple"
    assert len(HAND.nearest("king", 9).found) == 4
    said = json.loads(json.dumps(HAND.nearest("king", 1).to_dict()))
    assert (said["asked"], said["by"], len(said["found"])) == (["king"], "cosine", 1)


@given(st.integers(0, 39), st.integers(1, 39))
def test_the_nearest_are_all_others_in_the_order_of_their_cosine(number, k):
    vectors = WordVectors.make(WORDS, VECTORS)
    found = vectors.nearest(WORDS[number], k)
    assert WORDS[number] not in found.words
    cosine = np.array([vectors.similarity(WORDS[number], word) for word in WORDS])
    order = [WORDS[i] for i in np.argsort(-cosine) if i != number]
    assert found.words == order[:k]


@given(st.permutations(range(40)), st.sampled_from(["add", "mul"]), st.floats(1e-3, 1e3))
def test_neither_scale_nor_rotation_changes_an_analogy(order, by, scale):
    three = [WORDS[i] for i in order[:3]]
    found = WordVectors.make(WORDS, VECTORS).analogy(*three, by=by)
    assert not set(three) & set(found.words)
    scales = scale * (1 + np.arange(40, dtype=np.float32)[:, None])
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(8, 8)))[0].astype(np.float32)
    assert WordVectors.make(WORDS, VECTORS * scales).analogy(*three, by=by).words == found.words
    assert WordVectors.make(WORDS, VECTORS @ turn).analogy(*three, by=by).words == found.words


def test_a_vector_of_no_length_is_like_nothing():
    vectors = WordVectors.make(["a", "b", "c"], np.array([[0, 0], [1, 0], [1, 1]], dtype=np.float32))
    assert vectors.similarity("a", "b") == 0.0
    assert vectors.nearest("b").words == ["c", "a"]


def test_unknown_words_are_named_with_their_like():
    with pytest.raises(InputError, match="'quen' is none of the 5 words; near are queen"):
        HAND.nearest("quen")
    with pytest.raises(InputError, match="by='max' is neither"):
        HAND.analogy("man", "woman", "king", by="max")
    with pytest.raises(InputError, match="k=0"):
        HAND.nearest("king", 0)
    with pytest.raises(InputError, match="2 words for 1 vectors"):
        WordVectors.make(["a", "b"], np.ones((1, 2), dtype=np.float32))


# --- models -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*ENCODERS, *DECODERS, *TRANSLATORS])
@pytest.mark.parametrize("at", ["embedding", "unembedding"])
def test_a_models_own_matrix(name, at):
    tokenizer = hiding()
    model = tiny(name)
    vectors = WordVectors.of_model(model, tokenizer, at, ["man", "dogs"])
    named = dict(model.named_modules())
    path = {"embedding": ["embedding.tokens", "source_embedding.tokens"], "unembedding": ["head", "head.words"]}[at]
    part = next(named[p] for p in path[::-1] if p in named)
    matrix = part.matrix.detach().float().numpy()
    assert {"man", "sleeps", "dog"} <= set(vectors.words)
    assert not {"##s", "s", "[MASK]", "[CLS]"} & set(vectors.words)

    def unit(ids: list[int]) -> np.ndarray:
        mean = matrix[ids].mean(axis=0)
        return mean / np.linalg.norm(mean)

    man, dogs = ([tokenizer.id(token) for token in its] for its in (["man"], ["dog", "##s"]))
    assert vectors.unit[vectors.number("man")] == pytest.approx(unit(man), abs=1e-6)
    assert vectors.unit[vectors.number("dogs")] == pytest.approx(unit(dogs), abs=1e-6)
    assert vectors.several == {"dogs": ["dog", "##s"]}
    assert vectors.nearest("dogs", 2).note == "dogs is dog + ##s: their mean"


@pytest.mark.parametrize(("name", "at"), [("bert", "encoder.1.residual_after"), ("llama", "decoder.0.residual_after"),
                                          ("transformer", "encoder.0.residual_after")])  # fmt: skip
def test_a_word_at_a_tap_is_what_it_is_alone(name, at):
    model, tokenizer = tiny(name), hiding()
    vectors = WordVectors.of_model(model, tokenizer, at, ["dogs"])
    ids = torch.tensor([[tokenizer.cls_id, tokenizer.id("dog"), tokenizer.id("##s"), tokenizer.sep_id]])
    with watch(model, at) as seen, torch.no_grad():
        _ = model.encode(ids) if name == "transformer" else model.hidden(ids)
    mean = seen[at][0, 1:3].mean(dim=0).numpy()
    assert vectors.unit[vectors.number("dogs")] == pytest.approx(mean / np.linalg.norm(mean), abs=1e-5)


def test_whole_words_of_a_byte_level_tokenizer_have_their_space():
    tokenizer = train_tokenizer(["the king saw the queen, and sawing kings"] * 9, kind="bpe", vocab_size=300)
    model = tiny("gpt2", vocab_size=tokenizer.vocab_size)
    vectors = WordVectors.of_model(model, tokenizer)
    assert "king" in vectors.words
    matrix = model.embedding.tokens.matrix.detach().float().numpy()
    row = matrix[tokenizer.id("Ġking")]
    assert vectors.unit[vectors.number("king")] == pytest.approx(row / np.linalg.norm(row), abs=1e-6)
    for word in vectors.words:
        assert tokenizer.encode(f"a {word}", special=False)[-1] == tokenizer.id("Ġ" + word)


def test_places_that_a_model_does_not_have():
    with pytest.raises(InputError, match=r"at='decoder.9' is neither embedding nor unembedding nor a tap; near are"):
        WordVectors.of_model(tiny("gpt2", vocab_size=400), byte_level(), "decoder.9")
    for tap in ("heads", "pattern"):
        with pytest.raises(InputError, match=f"at='decoder.0.attention.{tap}' has shape .* without heads"):
            WordVectors.of_model(tiny("gpt2", vocab_size=400), byte_level(), f"decoder.0.attention.{tap}")
    with pytest.raises(InputError, match="has no unembedding of words"):
        WordVectors.of_model(tiny("bert", task="hidden"), hiding(), "unembedding")


def test_of_two_spellings_the_one_that_comes_first_counts():
    """Files are sorted by how frequent words are, and some have a word twice."""
    vectors = WordVectors.make(
        ["king", "b", "King", "b", "king"], np.array([[1, 0], [0, 1], [1, 1], [1, 2], [2, 1]], dtype=np.float32)
    )
    assert [vectors.number(word) for word in ("king", "King", "KING", "b", "B")] == [0, 2, 0, 1, 1]
    assert vectors.similarity("king", "b") == 0
    assert vectors.similarity("king", "King") == pytest.approx(0.5**0.5)
