"""How good a model is, and how sure that is: BLEU, bits per byte, minimal pairs, pronouns, last words, GLUE's metrics.

The names below are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cutaway.evaluation.lambada import LastWord as LastWord
    from cutaway.evaluation.minimal_pairs import Pair as Pair
    from cutaway.evaluation.report import Report as Report
    from cutaway.evaluation.tasks import evaluate as evaluate
    from cutaway.evaluation.winograd import Schema as Schema

_FILES = {"LastWord": "lambada", "Pair": "minimal_pairs", "Report": "report", "Schema": "winograd", "evaluate": "tasks"}


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"cutaway.evaluation.{_FILES[name]}"), name)
    return value
