"""What the centre's receiver allows, each with its unit and its reason, in one place.

What a segment may hold is the format's business: `sync.segment.limits`.
"""

from __future__ import annotations

from dataclasses import dataclass

from sync.segment.limits import MAX_FILE


@dataclass(frozen=True, slots=True)
class ReceiverLimits:
    """The receiver's bounds. A test may tighten them; the command runs with these defaults."""

    body_bytes: int = MAX_FILE
    """Bytes of one body: no segment is larger."""

    bodies: int = 32
    """Bodies received at once: each holds a file and a buffer; more would only share the disk."""

    bodies_per_gateway: int = 4
    """Bodies of one gateway at once: it sends one; the others are connections that died."""

    connections: int = 1_024
    """Connections, those in their handshake and idle ones included: ten for each gateway of a fleet
    of a hundred."""

    connections_per_gateway: int = 16
    """Connections of one gateway: it has one, and those before it whose link is gone rest until
    `idle_s` is over. Of more, the one that rested longest is cut."""

    strangers: int = 512
    """Connections on which no gateway has shown itself, those in their handshake included: half of
    all, so that strangers never have the places of those that are known."""

    strangers_per_address: int = 64
    """Those of one IPv4 address, or of one /64 of IPv6: all gateways of a site share one, and each
    is known after one request."""

    connections_per_address_s: float = 10.0
    """New connections of one address a second, over the window: a site of some hundred gateways
    comes again at once, and a handshake takes some ms of the processor."""

    first_request_s: float = 30.0
    """Seconds from the accept to the end of the first request's head: the handshake, two more round
    trips of a satellite link, and their repeats."""

    head_lines: int = 48
    """Header fields of a request: a gateway sends ten, and proxies add some."""

    head_line_bytes: int = 4_096
    """Bytes of one line of a request's head: the longest path has 400, a token 50; with the lines
    above 192 KiB of a connection."""

    proxied_line_bytes: int = 8_190
    """The same behind a proxy, whose header of a certificate has 3,000."""

    log_lines_per_s: float = 1.0
    """Lines of the log about refusals of one kind a second, over the window: callers cannot fill a
    disk with them. What is left out is counted in the next."""

    accept_retry_s: float = 1.0
    """Seconds until the next accept when the system gave none, as when files are used up: some
    connections have ended then."""

    buffer_bytes: int = 256 * 1024
    """Bytes gathered before a write: few thread hops, and 8 MiB for all bodies together."""

    stall_s: float = 30.0
    """Seconds without a byte of the body: a mobile link's pauses are shorter."""

    body_bytes_per_s: int = 128
    """Bytes a second below which a body is given up, taken over `body_pace_s`: a gateway gives up
    sooner itself, so that no body ends here that would have come. What came stays, and is gone on
    with."""

    body_pace_s: float = 60.0
    """Seconds over which a body's pace is taken: a link's bad minute is no reason, but two are."""

    body_s: float = 1_800.0
    """Seconds for any body: at 10,000 bytes a second the largest is through, and one that is slower
    is gone on with, so that no place is held for hours."""

    handshake_s: float = 15.0
    """Seconds for a TLS handshake: four round trips of a satellite link, and their repeats."""

    idle_s: float = 330.0
    """Seconds an idle connection, or one that sends no request, is kept: a segment is sealed every
    five minutes, and keeping the connection saves its handshake."""

    linger_s: float = 5.0
    """Seconds in which the rest of a refused body is read, so that its sender sees the answer."""

    grace_s: float = 10.0
    """Seconds for requests in progress when the server stops: the time-out of a service manager is
    longer, and what is cut off was not acknowledged."""

    close_s: float = 1.0
    """Seconds for the last answers after that, before connections are cut."""

    renew_every_s: float = 24 * 3600.0
    """Seconds between two looks at the end of the certificate, which is months away."""

    retry_after_s: int = 5
    """Seconds a client is asked to wait when the receiver is busy: some bodies are through then."""

    retry_after_full_s: int = 300
    """Seconds a client is asked to wait when there is no room: a person has to act."""

    requests_per_s: float = 100.0
    """Requests of one gateway a second, over the window: two for each segment of a backlog, at the
    pace of a fast disk; only one that repeats itself is slowed."""

    bytes_per_s: float = 16 * 1024 * 1024
    """Bytes of one gateway a second, over the window: more than its link has, and a fraction of
    what the centre's has. `serve --rate` sets it."""

    rate_window_s: float = 60.0
    """Seconds over which what is bounded by the second is allowed at once: who was cut off comes in
    a rush."""

    certificates_per_day: int = 10
    """Certificates made for one gateway in a day: one a year is needed, and one that forgets each
    is stopped before the authority does nothing else."""

    reserve_bytes: int = 512 * 1024 * 1024
    """Bytes of the disk that stay free: the ingest needs them to take segments into the tables, and
    a system whose disk is full does worse than one that refuses. `serve --reserve` sets it."""

    landing_bytes: int | None = None
    """Bytes that the landing may hold, None for what the disk has: an ingest that does not run is
    noticed before. `serve --landing-cap` sets it."""

    measure_every_s: float = 60.0
    """Seconds between two looks at what the landing holds, if that is bounded: the ingest makes
    room at that pace, and a look costs a second for 100,000 files."""

    partials_per_gateway: int = 4
    """Cut bodies of a gateway whose beginnings are kept: one for each that it may send at once.
    They have 64 MiB at most."""

    partial_age_s: float = 24 * 3600.0
    """Seconds the beginning of a body is kept: a gateway whose link is back tries again within a
    quarter of an hour, and beginning one segment anew after a longer outage costs little."""

    clean_every_s: float = 3600.0
    """Seconds between two looks for beginnings that are too old: few against the above."""

    sums: int = 1_024
    """Beginnings whose running SHA-256 is remembered, some 500 bytes each: what is there need not
    be read again by each request that goes on with it. What is read again counts as sent."""

    takeover_s: float = 2.0
    """Seconds that a sender who comes again waits for its own old connection to let go of a body:
    what was received is written in moments."""

    threads: int = 8
    """Threads for files and checksums: enough to keep a disk busy, and 8 bodies in memory."""

    aside_files: int = 16
    """Contradicting bodies kept for each gateway: enough to see what happened."""

    aside_bytes: int = 64 * 1024 * 1024
    """Bytes of contradicting bodies kept for each gateway: four of the largest."""
