"""Classes, numbers, tags, pictures: what is said is what the model scores, alone or in any batch."""

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.bert_tokenizer import bert_tokenizer
from helpers.classifiers import PAIRS, SENTENCES, alone, classifier, wordpiece
from helpers.text_generators import byte_fallback
from helpers.tiny_models import tiny
from helpers.tokenizers_of_bytes import byte_level
from PIL import Image

from cutaway import classify
from cutaway.decoding.single_pass import answers_to_images, first_tokens, rows_of
from cutaway.errors import InputError
from cutaway.tokens import Tokenizer


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return wordpiece()


@pytest.mark.parametrize("name", ["bert", "roberta", "roformer", "gpt", "gpt2", "llama"])
@pytest.mark.parametrize("texts", [SENTENCES, PAIRS], ids=["sentences", "pairs"])
def test_labels(words: Tokenizer, name: str, texts: list) -> None:
    model = classifier(name, labels=("yes", "no", "maybe"))
    for batch_tokens in (1, 20, 1000):
        for text, found in zip(texts, classify(model, words, texts, batch_tokens=batch_tokens), strict=True):
            scores = alone(model, words, text)
            assert found.label == ("yes", "no", "maybe")[scores.argmax()]
            assert list(found.probabilities.values()) == pytest.approx(np.exp(scores) / np.exp(scores).sum())
            assert found.probability == max(found.probabilities.values())
            assert classify(model, words, text).label == found.label


def test_without_names_a_class_is_its_number(words: Tokenizer) -> None:
    assert set(classify(classifier(), words, SENTENCES[0]).probabilities) == {"0", "1", "2"}


def test_numbers(words: Tokenizer) -> None:
    model = tiny("bert", task="regress")
    found = classify(model, words, PAIRS)
    assert found == pytest.approx([float(alone(model, words, pair)[0]) for pair in PAIRS])
    assert isinstance(classify(model, words, "a man"), float)


def test_tags_are_read_off_first_tokens(words: Tokenizer) -> None:
    model = tiny("bert", task="tag", n_classes=3, labels=("O", "B", "I"))
    found = classify(model, words, ["the dogs runs", "he is awake"])
    assert [[tag.word for tag in tags] for tags in found] == [["the", "dogs", "runs"], ["he", "is", "awake"]]
    scores = alone(model, words, "the dogs runs")
    assert [tag.tag for tag in found[0]] == ["OBI"[scores[place].argmax()] for place in (1, 2, 4)]  # dog ##s


@pytest.mark.parametrize("kind", [wordpiece, byte_level, byte_fallback])
def test_the_first_token_of_a_word_is_its_own_though_it_begins_with_the_space_before(kind) -> None:
    tokenizer, said = kind(), "the dogs runs no one saw it is awake".split()
    row, begins = first_tokens(tokenizer, said, None)
    assert len(begins) == len(said)
    ends = [*begins[1:], begins[-1] + len(tokenizer.encode(f" {said[-1]}", special=False))]
    pieces = [tokenizer.decode(row.ids[begin:end]) for begin, end in zip(begins, ends, strict=True)]
    assert [piece.strip().replace(" ##", "") for piece in pieces] == said


def test_a_long_text_is_refused_or_cut_when_asked(words: Tokenizer) -> None:
    model, long = classifier(), "dog " * 40
    for text in (long, (long, "a man"), ("a man", long)):
        with pytest.raises(InputError, match=r"text 2 has 4\d tokens; .* at most 32: cut=32 drops the rest"):
            classify(model, words, ["a", text])
    assert classify(model, words, "dog " * 30).label  # 32 with [CLS] and [SEP]
    same = classify(model, words, "dog " * 5).probabilities
    assert classify(model, words, long, cut=7).probabilities == pytest.approx(same)
    tagger = tiny("bert", task="tag", n_classes=3)
    with pytest.raises(InputError, match="text 1 has 42 tokens"):
        classify(tagger, words, long)
    assert len(classify(tagger, words, long, cut=32)) == 30  # what is cut off has no tag
    with pytest.raises(InputError, match="cut=33 is not between 1 and max_len=32"):
        classify(model, words, long, cut=33)


