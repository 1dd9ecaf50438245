"""The rows of custody: messages between `assured` and `deliver`, and the keys of released ones.

A message belongs to a session: its sender, a full JID. Its source is the bare JID of the sender.

The state is in memory, as an image of the rows (`Transaction.cache`): every function reads and
changes the image, and the rows follow in one batch for each transaction. The limits of custody
bound the image. The image has the latest bodies, with their trees, up to `BODY_BYTES`.

A released key is a hash of the msgId and one of the sender, so that other sessions that released
the same msgId can be found. The latest keys of a source are in the image; earlier ones are in a
ring of pages, in `released_pages`. New keys are written to the database once every
`RELEASED_ROWS` releases; until then the row of each released message stays, without its body. Two
messages of one source with the same hash are treated as one. This does not happen by chance, and a
sender that provokes it harms only itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from edge.engine import sessions
from edge.engine.database import Transaction
from edge.engine.quota import EvictionCandidate, Usage, charge
from edge.features.outbox import service as outbox

EXPIRY_BATCH: Final = 256
"""Maximum number of messages that expire in one unit of work."""

KEY_BYTES: Final = 8

MSG_ID_BYTES: Final = 5
"""Bytes of a released message's key that are a hash of the msgId; the others hash the sender."""

PAGE_KEYS: Final = 32

RELEASED_ROWS: Final = 256
"""Number of rows of released messages at which their keys are stored and these rows deleted."""

BODY_BYTES: Final = 2 * 1024 * 1024
"""Maximum bytes of bodies and their parsed XML in memory. Most messages are delivered within a
second; the bodies of those that wait longer are read from their rows."""

PARSED_BYTES: Final = 8
"""Approximate bytes of memory that a body's tree takes for each byte of the body."""

