"""Limits of the receiver, each with its unit and its reason.

The limits of the segment format are in `sync.segment.limits`.
"""

from __future__ import annotations

from dataclasses import dataclass

from sync.segment.limits import MAX_FILE


@dataclass(frozen=True, slots=True)
class ReceiverLimits:
    """Limits of one receiver. `fieldpost-fleet serve` uses the defaults; tests tighten them.

    Requests beyond a limit get an HTTP error, most with `Retry-After`; connections beyond one are
    closed.
    """

    body_bytes: int = MAX_FILE
    """Largest body, in bytes: no segment is larger."""

    uploads: int = 32
    """Maximum number of concurrent uploads. Each holds a file and a buffer; more would only share
    the disk."""

    uploads_per_gateway: int = 4
    """Maximum number of concurrent uploads of one gateway. It sends one at a time; any others are
    on broken connections."""

    connections: int = 1_024
    """Maximum number of connections, including idle ones and those in their TLS handshake: ten for
    each gateway of a fleet of one hundred."""

    connections_per_gateway: int = 16
    """Maximum number of connections of one gateway. A gateway uses one; earlier connections whose
    link is gone stay for `idle_timeout_s`. A further connection closes the one that was idle
    longest."""

    unauthenticated: int = 512
    """Maximum number of unauthenticated connections, including those in their TLS handshake: half
    of `connections`, so that unauthenticated peers cannot exclude enrolled gateways. A further one
    closes the oldest one of the address that has most."""

    unauthenticated_per_address: int = 64
    """Maximum number of unauthenticated connections of one IPv4 address or one IPv6 /64 network.
    All gateways of a site can share an address, and each is authenticated after one request. A
    further connection closes the oldest one. Option `serve --unauthenticated-per-address`."""

    connections_per_address_s: float = 10.0
    """Maximum new connections per second of one address, averaged over `rate_window_s`. One hundred
    gateways of a site can reconnect at once; a TLS handshake costs some ms of CPU time. Option
    `serve --connections-per-address`."""

    first_request_timeout_s: float = 30.0
    """Seconds from accept to the end of the first request's headers: the TLS handshake, two more
    round trips of a satellite link, and retransmissions."""

    header_fields: int = 48
    """Maximum number of header fields of a request. A gateway sends ten; proxies add some."""

    header_line_bytes: int = 4_096
    """Longest header line, in bytes. The longest path has 400 bytes and a token has 50 bytes.
    `header_fields` lines of this length use 192 KiB for each connection."""

    proxied_header_line_bytes: int = 8_190
    """Longest header line behind a proxy, in bytes. The header with a certificate has 3,000
    bytes."""

    log_lines_per_s: float = 1.0
    """Maximum log lines per second about refusals of one kind, averaged over `rate_window_s`, so
    that clients cannot fill a disk. Further lines are suppressed; the next one counts them."""

    accept_retry_s: float = 1.0
    """Seconds before the next accept after the system refused one, for example because no file
    descriptor was free: connections that end in this time free descriptors."""

    buffer_bytes: int = 256 * 1024
    """Bytes of an upload that are buffered before they are written, so that threads switch
    rarely. All uploads together buffer at most 8 MiB."""

    stall_timeout_s: float = 30.0
    """Maximum seconds without a byte of the body. Pauses of a mobile link are shorter."""

    min_bytes_per_s: int = 128
    """Slowest accepted upload in bytes per second, averaged over `min_throughput_window_s`.
    Gateways cancel slow uploads earlier. The received part is kept, and the upload can be
    resumed."""

    min_throughput_window_s: float = 60.0
    """Seconds over which an upload's throughput is averaged, to tolerate a bad minute of a link."""

    body_timeout_s: float = 1_800.0
    """Maximum seconds to receive a body: enough for the largest segment at 10,000 bytes per second.
    A slower upload is cut off and resumed, so that it does not hold one of `uploads` for hours."""

    handshake_timeout_s: float = 15.0
    """Seconds for a TLS handshake: four round trips of a satellite link, and retransmissions."""

    idle_timeout_s: float = 330.0
    """Seconds before an idle connection is closed. A gateway seals a segment every five minutes,
    and a kept connection saves a handshake."""

    linger_s: float = 5.0
    """Seconds in which the rest of a refused body is read, so that its sender sees the answer."""

    drain_timeout_s: float = 10.0
    """Seconds that uploads in progress get to finish when the receiver stops. Service managers wait
    longer, and an upload that is cut off was not acknowledged."""

    close_timeout_s: float = 1.0
    """Seconds in which the last answers are sent after draining. Then connections are closed."""

    renewal_interval_s: float = 24 * 3600.0
    """Seconds between two checks of the receiver's certificate, whose expiry is months away."""

    retry_after_s: int = 5
    """`Retry-After` in seconds when the receiver is busy. Some uploads finish in this time."""

    retry_after_full_s: int = 300
    """`Retry-After` in seconds when the disk or the landing is full. A person has to act."""

    requests_per_s: float = 100.0
    """Maximum requests per second of one gateway, averaged over `rate_window_s`: two for each
    segment of a backlog sent at the speed of a fast disk. Only a gateway that repeats requests is
    slowed down."""

    bytes_per_s: float = 16 * 1024 * 1024
    """Maximum bytes per second of one gateway, averaged over `rate_window_s`: more than its link
    can carry, but a small part of what the centre's link can carry. Option `serve --rate`."""

    rate_window_s: float = 60.0
    """Seconds over which rate limits are averaged. A gateway that was offline sends in a burst."""

    certificates_per_day: int = 10
    """Maximum number of certificates issued to one gateway in a day. A gateway needs one a year;
    one that loses each certificate must not keep the certificate authority busy."""

    reserve_bytes: int = 512 * 1024 * 1024
    """Bytes of the disk that stay free. The ingest needs them to move segments into the tables.
    Option `serve --reserve`."""

    landing_quota_bytes: int | None = None
    """Maximum bytes in the landing; None for the whole disk. With a quota, a stopped ingest is
    noticed early. Option `serve --landing-cap`."""

    quota_interval_s: float = 60.0
    """Seconds between two measurements of the landing, if it has a quota. A continuous ingest frees
    space as often; measuring 100,000 files takes a second."""

    partials_per_gateway: int = 4
    """Maximum number of partial uploads of one gateway, equal to `uploads_per_gateway`. They use
    at most 64 MiB. To make room for a new one, the oldest interrupted one is removed."""

    partial_max_age_s: float = 24 * 3600.0
    """Seconds for which an interrupted upload is kept. A gateway whose link is back resumes within
    a quarter of an hour; after a longer outage, sending one segment again costs little."""

    cleanup_interval_s: float = 3600.0
    """Seconds between two removals of old interrupted uploads and of empty folders."""

    takeover_timeout_s: float = 2.0
    """Seconds that a resuming sender waits for its own earlier connection to release the upload."""

    store_patience_s: float = 20.0
    """Seconds after which a request to an object store is not repeated any more. With the request
    that is then running, the gateway is answered before its timeout of a minute. The largest
    segment needs 7 Mbit/s."""

    spool_bytes: int | None = None
    """Maximum bytes of the spool; None for no spool. Option `serve --spool`."""

    threads: int = 8
    """Threads that write files and compute checksums. Each has at most one segment in memory, and
    this number keeps a disk busy. With an object store, there are `uploads` threads: each waits
    for the store."""

    aside_files: int = 16
    """Maximum number of conflicting segments kept for one gateway: enough to find the cause.
    Further ones are discarded."""

    aside_bytes: int = 64 * 1024 * 1024
    """Maximum bytes of conflicting segments kept for one gateway: four of the largest segments."""
