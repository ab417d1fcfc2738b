"""What is shown of one request is what Python shows of its text, read alone and at once."""

from collections.abc import Iterator

import pytest
import torch
from helpers.tiny_models import tiny

import cutaway
from cutaway.decoding import Job, Scheduler, trace_beam
from cutaway.decoding.alignment import align
from cutaway.decoding.generate import GenerationPlan
from cutaway.decoding.options import GenerationOptions, SearchOptions, TranslationOptions
from cutaway.decoding.translate import tag_for, translations
from cutaway.errors import InputError
from cutaway.inside import logit_lens
from cutaway.serving.token_names import TokenNames
from cutaway.serving.watching import STREAM, Shown, WatchRequest

LONG = 600.0
SOURCE = "The old man's dog barked at 3.14 strangers."


@pytest.fixture(scope="module")
def scheduler() -> Iterator[Scheduler]:
    with Scheduler(threads=1) as one:
        yield one


@pytest.fixture(scope="module")
def translator():
    return cutaway.load("en-de"), cutaway.load_tokenizer("en-de")


def translated(scheduler, translator, asked: WatchRequest, **options) -> tuple[Shown, str]:
    """What is shown of a translation, and the translation."""
    model, tokenizer = translator
    options = TranslationOptions(to="de", split=False, **options)
    shown = []

    def run(model, jobs, search):
        tickets = []
        watch = asked.watch(model, search)
        for number, found in scheduler.run_jobs(model, jobs, search, watch=watch, on_submit=tickets.extend):
            shown.append(Shown(asked, model, tokenizer, jobs[number], tickets[number], found[0].ids))
            yield number, found

    (translation,) = translations(model, tokenizer, [SOURCE], run=run, options=options)
    return shown[0], translation.text


@pytest.mark.parametrize("prefix", [None, "Der Hund"])
@pytest.mark.parametrize("beam", [1, 4])
def test_the_alignment_is_that_of_the_finished_text(scheduler, translator, beam: int, prefix: str | None) -> None:
    model, tokenizer = translator
    shown, text = translated(scheduler, translator, WatchRequest(alignment=True), beam=beam, prefix=prefix)
    found = shown.alignment(SOURCE, text)
    (expected,) = align(model, tokenizer, [SOURCE], [text], tag=tag_for(tokenizer, "de"))
    assert (found.source_words, found.target_words) == (expected.source_words, expected.target_words)
    torch.testing.assert_close(found.matrix, expected.matrix, atol=1e-4, rtol=0.0)


def test_lens_norms_and_heads_are_those_of_the_finished_text(scheduler, translator) -> None:
    model, tokenizer = translator
    heads = ["decoder.1.cross.3", "decoder.0.attention.1", "encoder.2.attention.0"]
    asked = WatchRequest(lens=3, norms=True, heads=heads, alternatives=2)
    shown, _ = translated(scheduler, translator, asked, beam=3)
    found, names = shown.to_dict(), TokenNames(tokenizer)
    inputs = torch.tensor([list(shown.job.source)]), torch.tensor([[*shown.job.prompt, *shown.ids[:-1]]])
    with torch.no_grad(), cutaway.watch(model, *STREAM, "*.pattern") as seen:
        log_p = model(*inputs)[0].log_softmax(-1)
    lens = logit_lens(model, *inputs, top=3)
    assert list(found["lens"]) == list(found["norms"]) == list(lens.layers)
    for layer, tap in enumerate(lens.layers):
        tokens = [[one["token"] for one in place] for place in found["lens"][tap]]
        assert tokens == [[names.name(id) for id in place] for place in lens.top_tokens[layer, 0].tolist()]
        said = torch.tensor([[one["probability"] for one in place] for place in found["lens"][tap]])
        torch.testing.assert_close(said, lens.top_probabilities[layer, 0], atol=1e-4, rtol=0.0)
        torch.testing.assert_close(torch.tensor(found["norms"][tap]), seen[tap][0].norm(dim=-1), atol=1e-3, rtol=1e-4)
    for head in heads:
        layer, number = head.rsplit(".", 1)
        expected = seen[f"{layer}.pattern"][0, int(number)]
        rows, keys = found["heads"][head]["pattern"], found["heads"][head]["keys"]
        assert len(keys) == expected.shape[1]
        for row, whole in zip(rows, expected, strict=True):
            torch.testing.assert_close(torch.tensor(row), whole[: len(row)], atol=1e-4, rtol=0.0)
    for place, id, row in zip(found["alternatives"], shown.ids, log_p, strict=True):
        assert place["token"] == names.name(id)
        assert place["log_p"] == pytest.approx(float(row[id]), abs=1e-3)
        assert [one["token"] for one in place["top"]] == [names.name(id) for id in row.topk(2).indices.tolist()]


