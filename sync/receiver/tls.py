"""The receiver's side of TLS: the certificate that it shows, and follows when it is made anew.

Opens no socket.
"""

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
    """The certificate that is shown to gateways, with those that vouch for it, and its key: PEM."""

    certificate: Path
    key: Path


class ReloadingCertificate:
    """A TLS context that follows its files: a new certificate is shown by the next handshake.

    Clients may show one of the authority in the file `clients`, and need not.
    """

    def __init__(self, chain: CertificateFiles, clients: Path) -> None:
        self._chain = chain
        self._clients = clients
        self._seen = self._stamp()
        self._current = self._load()
        self.context = self._load()
        self.context.sni_callback = self._choose

    def _stamp(self) -> list[tuple[int, int]]:
        """What differs once a file was replaced; either of the two may come first."""
        found = (path.stat() for path in (self._chain.certificate, self._chain.key))
        return [(each.st_mtime_ns, each.st_ino) for each in found]

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION  # a handshake costs us more than the client
        try:
            context.load_cert_chain(self._chain.certificate, self._chain.key)
        except ssl.SSLError as error:
            msg = f"{self._chain.certificate} and {self._chain.key} are no pair: {error.reason}"
            raise FleetError(msg) from error
        context.load_verify_locations(self._clients)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _choose(
        self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext
    ) -> int | None:
        """Called by a handshake. A certificate that cannot be loaded leaves the one before."""
        del name, context
        try:
            stamp = self._stamp()
            if stamp != self._seen:
                self._seen = stamp
                self._current = self._load()
                log_event(logging.INFO, "certificate", text="a new certificate is in use")
        except (OSError, FleetError) as error:
            log_event(logging.ERROR, "certificate", text=str(error))
        connection.context = self._current
        return None


def ensure_own_certificate(folder: FleetFolder) -> CertificateFiles:
    """The certificate of the centre's own authority, made anew first if it ends soon."""
    with folder.changing():
        Authority(folder.pki).ensure((), dt.datetime.now(dt.UTC))
    return own_certificate_files(folder)


def own_certificate_files(folder: FleetFolder) -> CertificateFiles:
    """Where the certificate of the centre's own authority lies, whether it is there or not."""
    authority = Authority(folder.pki)
    return CertificateFiles(authority.server, authority.server_key)
