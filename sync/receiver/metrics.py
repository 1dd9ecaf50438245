"""The receiver's Prometheus metrics.

No gateway is a label, so that a fleet of any size has the same number of time series.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from sync.common.metrics import COUNTER, GAUGE, HISTOGRAM, Family, Histogram, labels, single

PREFIX: Final = "fieldpost_centre_"

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT"})

COMMIT_BOUNDS_S: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Upper bounds in seconds of the histogram of the time to make a segment durable."""

ARRIVAL_AGES_S: Final = {"5m": 300.0, "1h": 3_600.0, "1d": 86_400.0}
"""Values of the label `last` (a gateway's last request), each with its maximum age in seconds."""


class Metrics:
    """Counters of one receiver since its start. Used from its event loop and its threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._requests: Counter[tuple[str, int, str]] = Counter()
        self._segments: Counter[str] = Counter({"new": 0, "same": 0, "other": 0})
        self._commit_seconds = Histogram(COMMIT_BOUNDS_S)
        self._refused_connections: Counter[str] = Counter()
        self._arrivals: dict[str, float] = {}
        self.received_bytes = 0

    def count_request(self, method: str, status: int, reason: str) -> None:
        """Count an answered request; `reason` is the error's reason, or `ok`."""
        self._requests[method if method in METHODS else "other", status, reason] += 1

    def count_refused_connection(self, reason: str) -> None:
        """Count a connection that was refused or closed by the receiver."""
        self._refused_connections[reason] += 1

    def record_arrival(self, gateway: str) -> None:
        """Record the time of an authenticated request of `gateway`."""
        self._arrivals[gateway] = self._clock()

    def count_segment(self, outcome: str, seconds: float) -> None:
        """Count a segment by its outcome, and the time that making it durable took."""
        self._segments[outcome] += 1
        self._commit_seconds.observe(seconds)

    def families(self, enrolled: int) -> Iterator[Family]:
        """Yield the metrics that this object counts; `enrolled` is the number of gateways."""
        requests = (
            (labels(method=method, status=str(status), reason=reason), float(count))
            for (method, status, reason), count in sorted(self._requests.items())
        )
        meaning = "Answered HTTP requests, by method, status and reason of the error (or ok)."
        yield Family("requests_total", COUNTER, meaning, requests)
        refused = (
            (labels(reason=reason), float(count))
            for reason, count in sorted(self._refused_connections.items())
        )
        meaning = "Connections refused or closed by the receiver, by reason."
        yield Family("connections_refused_total", COUNTER, meaning, refused)
        meaning = "Received bytes of request bodies."
        yield single("received_bytes_total", COUNTER, meaning, self.received_bytes)
        segments = ((labels(outcome=each), float(n)) for each, n in self._segments.items())
        meaning = "Received segments: new, same (duplicates), other (conflicts, set aside)."
        yield Family("segments_total", COUNTER, meaning, segments)
        meaning = "Seconds to make a segment durable (fsync of its file and folders, or a put)."
        yield Family("segment_commit_seconds", HISTOGRAM, meaning, self._commit_seconds.samples())
        meaning = "Enrolled gateways, by the age of their last request to this receiver."
        yield Family("gateways", GAUGE, meaning, self._gateways_by_age(enrolled))

    def _gateways_by_age(self, enrolled: int) -> Iterator[tuple[str, float]]:
        now = self._clock()
        ages = [now - at for at in list(self._arrivals.values())]
        younger = 0
        for label, max_age in ARRIVAL_AGES_S.items():
            count = sum(age <= max_age for age in ages)
            yield labels(last=label), count - younger
            younger = count
        yield labels(last="longer"), len(ages) - younger
        yield labels(last="none"), max(0, enrolled - len(ages))


def gauges(
    connections: Mapping[str, int],
    uploads: int,
    partial_uploads: Sequence[int],
    disk_free: int,
    spooled: int,
    certificate_expiry: float | None,
) -> Iterator[Family]:
    """Yield the gauges of values that are read when the metrics are requested.

    Args:
        connections: open connections, by kind of peer.
        uploads: uploads in progress.
        partial_uploads: the size of each partial upload in bytes.
        disk_free: free bytes on the fleet folder's file system.
        spooled: bytes of the segments in the spool.
        certificate_expiry: when the server certificate expires, in seconds since 1970 UTC; None
            without a certificate.
    """
    counts = [(labels(peer=peer), float(count)) for peer, count in connections.items()]
    yield Family("connections", GAUGE, "Open connections, by kind of peer.", counts)
    yield single("uploads_in_progress", GAUGE, "Uploads in progress.", uploads)
    meaning = "Partial uploads: in progress, or interrupted and kept to be resumed."
    yield single("partial_uploads", GAUGE, meaning, len(partial_uploads))
    yield single("partial_upload_bytes", GAUGE, "Bytes of partial uploads.", sum(partial_uploads))
    meaning = "Free bytes on the fleet folder's file system."
    yield single("disk_free_bytes", GAUGE, meaning, disk_free)
    meaning = "Bytes of acknowledged segments that wait in the spool for the object store."
    yield single("spooled_bytes", GAUGE, meaning, spooled)
    if certificate_expiry is not None:
        meaning = "Expiry of the receiver's certificate, in seconds since 1970 UTC."
        yield single("certificate_expiry_timestamp_seconds", GAUGE, meaning, certificate_expiry)
