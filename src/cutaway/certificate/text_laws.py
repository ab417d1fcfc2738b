"""The laws of decoding: the same tokens in any batch and with any search, and scores that the plain model confirms."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cutaway.certificate.entry import Measure, NotApplicable, difference
from cutaway.certificate.inputs import Ids, Inputs
from cutaway.certificate.subject import Subject
from cutaway.decoding.engine.engine import Job
from cutaway.decoding.engine.run import run_jobs
from cutaway.model.model import DecoderModel, EncoderDecoderModel

# New tokens of each text: they finish at different steps, so that rows move and others take their place.
LIMITS = (4, 1, 3, 2, 5, 1, 3, 2)
# Long enough that hypotheses change places, and that rows free the slots of dropped ones.
LONG = (16, 12, 14, 13, 16, 12, 15, 14)
END = 12  # new tokens after a row that is nearly as long as the model can read
GROWN = 24  # new tokens after a short row: the view of the cache then grows several times
PENALTY = 0.6  # a length penalty that is neither 0 nor 1, so that a wrong divisor shows
PROMPT = 6  # tokens at most
BATCHES = (1, 3, 8)


def beam_one_is_greedy(subject: Subject) -> Measure:
    """Greedy search and a beam of one give the most likely tokens of the plain model."""
    model, jobs = jobs_of(subject)
    greedy = [found[0].ids for found in run_jobs(model, jobs)]
    beam = [found[0].ids for found in run_jobs(model, jobs, beam=1, listener=lambda considered: None)]
    wrong = [a != b or not is_greedy(model, job, a) for job, a, b in zip(jobs, greedy, beam, strict=True)]
    return count_differences(wrong, jobs)


def same_in_any_batch(subject: Subject, width: int) -> Measure:
    """Batches of 1, 3 and 8 give the same tokens."""
    model, jobs = jobs_of(subject)
    batches = [rows for rows in BATCHES if rows <= len(jobs)]
    found = [[texts[0].ids for texts in run_jobs(model, jobs, beam=width, rows=rows)] for rows in batches]
    return count_differences([any(ids != texts[0] for ids in texts) for texts in zip(*found, strict=True)], jobs)


@torch.no_grad()
def scores_are_uncached(subject: Subject) -> Measure:
    """The score of every hypothesis, log p(y | x) / |y|^penalty, is the score that the plain model gives this text.

    So every hypothesis has continued its own tokens, wherever they were moved in the cache.
    """
    model, jobs = jobs_of(subject, LONG)
    ends = model.config.end_ids or ()
    scores, confirmed, scale = [], [], 0.0
    ways = [(1, ends), (4, ends), (4, ())][: 3 if ends else 2]  # also without end tokens, up to the limit
    for width, end_ids in ways[-1:] if subject.inputs.long else ways:
        written = run_jobs(model, jobs, beam=width, end_ids=end_ids, length_penalty=PENALTY, rows=4)
        for job, found in zip(jobs, written, strict=True):
            for n in {len(one.ids) for one in found}:  # hypotheses of one length are one batch
                alike = [one for one in found if len(one.ids) == n]
                texts = torch.tensor([one.ids for one in alike], device=model.device)
                log_p = logits_of(model, job, texts).double().log_softmax(dim=-1)
                scores += [one.score for one in alike]
                confirmed += (log_p.gather(2, texts[:, :, None]).sum(dim=(1, 2)) / n**PENALTY).tolist()
                scale = max(scale, float(log_p.abs().max()))
    # with the largest log p, because a score is only as exact as the numbers that are added up
    ours, theirs = (torch.tensor([*some, scale], dtype=torch.float64) for some in (scores, confirmed))
    inputs = f"{len(scores)} hypotheses of {describe(jobs)}"
    return Measure(value=difference([ours], [theirs]), what="largest difference / largest log p", inputs=inputs)


def jobs_of(subject: Subject, limits: tuple[int, ...] = LIMITS) -> tuple[DecoderModel, list[Job]]:
    """Jobs that continue the beginning of each row, or that translate each source."""
    model = subject.model
    if not isinstance(model, DecoderModel) or model.config.task not in ("language_model", "translate"):
        raise NotApplicable("this model generates no text")
    if subject.inputs.long:
        return model, long_texts(model, subject.inputs)
    jobs, room = [], model.max_len or PROMPT + max(limits)
    for row, limit in zip(subject.inputs.rows[-len(limits) :], limits, strict=True):
        if isinstance(model, EncoderDecoderModel):
            jobs.append(Job(prompt=[model.config.start_id or 0], source=row, limit=min(limit, room)))
        else:
            prompt = row[: max(1, min(PROMPT, room // 2))]
            jobs.append(Job(prompt=prompt, limit=min(limit, room - len(prompt) + 1)))
    return model, jobs


def long_texts(model: DecoderModel, inputs: Inputs) -> list[Job]:
    """Jobs that continue rows up to the longest text that the model can read, and one that continues a short row."""
    jobs, longest = [], max(map(len, inputs.targets or inputs.rows))
    for i, row in enumerate(inputs.targets or inputs.rows):
        prompt = row[: min(len(row), max(1, longest - END))]
        limit = min(END, longest - len(prompt)) + 1  # the last token is not read any more
        jobs.append(Job(prompt=prompt, source=inputs.rows[i] if inputs.targets else (), limit=limit))
    grown = Job(prompt=jobs[-1].prompt[:PROMPT], source=jobs[-1].source, limit=min(GROWN, longest - PROMPT))
    return [*jobs, grown]


@torch.no_grad()
def is_greedy(model: DecoderModel, job: Job, text: Ids) -> bool:
    """Greedy decoding by definition, without a cache or a batch: each token is the most likely after those before it,
    and the text ends with an end token or at its limit. One pass scores all tokens: a decoder sees no later ones.
    """
    ends = [token in (model.config.end_ids or ()) for token in text]
    complete = not any(ends[:-1]) and (ends[-1] or len(text) == job.limit)
    logits = logits_of(model, job, torch.tensor([text], device=model.device))
    return complete and text == logits[0].argmax(dim=-1).tolist()


def logits_of(model: DecoderModel, job: Job, texts: Int[Tensor, "text new"]) -> Float[Tensor, "text new vocab"]:
    """The plain model's logits for each token of texts that a job gave, without a cache or padding."""
    prompt = torch.tensor([job.prompt], device=model.device).expand(len(texts), -1)
    source = torch.tensor([job.source], device=model.device).expand(len(texts), -1)
    read = torch.cat([prompt, texts[:, :-1]], dim=1)
    hidden = model.hidden(source, read) if job.source else model.hidden(read)
    return model.head(hidden[:, len(job.prompt) - 1 :])


def count_differences(wrong: list[bool], jobs: list[Job]) -> Measure:
    return Measure(value=float(sum(wrong)), what="texts that differ", inputs=describe(jobs), tolerance=0.0)


def describe(jobs: list[Job]) -> str:
    return f"{len(jobs)} texts of up to {max(job.limit for job in jobs)} new tokens"
