"""Counters and histograms in Prometheus' form, with vLLM's names under our prefix."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0)


@dataclass
class Tally:
    """What a model does for one request: the tokens of each prompt, of each text its tokens and how it ended, and when
    each job left the queue. Times are those of `time.monotonic`."""

    start: float = field(default_factory=time.monotonic)
    prompts: list[int] = field(default_factory=list)
    texts: list[tuple[int, str]] = field(default_factory=list)
    started: list[float | None] = field(default_factory=list)


class Metrics:
    """The measurements of one server."""

    def __init__(self, n_running: Callable[[], int], n_waiting: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        self._gauge("num_requests_running", "Texts that are being generated.").set_function(n_running)
        self._gauge("num_requests_waiting", "Texts that wait for a free row.").set_function(n_waiting)
        self.prompt_tokens = self._counter("prompt_tokens", "Tokens of prompts.", "model_name")
        self.generation_tokens = self._counter("generation_tokens", "Tokens that were generated.", "model_name")
        self.request_success = self._counter(
            "request_success", "Texts that were generated, by how they ended.", "model_name", "finished_reason"
        )
        self.answers = self._counter("http_answers", "Answers by route and status.", "route", "status")
        self.first_token = self._seconds("time_to_first_token", "From a request to its first token (of streams).")
        self.next_token = self._seconds("inter_token_latency", "From one token to the next (of streams).")
        self.whole_request = self._seconds("e2e_request_latency", "From a request to the end of its answer.")
        self.queue = self._seconds("request_queue_time", "From a request to the start of each of its texts.")

    def count(self, name: str, tally: Tally) -> None:
        """Counts what a model has done for a request that is answered now."""
        self.whole_request.labels(name).observe(time.monotonic() - tally.start)
        self.prompt_tokens.labels(name).inc(sum(tally.prompts))
        for started in tally.started:
            if started is not None:
                self.queue.labels(name).observe(max(0.0, started - tally.start))
        for n_tokens, ended in tally.texts:
            self.generation_tokens.labels(name).inc(n_tokens)
            self.request_success.labels(name, ended).inc()

    def text(self) -> bytes:
        return generate_latest(self.registry)

    def _gauge(self, name: str, about: str) -> Gauge:
        return Gauge(f"cutaway:{name}", about, registry=self.registry)

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"cutaway:{name}", about, labels, registry=self.registry)

    def _seconds(self, name: str, about: str) -> Histogram:
        return Histogram(f"cutaway:{name}_seconds", about, ("model_name",), registry=self.registry, buckets=SECONDS)
