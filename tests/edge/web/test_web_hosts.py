from __future__ import annotations

import pytest

from edge.web.hosts import KnownHosts

HOSTS = KnownHosts(["status.site.example", "gw1"], "Pi-3")


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "192.0.2.7:9105", "8.8.8.8", "[::1]", "[2001:DB8::7]:9105",
        "[::ffff:192.0.2.7]", "localhost", "LocalHost:9105", "localhost.", "pi-3",
        "PI-3.local:9105", "pi-3.local.:9105", "status.site.example", "Status.Site.Example.:80",
        "gw1:",
    ],
)  # fmt: skip
def test_addresses_and_known_names_are_accepted(host: str) -> None:
    assert HOSTS.is_known(host)


@pytest.mark.parametrize(
    "host",
    [
        "", ".", ":9105", "evil.example", "evil.example:9105", "localhost.evil.example",
        "127.0.0.1.evil.example", "evil.localhost", "pi-3.evil.example", "site.example",
        "x.status.site.example", "gw1.local", "localhost..", "127.1", "0x7f.0.0.1", "0127.0.0.1",
        "2130706433", "::1", "[::1", "[127.0.0.1]", "[evil.example]", "[::1]evil.example",
        "[::1%eth0]", "user@localhost", "localhost:9105:9105", "localhost:http", "localhost:999999",
        "localhost, evil.example", "local host", "١٢٧.0.0.1", "localhos\xb7t",
    ],
)  # fmt: skip
def test_other_hosts_are_refused(host: str) -> None:
    assert not HOSTS.is_known(host)


@pytest.mark.parametrize("own", ["pi", "pi.local", "PI.local."])
def test_machine_name_is_known_with_and_without_local(own: str) -> None:
    hosts = KnownHosts([], own)
    assert hosts.is_known("pi")
    assert hosts.is_known("pi.local")
    assert not hosts.is_known("pi.local.local")


@pytest.mark.parametrize("own", ["", ".", ".local"])
def test_machine_without_a_name(own: str) -> None:
    hosts = KnownHosts([], own)
    assert hosts.is_known("localhost")
    for host in ("", ".", ".local", "local"):
        assert not hosts.is_known(host)
