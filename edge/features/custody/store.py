"""The rows of custody: messages between `assured` and `deliver`, and the keys of released ones.

A message belongs to a session: its sender, a full JID. Its source is the bare JID of the sender.

The state is in memory, as an image of the rows (`Transaction.cache`): every function reads and
changes the image, and the rows follow in one batch for each transaction. The limits of custody
bound the image. The image has the latest bodies, with their parsed form, up to `BODY_BYTES`.

A released key is a hash of the msgId and one of the sender, so that other sessions that released
the same msgId can be found. The latest keys of a source are in the image; earlier ones are in a
ring of pages, in `released_pages`. New keys are written to the database once every
`RELEASED_ROWS` releases; until then the row of each released message stays, without its body. Two
messages of one source with the same hash are treated as one. This does not happen by chance, and a
sender that provokes it harms only itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import chain, islice
from typing import Any, Final, NamedTuple, TypeAlias

from edge.engine.dispatch import item_attributes
from edge.engine.dispatch.item_attributes import NO_ATTRIBUTES, ItemAttributes
from edge.engine.rules.quota import NO_USAGE, EvictionCandidate, charge
from edge.engine.sessions import sessions
from edge.engine.store.database import MessageBytes, Transaction
from edge.engine.store.image import Bodies, Changes, Image, Table, write_rows
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
"""Maximum bytes of bodies, and of what is parsed of them, in memory."""

PARSED_BYTES: Final = 8
"""Approximate bytes of memory that the parsed form of a body takes for each byte of the body."""

_LOAD: Final = """
SELECT id, source, sender, msg_id, destination, digest, since, bytes, recipient, content_type,
    attributes, exclusive, released
