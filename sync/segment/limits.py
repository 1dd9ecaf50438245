"""The limits of the segment format, with unit and reason.

The decoder and the encoder both enforce these limits.
"""

from __future__ import annotations

from typing import Final

MAX_FILE: Final = 16 * 1024 * 1024
"""Maximum bytes of a segment: 16 times the size at which it is sealed."""

MAX_BODY: Final = 64 * 1024 * 1024
"""Maximum bytes of the decompressed body, to limit the memory for decoding."""

MAX_HEADER: Final = 65_535
"""Maximum bytes of the header: the largest value of its 16-bit length field."""

MAX_EVENTS: Final = 65_536
"""Maximum number of events in a segment: 32 times the number at which it is sealed."""

MAX_DEPTH: Final = 8
"""Maximum number of levels of nested CBOR: twice as many as the format needs."""

MAX_ITEMS: Final = 8_192
"""Maximum number of CBOR items in a header or a body: about eight times what the encoder writes."""

MAX_DROPPED: Final = 256
"""Maximum number of dropped ranges in a header; adjacent ranges with one reason are merged."""

MAX_WORD: Final = 32
"""Maximum characters of the reason why a range of sequence numbers was dropped."""

MAX_NAME: Final = 128
"""Maximum characters of the boot id, of the firmware's version, and of the software's version."""

MAX_HASH: Final = 64
"""Maximum bytes of the configuration's hash."""

MAX_TAG_COLUMNS: Final = 64
"""Maximum number of tag keys that have a column each; tags with further keys take more space."""

MAX_TAGS: Final = 1_048_576
"""Maximum number of tags in a segment, because each needs memory when decoded. Events of 1 MiB, the
size at which a segment is sealed, cannot have more."""

MAX_DECIMALS: Final = 6
"""Maximum decimals of values encoded as integers; with more, a float takes no more space."""

MAX_SEQ: Final = 2**63 - 1
"""Largest sequence number, and largest value of integers without a limit of their own, such as the
bytes of disk in use: SQL and Parquet have signed 64-bit integers."""

MIN_TIME: Final = -62_135_596_800_000
"""Milliseconds since 1970: the start of the year 1, the earliest that all date libraries know."""

MAX_TIME: Final = 253_402_300_799_999
"""Milliseconds since 1970: the end of the year 9999, the latest that all date libraries know."""
