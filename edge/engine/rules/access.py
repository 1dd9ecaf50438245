"""Authorisation: every decision of the gateway about who may do what.

Senders are already authenticated, by SASL or by the XMPP server that a component is attached to.
Limits are in `quota` and in the options. A decision depends on the sender's role (`Role`) and on
the relation of the addressed account to the sender (`Relation`):

    right                       device  untrusted  revoked  remote  unknown   relations
    use services: log, custody,   yes      -          -       yes      -       the gateway
      publish-subscribe
    manage nodes of others         -       -          -        -       -       the gateway
    reach: message, iq,           yes     yes         -        -       -       OWN, SHOWS, LISTS
      directed presence,          site     -          -        -       -       OTHER
      service discovery
    hand over: custody                    as `reach`; a missing account counts as OTHER
    answer an iq with a result    if the asker may reach the one who answers
      or an error
    see presence, probe           yes     yes         -        -       -       OWN, SHOWS
    subscribe to presence         yes     yes         -        -       -       SHOWS, LISTS
                                  yes      -          -        -       -       OTHER
    read and write the roster     yes     yes         -        -       -       OWN
    change the password, if the   yes     yes         -        -       -       OWN
      account has one
    continue a session            yes     yes         -       yes     yes       the gateway
    resume a session              of the same account only

The operator, who acts for the gateway itself, may use services, manage nodes, reach every account
and hand messages over; no other row concerns the operator.

`site`: if `[xmpp] trust` is "site"; with "roster", a device receives only from its roster.
Everybody may ask the gateway for service discovery, version, time and ping. Requests to a missing
account are refused with the same error as all refused requests. What is not in the table is
refused. Source:
docs/reference/protocol.md, "Trust"; RFC 6121, sections 2.1.5, 3.1 and 4; XEP-0030,
section 8; XEP-0198, section 5.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Final, Literal, NamedTuple, TypeAlias

Trust: TypeAlias = Literal["site", "roster"]
"""The values of `[xmpp] trust`: a device receives from the whole site, or only from its roster."""


class Sender(NamedTuple):
    """The sender of a request.

    Attributes:
        account: the local part for a device of this gateway, the bare JID for a remote user.
        provisioned: whether it has an account that is not revoked.
        trusted: whether the account is trusted (it was not added with `--no-trust`).
        generation: the session's number.
        adopts: whether its session takes over custody of earlier sessions of the account.
    """

    full: str
    bare: str
    account: str
    provisioned: bool
    trusted: bool
    generation: int
    revoked: bool = False
    adopts: bool = True


class Role(Enum):
    """The role of a sender."""

    __hash__ = object.__hash__  # `Enum.__hash__` is slow: it is written in Python

    DEVICE = "provisioned here"
    UNTRUSTED = "provisioned here with --no-trust"
    REVOKED = "was provisioned here and is refused from now on"
    REMOTE = "a user of a trusted domain, where the gateway is a component"
    UNKNOWN = "anybody else"
    OPERATOR = "the gateway's operator, by commands on its machine"


class Relation(Enum):
    """The relation of the addressed account to the sender."""

    __hash__ = object.__hash__  # `Enum.__hash__` is slow: it is written in Python

    OWN = "the same account"
    SHOWS = "another account that shows its presence to the sender (subscription from or both)"
    LISTS = "another account that has the sender in its roster and does not show its presence"
    OTHER = "another account that does not have the sender in its roster"
    NOBODY = "no account, or a revoked one"


_WITH_ACCOUNT: Final = frozenset({Role.DEVICE, Role.UNTRUSTED})
"""Roles with an account that is not revoked."""

_SERVICE_USERS: Final = (Role.DEVICE, Role.REMOTE, Role.OPERATOR)

_NO_SESSION: Final = -1

_LISTING: Final = frozenset({Relation.SHOWS, Relation.LISTS})
"""Relations in which the account has the sender in its roster."""


def operator(domain: str) -> Sender:
    """Return the operator as a sender: it has the gateway's address, and no account or session."""
    return Sender(domain, domain, "", True, True, _NO_SESSION)


def role_of(sender: Sender, trusted_domains: Collection[str] = ()) -> Role:
    """Return the role of a sender.

    `trusted_domains` are the domains whose users a component trusts; a gateway that is not a
    component has none.
    """
    if sender.revoked:
        return Role.REVOKED
    if sender.provisioned:
        if not sender.account:
            return Role.OPERATOR
        return Role.DEVICE if sender.trusted else Role.UNTRUSTED
    return Role.REMOTE if is_in_trusted_domain(sender.bare, trusted_domains) else Role.UNKNOWN


