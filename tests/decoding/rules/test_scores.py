"""Rules: laws that hold for any scores; `parity/test_rules.py` holds them against transformers."""

import re
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from itertools import cycle, pairwise, product

import pytest
import torch
from helpers.text_generators import byte_fallback, letters
from helpers.tiny_models import VOCAB, some_ids, tiny
from helpers.tokenizers_of_bytes import byte_level
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from cutaway.decoding import Job, run_jobs
from cutaway.decoding.detokenize import Speller
from cutaway.decoding.rules.allowed import Allowed
from cutaway.decoding.rules.bad_words import NeverSpelled, bad_word_rules
from cutaway.decoding.rules.regex import Matching
from cutaway.decoding.rules.regex_automaton import Automaton, characters_from
from cutaway.decoding.rules.scores import (
    BadWords,
    ExactLength,
    FrequencyPenalty,
    LogitBias,
    MinLength,
    MinP,
    NoRepeat,
    PresencePenalty,
    RepetitionPenalty,
    Rule,
    Temperature,
    Text,
    TopK,
    TopP,
)
from cutaway.decoding.rules.stop_strings import Stopping
from cutaway.decoding.rules.token_bytes import pieces_of
from cutaway.decoding.rules.token_steps import TokenSteps
from cutaway.decoding.search.sampling import Sampling
from cutaway.decoding.search.search import NEVER
from cutaway.errors import InputError

ALL = (
    RepetitionPenalty(1.3),
    LogitBias(((1, -2.5), (4, 3.0))),
    PresencePenalty(0.7),
    FrequencyPenalty(0.4),
    NoRepeat(2),
    BadWords(((5,), (6, 7))),
    MinLength(4),
    ExactLength(4),
    Temperature(0.7),
    TopK(9),
    TopP(0.8),
    MinP(0.02),
)


def text(prompt: list[int], new: list[int], *, room: int = 3) -> Text:
    """One row, with room before and behind it that holds garbage."""
    return Text(
        prompts=torch.tensor([[*range(room), *prompt]]),
        tokens=torch.tensor([[*new, *range(room)]]),
        starts=torch.tensor([room]),
        written=torch.tensor([len(new)]),
        ends=torch.tensor([8, 9]),
        runs=torch.tensor([True]),
    )


def hidden(rule: Rule, prompt: list[int], new: list[int], vocab: int = 10) -> set[int]:
    found = rule(torch.randn(1, vocab), text(prompt, new))
    return set((found[0] == NEVER).nonzero()[:, 0].tolist())


_once = cache(lambda kind: kind())
some = st.lists(st.integers(0, 4), min_size=1, max_size=8)


@example([3], [2], 2)  # 2, 3 stand there, but the 2 is no text
@example([3, 4], [1, 2], 3)  # nor are 1 and 2
@example([3], [3], 2)  # all of the text stands there
@given(some, some, st.integers(1, 5))
def test_no_n_tokens_in_a_row_stand_twice(prompt, new, n):
    ids = [*prompt, *new]
    grams = {tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)}
    before = ids[len(ids) - n + 1 :] if n > 1 else []
    expected = {t for t in range(10) if len(ids) >= n - 1 and (*before, t) in grams}
    assert hidden(NoRepeat(n), prompt, new) == expected


@example([3], [4], [[1, 2, 3, 4, 0]])  # 1 and 2 stand there, but are no text
@example([3], [4], [[3, 4, 0]])  # the word begins where the text does
@given(some, some, st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4), min_size=1, max_size=5))
def test_no_bad_word_is_ever_completed(prompt, new, words):
    ids = [*prompt, *new]
    expected = {t for t in range(10) if any([*ids, t][-len(word) :] == word for word in words)}
    assert hidden(BadWords(tuple(map(tuple, words))), prompt, new) == expected


@given(some, some)
def test_penalties_know_what_was_seen_and_what_was_written(prompt, new):
    scores = torch.tensor([[1.0, -1.0, 2.0, -3.0, 0.5, 1.0, -1.0, 2.0, -3.0, 0.5]])
    repeated = RepetitionPenalty(2.0)(scores, text(prompt, new))[0].tolist()
    present = PresencePenalty(2.0)(scores, text(prompt, new))[0].tolist()
    frequent = FrequencyPenalty(0.5)(scores, text(prompt, new))[0].tolist()
    for token, score in enumerate(scores[0].tolist()):
        worse = score * 2 if score < 0 else score / 2
        assert repeated[token] == (worse if token in [*prompt, *new] else score)
        assert present[token] == (score - 2 if token in new else score)
        assert frequent[token] == score - 0.5 * new.count(token)


