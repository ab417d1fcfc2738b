"""Many texts at once: what comes out depends on the text alone."""

import pytest
import torch
from helpers.decode_batches import translations
from helpers.limits import limits
from helpers.tokenizers_of_bytes import byte_level
from helpers.translators import END, TEXTS, quick, translator
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken

from cutaway.decoding import translate_all
from cutaway.decoding.alignment import Alignment
from cutaway.decoding.engine.engine import padded_ids
from cutaway.decoding.options import TranslationOptions
from cutaway.decoding.translate import Candidate, Sentence, Translation, _join, translate
from cutaway.decoding.translate_sentences import encode_sources, prefix_ids, translate_sentences
from cutaway.errors import InputError
from cutaway.tokens import Tokenizer, train_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return byte_level()


@pytest.mark.parametrize("more_ends", [range(0), range(3, 50)], ids=["late", "early"])
def test_each_text_is_translated_as_if_alone(tokenizer, more_ends):
    model, options = translator(end_ids=(END, *more_ends)), {"beam": 3}
    found = translate_all(model, tokenizer, TEXTS, rows=3, **options)
    assert found == [translate_all(model, tokenizer, [text], **options)[0] for text in TEXTS]
    assert found == translate_all(model, tokenizer, TEXTS, rows=1, **options)
    assert found[1] == found[5]
    assert found[2] == ""
    assert len(set(found)) > 4


def test_a_text_goes_in_between_tag_and_end(tokenizer):
    model, text = translator(), TEXTS[3]
    ids = tokenizer.encode(text, special=False)
    for tag, source in ((None, [*ids, END]), (7, [7, *ids, END]), (0, [0, *ids, END])):
        expected = translations(model, torch.tensor([source]), n=min(64, 2 * len(source) + 20), beam=2)[0]
        written = tokenizer.decode([id for id in expected if id != END])
        assert translate_all(model, tokenizer, [text], beam=2, tag=tag) == [written]
    for tag in (0, 7):
        assert encode_sources(model, tokenizer, [text, ""], tag, END) == [[tag, *ids, END], []]


def test_the_limit_is_a_matter_of_the_source_alone(tokenizer):
    never = (399,)
    model = translator(end_ids=never)
    longest = {}
    for text in ("Hi", TEXTS[3]):
        n = len(tokenizer.encode(text, special=False)) + 1
        source = torch.tensor([[*tokenizer.encode(text, special=False), 399]])
        longest[text] = tokenizer.decode(translations(model, source, n=n + 3, beam=1, end_ids=never)[0])
    options = {"beam": 1, "growth": (1.0, 2.1)}  # 2.1 rounds up
    assert translate_all(model, tokenizer, list(longest), **options) == list(longest.values())
    (short,) = translate_all(model, tokenizer, ["Hi"], max_len=2, **options)
    assert longest["Hi"].startswith(short)
    assert len(short) < len(longest["Hi"])


def test_progress_counts_every_text(tokenizer):
    told: list[tuple[int, int]] = []
    translate_all(
        translator(), tokenizer, TEXTS, beam=1, rows=2, progress=lambda done, total: told.append((done, total))
    )
    assert told[-1] == (len(TEXTS), len(TEXTS))
    assert told == sorted(told)
    assert len(told) > 2


def test_ids_that_the_tokenizer_does_not_know_stand_for_nothing(tokenizer):
    model = translator(vocab_size=900)
    with torch.no_grad():
        model.head.matrix[400:] *= 3
    assert len(translate_all(model, tokenizer, TEXTS[:2], beam=2)) == 2


def test_rows_are_padded_on_the_right():
    ids, real = padded_ids([[5, 6], [7]], torch.device("cpu"))
    assert ids.tolist() == [[5, 6], [7, 0]]
    assert real.tolist() == [[True, True], [True, False]]
    assert padded_ids([[5, 6], [7, 8]], torch.device("cpu"))[1] is None