_LOAD: Final = """
SELECT exclusive, id, source, sender, msg_id, destination, digest, since, bytes, recipient
FROM main.custody WHERE released IS NULL ORDER BY id
"""
_LOAD_RELEASED: Final = """
SELECT id, source, sender, msg_id FROM main.custody WHERE released IS NOT NULL ORDER BY released
"""
_LAST: Final = "SELECT coalesce(max(id), 0), coalesce(max(released), 0) FROM main.custody"
_BODY: Final = "SELECT body FROM main.custody WHERE id = ?"
_INSERT: Final = """
INSERT INTO main.custody (
    id, source, sender, msg_id, destination, digest, since, bytes, recipient, body
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_RELEASE: Final = """
UPDATE main.custody
SET released = ?, destination = '', recipient = NULL, digest = x'', body = x'' WHERE id = ?
"""
_REMOVE: Final = "DELETE FROM main.custody WHERE id = ?"
_OF_SOURCE: Final = """
SELECT sender, msg_id, destination, recipient, body FROM main.held WHERE source = ? ORDER BY id
"""
_FORGET_SOURCE: Final = (
    "DELETE FROM main.custody WHERE source = ?",
    "DELETE FROM main.released_latest WHERE source = ?",
    "DELETE FROM main.released_pages WHERE source = ?",
)
_OF_RECIPIENT: Final = """
SELECT sender, msg_id, destination, recipient, body FROM main.held WHERE recipient = ? ORDER BY id
"""
_FORGET_RECIPIENT: Final = ("DELETE FROM main.custody WHERE recipient = ? AND released IS NULL",)
_MOVE: Final = "UPDATE main.custody SET sender = ? WHERE id = ?"
_EXCLUDE: Final = "UPDATE main.custody SET exclusive = 1 WHERE id = ?"
_AGE: Final = "UPDATE main.custody SET since = since - ? WHERE since <= ?"

_LATEST: Final = "SELECT source, keys, pages FROM main.released_latest"
_SET_LATEST: Final = """
INSERT INTO main.released_latest (source, keys, pages) VALUES (?, ?, ?)
ON CONFLICT (source) DO UPDATE SET keys = excluded.keys, pages = excluded.pages
"""
_PAGES: Final = "SELECT slot, keys FROM main.released_pages WHERE source = ?"
_SET_PAGE: Final = """
INSERT INTO main.released_pages (source, slot, keys) VALUES (?, ?, ?)
ON CONFLICT (source, slot) DO UPDATE SET keys = excluded.keys
"""

_IMAGE: Final = "custody"


class HeldMessage:
    """A message in custody.

    Attributes:
        digest: SHA-256 of the body.
        since: when it was taken into custody, in service seconds.
        size: the bytes that it counts towards limits.
        recipient: the name of the account in whose outbox room is reserved for it, if any.
        body: the message as it was received, or `None` if it is only in the row (`read_body`).
        parsed: the body's tree, if it was built when the message was received.
        exclusive: whether only the session that sent it may release it, because another session of
            the account has used the same msgId.
    """

    __slots__ = (
        "body", "destination", "digest", "exclusive", "msg_id", "parsed", "recipient", "row",
        "sender", "since", "size", "source",
    )  # fmt: skip

    def __init__(
        self,
        row: int,
        source: str,
        sender: str,
        msg_id: str,
        destination: str,
        digest: bytes,
        since: float,
        size: int,
        recipient: str | None,
        body: bytes | None = None,
        parsed: Element | None = None,
    ) -> None:
        self.row = row
        self.source = source
        self.sender = sender
        self.msg_id = msg_id
        self.destination = destination
        self.digest = digest
        self.since = since
        self.size = size
        self.recipient = recipient
        self.body = body
        self.parsed = parsed
        self.exclusive = False


class AbandonedMessage(NamedTuple):
    """A held message that was removed because its sender or its recipient was removed."""

    sender: str
    msg_id: str
    destination: str
    recipient: str | None
    body: bytes


class _Source:
    """The messages of one source, oldest first, and the bytes that they count towards limits.

    Attributes:
        sender: the session to which all of them belong, or `None` if there can be several.
    """

    __slots__ = ("bytes", "messages", "sender")

    def __init__(self, sender: str) -> None:
        self.messages: dict[tuple[str, str], HeldMessage] = {}
        self.bytes = 0
        self.sender: str | None = sender


class _LatestKeys:
    """The latest released keys of a source, and how many pages of earlier ones were written.

    Attributes:
        generation: the highest number of those sessions of the source that were bound when the
            image was read, or have released a message since.
    """

    __slots__ = ("generation", "keys", "pages")

    def __init__(self, keys: bytes = b"", pages: int = 0) -> None:
        self.keys = keys
        self.pages = pages
        self.generation = 0


class _Image:
    """The content of custody's rows, in memory.

    Attributes:
        messages: all messages by row, oldest first.
        bytes: the bytes that they count towards limits.
        latest: the latest released keys by source.
        changed: sources whose latest keys are not in their row yet.
        released: the number of the last release; releases are numbered in their order.
        released_rows: the rows of released messages, whose keys are not written yet.
    """

    __slots__ = (
        "_body_bytes", "_with_body", "bytes", "changed", "last_row", "latest", "messages",
        "released", "released_rows", "sources",
    )  # fmt: skip

    def __init__(self) -> None:
        self.messages: dict[int, HeldMessage] = {}
        self.sources: dict[str, _Source] = {}
        self.bytes = 0
        self.last_row = 0
        self.latest: dict[str, _LatestKeys] = {}
        self.changed: set[str] = set()
        self.released = 0
        self.released_rows: list[int] = []
        self._with_body: dict[int, int] = {}
        self._body_bytes = 0

    def add(self, held: HeldMessage) -> None:
        """Add a message that is newer than all others."""
        source = self.sources.get(held.source)
        if source is None:
            source = self.sources[held.source] = _Source(held.sender)
        elif source.sender != held.sender:
            source.sender = None
        source.messages[held.sender, held.msg_id] = held
        source.bytes += held.size
        self.messages[held.row] = held
        self.bytes += held.size
        if held.body is not None:
            self._keep_body(held, len(held.body))

    def _keep_body(self, held: HeldMessage, size: int) -> None:
        if held.parsed is not None:
            size += PARSED_BYTES * size
        self._with_body[held.row] = size
        self._body_bytes += size
        while self._body_bytes > BODY_BYTES:
            oldest = self.messages[next(iter(self._with_body))]
            self._drop_body(oldest.row)
            oldest.body = oldest.parsed = None

    def _drop_body(self, row: int) -> None:
        self._body_bytes -= self._with_body.pop(row, 0)

    def remove(self, held: HeldMessage) -> None:
        """Remove a message."""
        source = self.sources[held.source]
        del source.messages[held.sender, held.msg_id]
        source.bytes -= held.size
        if not source.messages:
            del self.sources[held.source]
        del self.messages[held.row]
        self.bytes -= held.size
        self._drop_body(held.row)

    def restore(self, held: HeldMessage) -> None:
        """Undo the removal of a message, which returns to its place in the order."""
        self.add(held)
        self.messages = dict(sorted(self.messages.items()))
        self._sort(self.sources[held.source])

    def move(self, held: HeldMessage, sender: str) -> None:
        """Change the sender of a held message to another session of the same source."""
        held.sender = sender
        source = self.sources[held.source]
        self._sort(source)
        senders = {one.sender for one in source.messages.values()}
        source.sender = sender if len(senders) == 1 else None

    def _sort(self, source: _Source) -> None:
        source.messages = {
            (one.sender, one.msg_id): one
            for one in sorted(source.messages.values(), key=lambda one: one.row)
        }

    def add_key(self, row: int, source: str, key: bytes) -> _LatestKeys:
        """Add the key of a released message, and its row to `released_rows`."""
        latest = self.latest.get(source)
        if latest is None:
            latest = self.latest[source] = _LatestKeys()
        latest.keys += key
        self.changed.add(source)
        self.released_rows.append(row)
        return latest

    def take_back_key(self, source: str, *, is_new: bool, is_changed: bool) -> None:
        """Undo the last `add_key`, which was for `source`.

        Args:
            is_new: whether `add_key` created the source's entry in `latest`.
            is_changed: whether the source was already in `changed` before it.
        """
        latest = self.latest[source]
        latest.keys = latest.keys[:-KEY_BYTES]
        self.released_rows.pop()
        if is_new:
            del self.latest[source]
        if not is_changed:
            self.changed.remove(source)


class _Unwritten:
    """The changes of a transaction that are not in the rows yet.

    Attributes:
        new: the values of new rows.
        released: (number of the release, row) of each released message.
        keys: how many released keys of each source must at least be remembered.
    """

    __slots__ = ("keys", "new", "released")

    def __init__(self) -> None:
        self.keys = 0
        self.new: list[tuple[object, ...]] = []
        self.released: list[tuple[int, int]] = []


def find(tx: Transaction, source: str, sender: str, msg_id: str) -> HeldMessage | None:
    """Return the held message with this source, sender and msgId, or `None`."""
    image: _Image = tx.cache.get(_IMAGE) or _load(tx)
    of_source = image.sources.get(source)
    return None if of_source is None else of_source.messages.get((sender, msg_id))


def find_all(
    tx: Transaction, source: str, sender: str, msg_id: str
) -> tuple[HeldMessage | None, Sequence[HeldMessage]]:
    """Return the held message of `sender` with this msgId, or `None`, and the held messages with
    the same msgId from other sessions of the account `source`, oldest first."""
    image: _Image = tx.cache.get(_IMAGE) or _load(tx)
    of_source = image.sources.get(source)
    if of_source is None:
        return None, ()
    held = of_source.messages.get((sender, msg_id))
    if of_source.sender == sender:
        return held, ()
    others = of_source.messages.items()
    return held, [one for (other, name), one in others if name == msg_id and other != sender]


def read_body(tx: Transaction, held: HeldMessage) -> bytes:
    """Return the body of a held message."""
    if held.body is not None:
        return held.body
    return bytes(tx.row(_BODY, (held.row,))[0])


def usage(tx: Transaction, source: str) -> tuple[Usage, Usage]:
    """Return the usage of the messages in custody: of one source, and of all sources."""
    image: _Image = tx.cache.get(_IMAGE) or _load(tx)
    of_source = image.sources.get(source)
    used = Usage() if of_source is None else Usage(len(of_source.messages), of_source.bytes)
    return used, Usage(len(image.messages), image.bytes)


def hold(
    tx: Transaction,
    source: str,
    sender: str,
    msg_id: str,
    destination: str,
    body: bytes,
    digest: bytes,
    recipient: str | None = None,
    parsed: Element | None = None,
    generation: int = 0,
) -> None:
    """Take a message into custody; no message may be held under its key yet.

    If another session of the source has released this msgId, and `generation` is not the newest, an
    earlier process of the device may have offered it late: then only `sender` may release it.

    Args:
        recipient: the name of the account whose outbox reserves room for the message.
        parsed: the body's tree, if there is one.
        generation: the number of the sender's session.
    """
    image: _Image = tx.cache.get(_IMAGE) or _load(tx)
    row = image.last_row = image.last_row + 1
    since, size = tx.now.service, charge(msg_id, body)
    held = HeldMessage(
        row, source, sender, msg_id, destination, digest, since, size, recipient, body, parsed
    )
    image.add(held)
    unwritten = tx.unwritten(_IMAGE, _Unwritten, _write)
    unwritten.new.append(
        (row, source, sender, msg_id, destination, digest, since, size, recipient, body)
    )
    tx.on_undo(_undo_hold, image, held, unwritten)
    if recipient is not None:
        outbox.reserve(tx, recipient, source, held.size)
    latest = image.latest.get(source)
    if latest is not None and latest.generation > generation:
        _exclude_late(tx, held)


def _exclude_late(tx: Transaction, held: HeldMessage) -> None:
    if releasers(tx, held.source, held.msg_id) - {hash_sender(held.sender)}:
        exclude(tx, held)


def _undo_hold(image: _Image, held: HeldMessage, unwritten: _Unwritten) -> None:
    image.remove(held)
    unwritten.new.pop()


def move(tx: Transaction, held: HeldMessage, sender: str) -> None:
    """Move a message to its source's session `sender`; that must not hold one of this msgId."""
    tx.run(_MOVE, (sender, held.row))
    _image(tx).move(held, sender)


