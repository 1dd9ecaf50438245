"""Who may do what: every authorisation decision of the gateway, and nothing else.

Whether somebody is who they say was settled before, by SASL or by the server that the gateway is a
component of; nothing here looks at a password or a certificate. As whom they may act is settled
there too: as themselves, by either profile and each mechanism (`wire.attempt`). Limits are not
rights: they stand in `quota` and in the options.

Who somebody is (`Who`), and what the account that they turn to is to them (`Relation`):

    right                       device  untrusted  revoked  remote  stranger   to whom
    use services: log, hold,      yes      -          -       yes      -       the gateway
      publish-subscribe
    reach: message, iq,           yes     yes         -        -       -       OWN, SHOWS, LISTS
      directed presence           site     -          -        -       -       OTHER
    hand over: custody                    as `reach`; an account that is not there is as OTHER
    answer an iq, or with an error        if who is answered may reach who answers
    see presence, probe           yes     yes         -        -       -       OWN, SHOWS
    ask to see presence           yes     yes         -        -       -       SHOWS, LISTS
                                  yes      -          -        -       -       OTHER
    read and write the roster     yes     yes         -        -       -       OWN
    change the password, if it    yes     yes         -        -       -       OWN
      has one
    discover an account           yes     yes         -        -       -       OWN, SHOWS
    resume a session              of the same account, and no other

`site`: if `[xmpp] trust` is "site"; with "roster", a device hears from those in its roster alone.
Everybody may ask the gateway what it is (service discovery, version, time, ping); nobody has a
right to an account that is not there, and is told so in the words that refuse all else. What is not
in the table is refused. Source: PROTOCOL decisions on trust (docs/reference/protocol.md); RFC
6121, sections 2.1.5, 3.1 and 4; XEP-0030, section 8; XEP-0198, section 5.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Final, Literal, NamedTuple, TypeAlias

Trust: TypeAlias = Literal["site", "roster"]
"""Whom a device takes messages from (`[xmpp] trust`)."""


class Sender(NamedTuple):
    """Whom a stanza comes from: JIDs, account, and what the gateway knows of it.

    `account` is the local part of a device of this gateway, the bare JID of another server's user;
    `generation` is the session's number. One whose account was revoked is not `provisioned`.
    """

    full: str
    bare: str
    account: str
    provisioned: bool
    trusted: bool
    generation: int
    revoked: bool = False


class Role(Enum):
    """What somebody is to the gateway."""

    DEVICE = "provisioned here"
    UNTRUSTED = "provisioned here with --no-trust"
    REVOKED = "was provisioned here, and is refused from now on"
    REMOTE = "a user of a trusted domain, where the gateway is a component"
    STRANGER = "anybody else"


class Relation(Enum):
    """What an account is to somebody who turns to it."""

    OWN = "the same account, perhaps another session of it"
    SHOWS = "another account, which shows its presence to them (subscription from or both)"
    LISTS = "another account, which has them in its roster and does not show its presence"
    OTHER = "another account, which does not have them in its roster"
    NOBODY = "no account, or one that was revoked"


_HOLDERS: Final = frozenset({Role.DEVICE, Role.UNTRUSTED})
"""Who has an account that is good."""

_KNOWING: Final = frozenset({Relation.SHOWS, Relation.LISTS})
"""What an account is to somebody whom its roster has."""


def role_of(sender: Sender, trusted_domains: Collection[str] = ()) -> Role:
    """Tell what somebody is to the gateway.

    `trusted_domains` are those whose users a component trusts: none where accounts are its own.
    """
    if sender.revoked:
        return Role.REVOKED
    if sender.provisioned:
        return Role.DEVICE if sender.trusted else Role.UNTRUSTED
    return Role.REMOTE if is_in_trusted_domain(sender.bare, trusted_domains) else Role.STRANGER


def is_in_trusted_domain(bare: str, trusted_domains: Collection[str]) -> bool:
    """Tell whether a bare JID (normalised) is a user of a trusted domain, not the domain itself."""
    local, at, domain = bare.rpartition("@")
    return bool(local and at) and domain in trusted_domains


def relation(*, own: bool, exists: bool, listed: bool, subscription: str) -> Relation:
    """Tell what an account is to somebody.

    Args:
        own: it is theirs.
        exists: it is there, and not revoked.
        listed: its roster has them; a request that nobody answered yet is no such entry.
        subscription: of that entry, as the account's own roster has it (RFC 6121, section 2.1.2.5).
    """
    if not exists:
        return Relation.NOBODY
    if own:
        return Relation.OWN
    if subscription in ("from", "both"):
        return Relation.SHOWS
    return Relation.LISTS if listed else Relation.OTHER


def may_use_services(sender: Sender, trusted_domains: Collection[str] = ()) -> bool:
    """Tell whether the gateway takes messages from this sender, to log and to hold (XEP QoS), and
    requests of publish-subscribe; what they may do at a node is `rules.affiliation`'s."""
    return role_of(sender, trusted_domains) in (Role.DEVICE, Role.REMOTE)


