"""Load the gateway's certificate, its CA and its revocation list for TLS."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from edge.errors import SetupError
from edge.ops.certificates.pki import Files
from sync.common.regular_files import check_regular

_NO_CHECK_TIME: Final = ssl.VerifyFlags(0x200000)
"""X509_V_FLAG_NO_CHECK_TIME of X509_VERIFY_PARAM_set_flags(3), which Python does not name."""


def server_context(files: Files) -> ssl.SSLContext:
    """Return a TLS context with the gateway's certificate; raises `SetupError`, naming the file.

    A client certificate is requested and not required. Its dates are checked at the login
    (`edge/server/login.py`), because a failed handshake does not tell whose certificate it was.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0  # resumed TLS sessions would save nothing; tickets cost a device bytes
    context.verify_mode = ssl.CERT_OPTIONAL
    context.verify_flags |= _NO_CHECK_TIME
    _load_certificate(context, files.server, files.server_key)
    _load_trusted(context, files.ca)
    if files.crl.exists():
        _load_trusted(context, files.crl)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return context


def _load_certificate(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    _check_readable(certificate)
    _check_readable(key)
    try:
        context.load_cert_chain(
            certificate, key, password=""
        )  # otherwise it prompts on the terminal
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise SetupError(f"{key} is not the key of {certificate}") from error
        raise SetupError(
            f"{certificate} and {key} cannot be used: they are not a certificate and its key in PEM"
        ) from error


def _load_trusted(context: ssl.SSLContext, path: Path) -> None:
    _check_readable(path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise SetupError(
            f"{path} cannot be used: it has no certificate or revocation list in PEM"
        ) from error


def _check_readable(path: Path) -> None:
    try:
        check_regular(path)
        path.open("rb").close()
    except OSError as error:
        raise SetupError(f"{path} cannot be read: {error.strerror}") from error
