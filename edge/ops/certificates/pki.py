"""The gateway's private certificate authority and its server certificate.

Keys are readable by their owner alone. `edge.ops.certificates.certificates` issues the
certificates of devices.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from edge.errors import SetupError
from edge.ops.certificates import der
from sync.common.durable_files import PRIVATE_FOLDER, PUBLIC_FILE, replace_file, write_new
from sync.common.regular_files import read_regular
from sync.common.text import utc_time

if TYPE_CHECKING:  # `cryptography` costs a running gateway 15 MB: it is imported to sign
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )

FOLDER: Final = "pki"

CA_YEARS: Final = 20
"""Years of validity of the CA, longer than the life of a gateway.

To replace the CA, every device must be visited.
"""

SERVER_YEARS: Final = 5

RENEWAL_FRACTION: Final = 3
"""The server certificate is renewed when less than its lifetime divided by this is left.

These 20 months are enough for a gateway that was stored a year, or whose clock is months behind.
"""

MAX_NAMES: Final = 5
"""Maximum number of names that one text lists."""

YEAR: Final = datetime.timedelta(days=365)


class Files(NamedTuple):
    """The paths of the gateway's certificates and keys."""

    ca: Path
    ca_key: Path
    server: Path
    server_key: Path
    crl: Path


class Authority(NamedTuple):
    """The gateway's CA: its certificate and its signing key."""

    certificate: x509.Certificate
    key: EllipticCurvePrivateKey


def files(folder: Path) -> Files:
    """Return the paths of certificates and keys in the gateway's folder."""
    pki = folder / FOLDER
    names = ("ca.pem", "ca.key", "server.pem", "server.key", "crl.pem")
    return Files(*(pki / name for name in names))


def create(folder: Path, domain: str, now: int) -> Authority:
    """Create the CA and a server certificate for `domain` in the gateway's folder.

    `now` is in ms since 1970 UTC; if it is before `certificates.EARLIEST`, the clock is wrong, and
    the certificates are valid from that date on. Returns the CA.
    """
    from sync.common import certificates

    paths = files(folder)
    paths.ca.parent.mkdir(mode=PRIVATE_FOLDER)
    moment = max(to_datetime(now), certificates.EARLIEST)
    begins = moment - certificates.SKEW
    key, server_key = certificates.new_key(), certificates.new_key()
    title = f"Fieldpost CA of {domain}"
    ca = Authority(certificates.self_signed(title, key, begins, moment + CA_YEARS * YEAR), key)
    ends = moment + SERVER_YEARS * YEAR
    server = _server_certificate(ca, [domain], server_key.public_key(), begins, ends)
    write_new(paths.ca, certificates.pem(ca.certificate), PUBLIC_FILE)
    write_new(paths.ca_key, certificates.key_pem(key))
    write_new(paths.server, certificates.pem(server), PUBLIC_FILE)
    write_new(paths.server_key, certificates.key_pem(server_key))
    return ca


def renew_server(folder: Path, domain: str, now: int, names: Sequence[str] = ()) -> bool:
    """Renew the server's certificate if less than a third of its life is left, or if it is not for
    all of `names`.

    The key and the first day of validity stay, so that a wrong clock at this moment does no harm. A
    certificate of another CA is not renewed; its owner must do that. The call blocks for about 100
    ms when it renews.

    Args:
        now: ms since 1970 UTC.
        names: further host names and IP addresses that it is to be for.

    Returns:
        Whether the certificate was renewed; the new one takes effect when the file is reloaded.

    Raises:
        SetupError: a file is missing or damaged.
        OSError: the new certificate cannot be written.
    """
    paths = files(folder)
    server, ca = der.read(paths.server), der.read(paths.ca)
    if server.issuer != ca.subject:
        return False
    lifetime = server.ends - server.begins
    ends = min(to_datetime(now) + SERVER_YEARS * YEAR, to_datetime(ca.ends))
    is_due = (
        server.ends - now <= lifetime / RENEWAL_FRACTION
        and ends > to_datetime(server.ends)  # else the CA itself expires
    )
    if not is_due and set(names) <= set(der.read_names(paths.server)):
        return False
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

    from sync.common import certificates

    public = x509.load_pem_x509_certificate(paths.server.read_bytes()).public_key()
    begins = min(to_datetime(server.begins), to_datetime(now) - certificates.SKEW)
    if not isinstance(public, EllipticCurvePublicKey):
        raise SetupError(f"the key of {paths.server} is not an elliptic-curve key")
    renewed = _server_certificate(load(folder), [domain, *names], public, begins, ends)
    replace_file(paths.server, certificates.pem(renewed), PUBLIC_FILE)
    return True


