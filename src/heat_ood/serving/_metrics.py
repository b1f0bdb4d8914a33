"""What Prometheus reads: counts of a bounded number of names, in a registry of the app's own."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


class Metrics:
    """All that is counted; labels are routes and codes, of which there are few, and nothing that a client made up."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter("heat_ood_requests", "Requests answered.", ["route", "code"], registry=registry)
        self.samples = Counter("heat_ood_samples", "Samples judged.", registry=registry)
        self.flagged = Counter("heat_ood_flagged", "Samples unlike the training data.", registry=registry)
        self.batch = Histogram("heat_ood_batch_samples", "Samples judged together.", buckets=BATCHES, registry=registry)
        self.judging = Counter("heat_ood_judging_seconds", "Seconds spent judging.", registry=registry)
        self.latency = Histogram(
            "heat_ood_request_seconds", "From a request to its answer.", ["route"], buckets=SECONDS, registry=registry
        )

    def watch(self, name: str, about: str, value: Callable[[], float]) -> None:
        """A number that is asked for when it is read."""
        Gauge(name, about, registry=self.registry).set_function(value)

    def text(self) -> bytes:
        return generate_latest(self.registry)
