"""Last words: log p of a whole word, and whether each of its tokens is the likeliest."""

import json
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from helpers.classifiers import classifier, wordpiece
from helpers.pair_models import Knows, by_hand, writer
from helpers.tiny_models import DECODERS
from helpers.tokenizers_of_bytes import byte_level
from helpers.translators import translator

from cutaway.errors import InputError
from cutaway.evaluation import LastWord, evaluate
from cutaway.evaluation.examples import read_examples
from cutaway.evaluation.lambada import _tokens, read_last_words

FEW: dict[str, Any] = {"resamples": 50}
PASSAGES = [
    LastWord("The quick brown fox jumps over the lazy", "dog"),
    LastWord("I ate an", "apple"),
    LastWord("a", "b"),
    LastWord('"Hello," he said to', "Ünïcödé"),
]


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("batch_tokens", [1, 4096])
def test_log_p_and_the_likeliest_tokens_are_those_of_a_plain_pass(name, batch_tokens):
    model, tokenizer = writer(name, start_id=1), byte_level()
    report = evaluate(model, tokenizer, PASSAGES, batch_tokens=batch_tokens, **FEW)
    log_ps, rights = [], []
    for passage, item in zip(PASSAGES, report.items, strict=True):
        ids = [1, *tokenizer.encode(f"{passage.context} {passage.word}", special=False)]
        first = 1 + len(tokenizer.encode(passage.context, special=False))
        log_ps.append(by_hand(model, ids, first))
        likeliest = model(torch.tensor([ids[:-1]]))[0].argmax(dim=-1).tolist()[first - 1 :]
        rights.append(likeliest == ids[first:])
        assert item["log_p"] == pytest.approx(log_ps[-1])
        assert item["right"] == rights[-1]
    assert report.scores["accuracy"] == np.mean(rights)
    assert report.scores["perplexity"] == pytest.approx(math.exp(-np.mean(log_ps)))
    assert report.settings["behind"] == "<sos>"


@pytest.mark.parametrize("start_id", [0, 1])
def test_a_start_token_of_any_number_stands_before_a_passage(start_id):
    tokenizer, passage = byte_level(), PASSAGES[0]
    ids = tokenizer.encode(f"{passage.context} {passage.word}", special=False)
    whole, n, cut = _tokens(tokenizer, passage, start_id, None)
    assert (whole, cut) == ([start_id, *ids], False)
    assert _tokens(tokenizer, passage, start_id, n + 2) == ([start_id, *ids[-n - 2 :]], n, True)


@pytest.mark.parametrize(("forgets", "wanted"), [(None, 1.0), (-1, 0.0), (-2, 0.0), (-3, 1.0)])
def test_a_word_is_found_only_with_all_its_tokens(forgets, wanted):
    """A model that knows the sentence by heart, but for what comes behind one token."""
    tokenizer = byte_level()
    ids = [1, *tokenizer.encode("So: xq", special=False)]
    assert len(set(ids)) == len(ids)
    assert len(tokenizer.encode(" xq", special=False)) >= 2
    follows = dict(pairwise(ids))
    if forgets is not None:
        follows[ids[forgets - 1]] = 0
    model = writer(start_id=1)
    model.head = Knows(400)
    known = torch.tensor([follows.get(id, 0) for id in range(400)])
    model.hidden = lambda ids, **more: torch.nn.functional.one_hot(known[ids], 400).double()
    n = len(tokenizer.encode(" xq", special=False))
    report = evaluate(model, tokenizer, [LastWord("So:", "xq")], **FEW)
    assert report.scores["accuracy"] == (wanted if forgets is None or n == 2 else float(-forgets > n))


def test_who_knows_nothing_is_as_surprised_as_by_a_die():
    model, tokenizer = writer(start_id=1), byte_level()
    for parameter in model.parameters():
        parameter.data.zero_()
    report = evaluate(model, tokenizer, PASSAGES, **FEW)
    assert report.scores["perplexity"] == pytest.approx(400 ** report.settings["tokens_per_word"], rel=1e-6)


