"""The HTTP proxy from the environment."""

from __future__ import annotations

import pytest

from sync.uplink.proxies import HttpProxy, ProxyError, parse_proxy, proxy_for


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("text", "proxy"),
    [
        ("http://proxy.example:3128", HttpProxy("http://proxy.example:3128")),
        ("proxy.example:3128", HttpProxy("http://proxy.example:3128")),
        ("http://proxy.example/", HttpProxy("http://proxy.example:80")),
        ("http://[::1]:3128", HttpProxy("http://[::1]:3128")),
        ("http://gw:s%40crets@p:1", HttpProxy("http://p:1", "gw", "s@crets")),
    ],
)
def test_proxy_is_parsed(text: str, proxy: HttpProxy) -> None:
    assert parse_proxy(text) == proxy
    assert "crets" not in repr(parse_proxy(text))


@pytest.mark.parametrize(
    "text", ["https://u:crets@proxy:3128", "socks5://proxy", "http://", "http://p:x", "http://[::1"]
)
def test_unusable_proxy_is_reported_without_password(text: str) -> None:
    with pytest.raises(ProxyError, match="https_proxy") as caught:
        parse_proxy(text)
    assert "crets" not in str(caught.value)


@pytest.mark.parametrize("name", ["https_proxy", "HTTPS_PROXY"])
def test_proxy_from_the_environment(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert proxy_for("https://centre.example:8443") is None
    monkeypatch.setenv(name, "http://p:1")
    assert proxy_for("https://centre.example:8443") == HttpProxy("http://p:1")
    monkeypatch.setenv("no_proxy", "other.example,.example")
    assert proxy_for("https://centre.example:8443") is None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "[::1]", "localhost", "a.localhost"])
def test_loopback_uses_no_proxy(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("https_proxy", "http://p:1")
    assert proxy_for(f"https://{host}:8443") is None
