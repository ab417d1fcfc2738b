"""How good a model is, and how sure that is: BLEU, bits per byte, minimal pairs, pronouns, last words, GLUE's metrics.

The names below are imported when they are first used.
"""

from typing import TYPE_CHECKING

from cutaway.lazy import lazy_names

if TYPE_CHECKING:
    from cutaway.evaluation.lambada import LastWord as LastWord
    from cutaway.evaluation.minimal_pairs import Pair as Pair
    from cutaway.evaluation.report import Report as Report
    from cutaway.evaluation.tasks import evaluate as evaluate
    from cutaway.evaluation.winograd import Schema as Schema

__getattr__, __dir__ = lazy_names(__name__)
