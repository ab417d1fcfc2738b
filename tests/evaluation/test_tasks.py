"""Reports: each task's scores are those of its parts, on any model that fits, whatever is in the batch."""

import json
import math
import sys
from typing import Any

import numpy as np
import pytest
import torch
from helpers.classifiers import LABELS, PAIRS, SENTENCES, TAGGED, alone, classifier, wordpiece
from helpers.tiny_models import tiny
from helpers.tokenizers_of_bytes import byte_level
from helpers.translators import TEXTS, translator

from cutaway.decoding import translate_all
from cutaway.decoding.single_pass import answers_to, first_tokens, rows_of
from cutaway.errors import InputError, MissingExtra
from cutaway.evaluation import evaluate
from cutaway.evaluation.bleu import bleu, chrf
from cutaway.evaluation.perplexity import surprisal
from cutaway.evaluation.scores import accuracy, f1, macro_f1, matthews, pearson, span_f1, spearman
from cutaway.objectives.masked import join_parts
from cutaway.tokens import Tokenizer
from cutaway.tokens.tokenizer_training import train_tokenizer

FEW: dict[str, Any] = {"resamples": 50}


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return wordpiece()


# --- classes and numbers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bert", "roberta", "roformer", "gpt2", "llama"])
@pytest.mark.parametrize("texts", [SENTENCES, PAIRS], ids=["sentences", "pairs"])
def test_an_answer_is_the_same_alone_and_in_any_batch(words, name, texts):
    model = classifier(name)
    rows = rows_of(words, texts, 32)
    one_by_one = [alone(model, words, text) for text in texts]
    for batch_tokens in (1, 20, 1000):
        assert np.allclose(answers_to(model, rows, batch_tokens=batch_tokens), one_by_one, atol=1e-9)


@pytest.mark.parametrize("texts", [SENTENCES, PAIRS], ids=["sentences", "pairs"])
def test_classes(words, texts):
    model = classifier(labels=("yes", "no", "maybe"))
    said = [int(alone(model, words, text).argmax()) for text in texts]
    wanted = [0, 1, 2, 0, 1, said[5]]
    report = evaluate(model, words, texts, wanted, **FEW)
    expected = {"accuracy": accuracy, "macro_f1": macro_f1, "matthews": matthews}
    assert report.scores == {name: score(said, wanted) for name, score in expected.items()}
    names = [model.config.labels[number] for number in wanted]
    assert evaluate(model, words, texts, names, **FEW).scores == report.scores
    assert evaluate(model, words, texts, np.array(wanted), **FEW).scores == report.scores
    assert (report.task, report.n, report.settings) == ("classify", 6, {"cut": 0})
    assert report.intervals.keys() == report.scores.keys()
    assert all(found.low <= report.scores[name] <= found.high for name, found in report.intervals.items())


def test_intervals_lie_around_their_scores(words):
    """Of answers that are nearly all right: not around a share of errors."""
    model = classifier(labels=("yes", "no", "maybe"))
    texts = [*SENTENCES, *PAIRS] * 2
    wanted = [int(alone(model, words, text).argmax()) for text in texts]
    wanted[0] = (wanted[0] + 1) % 3
    report = evaluate(model, words, texts, wanted, resamples=200)
    assert report.scores["accuracy"] == pytest.approx(23 / 24)
    for name, found in report.intervals.items():
        assert 0.5 < found.low <= report.scores[name] <= found.high == pytest.approx(1.0), name


def test_two_classes_have_the_f1_of_the_second(words):
    model = classifier(n_classes=2)
    said = [int(alone(model, words, text).argmax()) for text in SENTENCES]
    wanted = [1, 0, 1, 1, 0, 1]
    report = evaluate(model, words, SENTENCES, wanted, **FEW)
    assert report.scores.keys() == {"accuracy", "f1", "matthews"}
    assert report.scores["f1"] == f1(said, wanted)


def test_numbers(words):
    model = classifier(task="regress", n_classes=None)
    said = [float(alone(model, words, text)[0]) for text in SENTENCES]
    wanted = [0.5, 1, 2, "3.5", 4, 5]
    report = evaluate(model, words, SENTENCES, wanted, **FEW)
    numbers = [float(x) for x in wanted]
    assert report.scores == pytest.approx({"pearson": pearson(said, numbers), "spearman": spearman(said, numbers)})
    with pytest.raises(InputError, match="a label is not a number"):
        evaluate(model, words, ["a"], ["yes"])


