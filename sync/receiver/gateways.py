"""Which gateways are enrolled at the centre, whose token that is, and which certificates are good.

One record for each gateway, a file of its own; a token's SHA-256 is kept, never the token. Makes no
enrolment file and speaks no HTTP. All calls block: call them in a thread.
"""

from __future__ import annotations

import contextlib
import hmac
import threading
import time
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from sync.common.durable_files import create_file, replace_file
from sync.common.enrolment import token_digest
from sync.common.errors import FleetError
from sync.common.fleet_folder import FleetFolder, is_enrollable

TOKEN_CHARACTERS: Final = 128
"""Characters of a token that are looked at: ours have 43."""

RECORD_BYTES: Final = 16 * 1024
"""Bytes of a record: ours have some 300."""

SETTLED_NS: Final = 2_000_000_000
"""Nanoseconds after which a folder's time tells every later change: file systems count coarsely."""


class GatewayRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A gateway's record. All moments are milliseconds since 1970 UTC.

    `token_sha256` is empty where there is no token. Certificates that were issued before
    `certificates_since` are refused; the last one ends at `certificate_ends`.
    """

    gateway: str
    url: str
    token_sha256: str
    added: int
    revoked: int | None = None
    version: int = 1
    certificates_since: int = 0
    certificate_ends: int | None = None


class Survey(NamedTuple):
    """All that is enrolled: records by name, revoked ones too, and what is wrong with others."""

    records: list[GatewayRecord]
    faults: list[str]


class GatewayRegistry:
    """The enrolments in a fleet folder. Changes are made under the folder's lock by the caller."""

    def __init__(self, folder: FleetFolder) -> None:
        self._records = folder.gateways
        self._lock = threading.Lock()
        self._owners: dict[str, str] = {}
        self._seen_ns = -1

    def get(self, gateway: str) -> GatewayRecord | None:
        """The record of `gateway`, None when it never was enrolled. Raises FleetError."""
        return _read(self._path(gateway))

    def survey(self) -> Survey:
        """Read every record. A damaged one refuses its own gateway and no other."""
        records, faults = [], []
        for path in sorted(self._records.glob("*.json")):
            try:
                record = _read(path)
            except FleetError as error:
                faults.append(str(error))
            else:
                records.extend([record] if record else [])
        return Survey(records, faults)

    def enrol(
        self,
        gateway: str,
        url: str,
        token: str,
        now_ms: int,
        *,
        renew: bool,
        certificate_ends: int | None = None,
    ) -> None:
        """Enrol `gateway`, which is known by `token` from now on; empty if it has none.

        With `renew` the token and the certificates before stop being valid; one that is issued at
        `first_issue(gateway, now_ms)` is the first that is. Raises FleetError when the name cannot
        be enrolled or, without `renew`, was enrolled before.
        """
        path = self._path(gateway)
        enrolled = GatewayRecord(
            gateway,
            url,
            token_digest(token) if token else "",
            now_ms,
            certificates_since=self.first_issue(gateway, now_ms),
            certificate_ends=certificate_ends,
        )
        record = msgspec.json.encode(enrolled)
        if renew:
            replace_file(path, record)
            return
        try:
            create_file(path, record)
        except FileExistsError:
            msg = f"{gateway} is enrolled already; --renew gives it a new token"
            raise FleetError(msg) from None

    def revoke(self, gateway: str, now_ms: int) -> None:
        """Refuse token and certificates of `gateway` from now on.

        Raises FleetError when it is not enrolled.
        """
        record = self.get(gateway)
        if record is None:
            msg = f"{gateway} is not enrolled"
            raise FleetError(msg)
        if record.revoked is None:
            revoked = msgspec.structs.replace(record, revoked=now_ms)
            replace_file(self._path(gateway), msgspec.json.encode(revoked))

    def first_issue(self, gateway: str, now_ms: int) -> int:
        """The moment from which certificates are good if `gateway` is enrolled now.

        In ms since 1970 UTC, a whole second, and after that of each certificate made before.
        """
        before = 0
        with contextlib.suppress(FleetError):
            record = self.get(gateway)
            if record is None:
                return next_issue_time(now_ms)
            before = record.certificates_since
        return max(next_issue_time(now_ms), before) + 1_000

    def note_certificate(self, gateway: str, ends_ms: int) -> None:
        """Note when the newest certificate of an enrolled gateway ends. Raises FleetError."""
        record = self.get(gateway)
        if record is not None:
            noted = msgspec.structs.replace(record, certificate_ends=ends_ms)
            replace_file(self._path(gateway), msgspec.json.encode(noted))

    def accepts(self, gateway: str, issued_ms: int) -> bool:
        """Tell whether a certificate of `gateway` that was issued then is good by its record.

        Raises FleetError when the record is damaged.
        """
        record = self.get(gateway) if is_enrollable(gateway) else None
        if record is None or record.revoked is not None:
            return False
        return issued_ms >= record.certificates_since

    def authenticate(self, token: str) -> str | None:
        """The gateway that `token` belongs to, None when it is nobody's or revoked.

        The record itself decides each time, so that a revocation holds at once. Raises FleetError
        when the gateway's record is damaged.
        """
        if not (0 < len(token) <= TOKEN_CHARACTERS and token.isascii()):
            return None
        presented = token_digest(token)
        gateway = self._owner(presented)
        record = None if gateway is None else self.get(gateway)
        if record is None or record.revoked is not None:
            return None
        same = hmac.compare_digest(presented, record.token_sha256)
        return record.gateway if same else None

    def _owner(self, token_sha256: str) -> str | None:
        """Look the token's sum up in an index that is made anew when the folder has changed."""
        with self._lock:
            changed_ns = self._records.stat().st_mtime_ns
            if changed_ns != self._seen_ns:
                records = self.survey().records
                self._owners = {each.token_sha256: each.gateway for each in records}
                settled = time.time_ns() - changed_ns > SETTLED_NS
                self._seen_ns = changed_ns if settled else -1
            return self._owners.get(token_sha256)

    def _path(self, gateway: str) -> Path:
        if not is_enrollable(gateway):
            msg = f"{gateway!r} cannot be a gateway: its name is its domain, in lower case"
            raise FleetError(msg)
        return self._records / f"{gateway}.json"


def next_issue_time(now_ms: int) -> int:
    """The next whole second, in ms: a certificate knows no smaller time."""
    return (now_ms // 1_000 + 1) * 1_000


def _read(path: Path) -> GatewayRecord | None:
    try:
        with path.open("rb") as file:
            data = file.read(RECORD_BYTES + 1)
    except FileNotFoundError:
        return None
    try:
        record = msgspec.json.decode(data, type=GatewayRecord)
    except msgspec.DecodeError as error:
        msg = f"{path} is damaged: {error}"
        raise FleetError(msg) from None
    if record.gateway != path.name.removesuffix(".json") or record.version != 1:
        msg = f"{path} is not the record of that gateway in version 1"
        raise FleetError(msg)
    return record