def test_what_cannot_be_translated_is_refused(tokenizer):
    with pytest.raises(InputError, match=r"text 2 has \d+ tokens; this model reads at most 10"):
        translate_all(translator(max_len=10), tokenizer, ["Hi", TEXTS[3]])
    n = len(tokenizer.encode(TEXTS[3], special=False)) + 1  # its end fills the model
    assert translate_all(translator(max_len=n), tokenizer, [TEXTS[3]]) != [""]
    with pytest.raises(InputError, match=f"text 1 has {n} tokens; this model reads at most {n - 1}"):
        translate_all(translator(max_len=n - 1), tokenizer, [TEXTS[3]])
    with pytest.raises(InputError, match="set start_id and end_ids in its config"):
        translate_all(translator(end_ids=None), tokenizer, ["Hi"])
    with pytest.raises(InputError, match="rows=0"):
        translate_all(translator(), tokenizer, ["Hi"], rows=0)
    assert translate_all(translator(), tokenizer, []) == []


# --- paragraphs -------------------------------------------------------------------------------------------------------

PARAGRAPH = "  I ate an apple. It was good!\n\n\tNaïve café?  Yes.\r\nHi \n"


def test_a_paragraph_is_its_sentences_with_the_space_between(tokenizer):
    model = quick()
    said = {text: translate(model, tokenizer, text, beam=2) for text in
            ("I ate an apple.", "It was good!", "Naïve café?", "Yes.", "Hi")}  # fmt: skip
    expected = PARAGRAPH
    for text, words in said.items():
        assert words == translate_sentences(model, tokenizer, [text], beam=2)[0][0].text.strip()
        expected = expected.replace(text, words)
    assert translate(model, tokenizer, PARAGRAPH, beam=2) == expected
    assert translate(model, tokenizer, [PARAGRAPH, "", "Hi"], beam=2) == [expected, "", said["Hi"]]


@settings(max_examples=15)
@given(st.text(st.sampled_from("ab. \n\t\r\u00a0"), max_size=25))
def test_white_space_stays_where_it_was(text):
    said = translate(quick(), byte_level(), text, beam=1)
    assert "".join(c for c in said if c in "\n").count("\n") >= text.count("\n")
    start, stop = len(text) - len(text.lstrip()), len(text.rstrip())
    assert said.startswith(text[:start])
    assert said.endswith(text[stop:])


@pytest.mark.parametrize("text", ["", " ", "\n\n", " \t\u2003\r\n"])
def test_where_there_is_nothing_to_translate_nothing_changes(tokenizer, text):
    assert translate(quick(), tokenizer, text) == text
    found = translate(quick(), tokenizer, text, n_best=2, align=True)
    assert (found.text, found.score, found.sentences, found.alignment.links()) == (text, 0.0, [], [])


@pytest.mark.parametrize("text", ["\x00\x01\x1b[31m", "🙂👩‍👩‍👧", "שלום עולם. مرحبا", "\ufeff\u200b", "a" * 3000])
def test_odd_texts_get_an_answer(tokenizer, text):
    found = translate(quick(), tokenizer, text, beam=2, align=True)
    assert isinstance(found.text, str)
    assert torch.isfinite(found.alignment.matrix).all()


def test_a_long_sentence_is_cut_to_what_the_model_reads(tokenizer):
    model, text = quick(max_len=24), "the quick brown fox, " * 40
    found = translate(model, tokenizer, text, beam=1, scores=True)
    assert len(found.sentences) > 10
    assert all(len(tokenizer.encode(part.source, special=False)) < 24 for part in found.sentences)
    assert "".join(part.source for part in found.sentences).replace(" ", "") == text.replace(" ", "")
    short = translate(model, tokenizer, text, beam=1, scores=True, longest=8)
    assert all(len(tokenizer.encode(part.source, special=False)) <= 8 for part in short.sentences)
    with pytest.raises(InputError, match="reads at most 24"):
        translate(model, tokenizer, text, split=False)


def test_whole_lines_are_one_sentence_when_asked(tokenizer):
    model, text = quick(), " I ate. It was good."
    said = translate(model, tokenizer, text, beam=2, split=False)
    assert said == " " + translate_sentences(model, tokenizer, [text.strip()], beam=2)[0][0].text.strip()


