"""Find the HTTP proxy on the route to the centre, from `https_proxy` and `no_proxy`.

Addresses of this machine never use a proxy. aiohttp's own evaluation of the environment is not
used, because it sends passwords from `~/.netrc` and silently ignores a proxy that it cannot use.
"""

from __future__ import annotations

import ipaddress
from base64 import b64encode
from typing import NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass


class HttpProxy(NamedTuple):
    """A proxy at `http://HOST:PORT` with its credentials; its `repr` has no password."""

    url: str
    user: str = ""
    password: str = ""

    def headers(self) -> dict[str, str]:
        """Return the authorization header (RFC 7617); empty without a user."""
        if not self.user:
            return {}
        pair = b64encode(f"{self.user}:{self.password}".encode()).decode()
        return {"Proxy-Authorization": f"Basic {pair}"}

    def __repr__(self) -> str:
        return f"HttpProxy({self.url!r})"


class ProxyError(Exception):
    """The environment names a proxy that cannot be used. The text contains no password."""


def proxy_for(url: str) -> HttpProxy | None:
    """Return the proxy for `url`; None for a direct connection.

    Raises `ProxyError` if the proxy's URL is not `http://`. No direct connection is tried then,
    because a network with a proxy usually blocks it.
    """
    host = urlsplit(url).hostname or ""
    named = getproxies().get("https", "")
    if not named or is_this_machine(host) or proxy_bypass(host):
        return None
    return parse_proxy(named)


def parse_proxy(text: str) -> HttpProxy:
    """Parse `http://[USER:PASSWORD@]HOST[:PORT]`; raises `ProxyError`."""
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        port = parts.port or 80
    except ValueError:
        raise ProxyError("https_proxy is not a valid URL") from None
    if parts.scheme != "http" or not parts.hostname:
        raise ProxyError("https_proxy must be http://HOST:PORT; other proxies are not supported")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return HttpProxy(f"http://{host}:{port}", user, password)


def is_this_machine(host: str) -> bool:
    """Return whether a host name or address is this machine's loopback."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.rstrip(".").lower() == "localhost" or host.lower().endswith(".localhost")
