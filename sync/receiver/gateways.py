"""The enrolment records of gateways: one JSON file each, with the SHA-256 of its token.

All calls block: run them in a thread.
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
"""Length in characters of the longest token that is looked up. Issued tokens have 43."""

RECORD_BYTES: Final = 16 * 1024
"""Largest record that is read, in bytes. Records have some 300."""

SETTLED_NS: Final = 2_000_000_000
"""Nanoseconds after which a folder's modification time is reliable: some file systems round it, so
that two changes within this time may look like one."""


class GatewayRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The enrolment record of a gateway. All times are milliseconds since 1970 UTC.

    `token_sha256` is empty if the gateway has no token. Certificates issued before
    `certificates_since` are refused; the newest one expires at `certificate_ends`.
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
    """The readable enrolment records, sorted by gateway, and an error text for each other one."""

    records: list[GatewayRecord]
    faults: list[str]


class GatewayRegistry:
    """The enrolment records in a fleet folder. The caller holds the folder's lock for changes."""

    def __init__(self, folder: FleetFolder) -> None:
        self._records = folder.gateways
        self._lock = threading.Lock()
        self._by_token: dict[str, str] = {}
        self._indexed_ns = -1

    def get(self, gateway: str) -> GatewayRecord | None:
        """Return the record of `gateway`; None if it was never enrolled.

        Raises FleetError when the name cannot be enrolled or the record is damaged.
        """
        return _read(self._path(gateway))

    def survey(self) -> Survey:
        """Read every record. A damaged record excludes its own gateway only."""
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
        """Enrol `gateway` with `token`, which is empty if it authenticates by certificate only.

        With `renew`, an enrolled gateway's earlier token and certificates become invalid: only
        certificates issued from `first_issue(gateway, now_ms)` on are accepted. Raises FleetError
        when the name cannot be enrolled or, without `renew`, when the gateway is enrolled already.
        """
        path = self._path(gateway)
        record = GatewayRecord(
            gateway,
            url,
            token_digest(token) if token else "",
            now_ms,
            certificates_since=self.first_issue(gateway, now_ms),
            certificate_ends=certificate_ends,
        )
        data = msgspec.json.encode(record)
        if renew:
            replace_file(path, data)
            return
        try:
            create_file(path, data)
        except FileExistsError:
            raise already_enrolled(gateway) from None

    def revoke(self, gateway: str, now_ms: int) -> None:
        """Refuse the token and the certificates of `gateway` from now on.

        Raises FleetError when it is not enrolled.
        """
        record = self.get(gateway)
        if record is None:
            raise FleetError(f"{gateway} is not enrolled")
        if record.revoked is None:
            revoked = msgspec.structs.replace(record, revoked=now_ms)
            replace_file(self._path(gateway), msgspec.json.encode(revoked))

    def first_issue(self, gateway: str, now_ms: int) -> int:
        """Return the issue time from which certificates are accepted if `gateway` is enrolled now.

        The time is in ms since 1970 UTC, a whole second. All certificates issued to the gateway
        before are older, and so are refused.
        """
        before = 0
        with contextlib.suppress(FleetError):
            record = self.get(gateway)
            if record is None:
                return next_issue_time(now_ms)
            before = record.certificates_since
        return max(next_issue_time(now_ms), before) + 1_000

    def record_certificate(self, gateway: str, expires_ms: int) -> None:
        """Record the expiry of the newest certificate of an enrolled gateway. Raises FleetError."""
        record = self.get(gateway)
        if record is not None:
            updated = msgspec.structs.replace(record, certificate_ends=expires_ms)
            replace_file(self._path(gateway), msgspec.json.encode(updated))

    def accepts_certificate(self, gateway: str, issued_ms: int) -> bool:
        """Return whether the record of `gateway` accepts certificates issued at `issued_ms`.

        Raises FleetError when the record is damaged.
        """
        record = self.get(gateway) if is_enrollable(gateway) else None
        if record is None or record.revoked is not None:
            return False
        return issued_ms >= record.certificates_since

    def authenticate(self, token: str) -> str | None:
        """Return the gateway that `token` belongs to; None if it is unknown or revoked.

        The record is read each time, so that a revocation takes effect at once. Raises FleetError
        when the gateway's record is damaged.
        """
        if not (0 < len(token) <= TOKEN_CHARACTERS and token.isascii()):
            return None
        presented = token_digest(token)
        gateway = self._gateway_of(presented)
        record = None if gateway is None else self.get(gateway)
        if record is None or record.revoked is not None:
            return None
        same = hmac.compare_digest(presented, record.token_sha256)
        return record.gateway if same else None

    def _gateway_of(self, token_sha256: str) -> str | None:
        """Look a token's hash up in an index, which is rebuilt after the folder changed."""
        with self._lock:
            changed_ns = self._records.stat().st_mtime_ns
            if changed_ns != self._indexed_ns:
                records = self.survey().records
                self._by_token = {each.token_sha256: each.gateway for each in records}
                settled = time.time_ns() - changed_ns > SETTLED_NS
                self._indexed_ns = changed_ns if settled else -1
            return self._by_token.get(token_sha256)

    def _path(self, gateway: str) -> Path:
        if not is_enrollable(gateway):
            msg = f"{gateway!r} cannot be enrolled: a gateway's name is its domain in lower case"
            raise FleetError(msg)
        return self._records / f"{gateway}.json"


def already_enrolled(gateway: str) -> FleetError:
    """Return the error for a gateway that is already enrolled."""
    return FleetError(f"{gateway} is already enrolled; --renew gives it new credentials")


def next_issue_time(now_ms: int) -> int:
    """Return the next whole second, in ms: certificates are dated in seconds."""
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
        raise FleetError(f"{path} is damaged: {error}") from None
    if record.gateway != path.name.removesuffix(".json") or record.version != 1:
        raise FleetError(f"{path} must be a record of version 1 for the gateway in its file name")
    return record
