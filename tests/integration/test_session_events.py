from __future__ import annotations

from collections import Counter
from pathlib import Path

from edge.mqtt.packets import V5, V311, Disconnect
from tests.helpers.gateway import Gateway, bind_session, log_in, port_of
from tests.helpers.mqtt import MqttClient
from tests.helpers.xmpp import SM

NAMES = ("closer", "loser", "resumer", "twice", "wrong", "sleeper", "sender", "excess", "stays")
PING = "<ping xmlns='urn:xmpp:ping'/>"


async def test_sessions_are_logged_with_the_reason_of_their_end(tmp_path: Path) -> None:
    options = {"require_tls": False, "sessions_per_account": 2}
    gateway = Gateway(tmp_path / "gateway", *NAMES, **options)
    with gateway.run() as process:
        port = port_of(process)
        await end_streams(port)
        await resume_twice(port)
        await let_expire(port)
        await replace(port)
        await evict(port)
        async with await bind_session(port, "stays"):
            assert process.terminate() == 0
    found = [event for event in gateway.events("system") if event["kind"] == "session"]
    counted: Counter[tuple[str, str, str]] = Counter()
    for event in found:
        source = event["source"].partition("@")[0]
        counted[source, event["name"], event["tags"].get("reason", "")] += int(event["value"])
        assert event["level"] == "Informational"
        assert int(event["tags"]["ago_s"]) >= 0
    assert counted == {
        ("closer", "began", ""): 2,
        ("closer", "ended", "closed"): 2,
        ("loser", "began", ""): 1,
        ("loser", "ended", "lost"): 1,
        ("wrong", "began", ""): 1,
        ("wrong", "ended", "undefined-condition"): 1,
        ("resumer", "began", ""): 1,
        ("resumer", "ended", "closed"): 1,
        ("sleeper", "began", ""): 1,
        ("sleeper", "ended", "not-resumed"): 1,
        ("sender", "began", ""): 1,
        ("sender", "ended", "closed"): 1,
        ("twice", "began", ""): 2,
        ("twice", "ended", "replaced"): 1,
        ("twice", "ended", "closed"): 1,
        ("excess", "began", ""): 3,
        ("excess", "ended", "evicted"): 1,
        ("excess", "ended", "closed"): 2,
        ("stays", "began", ""): 1,
    }


async def test_sessions_of_mqtt_are_logged_with_their_version(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway", "old", "new")
    gateway.configure_section("mqtt", listen="127.0.0.1:0", require_tls=False)
    with gateway.run() as process:
        for name, version in (("old", V311), ("new", V5)):
            async with await MqttClient.connect(process, name, version=version) as client:
                assert await client.ask(Disconnect()) is None
        assert process.terminate() == 0
    names = ("protocol", "version", "reason")
    found = [
        (event["source"], event["name"], *(event["tags"].get(name) for name in names))
        for event in gateway.events("system")
        if event["kind"] == "session"
    ]
    assert sorted(found, key=str) == [
        ("new@gw.example", "began", "mqtt", "5.0", None),
        ("new@gw.example", "ended", "mqtt", "5.0", "closed"),
        ("old@gw.example", "began", "mqtt", "3.1.1", None),
        ("old@gw.example", "ended", "mqtt", "3.1.1", "closed"),
    ]


async def end_streams(port: int) -> None:
    """End streams by their closing tag, by a lost connection, and by a fault."""
    for _ in range(2):
        async with await bind_session(port, "closer") as client:
            client.send("</stream:stream>")
            assert await client.closed() is None
    async with await bind_session(port, "loser") as client:
        client.cut()
    async with await bind_session(port, "wrong") as client:
        await client.enable()
        client.send("<a xmlns='urn:xmpp:sm:3' h='7'/>")
        assert await client.closed() == "undefined-condition"


async def resume_twice(port: int) -> None:
    """Resume a session twice, and close it."""
    client = await bind_session(port, "resumer")
    token = await client.enable()
    for _ in range(2):
        client.cut()
        client = await log_in(port, "resumer")
        assert (await client.resume(token, 0)).tag == f"{SM}resumed"
    async with client:
        client.send("</stream:stream>")
        assert await client.closed() is None


async def let_expire(port: int) -> None:
    """Let the time to resume a session expire; a request to it is then answered with an error."""
    client = await bind_session(port, "sleeper")
    await client.enable(max_=1)
    client.cut()
    async with await bind_session(port, "sender") as sender:
        answer = await sender.iq("get", PING, "sleeper@gw.example/fw")
        assert answer.get("type") == "error"
        sender.send("</stream:stream>")
        assert await sender.closed() is None


async def replace(port: int) -> None:
    """Bind a full JID again."""
    async with (
        await bind_session(port, "twice") as first,
        await bind_session(port, "twice") as second,
    ):
        assert await first.closed() == "conflict"
        second.send("</stream:stream>")
        assert await second.closed() is None


async def evict(port: int) -> None:
    """Bind a session above the account's limit, while one waits to be resumed."""
    waiting = await bind_session(port, "excess", "a")
    await waiting.enable()
    waiting.cut()
    async with (
        await bind_session(port, "excess", "b") as one,
        await bind_session(port, "excess", "c") as other,
    ):
        for client in (one, other):
            client.send("</stream:stream>")
            assert await client.closed() is None
