"""Play scripts in the format of scansion, the tool with which Prosody is tested, on a gateway.

    [Client] Romeo                      a client; its account is created
        jid: user@localhost             with a resource, or without
        password: password
    ---------
    Romeo connects
    Romeo sends:
        <presence/>
    Romeo receives:                     its next stanza
        <presence from="${Romeo's full JID}"/>
    Romeo receives: nothing
    Romeo disconnects

Lines that begin with `#`, `//` or `--` are comments. In XML, `${Romeo's JID}` and `${Romeo's full
JID}` stand for addresses, and an attribute's value `{scansion:any}` for any value. A received
element of the stream's namespace may have more attributes and children than the script says, in any
order; one of another namespace may not, and has its children in the script's order. The attribute
`scansion:strict` makes an exception for one element. What a client has received and the script does
not ask for at the end is ignored.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from tests.helpers.xmpp import CLIENT, Client, Closed

WAIT_S = 10.0
"""Seconds for a stanza that a script expects."""

DOMAIN: Final = "localhost"
"""The domain of the accounts in Prosody's scripts."""

_ANY: Final = "{scansion:any}"
_SCANSION: Final = "urn:scansion"
_STRICT: Final = f"{{{_SCANSION}}}strict"
_COMMENTS: Final = ("#", "//", "--")
_CLIENT: Final = re.compile(r"\[Client\] (?P<name>.+)")
_STEP: Final = re.compile(
    r"(?P<who>.+) (?P<action>connects|disconnects|sends|receives)(?::(?P<nothing> nothing)?)?"
)
_VARIABLE: Final = re.compile(r"\$\{(?P<who>[^}]+)'s (?P<full>full )?JID\}")
_PING: Final = "<iq type='get' id='{id}' to='{domain}'><ping xmlns='urn:xmpp:ping'/></iq>"


class Account(NamedTuple):
    """The account of a client, and the resource that it binds if the script names one."""

    jid: str
    password: str
    resource: str


class Step(NamedTuple):
    """A line of a script; `xml` is what is sent or received, empty for `receives: nothing`."""

    line: int
    who: str
    action: str
    xml: str


class Script(NamedTuple):
    """A script: its clients by name, and what they do."""

    clients: Mapping[str, Account]
    steps: Sequence[Step]


class Deviation(NamedTuple):
    """A line of a script at which the gateway deviates, and the reason.

    Attributes:
        line: of a step that sends or receives.
        reason: why the gateway deviates.
        instead: what is sent or received instead, `""` for nothing; None for what the script says.
        before: a stanza that the client receives before.
    """

    line: int
    reason: str
    instead: str | None = None
    before: str = ""


class InvalidScript(Exception):
    """A text is not a script."""


class Mismatch(AssertionError):
    """A client has not received what the script says."""


def read(text: str) -> Script:
    """Parse a script; raises `InvalidScript`."""
    fields: dict[str, dict[str, str]] = {}
    steps: list[Step] = []
    attributes: dict[str, str] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip()
        if not words or line.startswith(_COMMENTS):
            continue
        if line[0].isspace():
            if steps:
                steps[-1] = steps[-1]._replace(xml=f"{steps[-1].xml}{words}\n")
            elif attributes is not None:
                name, _, value = words.partition(":")
                attributes[name] = value.strip()
            else:
                raise InvalidScript(f"line {number}: {words}")
        elif client := _CLIENT.fullmatch(words):
            attributes = fields[client["name"]] = {}
        elif (step := _STEP.fullmatch(words)) and step["who"] in fields:
            steps.append(Step(number, step["who"], step["action"], ""))
        else:
            raise InvalidScript(f"line {number}: {words}")
    return Script({name: _account(name, entries) for name, entries in fields.items()}, steps)


def _account(name: str, fields: Mapping[str, str]) -> Account:
    if not {"jid", "password"} <= fields.keys():
        raise InvalidScript(f"{name} has no JID or no password")
    jid, _, resource = fields["jid"].partition("/")
    return Account(jid, fields["password"], fields.get("resource", resource))


async def play(
    script: Script, port: int, deviations: Sequence[Deviation] = (), wait: float = WAIT_S
) -> None:
    """Play a script on a server that has its accounts, at a port of this machine without TLS.

    Args:
        script: what the clients do and receive.
        port: the server's.
        deviations: lines at which something else happens. What the script says there must not.
        wait: seconds for each stanza.

    Raises:
        Mismatch: something else is received, or nothing in time.
        InvalidScript: a deviation is not at the line of a step that sends or receives.
    """
    stanzas = {step.line for step in script.steps if step.action in ("sends", "receives")}
    known = {deviation.line: deviation for deviation in deviations}
    if not known.keys() <= stanzas:
        raise InvalidScript(f"no stanza at the lines {sorted(known.keys() - stanzas)}")
    stage = _Stage(script, port, wait)
    try:
        for step in script.steps:
            try:
                await stage.take(step, known.get(step.line))
            except Mismatch as mismatch:
                what = f"{step.who} {step.action}"
                raise Mismatch(f"line {step.line}: {what}: {mismatch}") from None
    finally:
        await stage.close()


