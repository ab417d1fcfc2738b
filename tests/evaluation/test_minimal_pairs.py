"""Minimal pairs: a sentence is as likely as a plain forward pass says, whoever stands beside it."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from helpers.classifiers import SENTENCES, classifier, wordpiece
from helpers.pair_models import Knows, by_hand, hiding, writer
from helpers.tiny_models import DECODERS, tiny
from helpers.tokenizers_of_bytes import byte_level
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway.errors import InputError
from cutaway.evaluation import Pair, evaluate
from cutaway.evaluation.minimal_pairs import minimal_pairs
from cutaway.evaluation.perplexity import surprisal
from cutaway.evaluation.sentence_log_p import beginning, log_p, pseudo_log_p
from cutaway.evaluation.shared_prefixes import Branches, trees
from cutaway.model.model import Model
from cutaway.tokens import Tokenizer
from cutaway.tokens.tokenizer_training import train_tokenizer

FEW: dict[str, Any] = {"resamples": 50}
TEXTS = [*SENTENCES, "a man", "a man sleeps.", "a", "Many girls insulted themselves.", "Many girls insulted herself."]


# --- the tree ---------------------------------------------------------------------------------------------------------

rows = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=9), min_size=1, max_size=12)


@given(rows, st.integers(1, 20))
def test_a_tree_holds_every_sentence_and_no_beginning_twice(sentences, nodes):
    found = {}
    for tree in trees(sentences, nodes):
        for number, way in tree.ways.items():
            found[number] = [tree.ids[node] for node in way]
            assert [tree.depths[node] for node in way] == list(range(len(way)))
            seen = [j for j in range(way[-1] + 1) if j <= way[-1] < tree.stops[j]]
            assert seen == way
        beginnings = {tuple(sentences[i][: n + 1]) for i in tree.ways for n in range(len(sentences[i]))}
        assert len(tree.ids) == len(beginnings)
        assert len(tree.ids) <= max(nodes, max(map(len, sentences)))
    assert [found[i] for i in range(len(sentences))] == sentences


@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=10, deadline=None)
@given(sentences=rows)
def test_in_a_tree_a_token_is_what_it_is_alone(name, sentences):
    model = tiny(name)
    some = list(trees(sentences, 12))
    with torch.no_grad():
        ids, branches = Branches.of(model, some)
        together = model.hidden(ids, cache=branches)
        for at, tree in enumerate(some):
            for number, way in tree.ways.items():
                alone = model.hidden(torch.tensor([sentences[number]]))[0]
                assert torch.allclose(together[at, way], alone, atol=1e-10)


# --- log p ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("start_id", [0, 1, None])
def test_log_p_is_that_of_a_plain_forward_pass(name, start_id):
    model, tokenizer = writer(name, start_id=start_id), byte_level()
    expected = []
    for text in TEXTS:
        before = [start_id] if start_id is not None else tokenizer.encode("\n\n" + text, special=False)[:2]
        ids = before + tokenizer.encode(text, special=False)
        expected.append(by_hand(model, ids, len(before)))
    assert np.allclose(log_p(model, tokenizer, TEXTS), expected, atol=1e-9)


def test_log_p_is_the_surprisal_of_the_sentence():
    model, tokenizer = writer(start_id=1), byte_level()
    documents = tokenizer.encode_batch(TEXTS, special=False)
    assert np.allclose(-log_p(model, tokenizer, TEXTS), surprisal(model, documents, start_id=1).nats, atol=1e-9)


def test_neighbours_change_nothing(monkeypatch):
    from cutaway.evaluation import sentence_log_p

    model, tokenizer = writer(), byte_level()
    alone = [log_p(model, tokenizer, [text])[0] for text in TEXTS]
    assert np.allclose(log_p(model, tokenizer, TEXTS), alone, atol=1e-9)
    monkeypatch.setattr(
        sentence_log_p, "trees", lambda sentences: trees(sentences, 16)
    )  # some trees, padded, in some batches
    monkeypatch.setattr(sentence_log_p, "LOGITS_AT_ONCE", 2 * 256 * 400)
    told = []
    found = log_p(model, tokenizer, TEXTS[::-1], progress=lambda *counts: told.append(counts))
    assert np.allclose(found, alone[::-1], atol=1e-9)
    assert len(told) > 1
    assert told[-1] == (len(TEXTS), len(TEXTS))


def test_what_stands_before_a_sentence():
    tokenizer, spaced = byte_level(), wordpiece()  # the second knows no line breaks
    assert beginning(writer(start_id=1), tokenizer, None, True) == ([1], "")
    assert beginning(writer(start_id=1), tokenizer, None, False) == ([], "\n\n")
    assert beginning(writer(end_ids=(2,)), tokenizer, None, True) == ([], "\n\n")
    assert beginning(writer(), tokenizer, "So: ", True) == ([], "So: ")
    assert beginning(writer(start_id=1), tokenizer, "So: ", True) == ([1], "So: ")
    assert beginning(writer(end_ids=(2,)), spaced, None, True) == ([2], "")
    with pytest.raises(InputError, match="this model has no start token: set `before`"):
        beginning(writer(), spaced, None, True)


def test_a_report_says_what_stood_before():
    model, tokenizer = writer(start_id=1), byte_level()
    first = tokenizer.token(1)
    for asked, said in (({}, first), ({"start": False}, repr("\n\n")), ({"before": "So:"}, f"{first} 'So:'")):
        report = evaluate(model, tokenizer, [Pair("a man", "man a")], resamples=0, **asked)
        assert report.settings["behind"] == said


def test_what_stands_before_is_read_and_not_scored():
    model, tokenizer = writer(start_id=1), byte_level()
    ids = tokenizer.encode("So: a man", special=False)
    n_before = len(tokenizer.encode("So:", special=False))
    found = log_p(model, tokenizer, [" a man"], before="So:")
    assert found[0] == pytest.approx(by_hand(model, [1, *ids], 1 + n_before))
    assert found[0] != pytest.approx(log_p(model, tokenizer, [" a man"])[0])


def test_line_breaks_and_sentence_are_cut_as_one_text():
    """Before a word two line breaks are two tokens, though elsewhere they are one: no text had that before a word."""
    tokenizer = train_tokenizer(["a man sleeps\n\n", "\n\n"] * 9, kind="bpe", vocab_size=300)
    (both,) = tokenizer.encode("\n\n", special=False)
    (one,) = tokenizer.encode("\n", special=False)
    words = tokenizer.encode("a man", special=False)
    model = writer()
    found = log_p(model, tokenizer, ["a man"])[0]
    assert found == pytest.approx(by_hand(model, [one, one, *words], 2))
    assert found != pytest.approx(by_hand(model, [both, *words], 1))


def test_sentences_that_cannot_be_scored_are_named():
    model, tokenizer = writer(max_len=8), byte_level()
    with pytest.raises(InputError, match="sentence 2 of 2 has no token: ''"):
        log_p(model, tokenizer, ["a", ""])
    with pytest.raises(InputError, match="this model reads at most 8: shorten it"):
        log_p(model, tokenizer, ["Many girls insulted themselves."])
    broken = writer()
    next(broken.parameters()).data.fill_(torch.nan)
    with pytest.raises(InputError, match="not finite numbers, because its weights are damaged"):
        log_p(broken, tokenizer, ["a"])
    with pytest.raises(InputError, match="task='classify' does not say how likely a sentence is"):
        evaluate(classifier(), wordpiece(), [Pair("a", "b")])


# --- pseudo-log-likelihood --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "task"), [("bert", "masked_language_model"), ("bert", "pretrain"), ("roformer", None)]
)
def test_pseudo_log_likelihood_hides_each_token_in_turn(name, task, monkeypatch):
    from cutaway.evaluation import sentence_log_p

    tokenizer = hiding()
    model = tiny(name, **({"task": task} if task else {}))
    expected = []
    for text in SENTENCES:
        ids, total = tokenizer.encode(text), 0.0
        for place in range(1, len(ids) - 1):  # not [CLS], not [SEP]
            hidden = torch.tensor([[*ids[:place], tokenizer.mask_id, *ids[place + 1 :]]])
            total += model(hidden)[0, place].log_softmax(dim=-1)[ids[place]].item()
        expected.append(total)
    assert np.allclose(pseudo_log_p(model, tokenizer, SENTENCES), expected, atol=1e-9)
    monkeypatch.setattr(sentence_log_p, "AT_ONCE", 2)
    assert np.allclose(pseudo_log_p(model, tokenizer, SENTENCES, batch_tokens=20), expected, atol=1e-9)


def test_one_blank_of_two_sentences_is_asked_once(monkeypatch):
    tokenizer, model, read = hiding(), tiny("bert"), []
    hidden = model.hidden
    monkeypatch.setattr(model, "hidden", lambda ids, **more: read.append(len(ids)) or hidden(ids, **more))
    found = pseudo_log_p(model, tokenizer, ["the dog runs", "the man runs"])
    assert sum(read) == 5
    alone = [pseudo_log_p(model, tokenizer, [text])[0] for text in ("the dog runs", "the man runs")]
    assert np.allclose(found, alone, atol=1e-9)


def test_blanks_that_cannot_be_asked_for():
    with pytest.raises(InputError, match="has no mask token"):
        pseudo_log_p(tiny("bert"), wordpiece(), ["a"])
    with pytest.raises(InputError, match="sentence 1 of 1 has no token"):
        pseudo_log_p(tiny("bert"), hiding(), [" "])
    with pytest.raises(InputError, match="this model reads at most 4: shorten it"):
        pseudo_log_p(tiny("bert", max_len=4), hiding(), ["a man sleeps"])


# --- the report -------------------------------------------------------------------------------------------------------

SUBJECTS = {"the dog": "sleeps", "the dogs": "sleep", "a man": "sleeps", "men": "sleep"}
BOTH = ("sleeps", "sleep")
PAIRS = [
    Pair(f"{who} {verb}", f"{who} {BOTH[verb == 'sleeps']}", {"field": "morphology", "kind": verb})
    for who, verb in SUBJECTS.items()
]


def knowing(tokenizer: Tokenizer, right: bool) -> Model:
    """A model of this made-up language, and of its opposite: the verb's score depends on the noun before it."""
    model = tiny("llama", vocab_size=tokenizer.vocab_size, start_id=1)
    model.head = Knows(tokenizer.vocab_size)
    plural = {tokenizer.id(word) for word in ("dogs", "men")}
    sleep, sleeps = (tokenizer.id(word) for word in ("sleep", "sleeps"))

    def hidden(ids: Tensor, **more) -> Tensor:
        scores = torch.zeros(*ids.shape, tokenizer.vocab_size, dtype=torch.float64)
        many = torch.isin(ids, torch.tensor(sorted(plural)))
        scores[..., sleep], scores[..., sleeps] = 3.0 * (many == right), 3.0 * (many != right)
        return scores

    model.hidden = hidden
    return model


