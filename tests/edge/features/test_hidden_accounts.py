"""An account cannot be discovered by senders that may not reach it, whatever they send."""

from __future__ import annotations

import re
from typing import Final
from xml.etree import ElementTree

import pytest

from edge.config.options import Xmpp
from edge.features.accounts.store import accounts
from tests.helpers.people import PUMP, UNTRUSTED, provision
from tests.helpers.store import DOMAIN, Gateway, MakeGateway, assured, deliver, log

NAMES: Final = ("w-online", "w-offline", "w-revoked", "w-missing")
"""An available account, one without a session, a revoked one, and a name without an account."""

SENT: Final = {
    **{
        f"message {type_ or 'without type'} {part}": f"<message id='m' to='{{0}}{part}'"
        + (f" type='{type_}'" if type_ else "")
        + "><body>Hi</body></message>"
        for type_ in ("", "chat", "groupchat", "headline", "error")
        for part in ("", "/fw")
    },
    **{
        f"presence {type_ or 'directed'} {part}": f"<presence id='p' to='{{0}}{part}'"
        + (f" type='{type_}'" if type_ else "")
        + "/>"
        for type_ in (
            "", "unavailable", "error", "probe",
            "subscribe", "subscribed", "unsubscribe", "unsubscribed",
        )
        for part in ("", "/fw")
    },
    **{
        f"iq {type_} {name} {part}": f"<iq id='i' type='{type_}' to='{{0}}{part}'>"
        f"<{name} xmlns='{namespace}'/></iq>"
        for type_ in ("get", "set", "result", "error")
        for name, namespace in (
            ("query", "http://jabber.org/protocol/disco#info"),
            ("query", "http://jabber.org/protocol/disco#items"),
            ("query", "jabber:iq:roster"),
            ("query", "jabber:iq:register"),
            ("query", "jabber:iq:version"),
            ("ping", "urn:xmpp:ping"),
            ("x", "urn:x"),
        )
        for part in ("", "/fw")
    },
    "assured": assured("1", log("x"), "{0}"),
    "assured to a session": assured("1", log("x"), "{0}/fw"),
    "deliver": deliver("1", "{0}"),
    "roster": "<iq id='i' type='set'><query xmlns='jabber:iq:roster'>"
    "<item jid='{0}'/></query></iq>",
    "password": "<iq id='i' type='set'><query xmlns='jabber:iq:register'>"
    "<username>{1}</username><password>a new one</password></query></iq>",
}  # fmt: skip
KINDS: Final = sorted({label.partition(" ")[0] for label in SENT})
RANDOM: Final = re.compile("push-[0-9a-f]+| ver='[0-9a-f]+'")
ROSTER: Final = "<iq id='r' type='get'><query xmlns='jabber:iq:roster'/></iq>"


@pytest.fixture(params=["site", "roster"])
def gateway(request: pytest.FixtureRequest, make_gateway: MakeGateway) -> Gateway:
    gateway = make_gateway(xmpp=Xmpp(trust=request.param))
    provision(gateway)
    for name in NAMES[:3]:
        gateway.add(name)
    gateway.tx(lambda tx: accounts.revoke(tx, "w-revoked"))
    gateway.bind(f"w-online@{DOMAIN}/fw")
    gateway.send(f"w-online@{DOMAIN}/fw", "<presence/>")
    for full in (UNTRUSTED, PUMP):
        gateway.send(full, ROSTER)
        gateway.send(full, "<presence/>")
    gateway.sent.clear()
    return gateway


def answers_to(gateway: Gateway, full: str, name: str, label: str) -> list[str]:
    """Return the stanzas sent in reply and the roster, with the account's name masked.

    Empty all rosters afterwards."""
    xml = SENT[label].format(f"{name}@{DOMAIN}", name)
    stanzas = [gateway.tx(gateway.work(full, xml))]
    stanzas += [send.stanza for send in gateway.sends(full)]
    stanzas += [gateway.tx(gateway.work(full, ROSTER))]
    gateway.tx(lambda tx: tx.run("DELETE FROM roster"))
    texts = [RANDOM.sub("", stanza.decode().replace(name, "NAME")) for stanza in stanzas]
    for text in texts:
        ElementTree.fromstring(f"<a>{text}</a>")  # noqa: S314
    return texts


@pytest.mark.parametrize("kind", KINDS)
def test_untrusted_sender_cannot_tell_accounts_apart(gateway: Gateway, kind: str) -> None:
    for label in (label for label in SENT if label.startswith(kind)):
        answers = {name: answers_to(gateway, UNTRUSTED, name, label) for name in NAMES}
        assert all(answer == answers["w-missing"] for answer in answers.values()), (label, answers)
        noticed = gateway.sends(f"w-online@{DOMAIN}/fw")
        is_answer = "result" in label or "error" in label
        if gateway.router.context.xmpp.trust == "roster" or not is_answer:
            assert noticed == [], f"the account must not notice {label}"


@pytest.mark.parametrize("kind", KINDS)
def test_revoked_account_seems_not_to_exist(gateway: Gateway, kind: str) -> None:
    for label in (label for label in SENT if label.startswith(kind)):
        answers = [answers_to(gateway, PUMP, name, label) for name in ("w-revoked", "w-missing")]
        assert answers[0] == answers[1], label