@given(st.dictionaries(st.integers(0, 9), st.floats(-100, 100, width=32), min_size=1))
def test_a_bias_is_added_to_its_token(biases):
    rows = torch.stack([torch.linspace(-3, 3, 10), torch.full((10,), NEVER)])
    found = LogitBias(tuple(biases.items()))(rows, text([1], []))
    assert torch.equal(found[0], rows[0] + torch.tensor([biases.get(token, 0.0) for token in range(10)]))
    assert torch.equal(found[1], rows[1])  # what another rule forbids stays forbidden


def test_length():
    assert hidden(MinLength(3), [1], [2, 3]) == {8, 9}
    assert hidden(MinLength(3), [1, 2], [2, 3, 4]) == set()
    assert hidden(ExactLength(3), [1], [2, 3]) == {8, 9}
    assert hidden(ExactLength(3), [1], [2, 3, 4]) == set(range(8))


@given(st.integers(0, 10**6), st.floats(0.01, 1.0))
def test_what_is_cut_off_is_the_tail(seed, p):
    scores = torch.randn(1, 30, generator=torch.Generator().manual_seed(seed)) * 3
    probabilities = scores.softmax(dim=-1)[0]
    for rule in (TopP(p), MinP(p), TopK(1 + int(p * 29))):
        kept = (rule(scores, text([1], []))[0] > NEVER).nonzero()[:, 0].tolist()
        assert kept
        assert sorted(kept) == sorted(probabilities.argsort(descending=True)[: len(kept)].tolist())
        sorted_ = probabilities.sort(descending=True).values
        if isinstance(rule, TopP):
            assert sorted_[: len(kept)].sum() >= p - 1e-5
            assert sorted_[: len(kept) - 1].sum() < p + 1e-5
        elif isinstance(rule, MinP):
            assert all((probabilities[i] >= p * sorted_[0]) == (i in kept) for i in range(30))
        else:
            assert len(kept) == rule.k


def test_what_stands_on_the_border_is_kept_where_it_is_needed():
    """Of four that are equally likely (¼ each, exactly) three make up ¾, and all are at least as likely as any."""
    scores = torch.zeros(1, 4)
    for rule, kept in ((TopP(0.75), 3), (TopP(0.76), 4), (TopP(0.5), 2), (MinP(1.0), 4), (TopK(1), 4), (TopK(9), 4)):
        assert int((rule(scores, text([1], [])) > NEVER).sum()) == kept, rule
    unequal = torch.tensor([[2.0, 1.0, 1.0, 0.0]])  # and what is as likely as the last of k
    assert (TopK(2)(unequal, text([1], [])) > NEVER).tolist() == [[True, True, True, False]]


# --- in an engine ---------------------------------------------------------------------------------------------------


@settings(max_examples=10)
@given(st.lists(st.sampled_from(range(6)), min_size=2, max_size=7), st.sampled_from([1, 3]), st.integers(1, 4))
def test_rows_with_different_rules_stand_side_by_side(which, beam, rows):
    model = tiny("gpt2", dtype=torch.float32)
    rules = [(), ALL[:6], (NoRepeat(1),), (MinLength(6), TopK(3)), (BadWords(((7,), (8,))),), (Allowed(odd_ones),)]
    jobs = [
        Job(prompt=ids[: 2 + i % 4], limit=5 + i % 5, rules=rules[rule])
        for i, (ids, rule) in enumerate(zip(some_ids(len(which), 6).tolist(), which, strict=True))
    ]
    options = {"beam": beam, "end_ids": range(10, 20)}
    alone = [run_jobs(model, [job], **options)[0][0].ids for job in jobs]
    assert [found[0].ids for found in run_jobs(model, jobs, rows=rows, **options)] == alone


def odd_ones(ids: list[int]) -> list[int]:
    return [id for id in range(VOCAB) if (id + len(ids)) % 2]