def may_reach(sender: Sender, relation: Relation, trust: Trust) -> bool:
    """Tell whether an account's sessions get this sender's messages, iqs and directed presence."""
    found = role_of(sender)
    if found not in _HOLDERS:
        return False
    if relation is Relation.OTHER:
        return found is Role.DEVICE and trust == "site"
    return relation is not Relation.NOBODY


def may_hand_over(sender: Sender, relation: Relation, trust: Trust) -> bool:
    """Tell whether the gateway takes custody of this sender's messages for an account (XEP QoS).

    Who may reach it may. Of an account that is not there, the answer is that of one which does not
    know the sender, so that it tells nothing.
    """
    seen = Relation.OTHER if relation is Relation.NOBODY else relation
    return may_reach(sender, seen, trust)


def may_answer(sender: Sender, asker: Sender, relation: Relation, trust: Trust) -> bool:
    """Tell whether a result or an error of `sender` goes to `asker`: who may ask is answered.

    `relation` is what the sender's account is to the asker.
    """
    return role_of(sender) in _HOLDERS and may_reach(asker, relation, trust)


def may_see_presence(watcher: Sender, relation: Relation) -> bool:
    """Tell whether an account's presence is shown to a watcher (RFC 6121, sections 4.2 to 4.5)."""
    return role_of(watcher) in _HOLDERS and relation in (Relation.OWN, Relation.SHOWS)


def may_subscribe(sender: Sender, relation: Relation) -> bool:
    """Tell whether a sender may ask an account to see its presence (RFC 6121, section 3.1).

    One provisioned without trust may ask only those who know it: a request is kept, and shown.
    """
    found = role_of(sender)
    if relation is Relation.OTHER:
        return found is Role.DEVICE
    return found in _HOLDERS and relation in _KNOWING


def may_use_roster(sender: Sender, relation: Relation) -> bool:
    """Tell whether a sender may read and write an account's roster (RFC 6121, section 2.1.5)."""
    return role_of(sender) in _HOLDERS and relation is Relation.OWN


def may_change_password(sender: Sender, relation: Relation, *, password: bool) -> bool:
    """Tell whether a sender may set an account's password (XEP-0077, section 3.3).

    `password` tells whether the account has one: where it logs in by certificate alone, that is the
    operator's choice.
    """
    return password and role_of(sender) in _HOLDERS and relation is Relation.OWN


def may_discover(sender: Sender, relation: Relation) -> bool:
    """Tell whether a sender may ask what an account is (XEP-0030, section 8): who sees presence."""
    return may_see_presence(sender, relation)


def may_resume(account: str, owner: str) -> bool:
    """Tell whether who logged in as `account` may go on with a session of `owner`'s (XEP-0198)."""
    return bool(account) and account == owner
