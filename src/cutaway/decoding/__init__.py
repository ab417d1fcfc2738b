"""decoding: from a model to words."""

from cutaway.decoding.engine import Engine, Job
from cutaway.decoding.greedy import greedy, greedy_translate
from cutaway.decoding.search import Hypothesis
from cutaway.decoding.speculative import Speculation, speculative
from cutaway.decoding.trace import BeamTrace, trace_beam
from cutaway.decoding.translate import translate_all
from cutaway.decoding.write import write, written

__all__ = [
    "BeamTrace",
    "Engine",
    "Hypothesis",
    "Job",
    "Speculation",
    "greedy",
    "greedy_translate",
    "speculative",
    "trace_beam",
    "translate_all",
    "write",
    "written",
]