def test_company_and_order_change_nothing():
    model, tokenizer = writer(start_id=1), byte_level()
    together = evaluate(model, tokenizer, PASSAGES, **FEW).items
    turned = evaluate(model, tokenizer, PASSAGES[::-1], **FEW).items[::-1]
    alone = [evaluate(model, tokenizer, [passage], **FEW).items[0] for passage in PASSAGES]
    for one, two, three in zip(together, turned, alone, strict=True):
        assert one["log_p"] == pytest.approx(two["log_p"]) == pytest.approx(three["log_p"])
        assert one["right"] == two["right"] == three["right"]


def test_the_start_token_is_the_models():
    tokenizer = byte_level()
    behind = {start: evaluate(writer(start_id=start), tokenizer, PASSAGES, **FEW) for start in (None, 1)}
    assert (behind[None].settings["behind"], behind[1].settings["behind"]) == (None, "<sos>")
    without = evaluate(writer(start_id=1), tokenizer, PASSAGES, start=False, **FEW)
    assert without.scores == behind[None].scores != behind[1].scores


def test_a_token_that_begins_no_text_for_generate_begins_none_here():
    """One that ends texts, too, stands between two."""
    ends = evaluate(writer(start_id=2, end_ids=(2,)), byte_level(), PASSAGES, **FEW)
    assert ends.settings["behind"] is None
    assert ends.scores == evaluate(writer(), byte_level(), PASSAGES, **FEW).scores


def test_a_long_passage_loses_its_beginning():
    model, tokenizer = writer(start_id=1, max_len=8), byte_level()
    report = evaluate(model, tokenizer, PASSAGES[:2], **FEW)
    ids = tokenizer.encode("The quick brown fox jumps over the lazy dog", special=False)
    n = len(ids) - len(tokenizer.encode("The quick brown fox jumps over the lazy", special=False))
    assert report.items[0]["log_p"] == pytest.approx(by_hand(model, [1, *ids[-8:]], 9 - n))
    assert "passages are longer than this model reads, and lost their beginning" in report.notes[0]


def test_files_are_known_by_their_columns(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [{"context": "a b ", "continuation": " c"}, {"context": "d", "continuation": "e"}]
    path.write_text("\n".join(map(json.dumps, rows)))
    model = writer()
    assert read_examples(model, [path]).inputs == [LastWord("a b", "c"), LastWord("d", "e")]
    assert read_last_words([path], limit=1) == [LastWord("a b", "c")]
    path.write_text('{"text": "a"}\n')
    assert read_last_words([path]) is None


def test_who_is_asked_in_vain_is_named():
    for model, tokenizer in ((classifier(), wordpiece()), (translator(), byte_level())):
        with pytest.raises(InputError, match="does not say which word comes next"):
            evaluate(model, tokenizer, PASSAGES)
    with pytest.raises(InputError, match="a word is needed, with text before it"):
        evaluate(writer(), byte_level(), [LastWord("So", " ")])
    broken = writer()
    next(broken.parameters()).data.fill_(torch.nan)
    with pytest.raises(InputError, match="not finite numbers, because its weights are damaged"):
        evaluate(broken, byte_level(), PASSAGES)


def test_only_what_was_cut_is_told():
    """A passage that fills the model to its last place is whole."""
    tokenizer = byte_level()
    model = writer("gpt2", start_id=1, max_len=12)
    lengths = set()
    for n in range(1, 30):
        passage = LastWord("QZ7"[n % 3] * (n % 2 + 1) + " KX9"[n % 4] * (n // 2), "b")
        whole = [1, *tokenizer.encode(f"{passage.context} {passage.word}", special=False)]
        lengths.add(len(whole))
        assert bool(evaluate(model, tokenizer, [passage], **FEW).notes) == (len(whole) > 13), n
    assert {12, 13, 14} <= lengths  # what comes last is only predicted