def exclude(tx: Transaction, held: HeldMessage) -> None:
    """Record that only the sender of a message may ask for its delivery, no other session."""
    tx.run(_EXCLUDE, (held.row,))
    held.exclusive = True


def _exclude_others(tx: Transaction, held: HeldMessage) -> None:
    for other in find_all(tx, held.source, held.sender, held.msg_id)[1]:
        exclude(tx, other)


def release(tx: Transaction, held: HeldMessage, keys: int, generation: int = 0) -> None:
    """Remove a message that is delivered in this transaction; remember its sender and msgId.

    At least the last `keys` such pairs of each source are remembered. `generation` is the number
    of the session that released the message.
    """
    image: _Image = tx.cache.get(_IMAGE) or _load(tx)
    source = held.source
    if image.sources[source].sender is None:
        _exclude_others(tx, held)
    is_new, is_changed = source not in image.latest, source in image.changed
    image.remove(held)
    image.released += 1
    latest = image.add_key(held.row, source, _key(held.sender, held.msg_id))
    if generation > latest.generation:
        latest.generation = generation
    unwritten = tx.unwritten(_IMAGE, _Unwritten, _write)
    unwritten.keys = keys
    unwritten.released.append((image.released, held.row))
    tx.on_undo(_undo_release, image, held, unwritten, is_new, is_changed)
    _unreserve(tx, held)


