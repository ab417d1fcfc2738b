"""`generate`: from a text to a text, whole or in pieces, and what it refuses."""

import codecs
import re
import time
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

import jaxtyping
import pytest
import torch
from helpers.text_generators import END, START, byte_fallback, byte_level_once, letters, speaker
from helpers.tiny_models import tiny
from helpers.tokenizers_of_bytes import words
from hypothesis import given
from hypothesis import strategies as st

import cutaway
from cutaway.decoding import run_jobs
from cutaway.decoding.detokenize import Speller
from cutaway.decoding.engine.engine import Job
from cutaway.decoding.generate import generate, prompt_ids, write_texts
from cutaway.decoding.generate_with_draft import write_drafted
from cutaway.decoding.options import GenerationOptions
from cutaway.decoding.rules.from_options import rules_of
from cutaway.decoding.rules.regex import Matching
from cutaway.decoding.rules.scores import (
    BadWords,
    FrequencyPenalty,
    LogitBias,
    MinLength,
    MinP,
    NoRepeat,
    PresencePenalty,
    RepetitionPenalty,
    Rule,
    Temperature,
    TopK,
    TopP,
)
from cutaway.decoding.rules.stop_strings import Stopping
from cutaway.decoding.search.search import Search
from cutaway.errors import InputError
from cutaway.model.model import Model
from cutaway.tokens import Tokenizer

PROMPTS = ["I ate an apple", "Hi", "naïve café", "日本", "The quick brown fox jumps"]
TEXT = "I ate 日本語, naïve 🙂👩‍👩‍👧 شكرا! The quick brown fox"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return byte_level_once()


def mended(ids: list[int]) -> list[int]:
    """For `byte_fallback`: each byte that is no part of a character becomes the three bytes of �."""
    out: list[int] = []
    for is_byte, run in groupby(ids, lambda id: 3 <= id < 259):
        run = list(run)
        if is_byte:
            text = bytes(id - 3 for id in run).decode(errors="one � each")
            run = [3 + byte for byte in text.encode()]
        out += run
    return out


codecs.register_error("one � each", lambda e: ("\ufffd" * (e.end - e.start), e.end))


# --- pieces ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [byte_level_once, byte_fallback])
@given(data=st.data())
def test_pieces_add_up_to_the_text_and_hold_whole_characters(kind, data):
    tokenizer = kind()
    whole = data.draw(st.booleans())
    if whole:
        ids = tokenizer.encode(data.draw(st.sampled_from([TEXT, "fox a b", "🙂" * 3, "a\ufffdb"])), special=False)
    else:  # any bytes, mostly no characters at all
        ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=30))
    cut = data.draw(st.integers(0, len(ids)))
    prompt = [START, *ids[:cut]]
    if "\ufffd" in tokenizer.decode(prompt) or tokenizer.token(prompt[-1]).startswith("<0x"):
        prompt, cut = [START], 0  # prompts are texts, and what follows must not spoil their end
    speller, said = Speller(tokenizer, prompt, ends=[END]), []
    for n in range(len(ids) - cut + 1):
        assert not speller.hear(ids[cut : cut + n])
        said.append(speller.said)
        assert whole is False or said[-1].count("\ufffd") <= 1  # that of the text itself
        assert speller.said.startswith(said[-2] if len(said) > 1 else "")
        assert kind is byte_fallback or not speller.said.endswith("\ufffd")
    visible = [id for id in ids if id != END]
    full = [*prompt, *(id for id in ids[cut:] if id not in (START, END))]
    full = tokenizer.decode(mended(full) if kind is byte_fallback else full)
    assert tokenizer.decode(prompt) + speller.close() == full
    if whole and cut == 0:
        assert speller.said == tokenizer.decode(visible)