def server_fault(folder: Path, domain: str, now: int) -> tuple[str, str] | None:
    """Return why devices refuse the server's certificate, and what to do; `None` if they accept it.

    `now` is in ms since 1970 UTC. Raises `SetupError` if the file cannot be read.
    """
    path = files(folder).server
    found, names = der.read(path), der.read_names(path)
    if now < found.begins:
        return early(str(path), found.begins, now)
    if now > found.ends:
        text = f"{path} has expired on {utc_time(found.ends, 'minutes')}"
        if _is_own(found, folder):
            return text, "restart the gateway, which renews it"
        return text, "replace it by a new certificate from its CA, and run `fieldpost reload`"
    if names and not {domain, f"*.{domain.partition('.')[2]}"} & {name.lower() for name in names}:
        text = f"{path} is not for {domain}, but for {', '.join(names[:MAX_NAMES])}"
        return text, f"replace it by a certificate for {domain}, and run `fieldpost reload`"
    return None


def early(what: str, begins: int, now: int) -> tuple[str, str]:
    """Return the text and the remedy for a certificate or revocation list that is not valid yet.

    `what` names it; `begins` and `now` are in ms since 1970 UTC.
    """
    first, today = utc_time(begins, "minutes"), utc_time(now, "minutes")
    text = f"{what} is not valid before {first}, and the clock shows {today}"
    return text, "the clock is behind: set it, and check the time service (`timedatectl`)"


def expiry_times(folder: Path) -> dict[str, int]:
    """Return when the server's certificate and the CA expire, in ms since 1970 UTC, by the name of
    the file without its suffix; a file that cannot be read is left out."""
    found = {}
    for path in (files(folder).server, files(folder).ca):
        with suppress(SetupError):
            found[path.stem] = der.read(path).ends
    return found


def _is_own(server: der.CertificateFields, folder: Path) -> bool:
    """Return whether the gateway's CA has issued a certificate of the server."""
    try:
        return server.issuer == der.read(files(folder).ca).subject
    except SetupError:
        return False


def load(folder: Path) -> Authority:
    """Read the CA and its key; raises `SetupError` if one is missing or they do not match."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    paths = files(folder)
    try:
        certificate = x509.load_pem_x509_certificate(read_regular(paths.ca))
        key = load_pem_private_key(read_regular(paths.ca_key), password=None)
    except OSError as error:
        raise SetupError(f"{error.filename} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError):  # TypeError: the key has a password
        raise SetupError(
            f"{paths.ca} or {paths.ca_key} is damaged; restore both from a backup"
        ) from None
    if not isinstance(key, EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise SetupError(f"{paths.ca_key} is not the key of {paths.ca}; restore both from a backup")
    return Authority(certificate, key)


def to_datetime(moment: int) -> datetime.datetime:
    """Convert ms since 1970 UTC into a date in whole seconds, as certificates require."""
    return datetime.datetime.fromtimestamp(moment // 1000, datetime.UTC)


def _server_certificate(
    ca: Authority,
    names: Sequence[str],
    public: EllipticCurvePublicKey,
    begins: datetime.datetime,
    ends: datetime.datetime,
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    from sync.common import certificates

    subject = certificates.common_name(names[0])
    alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
    builder = (
        certificates.begin(subject, ca.certificate.subject, public, begins, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(alternatives, critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(certificates.issued_by(ca.certificate), critical=False)
    )
    return certificates.sign(builder, ca.key)


def _general_name(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