def _undo_release(
    image: _Image, held: HeldMessage, unwritten: _Unwritten, is_new: bool, is_changed: bool
) -> None:
    unwritten.released.pop()
    image.take_back_key(held.source, is_new=is_new, is_changed=is_changed)
    image.released -= 1
    image.restore(held)


def remove(tx: Transaction, held: HeldMessage, keys: int) -> None:
    """Remove a held message without delivering it.

    If sessions of the source have released earlier messages of the same msgId, these releases are
    forgotten: a late `deliver` must not be answered as if this message had been delivered. `keys`
    is as in `release`.
    """
    _exclude_others(tx, held)
    _forget_released(tx, held, keys)
    tx.run(_REMOVE, (held.row,))
    _image(tx).remove(held)
    _unreserve(tx, held)


def _unreserve(tx: Transaction, held: HeldMessage) -> None:
    if held.recipient is not None:
        outbox.unreserve(tx, held.recipient, held.source, held.size)


def oldest(tx: Transaction, source: str) -> Iterator[EvictionCandidate]:
    """Yield the messages of a source as candidates for eviction, oldest first."""
    of_source = _image(tx).sources.get(source)
    for held in () if of_source is None else of_source.messages.values():
        yield EvictionCandidate(held.row, held.size, tx.now.service - held.since)