def test_what_does_not_fit_is_cut_and_counted(words):
    model = classifier(max_len=6)
    report = evaluate(model, words, SENTENCES, [0] * 6, **FEW)
    assert report.settings == {"cut": 1}  # 5 words + 2 special tokens
    assert report.notes == (
        "1 of 6 texts are longer than this model reads and were cut, of a pair the longer one first",
    )
    assert evaluate(classifier(), words, SENTENCES, [0] * 6, **FEW).notes == ()
    cls_id, sep_id = words.cls_id, words.sep_id
    (row,) = rows_of(words, ["a dog saw the man"], 6)
    assert row.ids == [cls_id, *words.encode("a dog saw the", special=False), sep_id]
    (row,) = rows_of(words, [("a dog saw the man", "it")], 6)
    assert row.ids == [cls_id, *words.encode("a dog", special=False), sep_id, words.id("it"), sep_id]
    assert row.segments == [0, 0, 0, 0, 1, 1]


def test_special_tokens_stand_as_in_training(words):
    """What `cutaway train` shows a model, this shows it again: with [CLS] and [SEP], or with <eos> alone."""
    for tokenizer, cls_id, sep_id in ((words, words.cls_id, words.sep_id), (byte_level(), None, 2)):
        for texts in (SENTENCES[:1], PAIRS[:1]):
            parts = [texts[0]] if isinstance(texts[0], str) else texts[0]
            ids = [np.array([tokenizer.encode(part, special=False)]) for part in parts]
            wanted, segments, _ = join_parts([(row, np.array([row.shape[1]])) for row in ids], cls_id, sep_id)
            (row,) = rows_of(tokenizer, texts, None, as_trained=True)
            assert (row.ids, row.segments) == (wanted[0].tolist(), segments[0].tolist())


def test_a_tokenizers_own_rule_is_kept(words):
    for tokenizer in (words, byte_level()):
        (row,) = rows_of(tokenizer, SENTENCES[:1], None)
        assert row.ids == tokenizer.encode(SENTENCES[0])
        (row,) = rows_of(tokenizer, PAIRS[:1], None)
        pair = tokenizer.encode_pair(*PAIRS[0])
        assert (row.ids, row.segments) == (pair.ids, pair.segments)


# --- tags -------------------------------------------------------------------------------------------------------------


def test_a_word_is_tagged_by_its_first_token(words):
    row, places = first_tokens(words, ["the", "dogs", "runs"], None)
    assert [words.token(row.ids[at]) for at in places] == ["the", "dog", "runs"]
    assert words.token(row.ids[places[1] + 1]) == "##s"
    row, places = first_tokens(words, ["the", "dogs", "runs"], 5)  # [CLS] the dog ##s [SEP]
    assert (len(row.ids), row.ids[-1], len(places), row.cut) == (5, words.sep_id, 2, True)


def test_byte_level_words_begin_with_a_space():
    tokenizer = byte_level()
    row, places = first_tokens(tokenizer, ["I", "ate", "apples"], None)
    assert [tokenizer.decode([row.ids[at]])[:2] for at in places] == ["I", " a", " a"]


def test_tags(words):
    model = tiny("bert", task="tag", n_classes=3, labels=LABELS, seed=2)
    said = []
    for sentence in TAGGED:
        row, places = first_tokens(words, sentence, None)
        answer = model(torch.tensor([row.ids]))[0]
        said.append([LABELS[int(answer[at].argmax())] for at in places])
    wanted = [["O", *tags[1:]] for tags in said]
    report = evaluate(model, words, TAGGED, wanted, **FEW)
    assert report.scores["span_f1"] == span_f1(said, wanted)
    right = sum(a == b for pair in zip(said, wanted, strict=True) for a, b in zip(*pair, strict=True))
    assert report.scores["accuracy"] == right / 10
    assert report.settings == {"cut": 0, "words": 10}
    with pytest.raises(InputError, match="sentence 1 has 3 words and 1 tags"):
        evaluate(model, words, TAGGED[:1], [["O"]])
    plain = tiny("bert", task="tag", n_classes=3, labels=("D", "N", "V"))
    assert evaluate(plain, words, TAGGED[:1], [["D", "N", "V"]], **FEW).scores.keys() == {"accuracy"}


# --- translations, texts, pictures ------------------------------------------------------------------------------------


