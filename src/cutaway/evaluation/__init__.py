"""How good a model is: BLEU and chrF, perplexity and bits per byte, GLUE's metrics; each with how sure it is."""

from cutaway.evaluation.report import Report, Sureness
from cutaway.evaluation.tasks import evaluate

__all__ = ["Report", "Sureness", "evaluate"]