def get(tx: Transaction, row: int) -> HeldMessage:
    """Return the message of an existing row."""
    return _image(tx).messages[row]


def expired(tx: Transaction, ttl: float) -> list[HeldMessage]:
    """Return the messages older than `ttl` service seconds, at most the `EXPIRY_BATCH` oldest."""
    limit = tx.now.service - ttl
    oldest = islice(_image(tx).messages.values(), EXPIRY_BATCH)
    return [held for held in oldest if held.since <= limit]


def oldest_since(tx: Transaction) -> float | None:
    """Return the service second at which the oldest message was taken into custody, or `None`."""
    oldest = next(iter(_image(tx).messages.values()), None)
    return None if oldest is None else oldest.since


def was_released(tx: Transaction, source: str, sender: str, msg_id: str) -> bool:
    """Return whether a message of this key is remembered as released."""
    latest = _image(tx).latest.get(source)
    if latest is None:
        return False
    keys = {_key(sender, msg_id), _whole_hash(sender, msg_id)}
    return not keys.isdisjoint(_split(latest.keys)) or any(
        not keys.isdisjoint(_split(page)) for _slot, page in tx.rows(_PAGES, (source,))
    )


def releasers(tx: Transaction, source: str, msg_id: str) -> set[bytes]:
    """Return the hashes (`hash_sender`) of the sessions remembered to have released a msgId."""
    return {key[MSG_ID_BYTES:] for key in _released_keys(tx, source, "", msg_id)}


def _released_keys(tx: Transaction, source: str, sender: str, msg_id: str) -> set[bytes]:
    """Return the remembered keys of a msgId, of all senders.

    Keys that an older version wrote (`_whole_hash`) are found for `sender` only.
    """
    latest = _image(tx).latest.get(source)
    if latest is None:
        return set()
    prefix, whole = _key("", msg_id)[:MSG_ID_BYTES], _whole_hash(sender, msg_id)
    pages = [latest.keys, *(keys for _slot, keys in tx.rows(_PAGES, (source,)))]
    keys = {key for page in pages for key in _split(page)}
    return {key for key in keys if key.startswith(prefix) or key == whole}


def _forget_released(tx: Transaction, held: HeldMessage, least: int) -> None:
    source, found = held.source, _released_keys(tx, held.source, held.sender, held.msg_id)
    if not found:
        return
    image = _image(tx)
    for slot, keys in tx.rows(_PAGES, (source,)):
        if found.intersection(_split(keys)):
            tx.run(_SET_PAGE, (source, slot, _without(keys, found)))
    latest = image.latest[source]
    latest.keys = _without(latest.keys, found)
    image.changed.add(source)
    _write_keys(tx, image, least)


def take_messages(tx: Transaction, source: str) -> list[AbandonedMessage]:
    """Remove and return the held messages of a removed account's bare JID, and forget the keys of
    its released messages."""
    return _take(tx, _OF_SOURCE, _FORGET_SOURCE, source)


