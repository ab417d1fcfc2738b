"""The engine writes what the textbook's greedy and beam search write, for every family, among other texts."""

import pytest
from helpers.tiny_models import DECODERS, RECURRENT, TRANSLATORS, tiny

from cutaway.decoding import Job, run_jobs
from cutaway.decoding.reference import beam_search, greedy_search
from cutaway.model.model import Model

PROMPTS = [[3, 1, 4, 1, 5, 9, 2], [6], [5, 3]]
ENDS = (5, 6, 7, 8, 11, 17, 23, 31, 42)
MODELS = [*DECODERS, *TRANSLATORS, *RECURRENT]


def model_of(name: str) -> Model:
    """With scores so close that beams overtake each other."""
    model = tiny(name)
    if name in TRANSLATORS:
        for parameter in model.decoder.parameters():
            parameter.data *= 0.7
    return model


def texts(name: str) -> list[tuple[list[int], list[int] | None]]:
    """Prompts; for translators, sources with the start of their target."""
    return [([1], ids) if name in (*TRANSLATORS, "lstm-translator") else (ids, None) for ids in PROMPTS]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("ends", [(), ENDS])
def test_the_engine_is_greedy_as_in_the_textbook(name, ends):
    model, limit = model_of(name), 7
    jobs = [Job(prompt=prompt, source=source or (), limit=limit) for prompt, source in texts(name)]
    found = [hypotheses[0].ids for hypotheses in run_jobs(model, jobs, end_ids=ends)]
    assert found == [
        greedy_search(model, prompt, source=source, limit=limit, ends=ends) for prompt, source in texts(name)
    ]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("width", "penalty", "ends"), [(2, 1.0, ENDS), (4, 0.6, ENDS), (5, 2.0, ENDS[:2]), (3, 0.0, ())]
)
def test_the_engine_searches_as_in_the_textbook(name, width, penalty, ends):
    model, limit = model_of(name), 7
    jobs = [Job(prompt=prompt, source=source or (), limit=limit) for prompt, source in texts(name)]
    found = run_jobs(model, jobs, beam=width, length_penalty=penalty, end_ids=ends)
    for (prompt, source), hypotheses in zip(texts(name), found, strict=True):
        expected = beam_search(
            model, prompt, source=source, width=width, limit=limit, ends=ends, length_penalty=penalty
        )
        assert [hypothesis.ids for hypothesis in hypotheses] == [ids for _, ids in expected]
        assert [hypothesis.score for hypothesis in hypotheses] == pytest.approx([score for score, _ in expected])


def test_the_textbooks_texts_end_and_overtake_each_other():
    """Otherwise the two above would compare less than they say."""
    model = model_of("gpt2")
    found = [beam_search(model, ids, width=4, limit=9, ends=ENDS, length_penalty=0.6) for ids in PROMPTS]
    lengths = {len(ids) for texts in found for _, ids in texts}
    assert min(lengths) < max(lengths) == 9
    likeliest = [greedy_search(model, ids, limit=9, ends=ENDS) for ids in PROMPTS]
    assert any(texts[0][1] != greedy for texts, greedy in zip(found, likeliest, strict=True))
