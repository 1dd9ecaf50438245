"""The scripts with which Prosody is tested (`spec/scansion` of its source), played on the gateway.

They are not kept here: the environment variable FIELDPOST_SCANSION names a folder with them, and
each is in one of the tables below. The runner itself is tested with scripts of this file.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from edge.ops.devices import devices
from tests.helpers.gateway import Gateway, port_of
from tests.helpers.processes import Process
from tests.interop import scansion
from tests.interop.scansion import DOMAIN, Deviation, InvalidScript, Mismatch, Script

FOLDER: Final = os.environ.get("FIELDPOST_SCANSION")
SCRIPTS: Final = sorted(Path(FOLDER).glob("*.scs")) if FOLDER else []

_PUBSUB: Final = "http://jabber.org/protocol/pubsub"

_NO_PRESENCE: Final = "RFC 6121, 3.1.3: a contact's presence is sent when it has approved"
_FORM: Final = "XEP-0060, 8.2: each service offers its own options, in its own words"
_ANY_MAX_ITEMS: Final = (
    f"<iq type='result'><pubsub xmlns='{_PUBSUB}#owner'><configure node='{{scansion:any}}'>"
    "<x xmlns='jabber:x:data' type='form' scansion:strict='false'>"
    "<field var='pubsub#max_items' scansion:strict='false'><value>20</value></field>"
    "<field var='pubsub#access_model' scansion:strict='false'><value>open</value></field>"
    "</x></configure></pubsub></iq>"
)

RUNS: Final[Mapping[str, Sequence[Deviation]]] = {
    "basic": (),
    "basic_message": (
        Deviation(
            134,
            "RFC 6121, 4.2.2: an account's resources get each other's presence;"
            " Prosody sends it, too, and the script does not wait for it",
            before="<presence from=\"${Juliet's phone's full JID}\"/>",
        ),
        Deviation(
            158,
            "RFC 6121, 8.5.2.1.1: a server may choose the most available of several resources,"
            " so that an actuator does not get a command twice",
            instead="",
        ),
    ),
    "basic_roster": (),
    "disco_self": (),
    "issue1121": (
        Deviation(32, _NO_PRESENCE, instead=""),
        Deviation(47, _NO_PRESENCE, instead=""),
        Deviation(59, "Romeo has it from line 41 on: nothing has changed since", instead=""),
    ),
    "keep_full_sub_req": (),
    "presence_preapproval": (
        Deviation(
            46,
            "RFC 6121, 2.6: a roster's version is opaque; Prosody counts, here it is random",
            instead="<iq type='set' id='{scansion:any}'><query ver='{scansion:any}'"
            " xmlns='jabber:iq:roster'><item jid=\"${Alice's JID}\" subscription='none'"
            " ask='subscribe'/></query></iq>",
        ),
    ),
    "pubsub_advanced": (
        Deviation(19, "any trusted device may create a node (decision 17)", instead=""),
        Deviation(26, "see line 19", instead=""),
        Deviation(
            78,
            "XEP-0060, 6.1.6: a subscription has a SubID",
            instead=f"<iq type='result' id='sub2'><pubsub xmlns='{_PUBSUB}'><subscription"
            " jid=\"${Juliet's full JID}\" node='princely_musings' subscription='subscribed'"
            " subid='{scansion:any}'/></pubsub></iq>",
        ),
        Deviation(
            152,
            "XEP-0060, 6.2.2: the answer is an empty result",
            instead="<iq type='result' id='unsub1' scansion:strict='true' to='{scansion:any}'"
            " from='pubsub.localhost'/>",
        ),
    ),
    "pubsub_basic": (),
    "pubsub_createdelete": (),
    "pubsub_max_items": (
        Deviation(34, _FORM, instead=_ANY_MAX_ITEMS),
        Deviation(
            182,
            "XEP-0060, 6.5.4: a result set says that there are more items than were requested",
            instead=f"<iq type='result'><pubsub xmlns='{_PUBSUB}' scansion:strict='false'>"
            "<items node='5549ea47-ea53-4cc1-9e7c-37842fe4bc06'><item publisher=\"${Alice's JID}\""
            " id='4b94623d-1127-41c0-ac47-e283fd890557'>"
            "<foo xmlns='https://zombofant.net/xmlns/aioxmpp#test'>bar</foo></item></items>"
            "<set xmlns='http://jabber.org/protocol/rsm' scansion:strict='false'>"
            "<count>2</count></set></pubsub></iq>",
        ),
    ),
    "pubsub_multi_items": (Deviation(34, _FORM, instead=_ANY_MAX_ITEMS),),
    "pubsub_resend_on_sub": (),
    "version": (
        Deviation(
            18,
            "another product; and XEP-0092, 4: the operating system is optional, here Linux",
            instead="<iq id='lx2' from='localhost' type='result'><query xmlns='jabber:iq:version'>"
            "<name>Fieldpost</name><version scansion:strict='false'/><os>Linux</os></query></iq>",
        ),
    ),
}
"""Scripts that run, with what deviates in them."""

LEFT_OUT: Final[Mapping[str, tuple[str, ...]]] = {
    "multi-user chat (XEP-0045): devices have nodes and queues": (
        *("issue505", "issue978", "issue978-multi", "issue1224", "muc_affiliation_notify"),
        *("muc_create_destroy", "muc_mediated_invite", "muc_members_only_change"),
        *("muc_members_only_deregister", "muc_nickname_change", "muc_nickname_robotface"),
        *("muc_outcast_reason", "muc_password", "muc_presence_probe", "muc_register"),
        *("muc_show_offline", "muc_subject_issue_667", "muc_whois_anyone_member"),
    ),
    "nodes of accounts (XEP-0163): nodes are at the publish-subscribe service": (
        *("bookmarks2", "empty_bookmarks", "pep_itemreply", "pep_nickname"),
        *("pep_publish_subscribe", "pep_pubsub_max", "pubsub_config", "pubsub_preconditions"),
    ),
    "archives of messages (XEP-0313)": ("mam_extended", "mam_prefs_prep"),
    "blocking lists (XEP-0191): `trust` says who reaches a device": ("blocking",),
    "vCards (XEP-0054)": ("vcard_temp",),
    "last activity (XEP-0012): `fieldpost device list` shows it": ("lastactivity", "uptime"),
    "addresses of administrators (XEP-0157)": ("server_contact_info",),
    "external services (XEP-0215)": ("extdisco",),
    "upload of files (XEP-0363)": ("http_upload",),
    "removal of the own account (XEP-0077, 3.2): the operator removes devices": ("tombstones",),
}
"""Scripts for what Fieldpost does not have."""

needs_folder = pytest.mark.skipif(
    not FOLDER, reason="FIELDPOST_SCANSION does not name a folder with scripts"
)


def provision(gateway: Gateway, script: Script) -> None:
    """Create the accounts of a script."""
    for jid, password in {(client.jid, client.password) for client in script.clients.values()}:
        devices.add(gateway.folder, jid.partition("@")[0], password, trusted=True)


def localhost(folder: Path) -> Gateway:
    """Create a gateway of the domain in Prosody's scripts."""
    return Gateway(folder / "gateway", domain=DOMAIN, require_tls=False)