def take_messages_to(tx: Transaction, recipient: str) -> list[AbandonedMessage]:
    """Remove and return the messages that are held for an account, by its name."""
    return _take(tx, _OF_RECIPIENT, _FORGET_RECIPIENT, recipient)


def _take(
    tx: Transaction, select: str, statements: Sequence[str], key: str
) -> list[AbandonedMessage]:
    found = [AbandonedMessage(*row) for row in tx.rows(select, (key,))]
    for statement in statements:
        tx.run(statement, (key,))
    tx.cache.clear()
    return found


def age(tx: Transaction, before: float, seconds: float) -> None:
    """Add `seconds` of time off to the age of messages stored by the service second `before`."""
    tx.run(_AGE, (seconds, before))
    tx.cache.pop(_IMAGE, None)


def load(tx: Transaction) -> None:
    """Load the image of the custody rows, if it is not in memory yet."""
    _image(tx)


def _image(tx: Transaction) -> _Image:
    image: _Image | None = tx.cache.get(_IMAGE)
    return _load(tx) if image is None else image


def _load(tx: Transaction) -> _Image:
    image = _Image()
    for exclusive, *row in tx.rows(_LOAD):
        held = HeldMessage(*row)
        held.exclusive = bool(exclusive)
        image.add(held)
    image.last_row, image.released = tx.row(_LAST)
    for source, keys, pages in tx.rows(_LATEST):
        image.latest[source] = _LatestKeys(keys, pages)
    for row_id, source, sender, msg_id in tx.rows(_LOAD_RELEASED):
        image.add_key(row_id, source, _key(sender, msg_id))
    for source, generation in sessions.newest(tx).items():
        if source in image.latest:
            image.latest[source].generation = generation
    tx.cache[_IMAGE] = image
    return image


def _write(tx: Transaction) -> None:
    unwritten: _Unwritten = tx.memo.pop(_IMAGE)
    if unwritten.new:
        tx.run_many(_INSERT, unwritten.new)
    if unwritten.released:
        tx.run_many(_RELEASE, unwritten.released)
        image: _Image | None = tx.cache.get(_IMAGE)
        if image is not None and len(image.released_rows) >= RELEASED_ROWS:
            _write_keys(tx, image, unwritten.keys)


def _write_keys(tx: Transaction, image: _Image, least: int) -> None:
    """Write the released keys to their rows, and delete the rows of released messages."""
    page_bytes, ring = PAGE_KEYS * KEY_BYTES, -(-least // PAGE_KEYS)
    for source in sorted(image.changed):
        latest = image.latest[source]
        while len(latest.keys) > page_bytes:
            tx.run(_SET_PAGE, (source, latest.pages % ring, latest.keys[:page_bytes]))
            latest.keys = latest.keys[page_bytes:]
            latest.pages += 1
        tx.run(_SET_LATEST, (source, latest.keys, latest.pages))
    tx.run_many(_REMOVE, [(row,) for row in image.released_rows])
    image.changed.clear()
    image.released_rows.clear()


def _key(sender: str, msg_id: str) -> bytes:
    return blake2b(msg_id.encode(), digest_size=MSG_ID_BYTES).digest() + hash_sender(sender)


@lru_cache(maxsize=1024)
def hash_sender(sender: str) -> bytes:
    """Return the hash of a session's full JID, the second part of a released message's key."""
    return blake2b(sender.encode(), digest_size=KEY_BYTES - MSG_ID_BYTES).digest()


def _whole_hash(sender: str, msg_id: str) -> bytes:
    """Return a released key in the form that was used before migration 0010_exclusive_custody."""
    return blake2b(f"{sender}\0{msg_id}".encode(), digest_size=KEY_BYTES).digest()


def _split(keys: bytes) -> list[bytes]:
    return [keys[start : start + KEY_BYTES] for start in range(0, len(keys), KEY_BYTES)]


def _without(keys: bytes, dropped: set[bytes]) -> bytes:
    return b"".join(kept for kept in _split(keys) if kept not in dropped)
