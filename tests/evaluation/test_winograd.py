"""Winograd schemas: both readings are scored by the same tokens, whoever stands beside them."""

import gzip
import time
from typing import Any

import numpy as np
import pytest
import torch
from helpers.classifiers import classifier, wordpiece
from helpers.pair_models import by_hand, hiding, writer
from helpers.tiny_models import DECODERS, ENCODERS, tiny
from helpers.tokenizers_of_bytes import byte_level
from helpers.translators import translator

from cutaway.errors import InputError
from cutaway.evaluation import Schema, evaluate
from cutaway.evaluation.examples import read_examples
from cutaway.evaluation.winograd import _same_end, readings, readings_with_blanks, standing
from cutaway.evaluation.winograd_files import read_schemas

FEW: dict[str, Any] = {"resamples": 50}
SCHEMAS = [
    Schema("The man saw the dog because ", " runs.", ("the man", "The dog"), 0),
    Schema("The man saw the dog because ", " is awake.", ("the man", "The dog"), 1),
    Schema("A man sleeps. ", " is a dog.", ("the one dog", "he"), 1),
    Schema("He is awake, and ", " saw it", ("no one", "a dog", "it"), 2),
]


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("start_id", [0, 1, None])
def test_partial_and_full_scores_are_those_of_a_plain_pass(name, start_id):
    model, tokenizer = writer(name, start_id=start_id), byte_level()
    front = [] if start_id is None else [start_id]
    before = "" if front else "\n\n"
    alike = Schema("We saw ", " runs.", ("the old dog", "the small dog"), 0)  # in their last word
    found = readings(model, tokenizer, [*SCHEMAS, alike])
    for number, schema in enumerate([*SCHEMAS, alike]):
        behind = len(tokenizer.encode(schema.after, special=False))
        for candidate in range(len(schema.candidates)):
            ids = front + tokenizer.encode(before + schema.reading(candidate), special=False)
            first = len(front) + len(tokenizer.encode(before, special=False))
            assert found["full"][number][candidate] == pytest.approx(by_hand(model, ids, first))
            assert found["partial"][number][candidate] == pytest.approx(by_hand(model, ids, len(ids) - behind))


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
def test_neither_order_nor_company_nor_batch_changes_an_answer(name):
    masked = name == "bert"
    model, tokenizer = (tiny("bert"), hiding()) if masked else (writer(name, start_id=1), byte_level())

    def ask(some, **more):
        return (
            readings_with_blanks(model, tokenizer, some, **more)
            if masked
            else readings(model, tokenizer, some)["partial"]
        )

    together = ask(SCHEMAS)
    assert [x for one in ask(SCHEMAS[::-1])[::-1] for x in one] == pytest.approx([x for one in together for x in one])
    for schema, expected in zip(SCHEMAS, together, strict=True):
        assert ask([schema])[0] == pytest.approx(expected)
        turned = Schema(schema.before, schema.after, schema.candidates[::-1], len(schema.candidates) - 1 - schema.right)
        assert ask([turned])[0] == pytest.approx(expected[::-1])
    if masked:
        assert np.concatenate(ask(SCHEMAS, batch_tokens=1)) == pytest.approx(np.concatenate(together))


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_who_knows_nothing_gets_half(name):
    model, tokenizer = (tiny("bert"), hiding()) if name == "bert" else (writer(start_id=1), byte_level())
    for parameter in model.parameters():
        parameter.data.zero_()  # all tokens are equally likely
    report = evaluate(model, tokenizer, SCHEMAS[:3], **FEW)
    assert report.scores["accuracy"] == 0.5
    assert report.settings["ties"] == 3
    assert evaluate(model, tokenizer, SCHEMAS[3:], **FEW).scores["accuracy"] == pytest.approx(1 / 3)


def test_with_how_many_tokens_all_rows_end_alike():
    for rows, n in (([[1, 2], [1, 3]], 0), ([[1, 2], [5, 2]], 1), ([[7, 1, 2], [1, 2]], 2), ([[3]] * 3, 1)):
        assert _same_end(rows) == n