@needs_folder
def test_each_script_of_the_folder_is_in_a_table() -> None:
    left_out = [name for names in LEFT_OUT.values() for name in names]
    assert SCRIPTS
    assert {path.stem for path in SCRIPTS} <= {*RUNS, *left_out}
    assert len({*RUNS, *left_out}) == len(RUNS) + len(left_out)


@needs_folder
@pytest.mark.parametrize("path", SCRIPTS or [Path("none")], ids=lambda path: path.stem)
def test_script_of_the_folder(path: Path, tmp_path: Path) -> None:
    script = scansion.read(path.read_text("utf-8"))
    gateway = localhost(tmp_path)
    provision(gateway, script)
    with gateway.run() as process:
        if path.stem in RUNS:
            asyncio.run(scansion.play(script, port_of(process), RUNS[path.stem]))
        else:
            with pytest.raises(Mismatch):
                asyncio.run(scansion.play(script, port_of(process), wait=0.5))


# The runner

SCRIPT: Final = """# Title

[Client] Romeo
\tjid: romeo@localhost/garden
\tpassword: password one

// another

[Client] Juliet's phone
\tpassword: password two
\tjid: juliet@localhost
\tresource: mobile

-----

Romeo connects
Juliet's phone connects
Romeo sends:
\t<message to="${Juliet's phone's full JID}" type='chat'>
\t\t<body>Art thou gone so?</body>
\t\t<x xmlns='urn:x'><one/><two/></x>
\t</message>
-- Juliet's phone receives:
-- \t<presence/>

Juliet's phone receives:
"""
"""The beginning of each script: Juliet's phone gets a message."""

