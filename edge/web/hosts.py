"""Decide for which host names the status page answers.

This protects against DNS rebinding: the attacker's web page makes its own domain point to this
machine, so that the visitor's browser lets the page read the answers. The browser then sends the
attacker's domain as `Host`. So only IP addresses and known names are answered. Pure: the machine's
name is an argument.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:]+))(?::[0-9]{0,5})?")
_LOCAL: Final = ".local"


class KnownHosts:
    """Accepted host names: `localhost`, the machine's `own` (also with `.local`), and `names`."""

    def __init__(self, names: Iterable[str], own: str) -> None:
        self._names = {"localhost", *names}
        machine = own.lower().removesuffix(".").removesuffix(_LOCAL)
        if machine:
            self._names |= {machine, machine + _LOCAL}

    def is_known(self, host: str) -> bool:
        """Return whether a `Host` field has an IP address or a known name, with or without a port.

        Source: RFC 9110, section 7.2.
        """
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        if found[1]:
            return _is_address(ipaddress.IPv6Address, found[1])
        name = found[2].lower().removesuffix(".")
        return name in self._names or _is_address(ipaddress.IPv4Address, name)


def _is_address(kind: type[ipaddress.IPv4Address | ipaddress.IPv6Address], text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True