@given(st.text("\na日🙂", min_size=1, max_size=30), st.data())
def test_a_character_of_bytes_is_said_with_its_last_byte(text, data):
    """However many stand in a row, and whatever byte that is no character stands among them."""
    tokenizer = byte_fallback()
    lost = data.draw(st.booleans())
    ids = ([3 + 0xFF] if lost else []) + [3 + byte for byte in text.encode()]
    speller = Speller(tokenizer, [START, tokenizer.id("▁a")])
    for n in range(len(ids) + 1):
        speller.hear(ids[:n])
        complete = bytes(id - 3 for id in ids[lost:n]).decode(errors="ignore")
        assert speller.said == "\ufffd" * min(lost, n) + complete
    assert speller.close() == "\ufffd" * lost + text


def test_a_stop_of_bytes_is_heard_at_once():
    speller = Speller(byte_fallback(), [START], stops=["\n"])
    ids = [byte_fallback().id("a"), *[3 + 0x0A] * 100]
    assert [speller.hear(ids[:n]) for n in (1, 2)] == [False, True]
    assert speller.close() == "a"
    speller = Speller(byte_fallback(), [START], stops=["本\n"])
    ids = [3 + byte for byte in "日本日本\n日".encode()]
    assert [speller.hear(ids[:n]) for n in range(len(ids) + 1)].index(True) == len("日本日本\n".encode())
    assert speller.close() == "日本日"


@pytest.mark.parametrize("ids", [[8], [0, 1, 2, 2], [3, 7]])
def test_the_stop_string_that_is_complete_first_ends_the_text(ids):
    speller = Speller(letters(), [0], stops=["abcc", "bc"])
    assert speller.hear(ids)
    assert speller.close() == "a"


@given(st.text("abc", max_size=20), st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3), st.data())
def test_no_part_of_a_stop_string_is_ever_shown(text, stops, data):
    """However the text is cut into tokens, it ends before the stop string that was complete first."""
    tokenizer = letters()
    speller, ids, at = Speller(tokenizer, [0], stops=stops), [], 0
    firsts = [(at + len(stop), at) for stop in stops if (at := text.find(stop)) >= 0]
    expected = text[: min(firsts)[1]] if firsts else text
    at = 0
    while at < len(text):
        pieces = [id for id in range(tokenizer.vocab_size) if text.startswith(tokenizer.token(id), at)]
        ids.append(data.draw(st.sampled_from(pieces)))
        at += len(tokenizer.token(ids[-1]))
        enough = speller.hear(ids)
        assert expected.startswith(speller.said)
        assert enough is (bool(firsts) and at >= min(firsts)[0])
    assert speller.close() == expected
    assert speller.stopped is bool(firsts)


# --- generate -------------------------------------------------------------------------------------------------------


def test_a_text_goes_on_as_its_tokens_do(tokenizer):
    model = speaker()
    for text in PROMPTS:
        ids = [START, *tokenizer.encode(text, special=False)]
        expected = run_jobs(model, [Job(prompt=ids, limit=20)])[0][0].ids
        whole = tokenizer.decode([*ids, *(id for id in expected if id != END)])
        assert text + generate(model, tokenizer, text, max_tokens=20) == whole
    assert cutaway.generate is generate


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 1.5, "seed": 3},
        {"temperature": 1.0, "top_k": 20, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.2},
        {
            "no_repeat_ngram": 2,
            "presence_penalty": 1.0,
            "frequency_penalty": 0.5,
            "logit_bias": {9: -5.0},
            "min_tokens": 10,
            "bad_words": ["apple", [5, 6]],
        },
        {"temperature": 2.0, "allow": "[a-e]*", "stop": ["cd", "dddd"]},
        {"beam": 3, "stop": "a"},
        {"beam": 4, "stop": ["a", "e"], "allow": "[a-f]*"},
        {"allow": r"[a-z]{5,9}( [a-z]{2,4}){3}"},
    ],
)
def test_alone_together_and_in_pieces_the_text_is_the_same(tokenizer, options):
    model = speaker()
    together = generate(model, tokenizer, PROMPTS, max_tokens=30, **options)
    assert together == [generate(model, tokenizer, text, max_tokens=30, **options) for text in PROMPTS]
    assert together == ["".join(generate(model, tokenizer, t, max_tokens=30, stream=True, **options)) for t in PROMPTS]
    assert len(set(together)) > 2