def test_the_n_best_of_a_text_are_the_best_sums(tokenizer):
    model, text = translator(), "Hi. Yes! No?"
    found = translate(model, tokenizer, text, n_best=4, beam=4)
    assert isinstance(found, Translation)
    options = [sentence.candidates for sentence in found.sentences]
    sums = sorted(
        ((a.score + b.score + c.score) / 3 for a in options[0] for b in options[1] for c in options[2]), reverse=True
    )
    assert [one.score for one in found.n_best] == pytest.approx(sums[:4])
    assert found.n_best[0].text == found.text == translate(model, tokenizer, text)
    assert len({one.text for one in found.n_best}) == 4
    assert found.to_dict()["n_best"][0] == {"text": found.text, "score": found.score}


def test_a_prefix_is_how_a_translation_begins(tokenizer):
    model = translator()
    said = translate(model, tokenizer, TEXTS[:2], prefix="the quick", beam=2, scores=True)
    assert all(one.text.startswith("the quick") for one in said)
    both = translate(model, tokenizer, ["Hi. Hi", "Hi"], prefix=["naïve", None], beam=2)
    assert both[0].startswith("naïve")
    assert both[1] == translate(model, tokenizer, "Hi", beam=2)
    assert both[0].endswith(" " + both[1])  # the second sentence begins as it likes
    own = translate(model, tokenizer, TEXTS[0], beam=1)
    begin = tokenizer.decode(tokenizer.encode(own, special=False)[:4])
    assert translate(model, tokenizer, TEXTS[0], beam=1, prefix=begin).startswith(begin)
    with pytest.raises(InputError, match="leaves no room"):
        translate(model, tokenizer, "Hi", prefix="fox " * 100)
    n = len(tokenizer.encode("the quick", special=False))
    assert translate(model, tokenizer, "Hi", prefix="the quick", max_len=n + 1).startswith("the quick")
    with pytest.raises(InputError, match=f"a prefix of {n} tokens leaves no room in a translation of at most {n}"):
        translate(model, tokenizer, "Hi", prefix="the quick", max_len=n)
    with pytest.raises(InputError, match="1 prefixes for 2 texts"):
        translate(model, tokenizer, ["Hi", "Hi"], prefix=["a"])


@pytest.mark.parametrize("kind", ["word", "char", "wordpiece", "unigram", "byte", "bpe"])
def test_a_prefix_is_kept_whole_or_refused(kind):
    words = ["der Hund bellt, ja.", "I don't like it's end.", "the (quick) fox"]
    tokenizer = train_tokenizer(words * 3, kind=kind, vocab_size=None if kind in ("word", "char", "byte") else 300)
    model = translator(vocab_size=tokenizer.vocab_size)
    for prefix in ("the (quick)", "der  Hund, ja. ", "don't", " "):  # spaces are as the tokenizer sets them
        said = translate(model, tokenizer, "the fox", prefix=prefix, beam=2)
        assert "".join(said.split()).startswith("".join(prefix.split()))
    if kind in ("byte", "bpe"):
        assert translate(model, tokenizer, "the fox", prefix="Grüße 數 the", beam=2).startswith("Grüße 數 the")
    else:
        with pytest.raises(InputError, match=r"prefix: .* no tokens for 'Grüße': choose other words"):
            translate(model, tokenizer, "the fox", prefix="Grüße 數 the", beam=2)
        with pytest.raises(InputError, match="no tokens for '數'"):
            translate(model, tokenizer, ["the fox", "the"], prefix=["the", "fox 數"], beam=2)


def test_a_prefix_holds_no_special_token():
    tokenizer = train_tokenizer(["the fox"], kind="byte")
    end = tokenizer.token(tokenizer.eos_id)
    with pytest.raises(InputError, match="no tokens for"):
        translate(translator(vocab_size=tokenizer.vocab_size), tokenizer, "the fox", prefix=f"the {end}")


def test_a_forced_beginning_that_is_the_models_own_changes_nothing(tokenizer):
    model, tried = translator(), 0
    for text in filter(None, TEXTS):
        source = encode_sources(model, tokenizer, [text], None, END)[0]
        ids = translations(model, torch.tensor([source]), n=12, beam=1)[0]
        own = [id for id in ids if id != END]
        for n in range(1, len(own)):
            begin = tokenizer.decode(own[:n])
            if tokenizer.encode(begin, special=False) == own[:n]:  # a random model writes halves of characters, too
                found = translate_sentences(model, tokenizer, [text], prefixes=[begin], beam=1, max_len=12)
                assert found[0][0].text == tokenizer.decode(own)
                tried += 1
    assert tried > 5


