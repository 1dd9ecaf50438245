"""docs/reference/protocol.md, fieldpost.doap and the code name the same RFCs, XEPs and
namespaces."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

from edge.config import load
from edge.config.limits import Limits
from edge.config.options import Xmpp
from edge.engine.dispatch.hooks import new_context
from edge.features.adhoc_commands.service import Commands
from edge.routing.xmpp import XmppHooks
from edge.routing.xmpp.router import Router
from edge.xmpp import namespaces
from edge.xmpp.disco import NODE

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "reference" / "protocol.md").read_text("utf-8")
DOAP = ElementTree.fromstring((ROOT / "docs" / "reference" / "fieldpost.doap").read_text("utf-8"))  # noqa: S314
HARNESS = ROOT / "tests" / "fuzz"

PROJECT = "{http://usefulinc.com/ns/doap#}"
XMPP = "{https://linkmauve.fr/ns/xmpp-doap#}"
RESOURCE = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}resource"

ROW = re.compile(r"\| \[XEP-(\d{4})\]\(https://xmpp\.org/extensions/xep-(\d{4})\.html\) (\|.*)")
PARTS = f"{namespaces.PUBSUB}#"
"""The prefix of features of publish-subscribe that are no namespaces."""

OWN = frozenset(namespaces.QOS_ALL)
"""Namespaces of the Quality of Service proposal, which has no number."""

FRAMES = frozenset(
    {
        namespaces.STREAMS, namespaces.CLIENT, namespaces.TLS, namespaces.SASL, namespaces.BIND,
        namespaces.SESSION, namespaces.STREAM_ERRORS, namespaces.STANZA_ERRORS, namespaces.ROSTER,
        namespaces.PRE_APPROVAL, namespaces.ROSTER_VERSIONING,
    }
)  # fmt: skip
"""Namespaces that the RFCs define."""


class Xep(NamedTuple):
    version: str
    status: str
    namespaces: frozenset[str]
    component: str
    left_out: str


def documented() -> dict[str, Xep]:
    found: dict[str, Xep] = {}
    for match in ROW.finditer(DOCUMENT):
        number, linked, cells = match.groups()
        assert number == linked
        assert number not in found
        _, _name, version, status, names, component, left_out, _ = cells.split("|")
        stripped = (version.strip(), status.strip())
        named = frozenset(re.findall("`([^`]+)`", names))
        found[number] = Xep(*stripped, named, component.strip(), left_out.strip())
    return found


XEPS = documented()
SOURCES = {
    path: path.read_text("utf-8")
    for path in (ROOT / "edge").rglob("*.py")
    if path.name != "namespaces.py"
}
CONSTANTS = {value: name for name, value in vars(namespaces).items() if isinstance(value, str)}


def used(constant: str) -> bool:
    """Return whether any module but the list itself uses a namespace."""
    return any(re.search(rf"\b{constant}\b", text) for text in SOURCES.values())


def advertised(*, accounts: bool) -> set[str]:
    """Return what a gateway advertises by discovery, of its services too, and in stream features.

    Features of publish-subscribe that are no namespaces are left out.
    """
    router = Router(new_context("gw.example", Limits(), Xmpp(), accounts=accounts))
    found = re.findall(r"xmlns='([^']+)'", router.stream_features.decode())
    of_pubsub = {
        name
        for name in router.context.hooks.of(XmppHooks).pubsub_advertised
        if not name.startswith(PARTS)
    }
    return {*router.context.hooks.of(XmppHooks).advertised, *of_pubsub, *found}


def parts_of_pubsub() -> set[str]:
    """Return the features that publish-subscribe advertises (XEP-0060, section 10)."""
    of_pubsub = new_context("gw.example", Limits(), Xmpp()).hooks.of(XmppHooks).pubsub_advertised
    return {name.removeprefix(PARTS) for name in of_pubsub if name.startswith(PARTS)}


@pytest.mark.parametrize("number", XEPS)
def test_each_row_has_a_status_and_partial_ones_name_the_gaps(number: str) -> None:
    row = XEPS[number]
    assert re.fullmatch(r"\d+\.\d+(\.\d+)?", row.version)
    assert row.status in {"complete", "partial"}
    assert row.component in {"yes", "no"}
    assert row.left_out or row.status == "complete"


def test_the_doap_file_has_the_same_xeps() -> None:
    found = {}
    for xep in DOAP.iter(f"{XMPP}SupportedXep"):
        link = xep.find(f"{XMPP}xep")
        assert link is not None
        number = re.fullmatch(
            r"https://xmpp\.org/extensions/xep-(\d{4})\.html", link.attrib[RESOURCE]
        )
        assert number is not None
        assert number[1] not in found
        assert xep.findtext(f"{XMPP}since")
        version, status = xep.findtext(f"{XMPP}version"), xep.findtext(f"{XMPP}status")
        found[number[1]] = (version, status, bool(xep.findtext(f"{XMPP}note")))
    assert len(found) > 15
    assert found == {n: (x.version, x.status, bool(x.left_out)) for n, x in XEPS.items()}


def test_the_doap_file_has_the_same_rfcs() -> None:
    links = (one.get(RESOURCE, "") for one in DOAP.iter(f"{PROJECT}implements"))
    rfcs = [link.rpartition("/rfc")[2] for link in links if "/rfc" in link]
    assert rfcs == re.findall(r"^\| \[RFC (\d+)\]", DOCUMENT, re.MULTILINE)


@pytest.mark.parametrize("accounts", [True, False])
def test_advertised_namespaces_are_documented(accounts: bool) -> None:
    named = set().union(*(row.namespaces for row in XEPS.values()))
    assert advertised(accounts=accounts) <= named | OWN | FRAMES
    assert all(f"`{name}`" in DOCUMENT for name in OWN)


def test_publish_subscribe_features_are_documented() -> None:
    text = DOCUMENT[DOCUMENT.index("\n## Publish-subscribe\n") :]
    features = text[text.index(f"`{PARTS}`:") + len(PARTS) + 3 : text.index("and `auto-create`")]
    assert re.findall(r"`([^`]+)`", features) == sorted(parts_of_pubsub())


def test_a_component_advertises_only_what_it_has() -> None:
    whole, part = advertised(accounts=True), advertised(accounts=False)
    for number, row in XEPS.items():
        offered = row.namespaces & whole
        assert row.namespaces & part == (offered if row.component == "yes" else set()), number


@pytest.mark.parametrize("number", XEPS)
def test_documented_xeps_and_namespaces_are_in_the_code(number: str) -> None:
    assert any(f"XEP-{number}" in text for text in SOURCES.values())
    for name in XEPS[number].namespaces:
        assert used(CONSTANTS[name])


def test_xeps_that_the_code_names_are_documented() -> None:
    followed = set(re.findall(r"XEP-(\d{4})", "".join(SOURCES.values())))
    assert followed - set(XEPS) <= {"0085"}, "messages with only XEP-0085 are not stored"


def test_every_ad_hoc_command_has_a_row() -> None:
    nodes = re.findall(r"^\| `(urn:x-fieldpost:[\w:#]+)` \|", DOCUMENT, re.MULTILINE)
    assert nodes
    commands = new_context("gw.example", Limits(), Xmpp()).hooks.of(Commands).by_name
    assert set(nodes) == {f"{NODE}:{name}" for name in commands}


def test_every_target_of_the_fuzzer_has_a_row() -> None:
    targets = {path.stem.removeprefix("fuzz_") for path in HARNESS.glob("fuzz_*.py")}
    table = DOCUMENT[DOCUMENT.index("### Fuzzing") :]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == targets


def test_the_component_example_is_a_valid_configuration() -> None:
    text = (ROOT / "docs" / "how-to" / "component.md").read_text("utf-8")
    example = text[text.index('    listen = ""\n') : text.index("The link has no TLS")]
    lines = [line.strip() for line in example.splitlines()]
    written = "\n".join(['gateway.domain = "gw.example"', "[xmpp]", *lines])
    assert load.parse(written.encode()).component == load.Address("127.0.0.1", 5347)