def test_rules_are_grouped_anew_only_when_rows_change(monkeypatch):
    counted: Counter[str] = Counter()
    original = Sampling._regroup
    monkeypatch.setattr(
        "cutaway.decoding.search.search.Search._regroup",
        lambda self, rules: (counted.update(["regrouped"]), original(self, rules))[1],
    )
    rules = [(TopK(3), Temperature(2.0)), (TopK(3), Temperature(2.0))]  # equal, not the same
    jobs = [Job(prompt=[1 + i], limit=10 + 10 * i, rules=its, seed=i) for i, its in enumerate(rules)]
    run_jobs(tiny("gpt2", dtype=torch.float32), jobs)
    assert counted["regrouped"] == 2


@dataclass(frozen=True)
class Peeks(Rule):
    """Looks at a number, as a rule for a captured graph may not."""

    def __call__(self, scores, text):
        return scores if bool((scores > 0).any()) else -scores


@pytest.mark.parametrize("peeks", [False, True])
def test_no_rule_reads_on_the_host(peeks):
    """A captured CUDA graph could not: fake tensors have no values, so that any look at one is an error."""
    rows = {"rows": 4, "most": 6, "prompt": 5, "ends": [8, 9], "device": torch.device("cpu")}
    for rules in ([ALL], [ALL, (), ALL[:3], ()]):
        rules = [(*its, Peeks()) for its in rules] if peeks else rules
        warm = Sampling(**rows)
        jobs = [Job(prompt=[1, 2, 3], limit=6, rules=rules[i % len(rules)], seed=i) for i in range(4)]
        warm.enter(slice(4), jobs)
        warm.advance(torch.randn(4, 1, 30))
        with FakeTensorMode(allow_non_fake_inputs=True) as fake:
            for name, value in vars(warm).items():
                if isinstance(value, torch.Tensor):
                    setattr(warm, name, fake.from_tensor(value))
            logits = fake.from_tensor(torch.randn(4, 1, 30))
            with pytest.raises(DataDependentOutputException) if peeks else nullcontext():
                parents, tokens = warm.advance(logits)
                assert parents.shape == tokens.shape == (4, 1)


def test_an_impossible_constraint_is_an_error_that_names_it():
    model = tiny("gpt2", dtype=torch.float32)
    for beam, (rule, match) in product(
        (1, 3),
        (
            (BadWords(tuple((id,) for id in range(VOCAB))), r"by the rules bad_words=\(\(0,\),"),
            (Allowed(lambda ids: []), "allows no token after 1 tokens"),
            (Allowed(lambda ids: [VOCAB]), f"names token {VOCAB}, outside the vocabulary 0 … {VOCAB - 1}"),
        ),
    ):
        with pytest.raises(InputError, match=match):
            run_jobs(model, [Job(prompt=[1], limit=5, rules=(rule,))], beam=beam)
    few = tiny("gpt2", dtype=torch.float32, vocab_size=6)
    with pytest.raises(InputError, match=r"by the rules no_repeat_ngram=1: loosen"):
        run_jobs(few, [Job(prompt=[1], limit=9, rules=(NoRepeat(1),))])


def test_a_beam_goes_on_where_one_of_its_hypotheses_is_stuck():
    model = tiny("gpt2", dtype=torch.float32)

    def allow(ids: list[int]) -> list[int]:
        return [7, 8] if len(ids) == 1 else [9] if 8 in ids else []

    (found,) = run_jobs(model, [Job(prompt=[1], limit=4, rules=(Allowed(allow),))], beam=2)
    assert [one.ids for one in found] == [[8, 9, 9, 9]]
    with pytest.raises(InputError, match="allows no token after 2 tokens"):
        run_jobs(model, [Job(prompt=[1], limit=4, rules=(Allowed(lambda ids: [7] if len(ids) == 1 else []),))], beam=2)


def test_scores_that_are_no_numbers_are_not_a_rules_fault():
    model = tiny("gpt2", dtype=torch.float32)
    next(model.parameters()).data[:] = float("nan")
    with pytest.raises(InputError, match="weights are damaged"):
        run_jobs(model, [Job(prompt=[1], limit=5)])


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Temperature(float("nan")), "temperature=nan"),
        (lambda: Temperature(-1.0), "temperature=-1.0"),
        (lambda: Temperature(0.0), "temperature=0.0"),
        (lambda: TopK(0), "top_k=0"),
        (lambda: TopP(0.0), "top_p=0.0"),
        (lambda: TopP(1.1), "top_p=1.1"),
        (lambda: TopP(float("nan")), "top_p=nan"),
        (lambda: MinP(-0.1), "min_p=-0.1"),
        (lambda: RepetitionPenalty(0.0), "repetition_penalty=0.0"),
        (lambda: PresencePenalty(float("inf")), "presence_penalty=inf"),
        (lambda: FrequencyPenalty(float("nan")), "frequency_penalty=nan"),
        (lambda: LogitBias(()), r"logit_bias=\(\)"),
        (lambda: LogitBias(((1, float("inf")),)), "logit_bias="),
        (lambda: NoRepeat(0), "no_repeat_ngram=0"),
        (lambda: BadWords(((1,), ())), "a word without tokens"),
        (lambda: MinLength(-1), "min_tokens=-1"),
    ],
)
def test_numbers_that_make_no_rule(make, match):
    with pytest.raises(InputError, match=match):
        make()


