"""Transcripts: what devices send and receive, as text that reads as the protocol.

    # Anything after a hash, to the end of the line, at its beginning.
    device pump1                    a device is provisioned
    device apart without trust
    pump1/fw sends:                 a session begins with the first thing that it sends or receives
        <presence/>
    pump1/fw receives:              in order, and all of it: what is left over fails the transcript
        <presence .../>
    pump1/fw receives nothing
    pump1/fw leaves
    after 60 seconds
    the gateway is killed           every session is over, unannounced

XML is compared as XML: neither the order of attributes nor white space between elements counts.
`{any}` stands for any value of an attribute or any text. It runs on `store.Gateway`: real handlers,
real SQLite, no sockets. A session confirms what it receives.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from tests.helpers.store import DOMAIN, Gateway, read_element

ANY: Final = "{any}"

_STEP: Final = re.compile(
    r"(?P<who>[^\s/]+/\S+) (?P<what>sends:|receives:|receives nothing|leaves)"
    r"|device (?P<name>\S+)(?P<apart> without trust)?"
    r"|after (?P<seconds>[0-9]+) seconds"
    r"|(?P<killed>the gateway is killed)"
)


class Step(NamedTuple):
    """A line of a transcript, and the XML that stands indented below it."""

    line: int
    text: str
    xml: str


class Mismatch(AssertionError):
    """A transcript does not tell what happens."""


def read(text: str) -> Iterator[Step]:
    step: Step | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if line[0].isspace():
            if step is None:
                raise Mismatch(f"line {number}: XML before anybody sends it")
            step = step._replace(xml=step.xml + line.strip() + "\n")
            continue
        if step is not None:
            yield step
        step = Step(number, line.rstrip(), "")
    if step is not None:
        yield step


class Stage:
    """Plays transcripts on a gateway."""

    def __init__(self, database: Path) -> None:
        self._gateway = Gateway(database)
        self._inbox: defaultdict[str, deque[Element]] = defaultdict(deque)

    def close(self) -> None:
        self._gateway.close()

    def play(self, text: str) -> None:
        """Play a transcript; raises `Mismatch` where something else happens than it tells."""
        for step in read(text):
            try:
                self._take(step)
            except Mismatch as mismatch:
                raise Mismatch(f"line {step.line}: {step.text}\n{mismatch}") from None
        for who, left in self._inbox.items():
            if left:
                raise Mismatch(f"at the end, {who} has also received {_shown(left[0])}")

    def _take(self, step: Step) -> None:
        match = _STEP.fullmatch(step.text)
        if match is None:
            raise Mismatch("this is no step of a transcript")
        if match["name"]:
            self._gateway.add(match["name"], trusted=not match["apart"])
        elif match["seconds"]:
            self._gateway.clock.service += float(match["seconds"])
            self._gateway.run_timers()
        elif match["killed"]:
            self._gateway.crash()
            self._inbox.clear()
        else:
            self._act(match["who"], match["what"], step.xml)

    def _act(self, who: str, what: str, xml: str) -> None:
        local, _, resource = who.partition("/")
        full = f"{local}@{DOMAIN}/{resource}"
        if not self._gateway.is_bound(full):
            self._gateway.bind(full)
        if what == "sends:":
            answer = self._gateway.tx(self._gateway.work(full, xml))
            self._hand_over()
            if answer:
                self._inbox[full].append(read_element(answer))
        elif what == "leaves":
            self._gateway.end(full)
            self._hand_over()
        elif what == "receives:":
            self._expect(full, xml)
        elif self._inbox[full]:
            raise Mismatch(f"it has received {_shown(self._inbox[full][0])}")

    def _hand_over(self) -> None:
        """Give sessions what they were sent; confirming that may bring them more."""
        gateway = self._gateway
        while any(gateway.is_generation_bound(send.generation) for send in gateway.sent):
            for full in gateway.bound():
                self._inbox[full] += gateway.elements(full)
        gateway.sent.clear()

    def _expect(self, full: str, xml: str) -> None:
        if not self._inbox[full]:
            raise Mismatch("it has received nothing")
        got = self._inbox[full].popleft()
        if difference := _difference(read_element(xml.encode()), got):
            raise Mismatch(f"{difference}\nit has received {_shown(got)}")


def _difference(expected: Element, got: Element) -> str:
    """Tell how an element differs from what is expected; nothing if it does not."""
    if expected.tag != got.tag:
        return f"{got.tag} in place of {expected.tag}"
    if sorted(expected.keys()) != sorted(got.keys()):
        return f"{got.tag} has the attributes {sorted(got.keys())}"
    for name, value in expected.items():
        if value not in (ANY, got.get(name)):
            return f"{got.tag} has {name}={got.get(name)!r}"
    wanted, text = (expected.text or "").strip(), (got.text or "").strip()
    if wanted not in (ANY, text):
        return f"{got.tag} has the text {text!r}"
    if len(expected) != len(got):
        return f"{got.tag} has {len(got)} children"
    differences = (_difference(*pair) for pair in zip(expected, got, strict=True))
    return next((found for found in differences if found), "")


def _shown(element: Element) -> str:
    return ElementTree.tostring(element, "unicode")
