"""Every bound of the segment format, with its unit and its reason.

The decoder enforces them on what it is given; the encoder refuses to make what the decoder would.
"""

from __future__ import annotations

from typing import Final

MAX_FILE: Final = 16 * 1024 * 1024
"""Bytes of a whole segment: 16 times what is sealed at, and the most that the centre receives."""

MAX_BODY: Final = 64 * 1024 * 1024
"""Bytes of the body when decompressed: what one decoder may take of a worker's memory."""

MAX_HEADER: Final = 65_535
"""Bytes of the header: all that its 16-bit length can say."""

MAX_EVENTS: Final = 65_536
"""Events in a segment: 32 times what a batcher seals at."""

MAX_DEPTH: Final = 8
"""Levels of nested CBOR: twice what the layout needs."""

MAX_ITEMS: Final = 8_192
"""CBOR items in a header or a body: some eight times what the fullest one has."""

MAX_DROPPED: Final = 256
"""Dropped ranges in a header: neighbours with one reason are one range, so more are a fault."""

MAX_WORD: Final = 32
"""Characters of a reason for dropping."""

MAX_NAME: Final = 128
"""Characters of the boot id and of the firmware's and the software's version."""

MAX_HASH: Final = 64
"""Bytes of the configuration's hash."""

MAX_TAG_COLUMNS: Final = 64
"""Tag keys with a column each; what is beyond is written pair by pair. A device has a handful."""

MAX_TAGS: Final = 1_048_576
"""Tags in a segment: a 1 MiB draft cannot hold more, and their maps are a worker's memory."""

MAX_DECIMALS: Final = 6
"""Decimal places that values are written with as integers: beyond, a float is as small."""

MAX_SEQ: Final = 2**63 - 1
"""Sequence numbers and byte counts are signed 64-bit wherever they are kept."""

MIN_TIME: Final = -62_135_596_800_000
"""Milliseconds since 1970: the start of the year 1, the first that every language can name."""

MAX_TIME: Final = 253_402_300_799_999
"""Milliseconds since 1970: the end of the year 9999, the last that they can name."""