def test_the_beam_is_that_of_a_search_alone(scheduler, translator) -> None:
    """Beside other texts, which enter and leave."""
    model, tokenizer = translator
    asked = WatchRequest(beam=True)
    search = SearchOptions(beam=3)
    end = model.config.end_ids[0]
    sources = [[tag_for(tokenizer, "de"), *tokenizer.encode(text, special=False), end]
               for text in ("Yes.", SOURCE, "I know.", "Where is the old station?")]  # fmt: skip
    jobs = [Job(prompt=[model.config.start_id], source=source, limit=40) for source in sources]
    watch = asked.watch(model, search)
    tickets = [
        scheduler.submit(model, job, search, watch=watch if number == 1 else None) for number, job in enumerate(jobs)
    ]
    ids = tickets[1].result(LONG)[0].ids
    found = Shown(asked, model, tokenizer, jobs[1], tickets[1], ids).to_dict(search)["beam"]
    expected = trace_beam(model, jobs[1], beam=3).to_dict(TokenNames(tokenizer).name)
    assert [[(node["id"], node["parent"], node["text"], node["fate"], node["rank"]) for node in step]
            for step in found["steps"]] == [
        [(node["id"], node["parent"], node["text"], node["fate"], node["rank"]) for node in step]
        for step in expected["steps"]
    ]  # fmt: skip
    assert [one["ids"] for one in found["found"]] == [one["ids"] for one in expected["found"]]


def test_a_generated_text_is_shown_too(scheduler) -> None:
    model, tokenizer = cutaway.load("books"), cutaway.load_tokenizer("books")
    options = GenerationOptions(max_tokens=6, temperature=0.9, seed=4)
    plan = GenerationPlan(model, tokenizer, ["The old ship"], options)
    asked = WatchRequest(heads=["decoder.3.attention.2"], lens=1, alternatives=1)
    ticket = scheduler.submit(model, plan.jobs[0], options.search, watch=asked.watch(model, options.search))
    ids = ticket.result(LONG)[0].ids
    found = Shown(asked, model, tokenizer, plan.jobs[0], ticket, ids).to_dict()
    prompt = len(plan.jobs[0].prompt)
    assert [len(row) for row in found["heads"]["decoder.3.attention.2"]["pattern"]] == [prompt + n for n in range(6)]
    assert len(found["heads"]["decoder.3.attention.2"]["keys"]) == prompt + 5
    assert all(sum(row) == pytest.approx(1.0, abs=1e-4) for row in found["heads"]["decoder.3.attention.2"]["pattern"])
    assert [len(found["lens"][tap]) for tap in found["lens"]] == [6] * (1 + len(model.decoder))


def test_heads_are_those_of_their_own_layers(translator) -> None:
    """An encoder may have other heads than the decoder."""
    model = tiny("transformer", n_heads=2)
    for block in model.encoder:
        block.attention.n_heads = 4
    WatchRequest(heads=["encoder.0.attention.3"]).watch(model, SearchOptions())
    for head in ("encoder.0.attention.4", "decoder.0.cross.2", "decoder.0.attention.2"):
        with pytest.raises(InputError, match=r"watch: heads: .* have heads 0 …"):
            WatchRequest(heads=[head]).watch(model, SearchOptions())


def test_what_cannot_be_shown_is_refused(translator) -> None:
    model, _ = translator
    books = cutaway.load("books")
    with pytest.raises(InputError, match="alignment: this model is no translator"):
        WatchRequest(alignment=True).watch(books, SearchOptions())
    with pytest.raises(InputError, match="beam: this request has no beam"):
        WatchRequest(beam=True).watch(model, SearchOptions())
    with pytest.raises(InputError, match=r"heads: 'decoder.9' is not a head"):
        WatchRequest(heads=["decoder.9"])
    with pytest.raises(InputError, match="have heads 0 …"):
        WatchRequest(heads=["decoder.0.cross.99"]).watch(model, SearchOptions())
    with pytest.raises(InputError, match="17 heads are more than the 16"):
        WatchRequest(heads=["decoder.0.cross.0"] * 17)
    with pytest.raises(InputError, match="lens=21 must be at least 0 and at most 20"):
        WatchRequest(lens=21)