def test_a_stream_comes_while_it_is_written(tokenizer, monkeypatch):
    steps, tell = [], Search.tell
    monkeypatch.setattr(Search, "tell", lambda self, n: steps.append(tell(self, n)))
    stream = generate(speaker(), tokenizer, "Hi", max_tokens=50, allow="[a-z]{45,}", stream=True)
    next(stream)
    assert len(steps) < 5


def test_stop_strings_end_a_text_at_once(tokenizer):
    model = speaker(end_ids=None)
    free = generate(model, tokenizer, PROMPTS, max_tokens=40, temperature=1.0, allow="[a-z ]*")
    for text, whole in zip(PROMPTS, free, strict=True):
        stop = whole[5:7]
        found = generate(model, tokenizer, text, max_tokens=40, temperature=1.0, allow="[a-z ]*", stop=["zzzzzz", stop])
        assert found == whole[: whole.index(stop)]


# --- stop strings in a beam -----------------------------------------------------------------------------------------


def log_p(model: Model, prompt: list[int], ids: list[int]) -> float:
    """Of a text, in one pass and without a cache."""
    with torch.no_grad():
        scores = model(torch.tensor([[*prompt, *ids[:-1]]]))[0, len(prompt) - 1 :].double().log_softmax(dim=-1)
    return float(scores.gather(1, torch.tensor(ids)[:, None]).sum())


def test_a_beam_that_may_stop_as_wide_as_the_space_finds_the_best_of_all():
    """Texts that end behind a stop string, which costs nothing more; with an end of their own; and at the limit."""
    tokenizer, end, n = letters(), 9, 3
    model, stops = speaker(vocab_size=10, end_ids=(end,), dtype=torch.float64), ("cab", "bb")
    job = Job(prompt=[0], limit=n, rules=(Stopping(stops, tokenizer),))
    scores: dict[tuple[int, ...], float] = {}

    def grow(text: tuple[int, ...]) -> None:
        stopped = any(stop in tokenizer.decode(text) for stop in stops)
        if stopped and len(text) < n:
            scores[(*text, end)] = log_p(model, [0], list(text)) / (len(text) + 1)
        elif len(text) == n:
            scores[text] = log_p(model, [0], list(text)) / n
        else:
            scores[(*text, end)] = log_p(model, [0], [*text, end]) / (len(text) + 1)
            for id in range(end):
                grow((*text, id))

    grow(())
    (found,) = run_jobs(model, [job], beam=10**n)
    best = sorted(scores, key=lambda text: -scores[text])
    assert len(found) == len(best)
    for hypothesis, text in zip(found, best, strict=True):
        assert tuple(hypothesis.ids) == text
        assert hypothesis.score == pytest.approx(scores[text], rel=1e-9)


@pytest.mark.parametrize("groups", [1, 2])
def test_texts_of_a_beam_are_ranked_by_what_is_kept_of_them(tokenizer, groups):
    model, stops, ended = speaker(dtype=torch.float64), ["a", "e", "\ufffd"], set()
    for text in PROMPTS:
        prompt = prompt_ids(model, tokenizer, text)
        options = GenerationOptions(max_tokens=12, beam=8, n_best=8, stop=stops, groups=groups, allow="[a-f]*")
        (found,) = write_texts(model, tokenizer, [text], options)
        assert len({one.text for one in found}) == len(found) > 1
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
        for one in found:
            ended.add(one.ended)
            assert not any(stop in one.text for stop in stops)
            if one.ended == "stop":  # at the token that completes it
                speller = Speller(tokenizer, prompt, stops=stops)
                assert [speller.hear(one.ids[:-1]), speller.hear(one.ids)] == [False, True]
    assert "stop" in ended


