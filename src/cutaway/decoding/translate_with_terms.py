"""Translations that have their terms: found freely where they have them anyway, else searched again, on a grid.

A grid's score is not log p alone: `cutaway.decoding.search.constrained_beam` adds two prices to it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from cutaway.decoding.engine.engine import Engine
from cutaway.decoding.options import SearchOptions
from cutaway.decoding.rules.terms import Glossary, Looks, contains
from cutaway.decoding.search.constrained_beam import Borders, GridSearch, TermJob
from cutaway.decoding.search.search import Hypothesis, Job
from cutaway.errors import InputError
from cutaway.model.model import EncoderDecoderModel
from cutaway.model.tap import StepWatch

if TYPE_CHECKING:
    from cutaway.decoding.translate_sentences import RunJobs


def search_with_terms(
    model: EncoderDecoderModel,
    jobs: Sequence[Job],
    wanted: Sequence[Looks],
    glossary: Glossary,
    spell: Callable[[Job, Hypothesis], str],
    *,
    n_best: int,
    most: int,
    options: SearchOptions,
    run: "RunJobs",
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """What `run` gives for these jobs, where each text contains what is wanted; `most` tokens have room in a target.

    `n_best` of each are looked for. The best of them does not depend on how many: what a grid finds besides a
    translation that has its terms comes after it, or not at all.
    """

    def kept(number: int, found: Sequence[Hypothesis]) -> list[Hypothesis]:
        terms = wanted[number]
        return [one for one in found if all(contains(spell(jobs[number], one), term) for term, _ in terms)]

    ends = set(model.config.end_ids or ())
    there: dict[int, list[Hypothesis]] = {}
    best: dict[int, float] = {}
    again: dict[int, dict[int, TermJob]] = {}  # by the tokens that they owe: a grid has a bank for each
    for job, terms in zip(jobs, wanted, strict=True):
        if terms:
            _term_job(job, terms, glossary, most, ends)  # what is impossible is said before anything is written
    for number, found in run(model, jobs, options):
        good = kept(number, found)
        stays = bool(good) and good[0] is found[0]
        if stays and (len(good) >= n_best or not wanted[number]):
            yield number, good
        else:
            job = _term_job(jobs[number], wanted[number], glossary, most, ends)
            job = replace(job, usual=len(found[0].ids) + job.owed - len(job.terms))  # a term replaces some word
            again.setdefault(job.owed, {})[number] = job
            there[number], best[number] = good, good[0].score if stays else float("inf")
    for some in again.values():
        numbers = list(some)
        for at, found in _grid_search(model, list(some.values()), glossary.borders, options):
            number = numbers[at]
            more = [one for one in kept(number, found) if one.score <= best[number]]
            every: dict[tuple[int, ...], Hypothesis] = {}
            for one in [*there[number], *more]:
                every.setdefault(tuple(one.ids), one)
            if not every:
                said = ", ".join(term for term, _ in wanted[number])
                raise InputError(f"no translation with the terms {said} was found: widen the beam")
            yield number, sorted(every.values(), key=lambda one: -one.score)


def _term_job(job: Job, wanted: Looks, glossary: Glossary, most: int, ends: set[int]) -> TermJob:
    """The same job, with these terms, and room for them."""
    terms = tuple(tuple(way for way in glossary.ways(term) if not ends.intersection(way.ids)) for term, _ in wanted)
    for (term, _), ways in zip(wanted, terms, strict=True):
        if not ways:
            raise InputError(f"terms: {term!r} holds a token that ends a text in this model: choose another word")
    room = most - len(job.prompt) + 1
    made = TermJob(
        prompt=job.prompt,
        source=job.source,
        limit=job.limit,
        rules=job.rules,
        terms=terms,
        looks=tuple(places for _, places in wanted),
        fresh=len(job.prompt) == 1,
    )
    if made.owed > room:
        raise InputError(
            f"the terms {', '.join(repr(term) for term, _ in wanted)} take {made.owed} tokens, but only {room} have"
            " room in a translation: leave some out, or cut the text"
        )
    return replace(made, limit=min(room, job.limit + made.owed))


def _grid_search(
    model: EncoderDecoderModel, jobs: Sequence[TermJob], known: Borders, options: SearchOptions
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """The hypotheses of each job, as they are found. Nothing is pruned: a term costs more than any threshold."""
    end_ids = list(model.config.end_ids or ())
    extra = torch.zeros(max(0, model.config.vocab_size - len(known.opens)), dtype=torch.bool)  # type: ignore[attr-defined]
    opens, closes = torch.cat([known.opens, extra]), torch.cat([known.closes, extra])
    opens[end_ids] = True
    rows = min(len(jobs), max(1, (options.rows or 32) // (1 + jobs[0].owed)))
    source = max(len(job.source) for job in jobs)
    prompt = max(len(job.prompt) for job in jobs)
    name = f"decoder.{len(model.decoder) - 1}.cross.pattern"  # as in `align`
    grid = GridSearch(
        max(2, options.beam),  # in a bank of one, the first place for a term is the last
        jobs,
        Borders(opens.to(model.device), closes.to(model.device)),
        rows=rows,
        most=max(job.limit for job in jobs),
        ends=end_ids,
        device=model.device,
        dtype=torch.promote_types(model.dtype, torch.float32),
        prompt=prompt,
        length_penalty=options.length_penalty,
        early_stopping=options.early_stopping,
    )
    steps = Engine(model, grid, rows=rows, prompt=prompt, source=source).steps(jobs)
    watch = StepWatch(model, [name])  # other threads run this model unwatched
    while True:
        with watch.installed() as seen:  # for a step only: whoever is told what is done may ask the model, too
            grid.pattern = lambda seen=seen: seen[name].mean(dim=1)
            done = next(steps, None)
        if done is None:
            return
        yield from done