@pytest.mark.parametrize(("right", "wanted"), [(True, 1.0), (False, 0.0)])
def test_who_knows_the_language_is_always_right(right, wanted):
    tokenizer = train_tokenizer([pair.good for pair in PAIRS], kind="word", vocab_size=50)
    report = evaluate(knowing(tokenizer, right), tokenizer, PAIRS, **FEW)
    assert report.scores == {"accuracy": wanted}
    assert (report.task, report.n, report.settings["ties"], report.settings["sentences"]) == ("minimal_pairs", 4, 0, 8)
    assert (report.intervals["accuracy"].low, report.intervals["accuracy"].high) == (wanted, wanted)
    assert {name: group.n for name, group in report.groups["kind"].items()} == {"sleep": 2, "sleeps": 2}


def test_who_knows_nothing_gets_half():
    model, tokenizer = writer(start_id=1), byte_level()
    for parameter in model.parameters():
        parameter.data.zero_()  # all tokens are equally likely
    same_length = [Pair("q!", "!q"), Pair("a", "b"), Pair("xyz", "zyx")]
    assert len({len(tokenizer.encode(text, special=False)) for text in ("xyz", "zyx")}) == 1
    report = evaluate(model, tokenizer, same_length, **FEW)
    assert (report.scores["accuracy"], report.settings["ties"]) == (0.5, 3)
    twice = evaluate(writer(), tokenizer, [Pair("a man", "a man")], **FEW)
    assert (twice.scores["accuracy"], twice.settings["ties"], twice.settings["sentences"]) == (0.5, 1, 1)