def test_a_score_is_that_of_what_a_stop_string_leaves(tokenizer):
    model, seen = speaker(dtype=torch.float64), set()
    for beam in (1, 4):
        for text in PROMPTS:
            prompt = prompt_ids(model, tokenizer, text)
            free = generate(model, tokenizer, text, max_tokens=12, beam=beam)
            options = GenerationOptions(max_tokens=12, beam=beam, n_best=beam, stop=free[2:3] or "a")
            for one in write_texts(model, tokenizer, [text], options)[0]:
                assert one.score == pytest.approx(log_p(model, prompt, one.ids) / len(one.ids), rel=1e-9)
                seen.add((beam, one.ended))
    assert {(1, "stop"), (4, "stop")} <= seen


def test_a_beam_in_groups_finds_texts_that_differ(tokenizer):
    model, options = speaker(), {"max_tokens": 9, "beam": 4, "n_best": 4}
    plain = generate(model, tokenizer, PROMPTS, **options)
    alike = generate(model, tokenizer, PROMPTS, groups=4, diversity=0.0, **options)
    diverse = generate(model, tokenizer, PROMPTS, groups=4, diversity=9.0, **options)
    jobs = [Job(prompt=prompt_ids(model, tokenizer, text), limit=9) for text in PROMPTS]
    for text, found, job in zip(PROMPTS, diverse, jobs, strict=True):
        expected = run_jobs(model, [job], beam=4, groups=4, diversity=9.0)[0]
        assert found == [tokenizer.decode([*job.prompt, *one.ids])[len(text) :] for one in expected]
        assert len({one.ids[0] for one in expected}) == 4
    assert plain != diverse
    assert all(len(found) == 1 for found in alike), "without a price all groups find the likeliest words"


def test_several_texts_of_one_prompt(tokenizer):
    model = speaker()
    drawn = generate(model, tokenizer, "Hi", max_tokens=9, temperature=1.0, n_best=3, seed=5)
    assert drawn == [generate(model, tokenizer, "Hi", max_tokens=9, temperature=1.0, seed=5 + i) for i in range(3)]
    assert len(set(drawn)) == 3
    best = generate(model, tokenizer, PROMPTS, max_tokens=9, beam=4, n_best=2)
    assert [len(each) for each in best] == [2] * 5
    assert [each[0] for each in best] == generate(model, tokenizer, PROMPTS, max_tokens=9, beam=4)
    seeds = generate(model, tokenizer, ["Hi", "Hi"], max_tokens=9, temperature=1.0, seed=[5, 6])
    assert seeds == drawn[:2]


def test_words_that_are_bad_never_come(tokenizer):
    model = speaker(end_ids=None)
    options = {"max_tokens": 60, "temperature": 1.0, "allow": "[a-d ]*"}
    bad = ["a", "b"]
    assert any(word in generate(model, tokenizer, "Hi", **options) for word in bad)
    ids = [tokenizer.encode(word, special=False) for word in bad]
    assert not re.search(r"\b[ab]\b", generate(model, tokenizer, "Hi", bad_words=bad, **options))
    assert generate(model, tokenizer, "Hi", bad_words=[*ids], **options)


@pytest.mark.parametrize("beam", [1, 3])
def test_a_bad_word_is_never_spelled_in_any_way(tokenizer, beam):
    model = speaker()
    heat = {"temperature": 1.0} if beam == 1 else {"beam": beam, "n_best": beam}
    options = {"max_tokens": 40, "allow": "[dogü ]{20,60}", **heat}
    bad = ["d", "oo", "üo", "ü  "]
    free = " ".join(str(generate(model, tokenizer, text, **options)) for text in PROMPTS)
    assert all(word in free for word in bad[:3])
    for text in PROMPTS:
        found = generate(model, tokenizer, text, bad_words=bad, **options)
        for one in [found] if isinstance(found, str) else found:
            assert one
            assert not any(word in one for word in bad)
    assert generate(model, tokenizer, "Hi", allow="do(g|t)", bad_words=["dog"]) == "dot"
    begun = generate(model, tokenizer, "Hi d", allow="o(g|t)", bad_words=["dog"])
    assert begun == "ot", "nor is one completed that the prompt begins"


