"""From a model to text: `generate`, `translate`, `fill`, `classify`, `embed`, and the searches below them.

`decoding/reference.py` is to be read first. The names below are imported when they are first used.
"""

from typing import TYPE_CHECKING

from cutaway.lazy import lazy_names

if TYPE_CHECKING:
    from cutaway.decoding.engine.engine import Engine as Engine
    from cutaway.decoding.engine.engine import Job as Job
    from cutaway.decoding.engine.row_watch import Watch as Watch
    from cutaway.decoding.engine.run import finished_jobs as finished_jobs
    from cutaway.decoding.engine.run import run_jobs as run_jobs
    from cutaway.decoding.engine.scheduler import Cancellation as Cancellation
    from cutaway.decoding.engine.scheduler import Overloaded as Overloaded
    from cutaway.decoding.engine.scheduler import Scheduler as Scheduler
    from cutaway.decoding.engine.worker import Stopped as Stopped
    from cutaway.decoding.engine.worker import Ticket as Ticket
    from cutaway.decoding.search.beam_trace import BeamTrace as BeamTrace
    from cutaway.decoding.search.beam_trace import trace_beam as trace_beam
    from cutaway.decoding.search.greedy import greedy as greedy
    from cutaway.decoding.search.greedy import greedy_translate as greedy_translate
    from cutaway.decoding.search.search import Hypothesis as Hypothesis
    from cutaway.decoding.search.speculative import Speculation as Speculation
    from cutaway.decoding.search.speculative import speculative as speculative
    from cutaway.decoding.translate_sentences import translate_all as translate_all

__getattr__, __dir__ = lazy_names(__name__)
