"""Whom the status page takes itself for: no name that a stranger's DNS can point here."""

from __future__ import annotations

import pytest

from edge.web.hosts import Hosts

HOSTS = Hosts(["status.site.example", "gw1"], "Pi-3")


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "192.0.2.7:9105",
        "8.8.8.8",
        "[::1]",
        "[2001:DB8::7]:9105",
        "[::ffff:192.0.2.7]",
        "localhost",
        "LocalHost:9105",
        "localhost.",
        "pi-3",
        "PI-3.local:9105",
        "pi-3.local.:9105",
        "status.site.example",
        "Status.Site.Example.:80",
        "gw1:",
    ],
)
def test_addresses_and_its_own_names_are_answered(host: str) -> None:
    assert HOSTS.serves(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        ".",
        ":9105",
        "evil.example",
        "evil.example:9105",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.localhost",
        "pi-3.evil.example",
        "site.example",
        "x.status.site.example",
        "gw1.local",
        "localhost..",
        "127.1",
        "0x7f.0.0.1",
        "0127.0.0.1",
        "2130706433",
        "::1",
        "[::1",
        "[127.0.0.1]",
        "[evil.example]",
        "[::1]evil.example",
        "[::1%eth0]",
        "user@localhost",
        "localhost:9105:9105",
        "localhost:http",
        "localhost:999999",
        "localhost, evil.example",
        "local host",
        "١٢٧.0.0.1",
        "localhos\xb7t",
    ],
)
def test_nothing_else_is(host: str) -> None:
    assert not HOSTS.serves(host)


@pytest.mark.parametrize("own", ["pi", "pi.local", "PI.local."])
def test_its_own_name_is_known_with_and_without_local(own: str) -> None:
    hosts = Hosts([], own)
    assert hosts.serves("pi")
    assert hosts.serves("pi.local")
    assert not hosts.serves("pi.local.local")


@pytest.mark.parametrize("own", ["", ".", ".local"])
def test_a_machine_without_a_name_has_none(own: str) -> None:
    hosts = Hosts([], own)
    assert hosts.serves("localhost")
    for host in ("", ".", ".local", "local"):
        assert not hosts.serves(host)
