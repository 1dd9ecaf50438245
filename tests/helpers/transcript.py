"""Transcripts: the stanzas that devices send and receive, as text.

    # Anything after a hash, to the end of the line, at its beginning.
    device pump1                    a device is provisioned
    device apart without trust
    pump1/fw sends:                 a session begins when it first sends or receives
        <presence/>
    pump1/fw receives:              in order; stanzas that are not listed fail the transcript
        <presence .../>
    pump1/fw receives nothing
    pump1/fw leaves
    after 60 seconds
    the gateway is killed           every session ends without a notice

XML is compared as XML: neither the order of attributes nor white space between elements counts.
`{any}` stands for any value of an attribute or any text. It runs on `store.Gateway`: real handlers,
real SQLite, no sockets. A session acknowledges what it receives.
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
    r"(?P<session>[^\s/]+/\S+) (?P<action>sends:|receives:|receives nothing|leaves)"
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
    """The gateway behaves differently from a transcript."""


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


class TranscriptRunner:
    """Runs transcripts on a gateway."""

    def __init__(self, database: Path) -> None:
        self._gateway = Gateway(database)
        self._inbox: defaultdict[str, deque[Element]] = defaultdict(deque)

    def close(self) -> None:
        self._gateway.close()

    def run(self, text: str) -> None:
        """Run a transcript; raise `Mismatch` at the first difference."""
        for step in read(text):
            try:
                self._run_step(step)
            except Mismatch as mismatch:
                raise Mismatch(f"line {step.line}: {step.text}\n{mismatch}") from None
        for full, inbox in self._inbox.items():
            if inbox:
                raise Mismatch(f"at the end, {full} has also received {_to_text(inbox[0])}")

    def _run_step(self, step: Step) -> None:
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
            self._run_action(match["session"], match["action"], step.xml)

    def _run_action(self, session: str, action: str, xml: str) -> None:
        local, _, resource = session.partition("/")
        full = f"{local}@{DOMAIN}/{resource}"
        if not self._gateway.is_bound(full):
            self._gateway.bind(full)
        if action == "sends:":
            answer = self._gateway.tx(self._gateway.work(full, xml))
            self._collect_sent()
            if answer:
                self._inbox[full].append(read_element(answer))
        elif action == "leaves":
            self._gateway.end(full)
            self._collect_sent()
        elif action == "receives:":
            self._expect(full, xml)
        elif self._inbox[full]:
            raise Mismatch(f"it has received {_to_text(self._inbox[full][0])}")

    def _collect_sent(self) -> None:
        """Move sent stanzas to the inboxes; acknowledging them may cause more to be sent."""
        gateway = self._gateway
        while any(gateway.is_generation_bound(send.generation) for send in gateway.sent):
            for full in gateway.bound():
                self._inbox[full] += gateway.elements(full)
        gateway.sent.clear()

    def _expect(self, full: str, xml: str) -> None:
        if not self._inbox[full]:
            raise Mismatch("it has received nothing")
        actual = self._inbox[full].popleft()
        if difference := _difference(read_element(xml.encode()), actual):
            raise Mismatch(f"{difference}\nit has received {_to_text(actual)}")


def _difference(expected: Element, actual: Element) -> str:
    """Describe the first difference; return an empty string if there is none."""
    if expected.tag != actual.tag:
        return f"{actual.tag} in place of {expected.tag}"
    if sorted(expected.keys()) != sorted(actual.keys()):
        return f"{actual.tag} has the attributes {sorted(actual.keys())}"
    for name, value in expected.items():
        if value not in (ANY, actual.get(name)):
            return f"{actual.tag} has {name}={actual.get(name)!r}"
    expected_text, text = (expected.text or "").strip(), (actual.text or "").strip()
    if expected_text not in (ANY, text):
        return f"{actual.tag} has the text {text!r}"
    if len(expected) != len(actual):
        return f"{actual.tag} has {len(actual)} children"
    differences = (_difference(*pair) for pair in zip(expected, actual, strict=True))
    return next((found for found in differences if found), "")


def _to_text(element: Element) -> str:
    return ElementTree.tostring(element, "unicode")