def test_a_text_that_other_rules_keep_from_matching_is_no_text(tokenizer):
    """`no_repeat_ngram` forbids what the match would have needed."""
    with pytest.raises(InputError, match=r"by the rules no_repeat_ngram=1, allow='a\{9\}b'"):
        generate(speaker(), tokenizer, "Hi", allow="a{9}b", no_repeat_ngram=1, max_tokens=20)
    rule = Matching("a{9}b", tokenizer)  # that does not know of a limit
    with pytest.raises(InputError, match=r"'a+' does not match, but max_tokens=3: raise it"):
        generate(speaker(), tokenizer, "Hi", rules=[rule], max_tokens=3)


def test_why_a_text_ended(tokenizer):
    model = speaker()

    def ended(**options):
        return write_texts(model, tokenizer, ["Hi"], GenerationOptions(**options))[0][0].ended

    assert ended(max_tokens=5, allow="[a-z]{30}|[a-z]*") == "limit"
    assert ended(max_tokens=1000, min_tokens=500) == "full"
    assert ended(max_tokens=95, min_tokens=90) in ("limit", "full")
    assert ended(allow="dog") == "end"
    assert ended(allow="dogs", stop="g") == "stop"
    (exact,) = write_texts(model, tokenizer, ["Hi"], GenerationOptions(max_tokens=1000, min_tokens=500))[0]
    room = len(exact.ids)
    assert ended(max_tokens=room, min_tokens=room) == "limit", "as many as were wished"


def test_with_a_draft_a_stop_ends_the_writing_too(tokenizer):
    model = speaker()
    for draft in (model, speaker(seed=1)):
        for text in PROMPTS:
            (free,) = write_drafted(model, draft, tokenizer, [text], GenerationOptions(max_tokens=40))
            stop = free.text[2:4]
            (alone,) = write_texts(model, tokenizer, [text], GenerationOptions(max_tokens=40, stop=stop))[0]
            (found,) = write_drafted(model, draft, tokenizer, [text], GenerationOptions(max_tokens=40, stop=stop))
            assert (found.text, found.ids, found.ended) == (alone.text, alone.ids, "stop")
            assert found.rounds < free.rounds
    (full,) = write_drafted(model, model, tokenizer, ["Hi"], GenerationOptions(max_tokens=1000))
    (alone,) = write_texts(model, tokenizer, ["Hi"], GenerationOptions(max_tokens=1000))[0]
    assert (full.ids, full.ended) == (alone.ids, alone.ended)


@pytest.mark.parametrize("first", ["speaker", Path("speaker")])
def test_a_folder_is_no_model(tokenizer, first, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    right = "cutaway.load('speaker'), cutaway.load_tokenizer('speaker')"
    with pytest.raises(InputError, match=re.escape(f"load both first, model, tokenizer = {right}")):
        generate(first, tokenizer, "Hi")
    with pytest.raises(InputError, match=r"the tokenizer is a .*: load both first"):
        generate(speaker(), first, "Hi")
    with pytest.raises(InputError, match="the model is a Tokenizer"):
        generate(tokenizer, speaker(), "Hi")


def test_what_a_prompt_begins_with(tokenizer):
    ids = tokenizer.encode("Hi", special=False)
    assert prompt_ids(speaker(), tokenizer, "Hi") == [START, *ids]
    assert prompt_ids(speaker(), tokenizer, "") == [START]
    assert prompt_ids(speaker(start_id=None), tokenizer, "Hi") == ids
    # GPT-2's <|endoftext|> stands between texts: a prompt is in the midst of one
    assert prompt_ids(speaker(start_id=END), tokenizer, "Hi") == ids
    assert prompt_ids(speaker(start_id=END), tokenizer, "") == [END]
    with pytest.raises(InputError, match="no tokens, and this model has no start token"):
        prompt_ids(speaker(start_id=None), tokenizer, "")


def test_fault_14_a_prompt_as_long_as_the_model_reads(tokenizer):
    model = speaker(max_len=8, start_id=None)
    text = "\x01" * 8
    assert len(tokenizer.encode(text, special=False)) == 8
    assert len(tokenizer.encode(generate(model, tokenizer, text), special=False)) <= 3  # one token fits
    with pytest.raises(InputError, match="the prompt has 9 tokens; this model reads at most max_len=8"):
        generate(model, tokenizer, text + "\x01")


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        " ",
        " \t\n ",
        "\x00\x01\x1b[31m\x7f",
        "🙂👩‍👩‍👧‍👦",
        "שלום עולם شكرا",
        "\u202eabc\u202c",
        "\ufeff",
        "e\u0301" * 5,
        "\ufffd",
    ],
)
def test_any_prompt_is_answered(tokenizer, prompt):
    model = speaker()
    answer = generate(model, tokenizer, prompt, max_tokens=10)
    assert isinstance(answer, str)
    assert answer == "".join(generate(model, tokenizer, prompt, max_tokens=10, stream=True))


