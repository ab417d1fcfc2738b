"""Many texts on the cores of a CPU: one engine per core, in threads; the next free engine takes the next text.

Cores that share each matrix product wait for one another hundreds of times per step, and much longer if other programs
use the cores, too. Separate engines never wait. (PyTorch releases Python's lock while it computes.)
"""

from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from threading import Barrier, Event, Lock, Thread

import torch

from cutaway.decoding.engine.engine import Engine, Job
from cutaway.decoding.search.search import Hypothesis

Found = tuple[int, list[Hypothesis]]


def start_threads(work: Sequence[Callable[[], None]], *, alone: bool = False) -> list[Thread]:
    """A thread for each function. Each computes on one core; a thread that works `alone` may use all of them."""
    cores = torch.get_num_threads()
    ready = Barrier(len(work) + 1)

    def begin(function: Callable[[], None]) -> None:
        if not alone:
            torch.set_num_threads(1)
        torch.get_num_threads()  # fixes the count of this thread; others take the latest at their first product
        ready.wait()
        function()

    threads = [Thread(target=begin, args=(function,), daemon=True) for function in work]
    for thread in threads:
        thread.start()
    ready.wait()
    torch.set_num_threads(cores)  # these threads have their own count by now; later ones get this one
    return threads


def run_in_threads(make: Callable[[], Engine], jobs: Sequence[Job], n: int) -> Iterator[Found]:
    """What n engines find, as pairs (number of the job, hypotheses)."""
    results: SimpleQueue[Found | BaseException | None] = SimpleQueue()
    numbered, lock, stop = iter(enumerate(jobs)), Lock(), Event()

    def share(taken: list[int]) -> Iterator[Job]:
        while not stop.is_set():
            with lock:
                number, job = next(numbered, (None, None))
            if number is None or job is None:
                return
            taken.append(number)
            yield job

    def work() -> None:
        taken: list[int] = []
        try:
            for done in make().steps(share(taken)):
                for number, found in done:
                    results.put((taken[number], found))
                if stop.is_set():
                    break
        except BaseException as error:
            results.put(error)
        results.put(None)

    threads = start_threads([work] * n)
    try:
        while n:
            match results.get():
                case None:
                    n -= 1
                case BaseException() as error:
                    raise error
                case found:
                    yield found
    finally:
        stop.set()
        for thread in threads:
            thread.join()