def test_the_alignment_of_a_text_is_that_of_its_sentences(tokenizer):
    found = translate(quick(), tokenizer, PARAGRAPH, beam=2, align=True)
    whole = found.alignment
    assert torch.allclose(whole.matrix.sum(dim=1), torch.ones(len(whole.target_words)))
    links = iter(whole.links())
    for sentence in found.sentences:
        own = sentence.alignment
        for (a, b), (c, d), weight in own.links():
            (e, f), (g, h), same = next(links)
            assert (PARAGRAPH[e:f], found.text[g:h], same) == (sentence.source[a:b], own.target[c:d], weight)


@pytest.mark.parametrize("n_best", [1, 3])
def test_a_long_text_takes_time_and_memory_by_its_length(n_best):
    """A copy of what is said for each sentence would take minutes, a matrix of all words × words 26 GB."""
    n = 80_000
    block = torch.ones(1, 1)
    its = [Candidate("b", -1.0), Candidate("c", -2.0)]
    sentence = Sentence("a", its, Alignment("a", "b", [(0, 1)], [(0, 1)], [block]))
    with limits(seconds=30, megabytes=2000):
        found = _join([" ", *["a "] * n], [sentence] * n, TranslationOptions(n_best=n_best, align=True))
        links, pairs = found.alignment.links(), found.alignment.pharaoh()
    assert found.text == " " + "b " * n
    assert [one.score * n for one in found.n_best] == pytest.approx([-n, -n - 1, -n - 1][:n_best])
    assert links[-1] == ((2 * n - 1, 2 * n), (2 * n - 1, 2 * n), 1.0)
    assert pairs.startswith("0-0 1-1 ")
    assert pairs.endswith(f" {n - 1}-{n - 1}")


def test_the_space_behind_a_prefix_is_not_written_twice(tokenizer):
    assert prefix_ids(tokenizer, "the quick \n") == prefix_ids(tokenizer, "the quick") != ()


def test_the_language_is_asked_for_by_its_tag():
    tokenizer, model = byte_level(), quick(vocab_size=410)
    with pytest.raises(InputError, match="to='de': this model has no language tags"):
        translate(model, tokenizer, "Hi", to="de")
    tokenizer.backend.add_special_tokens([AddedToken("<2de>", special=True), AddedToken("<2fr>", special=True)])
    tokenizer = Tokenizer(tokenizer.backend)
    for to in ("de", "fr"):
        own = translate_sentences(model, tokenizer, ["Hi"], tag=tokenizer.tag_id(to))[0][0].text.strip()
        assert translate(model, tokenizer, "Hi", to=to) == own
    with pytest.raises(InputError, match="to='en': this model knows de, fr"):
        translate(model, tokenizer, "Hi", to="en")
    with pytest.raises(InputError, match="choose to=de or to=fr"):
        translate(model, tokenizer, "Hi")


def test_equal_sentences_are_translated_once(tokenizer, monkeypatch):
    import cutaway.decoding.translate_sentences as module

    jobs, real = [], module.finished_jobs
    monkeypatch.setattr(
        module, "finished_jobs", lambda model, some, **more: (jobs.extend(some), real(model, some, **more))[1]
    )
    said = translate(quick(), tokenizer, ["Hi. Hi.", "Hi.", "Yes."], beam=1)
    assert len(jobs) == 2
    assert said[0] == f"{said[1]} {said[1]}"


def test_wrong_options_are_refused(tokenizer):
    with pytest.raises(InputError, match="n_best=5 needs beam=5 or more, not 4"):
        translate(quick(), tokenizer, "Hi", n_best=5)
    with pytest.raises(InputError, match="valid Unicode"):
        translate(quick(), tokenizer, "a\udc80")
    with pytest.raises(InputError, match="longest=0"):
        translate(quick(), tokenizer, "Hi", longest=0)