def test_tokens_that_reach_over_the_border_are_scored_in_no_reading():
    """«dogs» is one token and «cats» is two: what is scored is what both end with."""
    from cutaway.tokens.tokenizer_training import train_tokenizer

    tokenizer = train_tokenizer(["the dogs"] * 9 + ["the cat s"], kind="bpe", vocab_size=300)
    schema = Schema("the ", "s bark", ("dog", "cat"), 0)
    one, two = (tokenizer.encode(schema.reading(n), special=False) for n in range(2))
    assert tokenizer.token(one[1]) == "Ġdogs"
    model = writer(start_id=1)
    found = readings(model, tokenizer, [schema])["partial"][0]
    n = len(tokenizer.encode(" bark", special=False))
    assert one[-n:] == two[-n:]
    assert found == pytest.approx([by_hand(model, [1, *ids], 1 + len(ids) - n) for ids in (one, two)])


@pytest.mark.parametrize("name", ENCODERS)
def test_blanks_hide_the_whole_candidate_and_nothing_else(name):
    model, tokenizer = tiny(name), hiding()
    schema = Schema("the man saw ", " runs", ("the dog", "no one", "it"), 0)
    found = readings_with_blanks(model, tokenizer, [schema])[0]
    for score, candidate in zip(found, schema.candidates, strict=True):
        front, middle, back = (tokenizer.encode(text, special=False) for text in ("the man saw", candidate, "runs"))
        row = [tokenizer.cls_id, *front, *[tokenizer.mask_id] * len(middle), *back, tokenizer.sep_id]
        with torch.no_grad():
            log_p = model(torch.tensor([row]))[0].log_softmax(dim=-1)
        assert score == pytest.approx(np.mean([log_p[1 + len(front) + i, id].item() for i, id in enumerate(middle)]))


def test_the_report_has_every_item():
    report = evaluate(writer(start_id=1), byte_level(), SCHEMAS, **FEW)
    assert (report.task, report.n, set(report.scores)) == ("winograd", 4, {"accuracy", "accuracy_full"})
    assert report.signatures["accuracy"].startswith("partial:")
    for way, name in (("partial", "accuracy"), ("full", "accuracy_full")):
        right = [item[way].index(max(item[way])) == item["right"] for item in report.to_dict()["items"]]
        assert report.scores[name] == np.mean(right)
        assert report.intervals[name].low <= report.scores[name] <= report.intervals[name].high


def test_who_is_asked_in_vain_is_named():
    with pytest.raises(InputError, match="task='classify' does not say how likely a sentence is"):
        evaluate(classifier(), wordpiece(), SCHEMAS)
    with pytest.raises(InputError, match="task='translate' does not say how likely"):
        evaluate(translator(), byte_level(), SCHEMAS)
    with pytest.raises(InputError, match="has no mask token"):
        evaluate(tiny("bert"), wordpiece(), SCHEMAS)


# --- files ------------------------------------------------------------------------------------------------------------

WSC = """The trophy doesn't fit because  [MASK]  is too large .
[MASK]
 The trophy ,the suitcase
The trophy

Ann left.  [MASK]  was hungry.
[MASK]
Ann,the dog
the dog
"""
DPR = """The priests quoted it for all the witches they found, since they feared it.
they
The priests,the witches
the witches

Jim went to Hal's house, and walked his dog.
his
Jim,Hal
Hal

Mary met Sue before John took her home.
her
Mary,Sue
Sue

The skeleton beat the pumpkin, because it looked like it was walking.
it
The skeleton,the pumpkin
The skeleton
"""


def test_both_published_forms(tmp_path):
    path = tmp_path / "wsc.txt"
    path.write_text(WSC)
    one, two = read_examples(tiny("gpt2"), [path]).inputs
    assert one == Schema("The trophy doesn't fit because ", " is too large .", ("The trophy", "the suitcase"), 0)
    assert one.reading(0) == "The trophy doesn't fit because the trophy is too large ."
    assert two.reading(1) == "Ann left. The dog was hungry."
    packed = tmp_path / "dpr.gz"
    packed.write_bytes(gzip.compress(DPR.encode()))
    found = read_schemas([packed])
    assert [schema.reading(schema.right) for schema in found] == [
        "The priests quoted it for all the witches they found, since the witches feared it.",
        "Jim went to Hal's house, and walked Hal's dog.",
        "Mary met Sue before John took Sue home.",
        "The skeleton beat the pumpkin, because the skeleton looked like it was walking.",
    ]
    assert read_schemas([path, packed], limit=3) == [one, two, found[0]]


