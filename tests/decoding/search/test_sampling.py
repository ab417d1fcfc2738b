"""Sampling: the same words for the same seed wherever they are written, and each as often as it should be."""

import pytest
import scipy.stats
import torch
from helpers.tiny_models import DECODERS, VOCAB, some_ids, tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.decoding import Job, run_jobs
from cutaway.decoding.rules.scores import Temperature, TopK, TopP
from cutaway.decoding.search.sampling import Sampling, gumbel
from cutaway.errors import InputError


def drawn(scores: torch.Tensor, seeds: range, step: int = 0) -> torch.Tensor:
    """The tokens that these seeds draw from the same scores."""
    n = len(seeds)
    search = Sampling(rows=n, most=9, ends=[], device=torch.device("cpu"))
    search.enter(slice(n), [Job(prompt=[0], limit=9, seed=seed) for seed in seeds])
    search.written[:] = step
    return search.choose(scores.expand(n, -1))


@pytest.mark.parametrize(
    "seeds",
    [
        range(40_000),
        *(
            pytest.param(more, marks=pytest.mark.long)
            for more in (range(-(2**63), -(2**63) + 40_000), range(0, 2**40 * 40_000, 2**40))
        ),
    ],
)
@pytest.mark.parametrize("step", [0, 1, 1000])
def test_words_come_as_often_as_the_softmax_says(seeds, step):
    for vocab in (2, 50):
        scores = torch.randn(vocab, generator=torch.Generator().manual_seed(vocab)) * 2
        counts = drawn(scores, seeds, step).bincount(minlength=vocab)
        expected = scores.double().softmax(dim=-1) * len(seeds)
        rare = expected < 10
        found, wanted = ([*x[~rare].tolist(), float(x[rare].sum())] for x in (counts, expected))
        if wanted[-1] == 0:
            found, wanted = found[:-1], wanted[:-1]
        assert scipy.stats.chisquare(found, wanted).pvalue > 1e-4


def test_the_steps_of_one_seed_are_independent():
    scores = torch.zeros(4)
    steps = torch.stack([drawn(scores, range(20_000), step) for step in range(3)])
    for one, other in ((0, 1), (1, 2), (0, 2)):
        table = (steps[one] * 4 + steps[other]).bincount(minlength=16).view(4, 4).numpy()
        assert scipy.stats.chi2_contingency(table).pvalue > 1e-4
    neighbours = (steps[0][:-1] * 4 + steps[0][1:]).bincount(minlength=16).view(4, 4).numpy()  # seeds n and n + 1
    assert scipy.stats.chi2_contingency(neighbours).pvalue > 1e-4


def test_the_noise_is_gumbels():
    noise = gumbel(torch.arange(20), torch.arange(20), 50_000)
    assert noise.isfinite().all()
    assert min(scipy.stats.kstest(row.numpy(), "gumbel_r").pvalue for row in noise) > 1e-3
    assert 12 < noise.max() < 18  # the first number of seed 0 was once the largest of all
    assert abs(float(torch.corrcoef(noise[:2])[0, 1])) < 0.02


def test_a_seed_draws_the_same_for_ever() -> None:
    """Nobody's story is another one after an update."""
    found = gumbel(torch.tensor([0, 7, -3]), torch.tensor([0, 3, 9]), 4)
    expected = [
        [1.777847, 0.959928, 1.113033, 0.855457],
        [0.027541, 1.615712, 0.607091, -0.696243],
        [-1.257971, 0.578227, 0.951250, 1.385550],
    ]
    torch.testing.assert_close(found, torch.tensor(expected), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", DECODERS)
def test_fault_17_a_seed_gives_the_same_words_alone_and_in_any_batch(name):
    model = tiny(name, dtype=torch.float32)
    prompts = some_ids(9, 6).tolist()
    jobs = [
        Job(prompt=ids[: 1 + i % 6], limit=4 + 3 * (i % 5), seed=i % 4, rules=(Temperature(1.0 + i % 2),))
        for i, ids in enumerate(prompts)
    ]
    options = {"end_ids": range(10, 13)}
    alone = [run_jobs(model, [job], **options)[0][0].ids for job in jobs]
    for rows in (9, 4, 2):  # with few rows, texts enter when others leave
        assert [found[0].ids for found in run_jobs(model, jobs, rows=rows, **options)] == alone
    backwards = run_jobs(model, jobs[::-1], rows=3, **options)
    assert [found[0].ids for found in backwards] == alone[::-1]


@settings(max_examples=5)
@given(st.integers(-(2**70), 2**70))
def test_any_whole_number_is_a_seed(seed):
    model = tiny("gpt2", dtype=torch.float32)
    one, again = (run_jobs(model, [Job(prompt=[1], limit=9, seed=seed)])[0][0].ids for _ in range(2))
    assert one == again
    assert one != run_jobs(model, [Job(prompt=[1], limit=9, seed=seed + 1)])[0][0].ids


def test_cold_and_alone_is_greedy():
    model = tiny("gpt2", dtype=torch.float32)
    prompts = some_ids(6, 4).tolist()
    greedy = run_jobs(model, [Job(prompt=ids, limit=20) for ids in prompts])
    for rules in ((Temperature(1e-4),), (Temperature(1e-40),), (TopK(1),), (TopP(1e-9),), (Temperature(5.0), TopK(1))):
        jobs = [Job(prompt=ids, limit=20, seed=seed, rules=rules) for seed, ids in enumerate(prompts)]
        assert [found[0].ids for found in run_jobs(model, jobs)] == [found[0].ids for found in greedy]
    mixed = [Job(prompt=ids, limit=20, seed=None if i % 2 else i) for i, ids in enumerate(prompts)]
    for i, (found, likeliest) in enumerate(zip(run_jobs(model, mixed), greedy, strict=True)):
        assert (found[0].ids == likeliest[0].ids) is bool(i % 2)


def test_what_rules_hide_is_never_drawn():
    scores = torch.full((VOCAB,), float("-inf"))
    scores[[3, 7]] = torch.tensor([-30.0, -31.0])
    assert set(drawn(scores, range(2000)).tolist()) == {3, 7}


def test_a_score_is_the_log_probability_of_what_was_drawn():
    model = tiny("gpt2")
    found = run_jobs(model, [Job(prompt=[1, 2], limit=8, seed=5)], length_penalty=0.0)[0][0]
    with torch.no_grad():
        log_p = model(torch.tensor([[1, 2, *found.ids[:-1]]]))[0, 1:].log_softmax(dim=-1)
    assert found.score == pytest.approx(log_p.gather(1, torch.tensor(found.ids)[:, None]).sum().item(), rel=1e-9)


def test_a_beam_draws_nothing():
    with pytest.raises(InputError, match="beam=2 and a seed"):
        run_jobs(tiny("gpt2"), [Job(prompt=[1], limit=3, seed=1)], beam=2)