def test_translations():
    tokenizer, model = byte_level(), translator()
    references = [text or "nothing" for text in TEXTS]
    report = evaluate(model, tokenizer, TEXTS, references, **FEW, beam=2, max_len=20)
    written = translate_all(model, tokenizer, TEXTS, beam=2, max_len=20)
    assert report.scores == {"BLEU": bleu(written, references).value, "chrF2": chrf(written, references).value}
    assert report.signatures["BLEU"] == bleu(written, references).signature
    assert report.intervals.keys() == {"BLEU", "chrF2"}
    assert report.settings == {"beam": 2, "length_penalty": 1.0, "max_len": 20}
    with pytest.raises(InputError, match="1 sources for 2 references"):
        evaluate(model, tokenizer, ["a"], ["a", "b"])


@pytest.mark.parametrize("start_id", [None, 1])
def test_texts(start_id):
    tokenizer, model = byte_level(), tiny("gpt2", vocab_size=400, start_id=start_id)
    texts = ["The quick brown fox jumps over the lazy dog. " * 4, "naïve café"]
    report = evaluate(model, tokenizer, texts, context=16, **FEW)
    documents = tokenizer.encode_batch(texts, special=False)
    found = surprisal(model, documents, context=16, stride=8, start_id=start_id)
    n_bytes = sum(len(text.encode()) for text in texts)
    assert report.scores["bits_per_byte"] == pytest.approx(found.total / math.log(2) / n_bytes)
    assert report.scores["perplexity"] == pytest.approx(found.perplexity)
    assert report.settings["bytes"] == n_bytes == 45 * 4 + 12
    assert report.settings["tokens"] == sum(map(len, documents)) - (2 if start_id is None else 0)
    low, high = report.intervals["perplexity"].low, report.intervals["perplexity"].high
    assert low < report.scores["perplexity"] < high
    bits = report.intervals["bits_per_byte"]
    per_byte = report.settings["tokens"] / n_bytes / math.log(2)
    assert (bits.low, bits.high) == pytest.approx((math.log(low) * per_byte, math.log(high) * per_byte), rel=1e-3)


def heard(monkeypatch, name):
    """What the function of this name in the room is given from now on."""
    from cutaway.evaluation import tasks

    told, real = [], getattr(tasks, name)
    monkeypatch.setattr(tasks, name, lambda *given, **more: told.append((given, more)) or real(*given, **more))
    return told


def test_every_option_of_a_text_arrives(monkeypatch):
    told, counts = heard(monkeypatch, "surprisal"), []
    tokenizer, model = byte_level(), tiny("gpt2", dtype=torch.float32, vocab_size=400, start_id=1)
    whole = evaluate(model, tokenizer, ["a man sleeps"], **FEW)
    options = {"context": 9, "stride": 2, "batch": 3, "start": False, "autocast": torch.bfloat16}
    evaluate(model, tokenizer, ["a man sleeps"], **FEW, progress=lambda *done: counts.append(done), **options)
    defaults, asked = ({**more, "progress": None} for _, more in told)
    assert defaults == {
        "context": 32, "stride": 16, "batch": 8, "start_id": 1, "autocast": None, "progress": None,
    }  # fmt: skip
    assert asked == {
        "context": 9, "stride": 2, "batch": 3, "start_id": None, "autocast": torch.bfloat16, "progress": None,
    }  # fmt: skip
    assert counts
    assert whole.settings["start_id"] == 1


def test_masked_words_are_asked_without_special_tokens_and_by_the_seed(monkeypatch):
    """The objective puts its own [CLS] and [SEP] around each row; blanks and pairs are drawn by one seed."""
    filled, paired = heard(monkeypatch, "fill_blanks"), heard(monkeypatch, "score_next_sentences")
    words = train_tokenizer(SENTENCES, kind="wordpiece", vocab_size=60)
    assert words.encode("a man") != words.encode("a man", special=False)
    model = tiny("bert", task="pretrain", vocab_size=words.vocab_size)
    pieces = ["a man sleeps ", "he is awake"]
    report = evaluate(model, words, [pieces, "it is a man"], seed=7, resamples=20, context=9, batch=2)
    documents = [[id for text in its for id in words.encode(text, special=False)] for its in (pieces, ["it is a man"])]
    for (_, _, read), more in (*filled, *paired):
        assert read == documents
        del more["progress"]
        assert more == {"context": 9, "seed": 7, "batch": 2}
    assert len(filled) == len(paired) == 1
    assert report.settings["context"] == 9


