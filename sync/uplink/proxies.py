"""Through which proxy the centre is reached, as the environment says (`https_proxy`, `no_proxy`).

What is on this machine is never asked of a proxy. aiohttp's own reading of the environment is not
used: it would send a password of `~/.netrc` that nobody meant for the centre, and it passes over a
proxy that it cannot use, as if there were none.
"""

from __future__ import annotations

import ipaddress
from base64 import b64encode
from typing import NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass


class HttpProxy(NamedTuple):
    """Where a proxy is, `http://HOST:PORT`, and what it asks for; its `repr` has no password."""

    url: str
    user: str = ""
    password: str = ""

    def headers(self) -> dict[str, str]:
        """Return the header by which it knows us (RFC 7617), none if it does not ask."""
        if not self.user:
            return {}
        pair = b64encode(f"{self.user}:{self.password}".encode()).decode()
        return {"Proxy-Authorization": f"Basic {pair}"}

    def __repr__(self) -> str:
        return f"Proxy({self.url!r})"


class ProxyError(Exception):
    """The environment names a proxy that cannot be used. The text repeats no password."""


def proxy_for(url: str) -> HttpProxy | None:
    """Return the proxy on the way to `url`, None if there is none.

    Raises `ProxyError` where a proxy is named that does not speak plain HTTP: a centre behind it
    cannot be reached directly either, most likely, and silence would hide why.
    """
    host = urlsplit(url).hostname or ""
    named = getproxies().get("https", "")
    if not named or is_this_machine(host) or proxy_bypass(host):
        return None
    return parse_proxy(named)


def parse_proxy(text: str) -> HttpProxy:
    """Read `http://[USER:PASSWORD@]HOST[:PORT]`; raises `ProxyError`."""
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        port = parts.port or 80
    except ValueError:
        raise ProxyError("https_proxy is no URL") from None
    if parts.scheme != "http" or not parts.hostname:
        raise ProxyError("https_proxy is not http://HOST:PORT, and no other proxy can be used")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return HttpProxy(f"http://{host}:{port}", user, password)


def is_this_machine(host: str) -> bool:
    """Tell whether a name or an address is this machine's own."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.rstrip(".").lower() == "localhost" or host.lower().endswith(".localhost")
