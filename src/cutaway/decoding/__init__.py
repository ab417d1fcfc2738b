"""decoding: from a model to words."""

from cutaway.decoding.engine import Engine, Job
from cutaway.decoding.greedy import greedy, greedy_translate
from cutaway.decoding.search import Hypothesis
from cutaway.decoding.translate import translate_all
from cutaway.decoding.write import write, written

__all__ = ["Engine", "Hypothesis", "Job", "greedy", "greedy_translate", "translate_all", "write", "written"]