def test_the_score_by_groups():
    model, tokenizer = writer(), byte_level()
    pairs = [Pair(a, b, {"field": "xy"[i % 2], "kind": "pqr"[i % 3]} if i else {}) for i, (a, b) in
             enumerate(zip(TEXTS, TEXTS[1:] + TEXTS[:1], strict=True))]  # fmt: skip
    likely = dict(zip(TEXTS, log_p(model, tokenizer, TEXTS), strict=True))
    right = np.array([likely[pair.good] > likely[pair.bad] for pair in pairs])
    report = evaluate(model, tokenizer, pairs, **FEW)
    assert report.scores["accuracy"] == right.mean()
    assert list(report.groups) == ["field", "kind"]
    for level, groups in report.groups.items():
        for name, group in groups.items():
            its = [i for i, pair in enumerate(pairs) if pair.of.get(level) == name]
            assert (group.n, group.accuracy) == (len(its), right[its].mean())
            assert group.interval.low <= group.accuracy <= group.interval.high
    said = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert said["groups"]["field"]["x"]["accuracy"] == report.groups["field"]["x"].accuracy
    assert said["settings"]["behind"] == repr("\n\n")
    bare = evaluate(model, tokenizer, pairs, resamples=0)
    assert bare.intervals == {}
    assert bare.groups["field"]["x"].interval is None
    with pytest.raises(InputError, match="no pairs"):
        minimal_pairs(model, tokenizer, [])


def test_a_model_that_fills_blanks_has_a_score():
    tokenizer, model = hiding(), tiny("bert")
    pairs = [Pair("the dog runs", "the dog saw"), Pair("he is awake", "he is a")]
    likely = pseudo_log_p(model, tokenizer, [text for pair in pairs for text in (pair.good, pair.bad)])
    report = evaluate(model, tokenizer, pairs, **FEW)
    assert report.scores["accuracy"] == (likely[::2] > likely[1::2]).mean()
    assert report.settings["by"] == "pseudo-log-likelihood"
