"""The limits of the segment format, with unit and reason.

The decoder enforces them, and the encoder refuses what the decoder would refuse.
"""

from __future__ import annotations

from typing import Final

MAX_FILE: Final = 16 * 1024 * 1024
"""Bytes of a segment: 16 times the size at which it is sealed. The centre refuses larger ones."""

MAX_BODY: Final = 64 * 1024 * 1024
"""Bytes of the decompressed body: the memory that a worker needs to decode it."""

MAX_HEADER: Final = 65_535
"""Bytes of the header: the largest value of its 16-bit length."""

MAX_EVENTS: Final = 65_536
"""Events in a segment: 32 times the number at which it is sealed."""

MAX_DEPTH: Final = 8
"""Levels of nested CBOR: twice as many as the format needs."""

MAX_ITEMS: Final = 8_192
"""CBOR items in a header or a body: some eight times as many as the largest one has."""

MAX_DROPPED: Final = 256
"""Dropped ranges in a header. Adjacent ranges with the same reason are merged, so few suffice."""

MAX_WORD: Final = 32
"""Characters of a reason for dropping."""

MAX_NAME: Final = 128
"""Characters of the boot id and of the firmware's and the software's version."""

MAX_HASH: Final = 64
"""Bytes of the configuration's hash."""

MAX_TAG_COLUMNS: Final = 64
"""Tag keys with a column of their own. A device has a handful; further keys need more space."""

MAX_TAGS: Final = 1_048_576
"""Tags in a segment, which need memory to decode. A draft of 1 MiB cannot have more."""

MAX_DECIMALS: Final = 6
"""Decimal places of values that are encoded as integers. With more, a float is as small."""

MAX_SEQ: Final = 2**63 - 1
"""Largest sequence number and byte count: signed 64-bit integers, as in SQL and Parquet."""

MIN_TIME: Final = -62_135_596_800_000
"""Milliseconds since 1970: the start of the year 1, the earliest common to date libraries."""

MAX_TIME: Final = 253_402_300_799_999
"""Milliseconds since 1970: the end of the year 9999, the latest common to date libraries."""
