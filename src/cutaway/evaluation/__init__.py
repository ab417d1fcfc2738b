"""How good a model is, and how sure: BLEU, bits per byte, minimal pairs, pronouns, last words, GLUE's metrics."""

from cutaway.evaluation.lambada import LastWord
from cutaway.evaluation.minimal_pairs import Pair
from cutaway.evaluation.report import Report, Sureness
from cutaway.evaluation.tasks import evaluate
from cutaway.evaluation.winograd import Schema

__all__ = ["LastWord", "Pair", "Report", "Schema", "Sureness", "evaluate"]
