"""Terms: a translation contains them, and is otherwise as good as the search can make it."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from helpers.tiny_models import tiny
from helpers.tokenizers_of_bytes import byte_level
from helpers.translators import TEXTS, quick, translator
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from cutaway.decoding import translate_all
from cutaway.decoding import translate_with_terms as searching
from cutaway.decoding.engine.engine import Engine, Job
from cutaway.decoding.rules import terms as module
from cutaway.decoding.rules.terms import Glossary, borders, contains, read_terms
from cutaway.decoding.search.constrained_beam import Borders, GridSearch, TermJob, Way
from cutaway.decoding.search.search import Hypothesis
from cutaway.decoding.translate import translate
from cutaway.decoding.translate_sentences import translate_sentences
from cutaway.errors import InputError
from cutaway.model.model import Model
from cutaway.model.tap import watching
from cutaway.tokens import Tokenizer
from cutaway.tokens.tokenizer_training import train_tokenizer

VOCAB, START, END = 5, 1, 2
WORDS = ["der Hund bellt", "die Katze (Kater) schläft", "Rüde Hunde im Haus", "I ate an apple.", "the quick brown fox"]


# --- the grid ---------------------------------------------------------------------------------------------------------


def small(seed: int) -> Model:
    return tiny("transformer", seed=seed, vocab_size=VOCAB, tied=False, max_len=16)


def source_of(seed: int) -> list[int]:
    return [*torch.randint(3, VOCAB, (4,), generator=torch.Generator().manual_seed(seed)).tolist(), END]


def job(seed: int, terms: list[tuple[int, ...]], limit: int = 5) -> TermJob:
    return TermJob(prompt=[START], source=source_of(seed), limit=limit, terms=tuple((Way(term),) for term in terms))


def searched(
    model: Model, jobs: list[TermJob], width: int, *, rows: int | None = None, free: bool = True, **more: object
) -> list[list[Hypothesis]]:
    """What a grid finds; `free`: every token is a word."""
    every = torch.full((VOCAB,), free)
    every[END] = True
    room = {"rows": rows or len(jobs), "most": max(one.limit for one in jobs), "ends": [END], "dtype": torch.float64}
    pattern = more.pop("pattern", None)
    search = GridSearch(width, jobs, Borders(every, every), device=model.device, **room, **more)
    search.pattern = pattern and (lambda: pattern(search))
    engine = Engine(model, search, rows=rows or len(jobs), source=max(len(one.source) for one in jobs))
    found = dict(engine.run(jobs))
    return [found[number] for number in range(len(jobs))]


@torch.no_grad()
def all_texts(model: Model, source: list[int], limit: int) -> dict[tuple[int, ...], float]:
    """The score of every text that can be written."""
    found, begun = {}, {(): 0.0}
    for n in range(limit):
        read = torch.tensor([[START, *text] for text in begun])
        log_p = model(torch.tensor([source]).expand(len(read), -1), read)[:, -1].log_softmax(dim=-1).tolist()
        longer = {
            (*text, id): total + more
            for (text, total), row in zip(begun.items(), log_p, strict=True)
            for id, more in enumerate(row)
        }
        found |= {text: s / len(text) for text, s in longer.items() if text[-1] == END or n == limit - 1}
        begun = {text: s for text, s in longer.items() if text[-1] != END}
    return found


def has(text: tuple[int, ...], term: tuple[int, ...]) -> bool:
    return any(text[i : i + len(term)] == term for i in range(len(text)))


def have(texts: dict[tuple[int, ...], float], terms: list[tuple[int, ...]]) -> dict[tuple[int, ...], float]:
    return {text: score for text, score in texts.items() if all(has(text, term) for term in terms)}


TERMS = [[(4,)], [(4, 3)], [(3, 3)], [(3,), (4,)], [(3,), (4, 4)]]


@pytest.mark.parametrize("terms", TERMS, ids=str)
@pytest.mark.parametrize("stop", [False, "never"])
def test_a_grid_as_wide_as_the_space_finds_the_best_of_all_that_have_the_terms(terms, stop):
    for seed in range(2):
        model = small(seed)
        able = have(all_texts(model, source_of(seed), 4), terms)
        (found,) = searched(model, [job(seed, terms, 4)], VOCAB**3, early_stopping=stop)
        assert found[0].ids == list(max(able, key=able.__getitem__))
        assert found[0].score == pytest.approx(max(able.values()))


@pytest.mark.parametrize("terms", TERMS, ids=str)
def test_every_text_of_a_grid_has_its_terms_and_its_true_score(terms):
    for seed, width in product(range(3), (1, 2, 4)):
        model = small(seed)
        able = have(all_texts(model, source_of(seed), 5), terms)
        (found,) = searched(model, [job(seed, terms)], width)
        assert found
        assert [one.score for one in found] == pytest.approx([able[tuple(one.ids)] for one in found])
        assert len({tuple(one.ids) for one in found}) == len(found)


def test_a_narrow_grid_mostly_finds_the_best():
    best = 0
    for seed, terms in product(range(10), ([(4,)], [(4, 3)])):
        able = have(all_texts(small(seed), source_of(seed), 5), terms)
        (found,) = searched(small(seed), [job(seed, terms)], 4)
        best += found[0].score == pytest.approx(max(able.values()))
    assert best >= 18


def test_no_bank_holds_a_text_twice(monkeypatch):
    moves, live = GridSearch._moves, 0

    def watched(search: GridSearch, log_p: torch.Tensor) -> object:
        nonlocal live
        for bank in range(search.banks):
            its = range(bank * search.each, (bank + 1) * search.each)
            known = [(*search.tokens[0, i].tolist(), *search.state[0, i].tolist())
                     for i in its if search.scores[0, i] > float("-inf")]  # fmt: skip
            assert len(set(known)) == len(known)
            live += len(known)
        return moves(search, log_p)

    monkeypatch.setattr(GridSearch, "_moves", watched)
    for seed in range(3):
        searched(small(seed), [job(seed, [(4,)], 8)], 6)
    assert live > 200


def test_a_text_just_long_enough_is_its_terms():
    for terms in ([(4, 3, 4)], [(4,), (3, 4)]):
        (found,) = searched(small(0), [job(0, terms, 3)], 2)
        assert all(has(tuple(one.ids), term) for one in found for term in terms)


@pytest.mark.parametrize("rows", [1, 3])
def test_each_grid_is_the_same_alone_and_in_any_batch(rows):
    model = small(3)
    jobs = [job(seed, [(4,), (3, 3)] if seed % 2 else [(4, 3)], 3 + seed % 4) for seed in range(7)]
    alone = [searched(model, [one], 3)[0] for one in jobs]
    together = searched(model, jobs, 3, rows=rows)
    assert [[one.ids for one in found] for found in together] == [[one.ids for one in found] for found in alone]


def test_a_term_is_not_part_of_a_longer_word():
    """Where no token begins a word, a text cannot go on behind a term, nor begin one later."""
    (found,) = searched(small(0), [job(0, [(4, 3)])], 4, free=False)
    assert {tuple(one.ids) for one in found} == {(4, 3, END)}


@pytest.mark.parametrize("at", range(4))
def test_a_term_stands_where_the_model_looks_at_its_word(at):
    for seed in range(3):
        model = small(seed)
        one = replace(job(seed, [(4,)]), looks=((2,),))

        def pattern(search: GridSearch) -> torch.Tensor:
            looks = torch.tensor(
                [0.0, 0.0, 0.9, 0.0, 0.1] if search.written[0] - 1 == at else [0.5, 0.5, 0.0, 0.0, 0.0]
            )
            return looks.expand(1, search.width, -1)

        (found,) = searched(model, [one], 4, pattern=pattern)
        assert found[0].ids[at] == 4


def test_length_earns_nothing_beyond_the_usual():
    usual = 2
    for seed in range(3):
        model = small(seed)
        able = have(all_texts(model, source_of(seed), 5), [(4,)])
        (found,) = searched(model, [replace(job(seed, [(4,)]), usual=usual)], 4)
        expected = [able[tuple(one.ids)] * len(one.ids) / min(len(one.ids), usual) for one in found]
        assert [one.score for one in found] == pytest.approx(expected)
        assert any(len(one.ids) > usual for one in found)


# --- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "term", "there"),
    [
        ("the dog barks", "dog", True),
        ("the dogs bark", "dog", False),
        ("a hotdog", "dog", False),
        ("(dog)", "dog", True),
        ("dog's-ear", "dog", True),
        ("Dog eats dog", "Dog", True),
        ("the Dog", "dog", False),
        ("Dog!", "dog", True),
        ("No. “Dog!” he said.", "dog", True),
        ("the DOG", "dog", False),
        ("a dog", "Dog", False),
        ("hot\n dog", "hot dog", True),
        ("C++ and C", "C++", True),
        ("naïve", "na", False),
        ("नमस्ते", "नमस्त", False),
        ("私は犬が好き", "犬", True),
        ("a.b", "a.b", True),
        ("axb", "a.b", False),
        ("", "dog", False),
    ],
)
def test_a_term_is_whole_words_as_they_are_written(text, term, there):
    assert contains(text, term) is there


def test_of_terms_that_overlap_the_longer_counts():
    glossary = Glossary({"dog": "Hund", "hot dog": "the quick", "brown dog": "fox", "ate": "fox"}, byte_level())
    assert glossary.wanted("A hot dog and a dog") == ("the quick", "Hund")
    assert glossary.wanted("hot brown dog, ate") == ("fox",)
    assert glossary.wanted("cat") == ()
    assert Glossary({"a": "fox", "b": "the fox"}, byte_level()).wanted("b a") == ("the fox",)  # it has the other


WILD = st.text(st.sampled_from("aAß_é\u0301犬カ. +'ǆ"), min_size=1, max_size=4).filter(str.strip)


@given(st.lists(WILD, max_size=6), st.text(st.sampled_from("aASsß_é\u0301犬カ. +'ǆǄ\n"), max_size=25))
@example(["ein Hund", "ßa"], "Ein Hund. SSa")
def test_a_term_is_found_by_how_it_begins(sources, text):
    """As if each were looked for."""
    glossary = Glossary(dict.fromkeys(sources, "fox"), byte_level())
    asked = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "places_of_term", lambda text, term: asked.append(term) or iter(()))
        glossary.wanted(text)
    there = {source.strip() for source in sources if contains(text, source.strip())}
    assert there <= set(asked)
    assert len(set(asked)) == len(asked)


def test_of_many_terms_few_are_looked_for(monkeypatch):
    terms = {f"word{n}": "fox" for n in range(1000)} | {f"the hot dog{n}": "fox" for n in range(1000)}
    glossary, asked = Glossary(terms, byte_level()), []
    whole = module.places_of_term
    monkeypatch.setattr(module, "places_of_term", lambda text, term: asked.append(term) or whole(text, term))
    assert glossary.wanted("The hot dog7 and word12, word") == ("fox",)
    assert sorted(asked) == ["the hot dog7", "word12"]


def suffixed() -> Tokenizer:
    """Whose tokens say where words end."""
    backend = Backend(models.BPE(end_of_word_suffix="</w>", unk_token="<unk>"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.BertPreTokenizer(), decoders.BPEDecoder("</w>")
    special = ["<unk>", "<sos>", "<eos>"]
    trainer = trainers.BpeTrainer(
        vocab_size=120, special_tokens=special, end_of_word_suffix="</w>", show_progress=False
    )
    backend.train_from_iterator(WORDS, trainer)
    return Tokenizer(backend)


def trained(kind: str) -> Tokenizer:
    if kind == "suffix":
        return suffixed()
    return train_tokenizer(WORDS * 3, kind=kind, vocab_size=None if kind in ("word", "char", "byte") else 300)


KINDS = ["word", "char", "byte", "bpe", "wordpiece", "unigram", "suffix"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_translation_contains_its_terms(kind):
    tokenizer = trained(kind)
    model = translator(vocab_size=tokenizer.vocab_size + 3, max_len=24)
    terms = {"apple": "Rüde", "ate": "im Haus", "fox": "bellt"}
    texts = {"I ate an apple.": {"Rüde", "im Haus"}, "Fox": {"bellt"}, "the Haus": set()}
    found = translate(model, tokenizer, list(texts), terms=terms, beam=2, n_best=2)
    for one, wanted in zip(found, texts.values(), strict=True):
        assert all(contains(candidate.text, term) for candidate in one.n_best for term in wanted), one.text
    assert found[2].text == translate(model, tokenizer, "the Haus", beam=2)
    assert found[0].text == translate(model, tokenizer, "I ate an apple.", terms=terms, beam=2)
    assert contains(translate(model, tokenizer, "Fox", terms=terms, beam=1), "bellt")


@settings(max_examples=10)
@given(st.data())
def test_any_words_of_any_text(data):
    tokenizer, model = byte_level(), translator(max_len=32)
    words = st.text(st.sampled_from("abü日🙂.- "), min_size=1, max_size=3).filter(str.strip)
    text = " ".join(data.draw(st.lists(words, min_size=1, max_size=2)))
    terms = {word: data.draw(words) for word in data.draw(st.lists(st.sampled_from(text.split()), max_size=2))}
    said = translate(model, tokenizer, text, terms=terms, beam=2, split=False)
    wanted = Glossary(terms, tokenizer).wanted(text.strip())
    assert all(contains(said, term) for term in wanted)
    if not wanted:
        assert said == translate(model, tokenizer, text, beam=2, split=False)


def test_without_terms_and_with_terms_that_are_there_nothing_changes(monkeypatch):
    tokenizer = trained("word")
    model, texts = translator(vocab_size=tokenizer.vocab_size, max_len=24, seed=8), ["I ate an apple.", "the fox", ""]
    free = translate_sentences(model, tokenizer, texts, n_best=4)
    for terms in (None, {}, {"zebra": "fox"}):
        assert translate_sentences(model, tokenizer, texts, n_best=4, terms=terms) == free
    there = free[0][0].text.split()[-1]
    monkeypatch.setattr(searching, "_grid_search", lambda *_, **__: pytest.fail("searched again"))
    for n_best in range(1, 1 + sum(contains(one.text, there) for one in free[0])):
        kept = translate_sentences(model, tokenizer, texts, n_best=n_best, terms={"apple": there})
        assert kept[0] == [one for one in free[0] if contains(one.text, there)][:n_best]
        assert kept[1:] == [its[:n_best] for its in free[1:]]


@pytest.mark.parametrize("better", [False, True])
def test_terms_that_are_there_leave_as_many_candidates(better, monkeypatch):
    if better:  # a grid whose texts seem better than what stays
        whole = GridSearch.found
        monkeypatch.setattr(
            GridSearch, "found", lambda search, row: [replace(one, score=1.0) for one in whole(search, row)]
        )
    tokenizer = trained("word")
    model, texts = translator(vocab_size=tokenizer.vocab_size, max_len=24, seed=8), ["I ate an apple.", "the fox"]
    free = translate_sentences(model, tokenizer, texts, n_best=4)
    there = min(free[0][0].text.split(), key=lambda word: sum(contains(one.text, word) for one in free[0]))
    kept = [one for one in free[0] if contains(one.text, there)]
    assert len(kept) == 2
    found = translate_sentences(model, tokenizer, texts, n_best=4, terms={"apple": there})
    assert len(found[0]) == (2 if better else 4)
    assert all(contains(one.text, there) for one in found[0])
    assert found[0][0] == kept[0] == translate_sentences(model, tokenizer, texts, terms={"apple": there})[0][0]
    assert [one.score for one in found[0]] == sorted((one.score for one in found[0]), reverse=True)
    assert found[1] == free[1]


@pytest.mark.parametrize("poor", [False, True])
def test_what_is_taken_is_the_best_of_all_that_was_found(poor, monkeypatch):
    if poor:  # a grid that finds less than the free search
        whole = GridSearch.found
        monkeypatch.setattr(GridSearch, "found", lambda search, row: whole(search, row)[-1:])
    tokenizer, model = byte_level(), translator()
    for beam in (2, 4):
        free = translate_sentences(model, tokenizer, TEXTS[:1], n_best=beam, beam=beam)[0]
        terms = {
            "apple": next(word for one in free[1:] for word in one.text.split() if not contains(free[0].text, word))
        }
        found = translate_sentences(model, tokenizer, TEXTS[:1], n_best=beam, beam=beam, terms=terms)[0]
        able = [one.score for one in free if contains(one.text, terms["apple"])]
        assert able
        assert found[0].score >= max(able)
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)


def test_each_text_has_the_terms_of_its_own_words():
    """Two texts that the tokenizer reads alike are not the same text."""
    tokenizer = trained("word")
    model = translator(vocab_size=tokenizer.vocab_size)
    said = translate_all(model, tokenizer, ["the zebra", "the gnu"], terms={"zebra": "Katze", "gnu": "Kater"}, beam=2)
    assert contains(said[0], "Katze")
    assert contains(said[1], "Kater")


def test_terms_and_a_prefix():
    tokenizer, model = byte_level(), translator()
    said = translate(model, tokenizer, "I ate an apple.", prefix="the quick", terms={"apple": "fox"}, beam=2)
    assert said.startswith("the quick")
    assert contains(said, "fox")


def test_a_term_may_begin_a_sentence():
    tokenizer = byte_level()
    (way, *_) = [way for way in Glossary({"a": "fox"}, tokenizer).ways("fox") if way.only_first]
    assert tokenizer.decode(list(way.ids)) == "Fox"


def test_terms_are_normalised_as_the_tokenizer_does():
    backend = byte_level().backend
    backend.normalizer = normalizers.Lowercase()
    tokenizer = Tokenizer(backend)
    assert contains(translate(quick(), tokenizer, "an apple", terms={"apple": "Fox"}, beam=2), "fox")


@pytest.mark.parametrize(
    ("kind", "terms", "match"),
    [
        ("word", {"dog": "Zebra"}, "no tokens for 'Zebra'"),
        ("word", {"dog": "der Zebra"}, "choose another word"),
        ("byte", {"dog": ""}, "empty side"),
        ("byte", {" ": "a"}, "empty side"),
        ("byte", {"dog": "x" * 60}, "take 61 tokens, but only 48"),
        ("byte", {"dog": "x" * 30, "the": "y" * 30}, "leave some out"),
        ("byte", {"dog": "a\udc80"}, "valid Unicode"),
    ],
)
def test_terms_that_cannot_be_kept_are_refused(kind, terms, match):
    tokenizer = trained(kind)
    model = translator(vocab_size=tokenizer.vocab_size, max_len=48)
    with pytest.raises(InputError, match=match):
        translate(model, tokenizer, "the dog", terms=terms)


def test_what_ends_a_text_is_in_no_term():
    with pytest.raises(InputError, match="ends a text in this model"):
        translate(quick(), byte_level(), "the dog", terms={"dog": "a.b"})


def test_borders_of_tokens():
    tokenizer = byte_level()
    known = borders(tokenizer)
    for token, opens, closes in (("a", False, False), (".", True, True), ("Ġ", True, True), ("Ã", False, False)):
        id = tokenizer.id(token)
        assert (bool(known.opens[id]), bool(known.closes[id])) == (opens, closes), token


@pytest.mark.parametrize("kind", KINDS)
def test_a_term_knows_the_tokens_of_its_word(kind):
    tokenizer = trained(kind)
    text = "the quick fox: Fox, brown"
    ((term, its),) = Glossary({"fox": "Hund", "quicker": "Rüde"}, tokenizer).looks(text, front=1)
    ids = tokenizer.encode(text, special=False)
    assert term == "Hund"
    spelled = tokenizer.decode([ids[place - 1] for place in its])
    assert "".join(spelled.split()) == "fox"


def test_a_search_with_terms_is_told_where_each_step_looks(monkeypatch):
    tokenizer, model = byte_level(), translator()
    price, told = GridSearch._begin_price, 0

    def watched(search: GridSearch, n: int) -> object:
        nonlocal told
        looked = search.pattern()
        assert looked.shape[:2] == (n, search.width)
        assert torch.allclose(looked.sum(dim=2), torch.ones(()), atol=1e-4)
        assert search.way_looks[:n].any(dim=2).all()
        told += 1
        return price(search, n)

    monkeypatch.setattr(GridSearch, "_begin_price", watched)
    translate(model, tokenizer, "I ate an apple.", terms={"apple": "fox"}, beam=2)
    assert told
    assert not watching()


def test_many_terms_are_encoded_at_once(monkeypatch):
    calls, whole = 0, Tokenizer.encode_batch

    def counted(self: Tokenizer, *args: object, **more: object) -> object:
        nonlocal calls
        calls += 1
        return whole(self, *args, **more)

    monkeypatch.setattr(Tokenizer, "encode_batch", counted)
    monkeypatch.setattr(Tokenizer, "encode", lambda *_, **__: pytest.fail("one by one"))
    Glossary({f"word{n}": f"fox{n}" for n in range(1000)}, byte_level())
    assert calls < 5


def test_a_file_of_terms(tmp_path):
    file = tmp_path / "terms.tsv"
    file.write_text("\ufeffdog\tRüde\n\nhot dog \t Hotdog\r\ndog\tRüde\n")
    assert read_terms(file) == {"dog": "Rüde", "hot dog": "Hotdog"}
    for text, match in (
        (b"dog\n", "line 1: 'dog'"),
        (b"a\tb\na\tc", "line 2: 'a' is 'c' here and 'b'"),
        (b"\xff", "UTF-8"),
    ):
        file.write_bytes(text)
        with pytest.raises(InputError, match=match):
            read_terms(file)


@pytest.mark.parametrize("limit", [1, 4, 20])
@pytest.mark.parametrize("room", [16, 64])
def test_terms_get_tokens_besides_those_of_the_text(limit, room):
    """A text whose terms took the room of the rest would break off behind them."""
    tokenizer = byte_level()
    glossary = Glossary({"apple": "quick fox", "I": "Hund"}, tokenizer)
    wanted = (("quick fox", ()), ("Hund", ()))
    made = searching._term_job(Job(prompt=[1], source=[5, 6, 2], limit=limit), wanted, glossary, room, {2})
    owed = sum(max(len(way.ids) for way in ways) for ways in made.terms)
    assert made.owed == owed > 2
    assert made.limit == min(room, limit + owed)
    assert (made.prompt, made.source) == ([1], [5, 6, 2])