@pytest.mark.parametrize(("bias", "said"), [((9.0, 0.0), "follows"), ((0.0, 9.0), "does not follow")])
def test_whether_a_sentence_follows(words: Tokenizer, bias: tuple[float, float], said: str) -> None:
    """BERT's first class is the sentence that follows."""
    model = tiny("bert", task="next_sentence")
    with torch.no_grad():
        model.head.classes.weight.zero_()
        model.head.classes.bias.copy_(torch.tensor(bias))
    found = classify(model, words, PAIRS[0])
    assert list(found.probabilities) == ["follows", "does not follow"]
    assert found.label == said
    assert found.probability == found.probabilities[said] == pytest.approx(1 / (1 + np.exp(-9)))


def test_pictures_from_files_and_arrays(tmp_path: Path) -> None:
    model = tiny("vit", dtype=torch.float32, pixel_mean=[0.1, 0.2, 0.3], pixel_std=[0.4, 0.5, 0.6])
    pixels = np.random.default_rng(0).integers(0, 256, (3, 3, 8, 8), dtype=np.uint8)
    files = []
    for number, picture in enumerate(pixels):
        files.append(tmp_path / f"{number}.png")
        Image.fromarray(picture.transpose(1, 2, 0)).save(files[-1])
    scores = answers_to_images(model, pixels, mean=[0.1, 0.2, 0.3], std=[0.4, 0.5, 0.6])
    found = classify(model, files)
    assert [one.label for one in found] == [str(n) for n in scores.argmax(axis=1)]
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    assert [list(one.probabilities.values()) for one in found] == [pytest.approx(row) for row in shares]
    assert classify(model, list(pixels)) == found
    assert classify(model, str(files[1])).probability == pytest.approx(found[1].probability)
    assert classify(model, pixels[2]).label == found[2].label


@pytest.mark.parametrize(
    ("model", "asked", "said"),
    [
        (lambda: tiny("gpt2"), ("a",), "has no classes: use one with task='classify'"),
        (classifier, ("a", "b", "c"), r"classify\(model, tokenizer, text\)"),
        (lambda: classifier().train(), ("a",), r"call model\.eval"),
        (classifier, (["a", 3],), "text 2 is 3"),
        (lambda: tiny("bert", task="next_sentence"), ("a",), "this model reads pairs"),
        (lambda: tiny("bert", task="tag", n_classes=2), (("a", "man"),), "reads single texts"),
        (lambda: tiny("bert", task="tag", n_classes=2), (" ",), "reads single texts"),
    ],
)
def test_errors_name_the_fix(words: Tokenizer, model, asked: tuple, said: str) -> None:
    with pytest.raises(InputError, match=said):
        classify(model(), words, *asked)


def test_pictures_that_do_not_fit(tmp_path: Path) -> None:
    model = tiny("vit")
    with pytest.raises(InputError, match=r"picture 1 is \(3, 4, 4\).*\(3, 8, 8\)"):
        classify(model, np.zeros((3, 4, 4), dtype=np.uint8))
    (tmp_path / "no.png").write_text("no")
    with pytest.raises(InputError, match="cannot be read as an image"):
        classify(model, tmp_path / "no.png")
    with pytest.raises(InputError, match=r"classify\(model, picture\)"):
        classify(model, "tokenizer", "text")


def test_a_row_begins_with_cls_whatever_its_number():
    tokenizer = bert_tokenizer(["[CLS]", "[UNK]", "a", "man"])
    assert tokenizer.cls_id == 0
    (row,) = rows_of(tokenizer, ["a man"], None, as_trained=True)
    assert row.ids == [0, 2, 3, tokenizer.sep_id]
