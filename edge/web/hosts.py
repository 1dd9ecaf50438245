"""Which names the status page answers to.

A page of a stranger may give its own name this machine's address (DNS rebinding): the browser then
lets it read what is answered, but sends that name as the `Host`. So only addresses, which no DNS
decides, and known names are answered. Pure: what the machine is called, others say.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:]+))(?::[0-9]{0,5})?")
_LOCAL: Final = ".local"


class Hosts:
    """`localhost`, the machine's own name with and without `.local`, and the configured ones."""

    def __init__(self, names: Iterable[str], own: str) -> None:
        self._names = {"localhost", *names}
        machine = own.lower().removesuffix(".").removesuffix(_LOCAL)
        if machine:
            self._names |= {machine, machine + _LOCAL}

    def serves(self, host: str) -> bool:
        """Tell whether a `Host` (RFC 9110, section 7.2) names this gateway, by whatever port."""
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
