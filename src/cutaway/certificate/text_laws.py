"""The laws of decoding: the same tokens, whatever the search is called and whatever stands beside a text; and scores
that the plain model confirms."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cutaway.certificate.entry import Measure, NotApplicable, difference
from cutaway.certificate.inputs import Ids, Inputs
from cutaway.certificate.subject import Subject
from cutaway.decoding.engine.engine import Job
from cutaway.decoding.engine.run import run_jobs
from cutaway.model.model import DecoderModel, EncoderDecoderModel

# New tokens of each text: texts of different lengths leave at different steps, so that others move and enter.
LIMITS = (4, 1, 3, 2, 5, 1, 3, 2)
# Long enough that beams change places, and that rows forget what they gave up.
LONG = (16, 12, 14, 13, 16, 12, 15, 14)
END = 12  # new tokens behind a row that is nearly as long as the model reads
GROWN = 24  # behind a short one, so that what is looked at grows by several blocks
PENALTY = 0.6  # neither 0 nor 1, so that a score that is divided by something else shows
PROMPT = 6  # tokens at most
BATCHES = (1, 3, 8)


def beam_one_is_greedy(subject: Subject) -> Measure:
    """A beam of one, and the engine's greedy search, write what the likeliest token of the plain model spells."""
    model, jobs = texts_to_write(subject)
    greedy = [found[0].ids for found in run_jobs(model, jobs)]
    beam = [found[0].ids for found in run_jobs(model, jobs, beam=1, listener=lambda considered: None)]
    wrong = [a != b or not is_greedy(model, job, a) for job, a, b in zip(jobs, greedy, beam, strict=True)]
    return that_differ(wrong, jobs)


def same_in_any_batch(subject: Subject, width: int) -> Measure:
    """Batches of 1, 3 and 8 write the same tokens."""
    model, jobs = texts_to_write(subject)
    batches = [rows for rows in BATCHES if rows <= len(jobs)]
    found = [[texts[0].ids for texts in run_jobs(model, jobs, beam=width, rows=rows)] for rows in batches]
    return that_differ([any(ids != texts[0] for ids in texts) for texts in zip(*found, strict=True)], jobs)


@torch.no_grad()
def scores_are_uncached(subject: Subject) -> Measure:
    """What a search says of every text that it finds, log p(y | x) / |y|^penalty, the plain model says when it reads
    that text: so each hypothesis went on from its own words, whatever changed places in the cache."""
    model, jobs = texts_to_write(subject, LONG)
    ends = model.config.end_ids or ()
    said, read, scale = [], [], 0.0
    ways = [(1, ends), (4, ends), (4, ())][: 3 if ends else 2]  # and on to the limit, however soon it ends
    for width, its in ways[-1:] if subject.asked.long else ways:
        written = run_jobs(model, jobs, beam=width, end_ids=its, length_penalty=PENALTY, rows=4)
        for job, found in zip(jobs, written, strict=True):
            for n in {len(one.ids) for one in found}:  # those of one length can be read together
                alike = [one for one in found if len(one.ids) == n]
                texts = torch.tensor([one.ids for one in alike], device=model.device)
                log_p = logits_of(model, job, texts).double().log_softmax(dim=-1)
                said += [one.score for one in alike]
                read += (log_p.gather(2, texts[:, :, None]).sum(dim=(1, 2)) / n**PENALTY).tolist()
                scale = max(scale, float(log_p.abs().max()))
    # with the largest number beside them, for a score is only as exact as what it was added up from
    ours, theirs = (torch.tensor([*scores, scale], dtype=torch.float64) for scores in (said, read))
    inputs = f"{len(said)} hypotheses of {in_words(jobs)}"
    return Measure(value=difference([ours], [theirs]), what="largest difference / largest log p", inputs=inputs)


def texts_to_write(subject: Subject, limits: tuple[int, ...] = LIMITS) -> tuple[DecoderModel, list[Job]]:
    """What follows the beginning of each row, or the translation of each source."""
    model = subject.model
    if not isinstance(model, DecoderModel) or model.config.task not in ("language_model", "translate"):
        raise NotApplicable("this model writes no text")
    if subject.asked.long:
        return model, long_texts(model, subject.asked)
    jobs, room = [], model.max_len or PROMPT + max(limits)
    for row, limit in zip(subject.asked.rows[-len(limits) :], limits, strict=True):
        if isinstance(model, EncoderDecoderModel):
            jobs.append(Job(prompt=[model.config.start_id or 0], source=row, limit=min(limit, room)))
        else:
            prompt = row[: max(1, min(PROMPT, room // 2))]
            jobs.append(Job(prompt=prompt, limit=min(limit, room - len(prompt) + 1)))
    return model, jobs


def long_texts(model: DecoderModel, asked: Inputs) -> list[Job]:
    """What follows rows that are nearly as long as the model reads, up to the last token that it has room for; and what
    follows a short beginning."""
    jobs, longest = [], max(map(len, asked.targets or asked.rows))
    for i, row in enumerate(asked.targets or asked.rows):
        prompt = row[: min(len(row), max(1, longest - END))]
        limit = min(END, longest - len(prompt)) + 1  # the last one is only written
        jobs.append(Job(prompt=prompt, source=asked.rows[i] if asked.targets else (), limit=limit))
    grown = Job(prompt=jobs[-1].prompt[:PROMPT], source=jobs[-1].source, limit=min(GROWN, longest - PROMPT))
    return [*jobs, grown]


@torch.no_grad()
def is_greedy(model: DecoderModel, job: Job, text: Ids) -> bool:
    """Greedy decoding by its definition, with no cache and no batch: every token is the likeliest after those before it
    (all are asked at once, for a decoder never sees what follows), and the text goes on to an end, or to its limit."""
    ends = [token in (model.config.end_ids or ()) for token in text]
    complete = not any(ends[:-1]) and (ends[-1] or len(text) == job.limit)
    said = logits_of(model, job, torch.tensor([text], device=model.device))
    return complete and text == said[0].argmax(dim=-1).tolist()


def logits_of(model: DecoderModel, job: Job, texts: Int[Tensor, "text new"]) -> Float[Tensor, "text new vocab"]:
    """What the plain model says at every place of texts that a job gave, with no cache and no padding."""
    prompt = torch.tensor([job.prompt], device=model.device).expand(len(texts), -1)
    source = torch.tensor([job.source], device=model.device).expand(len(texts), -1)
    read = torch.cat([prompt, texts[:, :-1]], dim=1)
    hidden = model.hidden(source, read) if job.source else model.hidden(read)
    return model.head(hidden[:, len(job.prompt) - 1 :])


def that_differ(wrong: list[bool], jobs: list[Job]) -> Measure:
    return Measure(value=float(sum(wrong)), what="texts that differ", inputs=in_words(jobs), tolerance=0.0)


def in_words(jobs: list[Job]) -> str:
    return f"{len(jobs)} texts of up to {max(job.limit for job in jobs)} new tokens"
