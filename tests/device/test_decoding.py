"""The engine on a GPU: greedy, drawn and ruled words, alone as in any batch, and as on the CPU."""

import torch
from helpers.tiny_models import DECODERS, TRANSLATORS, some_ids, tiny

from cutaway.decoding import Job, run_jobs
from cutaway.decoding.rules.scores import BadWords, FrequencyPenalty, LogitBias, NoRepeat, Temperature, TopK, TopP
from cutaway.model.precision import with_precision

DEVICE = "cuda"
ENDS = range(5, 12)


def jobs(name: str, **more: object) -> list[Job]:
    rows = [row[: 3 + i % 5].tolist() for i, row in enumerate(some_ids(9, 7, seed=3))]
    limits = [12, 3, 9, 1, 12, 7, 2, 11, 5]
    if name in TRANSLATORS:
        return [Job(prompt=[1], source=row, limit=limit, **more) for row, limit in zip(rows, limits, strict=True)]
    return [Job(prompt=row, limit=limit, **more) for row, limit in zip(rows, limits, strict=True)]


def words(model: torch.nn.Module, asked: list[Job], **options: object) -> list[list[int]]:
    return [found[0].ids for found in run_jobs(model, asked, end_ids=ENDS, **options)]


def test_greedy_words_are_those_of_the_cpu_in_any_batch():
    for name in (*TRANSLATORS, *DECODERS):
        model, asked = tiny(name), jobs(name)
        here = words(model, asked)
        model = model.to(DEVICE)
        for rows in (1, 4, 9):
            assert words(model, asked, rows=rows) == here, (name, rows)


def test_drawn_and_ruled_words_are_those_of_the_cpu():
    penalties = (LogitBias(((6, 2.0), (7, -100.0))), FrequencyPenalty(0.5))
    rules = (*penalties, BadWords(((3,), (4, 5))), NoRepeat(2), Temperature(1.5), TopK(20), TopP(0.9))
    for name in ("gpt2", "transformer"):
        model, asked = tiny(name), jobs(name, seed=7, rules=rules)
        here = words(model, asked)
        model = model.to(DEVICE)
        assert words(model, asked, rows=2) == words(model, asked) == here


def test_every_precision_writes():
    for name in ("gpt2", "llama", "transformer"):
        for precision in ("fp32", "bf16", "int8"):
            for beam in (1, 4):
                model = with_precision(tiny(name, dtype=torch.float32), precision).to(DEVICE)
                found = words(model, jobs(name), beam=beam)
                assert all(0 < len(ids) <= job.limit for ids, job in zip(found, jobs(name), strict=True))