LAST: Final = SCRIPT.count("\n")
"""The line of the last step."""

MATCHES: Final = (
    "<message from='romeo@localhost/garden' to='{scansion:any}'>"
    "<x xmlns='urn:x'><one/><two/></x><body>Art thou gone so?</body></message>"
)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    gateway = localhost(tmp_path_factory.mktemp("scansion"))
    provision(gateway, scansion.read(SCRIPT))
    with gateway.run() as running:
        yield running
        assert running.terminate() == 0


async def play(process: Process, text: str, *deviations: Deviation) -> None:
    """Play a text that follows the beginning."""
    await scansion.play(scansion.read(SCRIPT + text), port_of(process), deviations, wait=5.0)


async def test_matching_stanzas_pass(process: Process) -> None:
    await play(process, f"\t{MATCHES}\nRomeo receives: nothing\nRomeo disconnects\n")
    other = Deviation(LAST, "another stanza", MATCHES)
    await play(process, "\t<iq/>\n", other)


@pytest.mark.parametrize(
    ("xml", "reason"),
    [
        ("<presence/>", "{jabber:client}message instead of {jabber:client}presence"),
        ("<message type='normal'/>", "has type='chat' instead of 'normal'"),
        ("<message id='{scansion:any}'/>", "has id=None instead of"),
        ("<message><body/><body/></message>", "has no such {jabber:client}body"),
        ("<message>Adieu</message>", "has the text '' instead of 'Adieu'"),
        ("<message><x xmlns='urn:x'><two/><one/></x></message>", "has no such {urn:x}x"),
        ("<message><x xmlns='urn:x'><one/></x></message>", "has no such {urn:x}x"),
        ("<message scansion:strict='true' type='chat'/>", "also has ['from', 'to']"),
        ("", "has received <"),
    ],
)
async def test_other_stanza_is_a_mismatch(process: Process, xml: str, reason: str) -> None:
    with pytest.raises(Mismatch) as mismatch:
        await play(process, f"\t{xml}\n" if xml else "", Deviation(LAST, "", xml))
    error = str(mismatch.value)
    assert error.startswith(f"line {LAST}: Juliet's phone receives: ")
    assert reason in error


async def test_a_listed_deviation_that_does_not_occur_is_a_mismatch(process: Process) -> None:
    with pytest.raises(Mismatch, match=f"line {LAST}: .* does not deviate here"):
        await play(process, "\t<message/>\n", Deviation(LAST, "none", "<message type='chat'/>"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("\t<presence/>\n", "line 1: <presence/>"),
        ("[Client] Romeo\n\tjid: a@b\n\tpassword: c\nRomeo leaves\n", "line 4: Romeo leaves"),
        ("[Client] Romeo\n\tjid: a@b\n", "Romeo has no JID or no password"),
    ],
)
def test_invalid_script(text: str, reason: str) -> None:
    with pytest.raises(InvalidScript, match=reason):
        scansion.read(text)