def test_a_space_before_a_full_stop_goes(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("Ann gave it to [MASK] .\n[MASK]\nAnn,Sue\nSue\n")
    assert read_schemas([path])[0].reading(1) == "Ann gave it to Sue."


def test_what_is_no_schema_is_a_text(tmp_path):
    path = tmp_path / "a.txt"
    for text in ("Chapter 1\n\nIt was late.\n", "a\nb\nc,d\nc\n", "it is\nit\na,b\nc\n", "one\n" * 9, "x" * (1 << 21)):
        path.write_text(text)
        assert read_schemas([path]) is None
    path.write_text(WSC + "\nstray\n")
    with pytest.raises(InputError, match=r"a.txt, line 11: no schema ends here; one is a sentence"):
        read_schemas([path])


def test_a_line_that_says_its_pronoun_ten_thousand_times(tmp_path):
    """Each «it» is held against the word before it, not against all of the line."""
    path = tmp_path / "schemas.txt"
    path.write_text(f"The cat saw the mat {'and ' * 10}{'that it ' * 20_000}was old.\nit\nthe cat,the mat\nthe mat\n")
    begin = time.process_time()
    (schema,) = read_schemas([path])
    assert time.process_time() - begin < 10  # read anew for each, it takes minutes
    assert schema.before.endswith("and that ")


def test_a_pronoun_stands_behind_names_that_are_whole_words(tmp_path):
    """«he» occurs twice, and only the second is behind Ed, who is in neither «Fred» nor «edited»."""
    path = tmp_path / "schemas.txt"
    path.write_text("Fred edited it as he saw Ed because he could.\nhe\nFred,Ed\nEd\n\n")
    (schema,) = read_schemas([path])
    assert (schema.before, schema.after) == ("Fred edited it as he saw Ed because ", " could.")
    assert standing("Joanna, Ann's sister", "ann") == (8, 11)
    assert standing("Joanna", "Ann") is None


@pytest.mark.parametrize("word", "The A An My Your His Her Its Our Their This That These Those Some Any All".split())
def test_a_candidate_within_a_sentence_begins_with_a_small_letter(word):
    schema = Schema("Ann saw it because ", " ran.", (f"{word} dog", "Sue"), 0)
    assert schema.reading(0) == f"Ann saw it because {word.lower()} dog ran."
    assert schema.reading(1) == "Ann saw it because Sue ran."
    assert Schema("", " ran.", (f"{word.lower()} dog", "Sue"), 0).reading(0) == f"{word} dog ran."
    assert Schema("I see. ", " ran.", (f"{word.lower()} dog", "Sue"), 0).reading(0) == f"I see. {word} dog ran."


@pytest.mark.parametrize(("pronoun", "whose"), [(word, True) for word in "his its their my our your".split()] + [
    (word, False) for word in "he she it they her him them".split()])  # fmt: skip
def test_a_possessive_pronoun_stands_for_somebodys(pronoun, whose, tmp_path):
    path = tmp_path / "wsc.txt"
    path.write_text(f"Ann met Sue and {pronoun} dog ran.\n{pronoun}\nAnn,Sue\nSue\n\n")
    (schema,) = read_schemas([path])
    assert schema.reading(0) == f"Ann met Sue and Ann{chr(39) + 's' if whose else ''} dog ran."


@pytest.mark.parametrize(
    "word", "because since but so and as when if while though although that after before until unless or".split()
)
def test_of_several_places_the_one_behind_a_conjunction_is_meant(word, tmp_path):
    path = tmp_path / "wsc.txt"
    path.write_text(f"Ann told Sue it was it {word} it ran.\nit\nAnn,Sue\nSue\n\n")
    (schema,) = read_schemas([path])
    assert schema.reading(0) == f"Ann told Sue it was it {word} Ann ran."