FROM main.custody ORDER BY released, id -- held messages first
"""
_LAST: Final = "SELECT coalesce(max(id), 0), coalesce(max(released), 0) FROM main.custody"
_BODY: Final = "SELECT body FROM main.custody WHERE id = ?"
_INSERT: Final = """
INSERT INTO main.custody (
    id, source, sender, msg_id, destination, digest, since, bytes, recipient, content_type,
    attributes, body
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_RELEASE: Final = """
UPDATE main.custody
SET released = ?, sender = ?, destination = '', recipient = NULL, digest = x'', body = x''
WHERE id = ?
"""
_UPDATE: Final = "UPDATE main.custody SET sender = ?, exclusive = ? WHERE id = ?"
_REMOVE: Final = "DELETE FROM main.custody WHERE id = ?"
_REMOVE_RUN: Final = "DELETE FROM main.custody WHERE id BETWEEN ? AND ?"
_OF_SOURCE: Final = """
SELECT sender, msg_id, destination, recipient, body, content_type FROM main.custody
WHERE source = ? AND released IS NULL ORDER BY id
"""
_FORGET_SOURCE: Final = (
    "DELETE FROM main.custody WHERE source = ?",
    "DELETE FROM main.released_latest WHERE source = ?",
    "DELETE FROM main.released_pages WHERE source = ?",
)
_OF_RECIPIENT: Final = """
SELECT sender, msg_id, destination, recipient, body, content_type FROM main.custody
WHERE recipient = ? AND released IS NULL ORDER BY id
"""
_FORGET_RECIPIENT: Final = ("DELETE FROM main.custody WHERE recipient = ? AND released IS NULL",)
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

_SEPARATOR: Final = "\x1f"
"""Separates address and msgId in `own_msg_id`. XML, and so a msgId of XMPP, cannot contain it."""


class HeldMessage:
    """A message in custody. It never changes, so that the image can be undone.

    Attributes:
        digest: SHA-256 of the body.
        since: when it was taken into custody, in service seconds.
        size: the bytes that it counts towards limits.
        recipient: the name of the account in whose outbox room is reserved for it, if any.
        attributes: what else its sender said of it.
        exclusive: whether only the session that sent it may release it, because another session of
            the account has used the same msgId.
    """

    __slots__ = (
        "attributes", "destination", "digest", "exclusive", "msg_id", "recipient", "row", "sender",
        "since", "size", "source",
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
        attributes: ItemAttributes = NO_ATTRIBUTES,
        exclusive: bool = False,
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
        self.attributes = attributes
        self.exclusive = exclusive

    def with_owner(self, sender: str, *, exclusive: bool) -> HeldMessage:
        """Return the message with these values of `sender` and `exclusive`."""
        return HeldMessage(
            self.row, self.source, sender, self.msg_id, self.destination, self.digest, self.since,
            self.size, self.recipient, self.attributes, exclusive,
        )  # fmt: skip


_Released: TypeAlias = tuple[HeldMessage, int]
"""A released message, whose row remains until its key is written, and the number of the release;
releases are numbered in their order."""

_Row: TypeAlias = "HeldMessage | _Released"


class AbandonedMessage(NamedTuple):
    """A held message that was removed because its sender or its recipient was removed."""

    sender: str
    msg_id: str
    destination: str
    recipient: str | None
    content: MessageBytes


class _Source:
    """The state of a source in memory; it stays until the image is dropped.

    Attributes:
        messages: the held messages by msgId, those of one msgId oldest first.
        rows: the number of these messages.
        bytes: the bytes that they count towards limits.
        keys: the latest released keys.
        pages: how many pages of earlier keys were written.
        generation: the highest number of those sessions of the source that were bound when the
            image was read, or have released a message since.
    """

    __slots__ = ("bytes", "generation", "keys", "messages", "pages", "rows")

    def __init__(self) -> None:
        self.messages: dict[str, tuple[HeldMessage, ...]] = {}
        self.rows = 0
        self.bytes = 0
        self.keys = b""
        self.pages = 0
        self.generation = 0


class _CustodyImage(Image[int, _Row]):
    """The content of custody's rows, in memory.

    Attributes:
        sources: the state of each source, by its bare JID.
        bytes: the bytes that all held messages count towards limits.
        bodies: the bodies of the latest messages with their parsed form, if there is one.
        last_row: the last number that a row was given.
        last_release: the number of the last release.
        released: the source of each row of a released message, whose key is not written yet.
        least_keys: how many released keys of each source must at least be remembered.
    """

    def __init__(self) -> None:
        super().__init__(_TABLE)
        self.sources: dict[str, _Source] = {}
        self.bytes = 0
        self.bodies: Bodies[tuple[bytes, Any]] = Bodies(BODY_BYTES)
        self.last_row = 0
        self.last_release = 0
        self.released: dict[int, str] = {}
        self.least_keys = 0

    def index(self, old: _Row | None, new: _Row | None) -> None:
        """Replace a row in the indexes: add it if there is no `old`, remove it if no `new`."""
        if isinstance(old, HeldMessage):
            source = self.sources[old.source]
            named = source.messages.pop(old.msg_id)
            if len(named) > 1:
                source.messages[old.msg_id] = tuple(one for one in named if one is not old)
            source.rows -= 1
            source.bytes -= old.size
            self.bytes -= old.size
            self.bodies.drop(old.row)
        elif old is not None:
            source = self.sources[old[0].source]
            source.keys = source.keys[:-KEY_BYTES]
            del self.released[old[0].row]
        if isinstance(new, HeldMessage):
            source = self.sources.get(new.source) or self.source(new.source)
            others = source.messages.get(new.msg_id)
            source.messages[new.msg_id] = (new,) if others is None else _sorted((*others, new))
            source.rows += 1
            source.bytes += new.size
            self.bytes += new.size
        elif new is not None:
            held = new[0]
            source = self.sources.get(held.source) or self.source(held.source)
            source.keys += _key(held.sender, held.msg_id)
            self.released[held.row] = held.source

    def source(self, name: str) -> _Source:
        """Return the state of a source, a bare JID."""
        found = self.sources.get(name)
        if found is None:
            found = self.sources[name] = _Source()
        return found


def _sorted(messages: Iterable[HeldMessage]) -> tuple[HeldMessage, ...]:
    return tuple(sorted(messages, key=lambda held: held.row))


def own_msg_id(sender: str, msg_id: str) -> str:
    """Return the form in which a msgId that belongs to one session alone is stored."""
    return f"{sender}{_SEPARATOR}{msg_id}"


def sent_msg_id(msg_id: str) -> str:
    """Return a stored msgId as its sender chose it."""
    return msg_id.rpartition(_SEPARATOR)[2]


def find(tx: Transaction, source: str, sender: str, msg_id: str) -> HeldMessage | None:
    """Return the held message with this source, sender and msgId, or `None`."""
    image: _CustodyImage = tx.cache.get(_IMAGE) or _load(tx)
    of_source = image.sources.get(source)
    for held in () if of_source is None else of_source.messages.get(msg_id, ()):
        if held.sender == sender:
            return held
    return None


def find_all(
    tx: Transaction, source: str, sender: str, msg_id: str
) -> tuple[HeldMessage | None, list[HeldMessage]]:
    """Return the held message of `sender` with this msgId, or `None`, and the held messages with
    the same msgId from other sessions of the account `source`, oldest first."""
    image: _CustodyImage = tx.cache.get(_IMAGE) or _load(tx)
    of_source = image.sources.get(source)
    found = None if of_source is None else of_source.messages.get(msg_id)
    if found is None:
        return None, []
    own: HeldMessage | None = None
    for held in found:
        if held.sender == sender:
            own = held
    if own is None:
        return None, list(found)
    return own, [] if len(found) == 1 else [held for held in found if held is not own]


def read_body(tx: Transaction, held: HeldMessage) -> tuple[bytes, Any]:
    """Return the body of a held message and, if it is in memory, its parsed form."""
    image: _CustodyImage = tx.cache.get(_IMAGE) or _load(tx)
    kept = image.bodies.kept.get(held.row)
    return (bytes(tx.row(_BODY, (held.row,))[0]), None) if kept is None else kept[0]


def usage(tx: Transaction, source: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the number of messages in custody and their bytes (`Usage`): of one source, and of all
    sources."""
    image: _CustodyImage = tx.cache.get(_IMAGE) or _load(tx)
    of_source = image.sources.get(source)
    used = NO_USAGE if of_source is None else (of_source.rows, of_source.bytes)
    return used, (len(image.rows) - len(image.released), image.bytes)


def message_size(msg_id: str, body: bytes, attributes: ItemAttributes) -> int:
    """Return the bytes that a message counts towards limits."""
    size = charge(msg_id, body)
    return size if attributes is NO_ATTRIBUTES else size + attributes.size


def hold(
    tx: Transaction,
    source: str,
    sender: str,
    msg_id: str,
    destination: str,
    body: bytes,
    digest: bytes,
    size: int,
    recipient: str | None = None,
    parsed: Any = None,
    generation: int = 0,
    attributes: ItemAttributes = NO_ATTRIBUTES,
) -> None:
    """Take a message into custody; no message may be held under its key yet.

    If another session of the source has released this msgId, and `generation` is not the newest, an
    earlier process of the device may have offered it late: then only `sender` may release it.

    Args:
        size: the bytes that the message counts towards limits (`message_size`).
        recipient: the name of the account whose outbox reserves room for the message.
        parsed: the body as its protocol has parsed it, if it has.
        generation: the number of the sender's session.
        attributes: what else its sender says of it.
    """
    image: _CustodyImage = tx.cache.get(_IMAGE) or _load(tx)
    row = image.last_row = image.last_row + 1
    since = tx.now.service
    held = HeldMessage(
        row, source, sender, msg_id, destination, digest, since, size, recipient, attributes
    )
    content_type, packed = attributes.content_type, item_attributes.pack_message(attributes)
    values = (
        row, source, sender, msg_id, destination, digest, since, size, recipient, content_type,
        packed, body,
    )  # fmt: skip
    image.change(tx, row, held, values)
    memory = len(body) if parsed is None else (1 + PARSED_BYTES) * len(body)
    image.bodies.keep(row, (body, parsed), memory)
    if recipient is not None:
        outbox.reserve(tx, recipient, source, 1, size)
    if image.sources[source].generation > generation:
        _exclude_late(tx, held)


def _exclude_late(tx: Transaction, held: HeldMessage) -> None:
    if releasers(tx, held.source, held.msg_id) - {hash_sender(held.sender)}:
        exclude(tx, held)


def move(tx: Transaction, held: HeldMessage, sender: str) -> HeldMessage:
    """Move a message to its source's session `sender`; that must not hold one of this msgId."""
    tx.write()  # the values of a new row are fixed
    moved = held.with_owner(sender, exclusive=held.exclusive)
    _image(tx).change(tx, held.row, moved)
    return moved


def exclude(tx: Transaction, held: HeldMessage) -> None:
    """Record that only the sender of a message may ask for its delivery, no other session."""
    tx.write()  # the values of a new row are fixed
    _image(tx).change(tx, held.row, held.with_owner(held.sender, exclusive=True))


def _exclude_others(tx: Transaction, image: _CustodyImage, held: HeldMessage) -> None:
    for other in image.sources[held.source].messages[held.msg_id]:
        if other.row != held.row:
            exclude(tx, other)


def release(tx: Transaction, held: HeldMessage, keys: int, generation: int = 0) -> None:
    """Remove a message that is delivered in this transaction; remember its sender and msgId.

    At least the last `keys` such pairs of each source are remembered. `generation` is the number
    of the session that released the message.
    """
    image: _CustodyImage = tx.cache.get(_IMAGE) or _load(tx)
    row, source = held.row, image.sources[held.source]
    if len(source.messages[held.msg_id]) > 1:
        _exclude_others(tx, image, held)
    number = image.last_release = image.last_release + 1
    image.least_keys = keys
    image.change(tx, row, (held, number))
    if generation > source.generation:
        source.generation = generation
    if held.recipient is not None:
        outbox.reserve(tx, held.recipient, held.source, -1, -held.size)


def remove(tx: Transaction, held: HeldMessage, keys: int) -> None:
    """Remove a held message without delivering it.

    If sessions of the source have released earlier messages of the same msgId, these releases are
    forgotten: a late `deliver` must not be answered as if this message had been delivered. `keys`
    is as in `release`.
    """
    image = _image(tx)
    _exclude_others(tx, image, held)
    _forget_released(tx, image, held, keys)
    image.change(tx, held.row, None)
    if held.recipient is not None:
        outbox.reserve(tx, held.recipient, held.source, -1, -held.size)


def oldest(tx: Transaction, source: str) -> Iterator[EvictionCandidate]:
    """Yield the messages of a source as candidates for eviction, oldest first."""
    of_source = _image(tx).sources.get(source)
    found = () if of_source is None else chain.from_iterable(of_source.messages.values())
    for held in _sorted(found):
        yield EvictionCandidate(held.row, held.size, tx.now.service - held.since)


def own_messages(tx: Transaction, source: str, sender: str) -> list[HeldMessage]:
    """Return the messages that are held for a session of a source, and for no other session."""
    of_source = _image(tx).sources.get(source)
    found = () if of_source is None else chain.from_iterable(of_source.messages.values())
    return [held for held in found if held.sender == sender and _SEPARATOR in held.msg_id]


def get(tx: Transaction, row: int) -> HeldMessage:
    """Return the message of an existing row."""
    held = _image(tx).rows[row]
    assert isinstance(held, HeldMessage), held  # noqa: S101 - for the type checker
    return held


def _oldest_of_all(tx: Transaction) -> Iterator[HeldMessage]:
    return (held for held in _image(tx).rows.values() if isinstance(held, HeldMessage))


def expired(tx: Transaction, ttl: float) -> list[HeldMessage]:
    """Return the messages older than `ttl` service seconds, at most the `EXPIRY_BATCH` oldest."""
    limit = tx.now.service - ttl
    return [held for held in islice(_oldest_of_all(tx), EXPIRY_BATCH) if held.since <= limit]


def oldest_since(tx: Transaction) -> float | None:
    """Return the service second at which the oldest message was taken into custody, or `None`."""
    oldest = next(_oldest_of_all(tx), None)
    return None if oldest is None else oldest.since


def was_released(tx: Transaction, source: str, sender: str, msg_id: str) -> bool:
    """Return whether a message of this key is remembered as released."""
    keys = {_key(sender, msg_id), _whole_hash(sender, msg_id)}
    return any(not keys.isdisjoint(_split(page)) for page in _pages(tx, source))


def _pages(tx: Transaction, name: str) -> Iterator[bytes]:
    """Yield the remembered keys of a source, the latest first."""
    source = _image(tx).sources.get(name)
    if source is not None:
        yield source.keys
        if source.pages:
            yield from (keys for _slot, keys in tx.rows(_PAGES, (name,)))


def releasers(tx: Transaction, source: str, msg_id: str) -> set[bytes]:
    """Return the hashes (`hash_sender`) of the sessions remembered to have released a msgId."""
    return {key[MSG_ID_BYTES:] for key in _released_keys(tx, source, "", msg_id)}


def _released_keys(tx: Transaction, source: str, sender: str, msg_id: str) -> set[bytes]:
    """Return the remembered keys of a msgId, of all senders.

    Keys that an older version wrote (`_whole_hash`) are found for `sender` only.
    """
    prefix, whole = _key("", msg_id)[:MSG_ID_BYTES], _whole_hash(sender, msg_id)
    keys = {key for page in _pages(tx, source) for key in _split(page)}
    return {key for key in keys if key.startswith(prefix) or key == whole}


def _forget_released(tx: Transaction, image: _CustodyImage, held: HeldMessage, least: int) -> None:
    name, found = held.source, _released_keys(tx, held.source, held.sender, held.msg_id)
    if not found:
        return
    for slot, keys in tx.rows(_PAGES, (name,)):
        if found.intersection(_split(keys)):
            tx.run(_SET_PAGE, (name, slot, _without(keys, found)))
    source = image.sources[name]
    source.keys = _without(source.keys, found)
    _write_keys(tx, image, {name}, least)


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
    found = [
        AbandonedMessage(
            sender, sent_msg_id(msg_id), to, recipient, MessageBytes(body, "", content_type)
        )
        for sender, msg_id, to, recipient, body, content_type in tx.rows(select, (key,))
    ]
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


def _image(tx: Transaction) -> _CustodyImage:
    image: _CustodyImage | None = tx.cache.get(_IMAGE)
    return _load(tx) if image is None else image


def _load(tx: Transaction) -> _CustodyImage:
    image = _CustodyImage()
    image.last_row, image.last_release = tx.row(_LAST)
    for name, keys, pages in tx.rows(_LATEST):
        source = image.source(name)
        source.keys, source.pages = keys, pages
    for *values, content_type, packed, exclusive, released in tx.rows(_LOAD):
        attributes = item_attributes.unpack_message(content_type, packed)
        held = HeldMessage(*(*values, attributes, bool(exclusive)))
        image.load(held.row, held if released is None else (held, released))
    for name, generation in sessions.newest(tx).items():
        if name in image.sources:
            image.sources[name].generation = generation
    tx.cache[_IMAGE] = image
    return image


def _write(tx: Transaction, changes: Changes[_Row]) -> None:
    write_rows(tx, _INSERT, [values for _row, values in changes.new])
    rows = changes.changed + [row for row, _values in changes.new]
    released = [row for row in rows if not isinstance(row, HeldMessage)]
    write_rows(tx, _RELEASE, [(number, held.sender, held.row) for held, number in released])
    moved = [row for row in changes.changed if isinstance(row, HeldMessage)]
    write_rows(tx, _UPDATE, [(held.sender, held.exclusive, held.row) for held in moved])
    write_rows(tx, _REMOVE, [(row.row,) for row in changes.removed if isinstance(row, HeldMessage)])
    image: _CustodyImage | None = tx.cache.get(_IMAGE)
    if image is not None and len(image.released) >= RELEASED_ROWS:
        _write_keys(tx, image, set(), image.least_keys)


_TABLE: Final[Table[int, _Row]] = Table(_IMAGE, _write)


def _write_keys(tx: Transaction, image: _CustodyImage, changed: set[str], least: int) -> None:
    """Write the keys of all released messages, and those of the sources in `changed`, to the rows
    of keys; delete the rows of released messages."""
    page_bytes, ring = PAGE_KEYS * KEY_BYTES, -(-least // PAGE_KEYS)
    for name in sorted(changed.union(image.released.values())):
        source = image.sources[name]
        while len(source.keys) > page_bytes:
            tx.run(_SET_PAGE, (name, source.pages % ring, source.keys[:page_bytes]))
            source.keys = source.keys[page_bytes:]
            source.pages += 1
        tx.run(_SET_LATEST, (name, source.keys, source.pages))
    tx.run_many(_REMOVE_RUN, _runs(sorted(image.released)))
    for row in image.released:
        del image.rows[row]
    image.released.clear()


def _runs(rows: Sequence[int]) -> list[list[int]]:
    """Return the first and last number of each run of consecutive numbers."""
    found: list[list[int]] = []
    for row in rows:
        if found and found[-1][1] == row - 1:
            found[-1][1] = row
        else:
            found.append([row, row])
    return found


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