class _Stage:
    """The clients of a script that is being played."""

    def __init__(self, script: Script, port: int, wait: float) -> None:
        self._script = script
        self._port = port
        self._wait = wait
        self._clients: dict[str, Client] = {}
        self._inbox: dict[str, deque[Element]] = {}
        self._full: dict[str, str] = {}
        self._pings = 0

    async def close(self) -> None:
        """Close all connections."""
        while self._clients:
            await self._clients.popitem()[1].close()

    async def take(self, step: Step, deviation: Deviation | None) -> None:
        """Do a step; raises `Mismatch`."""
        instead = None if deviation is None else deviation.instead
        xml = step.xml if instead is None else instead
        if step.action == "connects":
            await self._connect(step.who)
        elif step.action == "disconnects":
            await self._disconnect(step.who)
        elif step.action == "sends":
            self._clients[step.who].send(self._substitute(xml))
        else:
            if deviation is not None and deviation.before:
                await self._expect(step.who, deviation.before, unlike=step.xml)
            await self._expect(step.who, xml, unlike="" if instead is None else step.xml)

    async def _connect(self, who: str) -> None:
        account = self._script.clients[who]
        client = await Client.connect(self._port, account.jid.partition("@")[2])
        self._clients[who] = client
        await client.element()
        name = account.jid.partition("@")[0]
        assert await client.authenticate("SCRAM-SHA-256", name, account.password) == "success"
        self._full[who] = await client.bind(account.resource)
        self._inbox[who] = deque()

    async def _disconnect(self, who: str) -> None:
        client = self._clients.pop(who, None)
        if client is not None:  # a script of Prosody's says it twice
            client.send("</stream:stream>")
            await client.closed()

    async def _expect(self, who: str, xml: str, unlike: str = "") -> None:
        """Receive what matches `xml` and does not match `unlike`; nothing if `xml` is empty."""
        if not xml:
            await self._synchronize()
            if self._inbox[who]:
                raise Mismatch(f"has received {_to_text(self._inbox[who][0])}")
            return
        received = await self._receive(who)
        if unlike and not difference(self._parse(unlike), received):
            raise Mismatch("has received what the script says: it does not deviate here")
        if found := difference(self._parse(xml), received):
            raise Mismatch(f"{found}\nhas received {_to_text(received)}")

    async def _receive(self, who: str) -> Element:
        if self._inbox[who]:
            return self._inbox[who].popleft()
        try:
            async with asyncio.timeout(self._wait):
                return await self._clients[who].element()
        except TimeoutError:
            raise Mismatch(f"has received nothing in {self._wait:g} s") from None
        except Closed as closed:
            raise Mismatch(f"the stream has ended: {closed}") from None

    async def _synchronize(self) -> None:
        """Wait until each client has received what the stanzas sent so far lead to."""
        for who in (*self._clients, *self._clients):
            self._pings += 1
            client, id_ = self._clients[who], f"scansion-{self._pings}"
            client.send(_PING.format(id=id_, domain=DOMAIN))
            while (received := await client.element()).get("id") != id_:
                self._inbox[who].append(received)

    def _substitute(self, xml: str) -> str:
        def address(match: re.Match[str]) -> str:
            who = match["who"]
            return self._full[who] if match["full"] else self._script.clients[who].jid

        return _VARIABLE.sub(address, xml)

    def _parse(self, xml: str) -> Element:
        head = f"<s xmlns='{CLIENT[1:-1]}' xmlns:scansion='{_SCANSION}'>"
        return ElementTree.fromstring(f"{head}{self._substitute(xml)}</s>")[0]  # noqa: S314


def difference(expected: Element, received: Element) -> str:
    """Return how an element differs from what is expected; an empty string if it does not."""
    if expected.tag != received.tag:
        return f"{received.tag} instead of {expected.tag}"
    attributes = dict(expected.attrib)
    strict = attributes.pop(_STRICT, str(not expected.tag.startswith(CLIENT)).lower()) == "true"
    for name, value in attributes.items():
        if name not in received.attrib or value not in (_ANY, received.attrib[name]):
            return f"{received.tag} has {name}={received.get(name)!r} instead of {value!r}"
    if strict and (more := received.keys() - attributes.keys()):
        return f"{received.tag} also has {sorted(more)}"
    wanted, text = (expected.text or "").strip(), (received.text or "").strip()
    if wanted != text and (strict or wanted):
        return f"{received.tag} has the text {text!r} instead of {wanted!r}"
    return _ordered(expected, received) if strict else _unordered(expected, received)


def _ordered(expected: Element, received: Element) -> str:
    if len(expected) != len(received):
        return f"{received.tag} has {len(received)} children instead of {len(expected)}"
    found = (difference(*pair) for pair in zip(expected, received, strict=True))
    return next(filter(None, found), "")


def _unordered(expected: Element, received: Element) -> str:
    left = list(received)
    for child in expected:
        match = next((other for other in left if not difference(child, other)), None)
        if match is None:
            return f"{received.tag} has no such {child.tag}"
        left.remove(match)
    return ""


def _to_text(element: Element) -> str:
    return ElementTree.tostring(element, "unicode")