def test_a_word_behind_the_cut_is_tagged_o(words):
    """Whichever number that label has; and as many tags as words, no more and no fewer."""
    model = tiny("bert", task="tag", n_classes=3, labels=("B-X", "I-X", "O"), max_len=5)
    report = evaluate(model, words, [["a", "man", "sleeps", "he", "is"]], [["B-X"] * 3 + ["O"] * 2], **FEW)
    assert report.settings == {"cut": 1, "words": 5}
    assert report.scores["accuracy"] >= 0.4
    assert evaluate(model, words, [["a", "man", "sleeps", "he", "is"]], [["B-X"] * 5], **FEW).scores["accuracy"] <= 0.6
    with pytest.raises(InputError, match="sentence 1 has 1 words and 2 tags"):
        evaluate(model, words, [["a"]], [["O", "O"]])


def test_a_translations_settings_are_what_was_asked():
    tokenizer, model = byte_level(), translator()
    report = evaluate(model, tokenizer, ["Hi"], ["Hi"], **FEW, max_len=4, progress=lambda done, total: None)
    assert report.settings == {"beam": 4, "length_penalty": 1.0, "max_len": 4}


def test_an_option_without_effect_is_refused():
    with pytest.raises(InputError, match="beam=2 has no effect on the task language_model, only on translate"):
        evaluate(tiny("gpt2", vocab_size=400), byte_level(), ["a man"], beam=2)
    with pytest.raises(InputError, match="stride=2 has no effect on the task translate, only on language_model"):
        evaluate(translator(), byte_level(), ["a"], ["a"], stride=2)


def test_sacrebleu_is_missed_before_anything_is_translated(monkeypatch):
    from cutaway.evaluation import tasks

    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    monkeypatch.setattr(tasks, "translate_all", lambda *_, **__: pytest.fail("translated"))
    with pytest.raises(MissingExtra, match="sacrebleu"):
        evaluate(translator(), byte_level(), ["a"], ["a"])


def test_pictures():
    model = tiny("vit", dtype=torch.float32)
    pixels = np.random.default_rng(0).integers(0, 256, (20, 3, 8, 8), dtype=np.uint8)
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    numbers = (pixels / 255 - np.array(mean)[:, None, None]) / np.array(std)[:, None, None]
    said = model(torch.tensor(numbers, dtype=torch.float32)).argmax(dim=1).numpy()
    wanted = np.where(np.arange(20) < 15, said, 0)
    report = evaluate(model, None, pixels, wanted, mean=mean, std=std, batch=7, **FEW)
    assert report.scores == {"accuracy": float((said == wanted).mean())}
    assert evaluate(model, None, numbers, wanted, **FEW).scores == report.scores
    with pytest.raises(InputError, match="2 numbers for pictures of 3 channels"):
        evaluate(model, None, pixels, wanted, mean=(0.5, 0.5))


# --- every report -----------------------------------------------------------------------------------------------------


def test_a_report_is_json_and_says_how_long_it_took(words):
    report = evaluate(classifier(), words, SENTENCES, [0] * 6, resamples=20, level=0.9)
    said = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert said["scores"] == report.scores
    assert said["intervals"]["accuracy"]["level"] == 0.9
    assert report.seconds > 0
    assert evaluate(classifier(), words, SENTENCES, [0] * 6, resamples=0).intervals == {}


def test_what_cannot_be_evaluated_is_refused(words):
    model = classifier()
    with pytest.raises(InputError, match="2 examples with 1 labels"):
        evaluate(model, words, ["a", "a"], [0])
    with pytest.raises(InputError, match="no examples"):
        evaluate(model, words, [], [])
    with pytest.raises(InputError, match=r"label 1 is 3; this model knows 0 … 2"):
        evaluate(model, words, ["a"], [3])
    with pytest.raises(InputError, match=r"label 1 is 'perhaps'; this model knows yes, no, maybe"):
        evaluate(classifier(labels=("yes", "no", "maybe")), words, ["a"], ["perhaps"])
    with pytest.raises(InputError, match="give references or labels"):
        evaluate(model, words, ["a"])
    with pytest.raises(InputError, match="give its tokenizer"):
        evaluate(model, None, ["a"], [0])
    with pytest.raises(InputError, match="no score is known for a bert model with task='hidden'"):
        evaluate(tiny("bert", task="hidden"), words, ["a"], [0])
    with pytest.raises(InputError, match=r"model.eval\(\)"):
        evaluate(classifier().train(), words, ["a"], [0])
