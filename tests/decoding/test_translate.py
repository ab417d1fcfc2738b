"""Many texts at once: what comes out depends on the text alone."""

import pytest
import torch
from tiny import tiny
from tokens.test_tokenizer import byte_level
from written import translations

from cutaway.decoding import translate_all
from cutaway.decoding.engine import padded
from cutaway.decoding.translate import encode_sources
from cutaway.errors import InputError
from cutaway.model.model import Model
from cutaway.tokens import Tokenizer

PAD, START, END = 0, 1, 2
TEXTS = ["I ate an apple.", "Hi", "", "The quick brown fox jumps over it.", "naïve café", "Hi", "a b c d e f g"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return byte_level()


def translator(**changes) -> Model:
    ids = {"pad_id": PAD, "start_id": START, "end_ids": (END,), "vocab_size": 400, "max_len": 64}
    # tied, a random output repeats what it reads
    return tiny("transformer", dtype=torch.float32, **{**ids, "tied": False, "seed": 2, **changes})


@pytest.mark.parametrize("more_ends", [range(0), range(3, 50)], ids=["late", "early"])
def test_each_text_is_translated_as_if_alone(tokenizer, more_ends):
    model, options = translator(), {"beam": 3, "end_ids": [END, *more_ends]}
    found = translate_all(model, tokenizer, TEXTS, rows=3, **options)
    assert found == [translate_all(model, tokenizer, [text], **options)[0] for text in TEXTS]
    assert found == translate_all(model, tokenizer, TEXTS, rows=1, **options)
    assert found[1] == found[5]
    assert found[2] == ""
    assert len(set(found)) > 4


def test_a_text_goes_in_between_tag_and_end(tokenizer):
    model, text = translator(), TEXTS[3]
    ids = tokenizer.encode(text, special=False)
    for tag, source in ((None, [*ids, END]), (7, [7, *ids, END])):
        expected = translations(model, torch.tensor([source]), n=min(64, 2 * len(source) + 20), beam=2)[0]
        written = tokenizer.decode([id for id in expected if id != END])
        assert translate_all(model, tokenizer, [text], beam=2, tag=tag) == [written]
    assert encode_sources(model, tokenizer, [text, ""], 7, END) == [[7, *ids, END], []]


def test_the_limit_is_a_matter_of_the_source_alone(tokenizer):
    model = translator(end_ids=None)
    never = [399]
    longest = {}
    for text in ("Hi", TEXTS[3]):
        n = len(tokenizer.encode(text, special=False)) + 1
        source = torch.tensor([[*tokenizer.encode(text, special=False), 399]])
        longest[text] = tokenizer.decode(translations(model, source, n=n + 3, beam=1, end_ids=never)[0])
    options = {"beam": 1, "growth": (1.0, 2.1), "end_ids": never}  # 2.1 rounds up
    assert translate_all(model, tokenizer, list(longest), **options) == list(longest.values())
    (short,) = translate_all(model, tokenizer, ["Hi"], max_len=2, **options)
    assert longest["Hi"].startswith(short)
    assert len(short) < len(longest["Hi"])


def test_the_report_counts_every_text(tokenizer):
    told: list[tuple[int, int]] = []
    translate_all(translator(), tokenizer, TEXTS, beam=1, rows=2, report=lambda done, total: told.append((done, total)))
    assert told[-1] == (len(TEXTS), len(TEXTS))
    assert told == sorted(told)
    assert len(told) > 2


def test_ids_that_the_tokenizer_does_not_know_stand_for_nothing(tokenizer):
    model = translator(vocab_size=900)
    with torch.no_grad():
        model.head.matrix[400:] *= 3
    assert len(translate_all(model, tokenizer, TEXTS[:2], beam=2)) == 2


def test_rows_are_padded_on_the_right():
    ids, real = padded([[5, 6], [7]], torch.device("cpu"))
    assert ids.tolist() == [[5, 6], [7, 0]]
    assert real.tolist() == [[True, True], [True, False]]
    assert padded([[5, 6], [7, 8]], torch.device("cpu"))[1] is None


def test_what_cannot_be_translated_is_refused(tokenizer):
    with pytest.raises(InputError, match=r"text 2 has \d+ tokens; this model reads at most 10"):
        translate_all(translator(max_len=10), tokenizer, ["Hi", TEXTS[3]])
    with pytest.raises(InputError, match="give `end_ids`"):
        translate_all(translator(end_ids=None), tokenizer, ["Hi"])
    with pytest.raises(InputError, match="rows=0"):
        translate_all(translator(), tokenizer, ["Hi"], rows=0)
    assert translate_all(translator(), tokenizer, []) == []