def test_a_megabyte_without_a_space_is_refused_in_time(tokenizer):
    start = time.perf_counter()
    with pytest.raises(InputError, match=r"the prompt has [\d,]+ tokens; this model reads at most max_len=96"):
        generate(speaker(), tokenizer, "a" * 2**20)
    assert time.perf_counter() - start < 60


def test_a_megabyte_to_stop_at_costs_nothing(tokenizer):
    start = time.perf_counter()
    assert generate(speaker(), tokenizer, "Hi", stop="a" * 2**20) == generate(speaker(), tokenizer, "Hi")
    assert time.perf_counter() - start < 60


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"temperature": -1.0}, "temperature=-1.0"),
        ({"temperature": float("inf")}, "temperature=inf"),
        ({"top_p": 0.0}, "top_p=0.0"),
        ({"top_p": 1.5}, "top_p=1.5"),
        ({"top_k": 0}, "top_k=0"),
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"min_tokens": 101}, "min_tokens=101 is more than max_tokens=100"),
        ({"stop": ""}, "stop=''"),
        ({"stop": ["a", ""]}, "stop=''"),
        ({"beam": 2, "temperature": 1.0}, "choose one"),
        ({"n_best": 2}, "n_best=2 needs beam=2"),
        ({"beam": 2, "n_best": 3}, "n_best=3 needs beam=3"),
        ({"stream": True, "n_best": 2, "beam": 2}, "pieces of one text"),
        ({"seed": [1, 2]}, "2 seeds for 1 prompts"),
        ({"allow": "("}, "no regular expression"),
        ({"allow": "x^y"}, "allow='x^y' uses ^: write it with"),
        ({"allow": "[a-z]{500}", "max_tokens": 5}, "tokens, but max_tokens=5: raise it"),
        (
            {"allow": "[a-c]{2000}", "max_tokens": 1000},
            "tokens, but this model has room for 94 after this prompt (max_len=96)",
        ),
        ({"allow": "ab", "min_tokens": 10}, "by the rules min_tokens=10, allow='ab': loosen"),
        ({"allow": "dog", "bad_words": ["dog"]}, "by the rules bad_words=('dog',), allow='dog': loosen"),
        ({"top_k": 5}, "top_k=5 is for sampling: set a temperature above 0"),
        ({"top_p": 0.5, "beam": 2}, "top_p=0.5 is for sampling"),
        ({"min_p": 0.5}, "min_p=0.5 is for sampling"),
        ({"beam": 2, "diversity": 0.5}, "diversity=0.5 is a cost between groups: set groups to 2 or more"),
        ({"allow": lambda ids: []}, "allows no token"),
        ({"bad_words": [[400]]}, "bad_words"),
        ({"bad_words": [""]}, "bad_words: '' has no tokens"),
        ({"beam": 10**6}, "beam=1,000,000 must be at least 1 and at most 1,024"),
        ({"n_best": 10**6, "temperature": 1.0}, "n_best=1,000,000 must be at least 1 and at most 1,024"),
        ({"beam": 401}, "beam=401 is more than this model's vocabulary of 400: lower it"),
        ({"beam": 4, "groups": 3}, "groups=3 must divide beam=4 evenly"),
        ({"groups": 2}, "groups=2 must divide beam=1 evenly"),
        ({"beam": 4, "groups": 2, "diversity": -1.0}, "diversity=-1.0"),
    ],
)
def test_impossible_options(tokenizer, options, match):
    with pytest.raises(InputError, match=re.escape(match)):
        generate(speaker(), tokenizer, "Hi", **options)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"bad_words": [[5.0]]}, "bad_words=[[5.0]] is not a text or a list of"),
        ({"bad_words": [5]}, "bad_words=[5] is not"),
        ({"bad_words": 5}, "bad_words=5 is not a text or a list"),
        ({"seed": "abc"}, "seed='abc' is not a whole number"),
        ({"seed": [1.0]}, "seed=[1.0] is not a whole number"),
        ({"seed": None, "temperature": 1.0}, "seed=None is not a whole number"),
        ({"beam": "4"}, "beam='4' is not a whole number"),
        ({"temperature": "hot"}, "temperature='hot' is not a number"),
        ({"top_p": "most"}, "top_p='most' is not a number"),
        ({"repetition_penalty": None}, "repetition_penalty=None is not a number"),
        ({"frequency_penalty": float("inf")}, "frequency_penalty=inf must be a finite number"),
        ({"logit_bias": [1]}, "logit_bias=[1] is not a mapping"),
        ({"logit_bias": {"7": 1.0}}, "logit_bias={'7': 1.0} is not a mapping"),
        ({"logit_bias": {7: float("nan")}}, "logit_bias={7: nan} is not a mapping"),
        ({"logit_bias": {7: 100.5}}, "logit_bias: 100.5 for token 7 must be from -100 to 100"),
        ({"logit_bias": {7: -1000.0}}, "logit_bias: -1,000.0 for token 7 must be from -100 to 100"),
        ({"logit_bias": {400: 1.0}}, "logit_bias names token 400, outside the vocabulary 0 … 399"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias names token -1, outside the vocabulary 0 … 399"),
        ({"min_tokens": "3"}, "min_tokens='3' is not a whole number"),
        ({"stop": 5}, "stop=5 is not a text or a list of texts"),
        ({"stop": [5]}, "stop=[5] is not a text"),
        ({"allow": 5}, "allow=5 is not a text or a function"),
        ({"rules": ["no"]}, "rules=['no'] is not a list of functions"),
    ],
)
def test_options_of_the_wrong_type(tokenizer, options, match, monkeypatch):
    """As outside of tests, where nobody checks the hints."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    for prompt in ("Hi", ["a", "b", "c"]):
        with pytest.raises(InputError, match=re.escape(match)):
            generate(speaker(), tokenizer, prompt, **options)


def test_a_beam_cannot_stop_where_nothing_ends(tokenizer):
    with pytest.raises(InputError, match="this model has no end token: leave out one of the two"):
        generate(speaker(end_ids=None), tokenizer, "Hi", beam=2, stop="a")


def test_models_that_write_no_text(tokenizer):
    with pytest.raises(InputError, match="use translate"):
        generate(tiny("transformer", vocab_size=400), tokenizer, "Hi")
    with pytest.raises(InputError, match="another tokenizer's"):
        generate(tiny("gpt2", vocab_size=50), tokenizer, "zebra")
    assert generate(speaker(), tokenizer, []) == []


def test_places_of_the_vocabulary_that_stand_for_nothing(tokenizer):
    model = speaker(vocab_size=480, end_ids=None)
    found = generate(model, tokenizer, "Hi", max_tokens=40, temperature=3.0)
    assert isinstance(found, str)
    assert generate(model, Tokenizer(words("<sos>")), "I ate", max_tokens=5) is not None


@pytest.mark.parametrize("beam", [1, 3])
def test_a_long_prompt_beside_a_short_one_that_more_is_written_behind(tokenizer: Tokenizer, beam: int) -> None:
    """Each has room by itself: the longest prompt and the most new tokens are of two texts."""
    model, prompts = speaker(max_len=40, end_ids=None), ["I", "naïve café " * 3]
    alone = [generate(model, tokenizer, prompt, max_tokens=30, beam=beam) for prompt in prompts]
    assert generate(model, tokenizer, prompts, max_tokens=30, beam=beam) == alone


def test_what_is_wished_where_nothing_is_said():
    assert asdict(GenerationOptions()) == {
        "max_tokens": 100, "temperature": 0.0, "top_k": None, "top_p": None, "min_p": None, "repetition_penalty": 1.0,
        "presence_penalty": 0.0, "frequency_penalty": 0.0, "logit_bias": None, "no_repeat_ngram": None, "bad_words": (),
        "min_tokens": 0, "allow": None, "rules": (),
        "stop": (), "beam": 1, "n_best": 1, "groups": 1, "diversity": None, "prune": None, "seed": 0,
    }  # fmt: skip
    assert GenerationOptions(beam=2, groups=2).search.diversity == 0.5
    for price in (0.0, 0.25, 2.0):
        assert GenerationOptions(beam=2, groups=2, diversity=price).search.diversity == price


def test_groups_pay_half_a_nat_unless_another_price_is_named(tokenizer):
    wishes = {"max_tokens": 12, "beam": 4, "n_best": 4, "groups": 4}
    model = speaker()
    usual, *others = (generate(model, tokenizer, PROMPTS, **wishes, **more) for more in (
        {}, {"diversity": 0.5}, {"diversity": 1.0}, {"diversity": 0.25}))  # fmt: skip
    assert usual == others[0]
    assert others[1] != usual != others[2]


ALONE: list[tuple[dict[str, object], list[Rule]]] = [
    ({}, []),
    ({"repetition_penalty": 1.2}, [RepetitionPenalty(1.2)]),
    ({"repetition_penalty": 0.8}, [RepetitionPenalty(0.8)]),
    ({"presence_penalty": 0.5}, [PresencePenalty(0.5)]),
    ({"presence_penalty": -0.5}, [PresencePenalty(-0.5)]),
    ({"frequency_penalty": 0.5}, [FrequencyPenalty(0.5)]),
    ({"frequency_penalty": -0.5}, [FrequencyPenalty(-0.5)]),
    ({"logit_bias": {}}, []),
    ({"logit_bias": {7: 1.0, 399: -100.0, 0: 100.0}}, [LogitBias(((0, 100.0), (7, 1.0), (399, -100.0)))]),
    ({"no_repeat_ngram": 1}, [NoRepeat(1)]),
    ({"no_repeat_ngram": 3}, [NoRepeat(3)]),
    ({"min_tokens": 1}, [MinLength(1)]),
    ({"min_tokens": 100}, [MinLength(100)]),
    ({"bad_words": [[5, 6], [7]]}, [BadWords(((5, 6), (7,)))]),
    ({"temperature": 1.0}, [Temperature(1.0)]),
    ({"temperature": 0.01}, [Temperature(0.01)]),
    ({"temperature": 1.0, "top_k": 1}, [Temperature(1.0), TopK(1)]),
    ({"temperature": 1.0, "top_p": 1.0}, [Temperature(1.0), TopP(1.0)]),
    ({"temperature": 1.0, "min_p": 0.0}, [Temperature(1.0), MinP(0.0)]),
    ({"rules": [TopK(3)]}, [TopK(3)]),
]


@pytest.mark.parametrize(("wishes", "rules"), ALONE, ids=lambda x: str(x)[:40])
def test_every_wish_is_the_rule_that_it_names(tokenizer, wishes, rules):
    """Also one that goes the other way: a penalty below 1 rewards what stands there."""
    found = rules_of(GenerationOptions(**wishes), tokenizer, 400, 100)
    assert sorted(map(str, found)) == sorted(map(str, rules))
    assert set(found) == set(rules)
