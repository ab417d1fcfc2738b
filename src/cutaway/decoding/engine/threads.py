"""Many texts on the cores of a CPU: an engine for each, in a thread of its own; the next free one takes the next text.

Cores that share each product wait for one another hundreds of times a step, and where other programs want the cores as
well, nearly always. Engines side by side never wait. (PyTorch lets go of Python's lock while it computes.)
"""

from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from threading import Barrier, Event, Lock, Thread

import torch

from cutaway.decoding.engine.engine import Engine, Job
from cutaway.decoding.search.search import Hypothesis

Found = tuple[int, list[Hypothesis]]


def run_in_threads(make: Callable[[], Engine], jobs: Sequence[Job], n: int) -> Iterator[Found]:
    """What n engines find, each job once, by its number."""
    cores = torch.get_num_threads()
    told: SimpleQueue[Found | BaseException | None] = SimpleQueue()
    numbered, lock, stop, ready = iter(enumerate(jobs)), Lock(), Event(), Barrier(n + 1)

    def share(taken: list[int]) -> Iterator[Job]:
        while not stop.is_set():
            with lock:
                number, job = next(numbered, (None, None))
            if number is None or job is None:
                return
            taken.append(number)
            yield job

    def work() -> None:
        torch.set_num_threads(1)
        torch.get_num_threads()  # who has asked keeps his count; others take the latest at their first product
        ready.wait()
        taken: list[int] = []
        try:
            for done in make().steps(share(taken)):
                for number, found in done:
                    told.put((taken[number], found))
                if stop.is_set():
                    break
        except BaseException as error:
            told.put(error)
        told.put(None)

    crew = [Thread(target=work, daemon=True) for _ in range(n)]
    for thread in crew:
        thread.start()
    ready.wait()
    torch.set_num_threads(cores)  # each of the crew has its own count by now; threads to come get this one
    try:
        while n:
            match told.get():
                case None:
                    n -= 1
                case BaseException() as error:
                    raise error
                case found:
                    yield found
    finally:
        stop.set()
        for thread in crew:
            thread.join()