# --- regular expressions --------------------------------------------------------------------------------------------

PATTERNS = [
    r"a*b", r"(ab|a)*c", r"a{2,3}b?", r"[^a]+", r"(a|b){0,2}c", r"(a*)*b", r"a+?b", r"\d+(,\d+)*", r"", r"^ab$",
    r"(?:a|(b|c)?)+", r"\w\s\S\D", r"((a?){3}b)*", r"[a-b1]{2}", r"(?s).,", r"[^\d]{3}", r".{2}", r"(|a)b",
    r"[ab](?:,[ab])*", r"(?:a|bc)(?:1(?:a|bc))*", r"ab(?:ab)*", r"a(ba)*", r"c?a(?:,a)*b*",
    r"(?:a(?:,a)*)?(?: a(?:,a)*)*",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_an_automaton_knows_what_matches_and_what_still_can(pattern):
    automaton = Automaton(pattern)
    words = ["".join(word) for n in range(5) for word in product("abc1, \n", repeat=n)]
    full = {word for word in words if re.fullmatch(pattern, word)}
    beginnings = {word[:n] for word in full for n in range(len(word) + 1)}
    for word in words:
        states = automaton.start
        for char in word:
            states = automaton.after(states, char)
        assert automaton.matches(states) is (word in full)
        if len(word) < 2:
            assert bool(states) is (word in beginnings)


def test_a_list_needs_the_states_of_its_item_once():
    """A list of lists of lists … is as large as it is deep."""
    pattern, sizes = "[ab]", []
    for _ in range(8):
        pattern = rf"\[{pattern}(?:,{pattern})*\]"
        sizes.append(len(Automaton(pattern).free))
    assert max(b - a for a, b in pairwise(sizes)) == sizes[1] - sizes[0]
    assert Automaton(pattern).matches_text("[" * 8 + "a,b" + "]" * 8)
    assert not Automaton(pattern).matches_text("[" * 8 + "a,b" + "]" * 7)


@pytest.mark.parametrize("kind", [byte_level, byte_fallback])
def test_all_tokens_at_once_go_where_each_goes_byte_by_byte(kind):
    pieces = pieces_of(kind(), True)
    for pattern in (r"[ab]+é?", r"[^a]*", r"\W.", r'"(?:[^"\\]|\\.){0,3}"', "dead"):
        automaton = Automaton(pattern)
        steps = TokenSteps(automaton)
        start = (automaton.start, b"")
        for reading in (start, automaton.after_byte(start, ord("a")), automaton.after_byte(start, 0xC3)):
            if reading is None:
                continue
            found = {int(id): end for end, ids in steps.ends(reading, pieces) for id in ids}
            for id, piece in enumerate(pieces.bytes):
                end = reading if piece else None
                for byte in piece:
                    end = end and automaton.after_byte(end, byte)
                assert found.get(id) == end, (pattern, piece)


def test_an_expression_that_can_go_on_in_too_many_ways_is_refused(monkeypatch):
    """Each character of a text may begin [a-z]{40}, so that the automaton is in as many states as there are."""
    pieces, automaton = pieces_of(byte_level(), True), Automaton(".*[a-z]{40}.*")
    reading = (automaton.start, b"")
    for _ in range(30):
        reading = automaton.after_byte(reading, ord("a"))
    monkeypatch.setattr("cutaway.decoding.rules.token_steps.MOST_STATES", 100)
    steps = TokenSteps(automaton)
    with pytest.raises(InputError, match="read in too many ways at once"):
        steps.ends(reading, pieces)
    assert steps.n_states == 0
    monkeypatch.setattr("cutaway.decoding.rules.token_steps.MOST_STATES", 20_000)
    assert len(steps.ends(reading, pieces)) > 1
    assert 100 < steps.n_states < 20_000


def test_half_of_a_surrogate_pair_is_never_written():
    for pattern in ("[\ud800-\udfff]?a", "[\ud7ff-\ue000]a", "(\ud800|a)", "a\udfff?"):
        rule = Matching(pattern, byte_level())
        assert 1 <= rule.needs([1, 5]) <= 5
        assert rule._allowed([1, 5], [], [2]).tolist()


def test_readings_are_forgotten_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr("cutaway.decoding.rules.token_steps.MOST_READINGS", 0)
    pieces, automaton = pieces_of(byte_level(), True), Automaton("[ab]{0,9}")
    steps, reading = TokenSteps(automaton), (automaton.start, b"")
    for _ in range(9):
        found = [(end, ids.tolist()) for end, ids in steps.ends(reading, pieces)]
        assert found == [(end, ids.tolist()) for end, ids in TokenSteps(automaton).ends(reading, pieces)]
        assert steps.readings[0] == reading, "only what this call has reached"
        reading = automaton.after_byte(reading, ord("a"))


@pytest.mark.parametrize(
    ("pattern", "match"),
    [
        (r"(a)\1", r"uses \1:"),
        (r"(?=a)b", "uses (?=…):"),
        (r"(?i)a", "uses flags such as (?i):"),
        (r"a{100000}", "repeats too much"),
        (r"(){4000000000}", "repeats too much"),
        (r"((a{99}){99}){99}", "repeats too much"),
        (r"(((", "no regular expression"),
        (r"a^b", "uses ^:"),
        (r"a$b", "uses $:"),
        (r"a\bb", r"uses \b:"),
        ("(" * 5000 + ")" * 5000, "no regular expression"),
    ],
)
def test_expressions_that_cannot_be_kept_are_refused(pattern, match):
    with pytest.raises(InputError, match=re.escape(match)):
        Automaton(pattern)


@example("\ud7ff")
@example("\ue000")
@example("\u0800")
@example("\U0010ffff")
@given(st.characters(exclude_categories=["Cs"]))
def test_the_bytes_of_a_character_lead_to_it(char):
    data = char.encode()
    for n in range(1, len(data) + 1):
        low, high, whole = characters_from(data[:n])
        assert low <= ord(char) <= high
        assert chr(low).encode()[:n] == chr(high).encode()[:n] == data[:n]
        assert whole is (n == len(data))
        for edge, beyond in ((low, low - 1), (high, high + 1)):
            assert 0x80 <= edge < 0x110000 or whole
            if 0 <= beyond <= 0x10FFFF and not 0xD800 <= beyond <= 0xDFFF:
                assert chr(beyond).encode()[:n] != data[:n]


def test_bytes_of_no_character_lead_nowhere():
    for data in (b"\x80", b"\xc0", b"\xc1\x80", b"\xe0\x80", b"\xed\xa0", b"\xf0\x80", b"\xf4\x90", b"\xf5", b"\xc3a"):
        low, high, whole = characters_from(data)
        assert low > high
        assert not whole


@pytest.mark.parametrize("pattern", [*PATTERNS, "é+!", "[à-ü]日?", "🐕+!|ü", r"[^a]é", r"\W"])
def test_an_automaton_reads_bytes_as_it_reads_characters(pattern):
    automaton = Automaton(pattern)
    for word in ("".join(word) for n in range(4) for word in product("ab1,é日🐕", repeat=n)):
        states, reading = automaton.start, (automaton.start, b"")
        for char in word:
            states = automaton.after(states, char)
        for byte in word.encode():
            reading = reading and automaton.after_byte(reading, byte)
        assert (reading or (frozenset(), b""))[0] == states


def test_a_byte_is_refused_where_none_of_its_characters_may_come():
    reading = (Automaton("[à-ü]!").start, b"")
    lead = {byte for byte in range(256) if Automaton("[à-ü]!").after_byte(reading, byte)}
    assert lead == {0xC3}
    half = Automaton("[à-ü]!").after_byte(reading, 0xC3)
    assert {byte for byte in range(256) if Automaton("[à-ü]!").after_byte(half, byte)} == {
        "à".encode()[1] + n for n in range(ord("ü") - ord("à") + 1)
    }


MATCHED = [
    r" \d{4}\.", r"(yes|no|perhaps)", r"[a-c]{3,8}( [a-c]+){2}", r"é+!", r"Rüde|Hündin", r"🐕+!", r"[à-ü]{3}",
    r"\w{9} .", r"[^\x00-\x7f]{4}", r"(日本|🐕.)*\n",
]  # fmt: skip


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("kind", [byte_level, byte_fallback])
def test_what_is_written_becomes_a_full_match(beam, kind):
    """At the limit too: a token after which the text could not become one in time is not written."""
    tokenizer = kind()
    model = tiny("gpt2", dtype=torch.float32, vocab_size=400, end_ids=(2,), max_len=128)
    prompts = [[1, *tokenizer.encode(text, special=False)] for text in ("b", "a", "the fox")]
    for pattern, limit in zip(MATCHED, cycle((20, 12, 40)), strict=False):
        rules = (Matching(pattern, tokenizer, limit), TopK(200))
        jobs = [Job(prompt=ids, limit=limit, rules=rules) for ids in prompts]
        for job, found in zip(jobs, run_jobs(model, jobs, beam=beam, length_penalty=0.0), strict=True):
            for hypothesis in found:
                speller = Speller(tokenizer, job.prompt)
                speller.hear(hypothesis.ids)
                assert re.fullmatch(pattern, speller.close()), hypothesis


@pytest.mark.parametrize("kind", [byte_level, byte_fallback])
def test_what_a_match_needs_is_enough_and_not_much_too_much(kind):
    tokenizer = kind()
    for pattern, most in ((r"[a-z]{50}", 50), ("", 1), ("a*", 1), ("é", 2), (r"(a|[b-z]{9})\.", 2), (r"\d{4}-\d\d", 7)):
        needs = Matching(pattern, tokenizer).needs([1, 5])
        assert 1 <= needs <= most
        allowed = set(Matching(pattern, tokenizer, needs)._allowed([1, 5], [], [2]).tolist())
        assert allowed
        assert allowed <= set(Matching(pattern, tokenizer, needs + 1)._allowed([1, 5], [], [2]).tolist())
    text = "Seven unlikely words stand in a row"
    pattern = Matching(f" {text}", tokenizer)
    fewest = [0] + [10**9] * len(f" {text}")
    pieces = {piece.decode() for piece in pieces_of(tokenizer, True).bytes if piece and piece.isascii()}
    for end in range(1, len(fewest)):
        ways = [fewest[start] for start in range(end) if f" {text}"[start:end] in pieces]
        fewest[end] = 1 + min(ways, default=10**9)
    assert pattern.needs([1, 5]) == fewest[-1], "of a text without a choice the fewest tokens of all"


def test_an_expression_that_the_vocabulary_cannot_spell():
    model = tiny("gpt2", dtype=torch.float32, vocab_size=10, end_ids=(9,))
    with pytest.raises(InputError, match=r"allow='a日': no token of this vocabulary can follow 'a'"):
        run_jobs(model, [Job(prompt=[5], limit=9, rules=(Matching("a日", letters()),))])
    (found,) = run_jobs(model, [Job(prompt=[5], limit=9, rules=(Matching("a日|b+c", letters(), 9),))])[0]
    assert re.fullmatch("b+c", letters().decode([id for id in found.ids if id != 9])), "no way into a dead end"
    endless = tiny("gpt2", dtype=torch.float32, vocab_size=400)
    with pytest.raises(InputError, match=r"'a' is complete, but this model has no end token"):
        run_jobs(endless, [Job(prompt=[5], limit=9, rules=(Matching("a", byte_level()),))])


# --- what users see of rules ------------------------------------------------------------------------------------------


def test_rules_are_named_as_they_were_wished():
    tokenizer = byte_level()
    rules = (
        *ALL,
        Matching("ab", tokenizer, 7),
        NeverSpelled(("dog",), tokenizer),
        Stopping((".",), tokenizer),
        Allowed(odd_ones),
    )
    said = ", ".join(map(str, rules))
    assert said == (
        "repetition_penalty=1.3, logit_bias=((1, -2.5), (4, 3.0)), presence_penalty=0.7, frequency_penalty=0.4, "
        "no_repeat_ngram=2, bad_words=((5,), (6, 7)), min_tokens=4, "
        "ExactLength(n=4), temperature=0.7, top_k=9, top_p=0.8, min_p=0.02, allow='ab', bad_words=('dog',), "
        "stop=('.',), allow=odd_ones"
    )
    assert "object at" not in repr(rules)


def test_one_impossible_text_among_others_is_known_at_once():
    model, steps = tiny("gpt2", dtype=torch.float32), []

    def allow(ids: list[int]) -> list[int]:
        steps.append(ids)
        return [] if ids[0] == 1 else [5]

    jobs = [Job(prompt=[first], limit=20, rules=(Allowed(allow),)) for first in (1, 2)]
    with pytest.raises(InputError, match=r"by the rules allow=allow: loosen"):
        run_jobs(model, jobs)
    assert len(steps) <= 4


@pytest.mark.parametrize("allow", [lambda ids: 5, lambda ids: ["a"], lambda ids: [1.0], lambda ids: None])
def test_an_allow_that_gives_no_ids(allow):
    with pytest.raises(InputError, match=r"returned .*, which is not a list of token ids"):
        run_jobs(tiny("gpt2", dtype=torch.float32), [Job(prompt=[1], limit=5, rules=(Allowed(allow),))])


def test_allow_may_give_a_tensor():
    (found,) = run_jobs(
        tiny("gpt2", dtype=torch.float32),
        [Job(prompt=[1], limit=3, rules=(Allowed(lambda ids: torch.tensor([4])),))],
    )[0]
    assert found.ids == [4, 4, 4]


# --- words that may not come ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [byte_level, byte_fallback])
@given(st.data())
def test_a_token_is_hidden_if_the_text_would_hold_a_word(kind, data):
    tokenizer = _once(kind)
    word = st.text("abé日 \n", min_size=1, max_size=3)
    words = tuple(data.draw(st.lists(word, min_size=1, max_size=3, unique=True)))
    pieces = pieces_of(tokenizer, True).bytes
    short = [id for id, piece in enumerate(pieces) if piece and set(piece) <= set("abé日 \n".encode())]
    prompt, new = (data.draw(st.lists(st.sampled_from(short), min_size=n, max_size=6)) for n in (1, 0))
    begun = words[0].encode()
    new += [pieces.index(bytes([byte])) for byte in begun[: data.draw(st.integers(0, len(begun) - 1))]]
    found = hidden(NeverSpelled(words, tokenizer), prompt, new, vocab=400)
    said = b"".join(pieces[id] for id in (*prompt, *new))
    for id, piece in enumerate(pieces):
        ends = (said + piece)[-(len(piece) + 20) :]
        begins = max(0, len(ends) - len(piece))
        held = any(
            at + len(word) > begins
            for word in map(str.encode, words)
            for at in range(len(ends))
            if ends.startswith(word, at)
        )
        assert (id in found) is (held and bool(piece)), (id, piece, words)
    assert found < set(range(len(pieces)))


def test_a_rule_on_tensors_where_it_hides_as_much():
    tokenizer = byte_level()
    (rule,) = bad_word_rules(("\n",), tokenizer, 400)
    assert isinstance(rule, BadWords)
    assert {id for (id,) in rule.words} == {id for id in range(3, 400) if "\n" in tokenizer.decode([id])}
    assert bad_word_rules(("日",), letters(), 9) == []
    assert isinstance(bad_word_rules(("dog",), tokenizer, 400)[0], NeverSpelled)


@pytest.mark.parametrize("kind", [byte_level, byte_fallback])
@pytest.mark.parametrize("prompt", [[], [1], [1, 5]], ids=str)
def test_what_is_spelled_behind_nothing_becomes_a_full_match(prompt, kind):
    """Of a tokenizer that takes the first space away, a token says one thing at the beginning and another behind it."""
    tokenizer = kind()
    for pattern, limit in ((r"ab", 4), (r"[ab]{3}( a)?b", 8), (r"a b", 4), (r"a( a| the)+", 6), (r"(a|b| ){4}", 6)):
        rule, texts, done = Matching(pattern, tokenizer, limit), [[]], 0
        for _ in range(limit):
            longer = []
            for new in texts:
                for id in rule._allowed(prompt, new, [2]).tolist():
                    if id == 2:
                        done += 1
                        speller = Speller(tokenizer, prompt)
                        speller.hear(new)
                        assert re.fullmatch(pattern, speller.close()), (pattern, new)
                    else:
                        longer.append([*new, id])
            texts = longer[:: max(1, len(longer) // 40)]
        assert done, pattern
