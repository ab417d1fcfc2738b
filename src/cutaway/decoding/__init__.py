"""decoding: from a model to words."""

from cutaway.decoding.engine.engine import Engine, Job
from cutaway.decoding.engine.run import finished_jobs, run_jobs
from cutaway.decoding.search.beam_trace import BeamTrace, trace_beam
from cutaway.decoding.search.greedy import greedy, greedy_translate
from cutaway.decoding.search.search import Hypothesis
from cutaway.decoding.search.speculative import Speculation, speculative
from cutaway.decoding.translate import translate_all

__all__ = [
    "BeamTrace",
    "Engine",
    "Hypothesis",
    "Job",
    "Speculation",
    "finished_jobs",
    "greedy",
    "greedy_translate",
    "run_jobs",
    "speculative",
    "trace_beam",
    "translate_all",
]
