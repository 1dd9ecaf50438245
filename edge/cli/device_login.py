"""The options with which `send` and `listen` log in as a device, or act as the operator."""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from edge.errors import FieldpostError, SetupError
from edge.ops.devices import logins

C = TypeVar("C", bound=Callable[..., Any])

_FILE = click.Path(path_type=Path, dir_okay=False)


class NetworkError(FieldpostError):
    """A command over the network failed; the text gives the reason."""


class LoginRefused(NetworkError):
    """The gateway refused the log-in."""


class Login(NamedTuple):
    """The login of a device, as arguments for the clients of `firmware_sim.device`.

    If `host` is empty, the host is the domain of the JID.
    """

    jid: str
    password: str
    ca_file: Path
    host: str
    port: int
    certificate: Path | None
    key: Path | None
    direct_tls: bool

    @property
    def domain(self) -> str:
        """Return the domain of the gateway, from the JID."""
        return self.jid.partition("/")[0].rpartition("@")[2]


_OPTIONS = (
    click.option(
        "--dir",
        "folder",
        type=click.Path(path_type=Path, file_okay=False, readable=False),
        envvar="FIELDPOST_DIR",
        help="Folder of a gateway that runs on this machine, to act as its operator. Default:"
        " $FIELDPOST_DIR. With --as, it tells why a log-in is refused.",
    ),
    click.option("--as", "jid", metavar="JID", help="Log in over the network as this device."),
    click.option(
        "--password-stdin", is_flag=True, help="Read the password, one line, from standard input."
    ),
    click.option("--password-file", type=_FILE, help="Read the password from this file."),
    click.option("--certificate", type=_FILE, help="Log in with this certificate; needs --key."),
    click.option("--key", type=_FILE, help="The certificate's private key."),
    click.option("--ca", type=_FILE, help="CA certificate of the gateway (DIR/pki/ca.pem)."),
    click.option("--host", default="", help="Address of the gateway. Default: the JID's domain."),
    click.option("--port", type=click.IntRange(1, 65535), help="TCP port. Default: 5222."),
    click.option(
        "--mqtt", is_flag=True, help="With --as: use MQTT 5.0 over TLS. Default port: 8883."
    ),
    click.option(
        "--direct-tls", is_flag=True, help="Use TLS from the first byte. Default port: 5223."
    ),
)


def login_options(command: C) -> C:
    """Add the login options, and the option `--dir` for the gateway's folder, to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def read_login(
    jid: str | None,
    password_stdin: bool,
    password_file: Path | None,
    certificate: Path | None,
    key: Path | None,
    ca: Path | None,
    host: str,
    port: int | None,
    mqtt: bool,
    direct_tls: bool,
) -> Login | None:
    """Return the device login given by the options, or `None` to act as the operator.

    A JID without a resource gets a random one, so that no session of the device is replaced.

    Raises:
        click.UsageError: options are missing or contradict each other.
        SetupError: a certificate or key does not exist, or the password is empty.
        OSError: the password file cannot be read.
    """
    if jid is None:
        options = password_stdin, password_file, certificate, key, ca, host, port, mqtt, direct_tls
        if any(options):
            raise click.UsageError("login options such as --password-file need --as JID")
        return None
    bare, _, resource = jid.partition("/")
    _check(jid, ca, certificate, key, password_stdin, password_file)
    assert ca is not None  # noqa: S101 - checked
    return Login(
        jid if resource else f"{bare}/cli-{secrets.token_hex(4)}",
        _read_password(password_stdin, password_file),
        ca,
        host,
        port or (8883 if mqtt else 5223 if direct_tls else 5222),
        certificate,
        key,
        direct_tls,
    )


def run(work: Coroutine[Any, Any, None], login: Login, folder: Path | None) -> None:
    """Run what a command does as a device; raises `FieldpostError`. The error of a refused log-in
    has the reason if the gateway's folder tells it."""
    import asyncio  # imported late: other commands do not need it

    try:
        asyncio.run(work)
    except LoginRefused as error:
        reason = ""
        if folder is not None:
            reason = logins.find_fault(folder, login.jid, login.password, login.certificate)
        raise (LoginRefused(f"{error}: {reason}") if reason else error) from error


def _check(
    jid: str,
    ca: Path | None,
    certificate: Path | None,
    key: Path | None,
    password_stdin: bool,
    password_file: Path | None,
) -> None:
    if not re.fullmatch(r"[^@/]+@[^@/]+(/.+)?", jid):
        raise click.UsageError(f"--as {jid!r} is not a device's JID, such as pump1@gw.example")
    if ca is None:
        raise click.UsageError("--as needs --ca FILE, the CA certificate of the gateway")
    if (certificate is None) != (key is None):
        raise click.UsageError("--certificate and --key must be given together")
    if (certificate is not None) + password_stdin + (password_file is not None) != 1:
        raise click.UsageError(
            "--as needs exactly one of --password-stdin, --password-file and --certificate"
        )
    for path in (ca, certificate, key):
        if path is not None and not path.is_file():
            raise SetupError(f"{path} does not exist or is not a regular file")


def _read_password(password_stdin: bool, password_file: Path | None) -> str:
    """Return the first line of the file or of standard input; empty if neither is to be read."""
    if password_file is not None:
        text = password_file.read_text("utf-8")
    elif password_stdin:
        text = sys.stdin.readline()
    else:
        return ""
    password = text.partition("\n")[0].removesuffix("\r")
    if not password:
        raise SetupError("the password is empty: it must be the first line of the file or input")
    return password