def is_in_trusted_domain(bare: str, trusted_domains: Collection[str]) -> bool:
    """Return whether a normalised bare JID is a user at a trusted domain, not the domain itself."""
    local, at, domain = bare.rpartition("@")
    return bool(local and at) and domain in trusted_domains


def relation(*, own: bool, exists: bool, listed: bool, subscription: str) -> Relation:
    """Return the relation of an account to a sender.

    Args:
        own: whether the account is the sender's own.
        exists: whether the account exists and is not revoked.
        listed: whether the account's roster has the sender; an unanswered subscription request does
            not count.
        subscription: the subscription in that roster item (RFC 6121, section 2.1.2.5).
    """
    if not exists:
        return Relation.NOBODY
    if own:
        return Relation.OWN
    if subscription in ("from", "both"):
        return Relation.SHOWS
    return Relation.LISTS if listed else Relation.OTHER


def may_use_services(sender: Sender, trusted_domains: Collection[str] = ()) -> bool:
    """Return whether a sender may use the event log, custody and publish-subscribe.

    A node also checks the affiliation of the sender.
    """
    return role_of(sender, trusted_domains) in _SERVICE_USERS


def may_manage_nodes(sender: Sender) -> bool:
    """Return whether a sender may publish to, configure and delete nodes of every owner."""
    return role_of(sender) is Role.OPERATOR


def may_reach(sender: Sender, relation: Relation, trust: Trust) -> bool:
    """Return whether a sender may send messages, iqs and directed presence to an account, and query
    its service discovery."""
    found = role_of(sender)
    if found is Role.OPERATOR:
        return relation is not Relation.NOBODY
    if found not in _WITH_ACCOUNT:
        return False
    if relation is Relation.OTHER:
        return found is Role.DEVICE and trust == "site"
    return relation is not Relation.NOBODY


def may_hand_over(sender: Sender, relation: Relation, trust: Trust) -> bool:
    """Return whether the gateway takes custody of a sender's messages for an account (XEP QoS).

    A missing account counts as `Relation.OTHER`, so that the answer does not disclose that the
    account is missing.
    """
    seen = Relation.OTHER if relation is Relation.NOBODY else relation
    return may_reach(sender, seen, trust)


def may_answer(sender: Sender, asker: Sender, relation: Relation, trust: Trust) -> bool:
    """Return whether a sender may send a result or error to `asker`.

    It may if `asker` may send requests to the sender. `relation` is the relation of the sender's
    account to `asker`.
    """
    return role_of(sender) in _WITH_ACCOUNT and may_reach(asker, relation, trust)


def may_see_presence(watcher: Sender, relation: Relation) -> bool:
    """Return whether an account's presence is shown to a watcher (RFC 6121, 4.2 to 4.5)."""
    return role_of(watcher) in _WITH_ACCOUNT and relation in (Relation.OWN, Relation.SHOWS)


def may_subscribe(sender: Sender, relation: Relation) -> bool:
    """Return whether a sender may request a presence subscription (RFC 6121, section 3.1).

    An untrusted sender may send a request only to accounts that have the sender in their roster,
    because requests are stored and shown.
    """
    found = role_of(sender)
    if relation is Relation.OTHER:
        return found is Role.DEVICE
    return found in _WITH_ACCOUNT and relation in _LISTING


def may_use_roster(sender: Sender, relation: Relation) -> bool:
    """Return whether a sender may read and write an account's roster (RFC 6121, section 2.1.5)."""
    return role_of(sender) in _WITH_ACCOUNT and relation is Relation.OWN


def may_change_password(sender: Sender, relation: Relation, *, password: bool) -> bool:
    """Return whether a sender may change an account's password (XEP-0077, section 3.3).

    `password` is whether the account has a password. An account without a password can only log in
    by certificate; only the operator can give it a password.
    """
    return password and role_of(sender) in _WITH_ACCOUNT and relation is Relation.OWN


def may_continue(sender: Sender) -> bool:
    """Return whether a sender's session may continue: its login was not revoked."""
    return not sender.revoked


def may_resume(account: str, owner: str) -> bool:
    """Return whether `account` may resume a session of the account `owner` (XEP-0198)."""
    return bool(account) and account == owner
