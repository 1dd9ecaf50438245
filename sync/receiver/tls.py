"""The receiver's TLS context, which reloads its certificate when the files change."""

from __future__ import annotations

import datetime as dt
import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

from sync.common.errors import FleetError
from sync.common.fleet_folder import FleetFolder
from sync.common.json_log import log_event
from sync.receiver.pki import Authority


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """The PEM files of the server certificate with its chain, and of its key."""

    certificate: Path
    key: Path


class ReloadingCertificate:
    """A TLS context that reloads changed certificate files before the next handshake.

    Clients may present a certificate issued by the authority in the file `client_ca`.
    """

    def __init__(self, files: CertificateFiles, client_ca: Path) -> None:
        self._files = files
        self._client_ca = client_ca
        self._loaded_version = self._file_version()
        self._current = self._load()
        self.context = self._load()
        self.context.sni_callback = self._select_context

    def _file_version(self) -> list[tuple[int, int]]:
        statuses = (path.stat() for path in (self._files.certificate, self._files.key))
        return [(each.st_mtime_ns, each.st_ino) for each in statuses]

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION  # a handshake costs us more than the client
        try:
            context.load_cert_chain(self._files.certificate, self._files.key)
        except ssl.SSLError as error:
            raise FleetError(
                f"{self._files.certificate} and {self._files.key} are not a certificate "
                f"and its key in PEM, or do not match: {error.reason}"
            ) from error
        context.load_verify_locations(self._client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _select_context(
        self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext
    ) -> int | None:
        """Reload changed files during a handshake; keep the previous certificate on failure."""
        try:
            version = self._file_version()
            if version != self._loaded_version:
                self._loaded_version = version
                self._current = self._load()
                log_event(logging.INFO, "certificate", text="loaded a new server certificate")
        except (OSError, FleetError) as error:
            text = f"cannot load the new server certificate, the previous one stays in use: {error}"
            log_event(logging.ERROR, "certificate", text=text)
        connection.context = self._current
        return None


def ensure_own_certificate(folder: FleetFolder) -> CertificateFiles:
    """Renew the fleet's own server certificate if it expires soon; return its files."""
    with folder.locked():
        Authority(folder.pki).ensure((), dt.datetime.now(dt.UTC))
    return own_certificate_files(folder)


def own_certificate_files(folder: FleetFolder) -> CertificateFiles:
    """Return the files of the fleet's own server certificate, even if they do not exist."""
    authority = Authority(folder.pki)
    return CertificateFiles(authority.server, authority.server_key)
