"""How good a model is: BLEU and chrF, bits per byte, minimal pairs, GLUE's metrics; each with how sure it is."""

from cutaway.evaluation.pairs import Pair
from cutaway.evaluation.report import Report, Sureness
from cutaway.evaluation.tasks import evaluate

__all__ = ["Pair", "Report", "Sureness", "evaluate"]
