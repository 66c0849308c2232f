"""What the server counts, for Prometheus: by names of routes and runs, never by words of a request."""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
LONG = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0)
METHODS = ("GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH")


class Counts:
    """One registry for each server: two in one process do not mix."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        seconds = partial(Histogram, registry=self.registry)
        self._requests = counter("glassformer_requests", "Answered", ["route", "method", "status"])
        self._seconds = seconds("glassformer_request_seconds", "Of a request", ["route"], buckets=LONG)
        self.open = gauge("glassformer_requests_open", "Requests on their way")
        self.gone = counter("glassformer_clients_gone", "Clients that went away before their answer")
        # By model.
        self.tokens = counter("glassformer_tokens", "Of prompts, shared, written", ["model", "kind"])
        self.first = seconds("glassformer_first_token_seconds", "To a text's first", ["model"], buckets=LONG)
        self.step = seconds("glassformer_step_seconds", "One turn of the engine", ["model"], buckets=QUICK)
        self.endings = counter("glassformer_texts", "Texts, by how they ended", ["model", "ending"])
        self.running = gauge("glassformer_texts_running", "Texts being written", ["model"])
        self.waiting = gauge("glassformer_texts_waiting", "Texts that wait", ["model"])
        self.loaded = gauge("glassformer_model_bytes", "Memory of a run that is loaded", ["model"])
        self.loads = counter("glassformer_loads", "How often a run was loaded", ["model"])

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """`route` is its pattern: what a request names itself is no name of a counter."""
        self._requests.labels(route, method if method in METHODS else "other", str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)
