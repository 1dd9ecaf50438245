from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Final, get_args

import pytest

from edge.engine.rules import access
from edge.engine.rules.access import Relation, Role, Sender, Trust

TRUSTED_DOMAINS: Final = ("plant.example",)

SENDERS: Final = {
    Role.DEVICE: Sender("a@gw.example/x", "a@gw.example", "a", True, True, 1),
    Role.UNTRUSTED: Sender("a@gw.example/x", "a@gw.example", "a", True, False, 1),
    Role.REVOKED: Sender("a@gw.example/x", "a@gw.example", "a", False, True, 1, True),
    Role.REMOTE: Sender("a@plant.example/x", "a@plant.example", "a@plant.example", False, False, 1),
    Role.UNKNOWN: Sender(
        "a@other.example/x", "a@other.example", "a@other.example", False, False, 1
    ),
    Role.OPERATOR: access.operator("gw.example"),
}

RELATIONS: Final = (Relation.OWN, Relation.SHOWS, Relation.LISTS, Relation.OTHER, Relation.NOBODY)

Row = tuple[str, str, str, str, str, str]

# One string per role (DEVICE, UNTRUSTED, REVOKED, REMOTE, UNKNOWN, OPERATOR), with one mark per
# relation (own, shows, lists, other, nobody). `x`: allowed.
RIGHTS: Final[dict[str, Row]] = {
    "reach, site": ("xxxx.", "xxx..", ".....", ".....", ".....", "xxxx."),
    "reach, roster": ("xxx..", "xxx..", ".....", ".....", ".....", "xxxx."),
    "hand over, site": ("xxxxx", "xxx..", ".....", ".....", ".....", "xxxxx"),
    "hand over, roster": ("xxx..", "xxx..", ".....", ".....", ".....", "xxxxx"),
    "see presence": ("xx...", "xx...", ".....", ".....", ".....", "....."),
    "subscribe": (".xxx.", ".xx..", ".....", ".....", ".....", "....."),
    "use the roster": ("x....", "x....", ".....", ".....", ".....", "....."),
    "change the password": ("x....", "x....", ".....", ".....", ".....", "....."),
    "make a password": (".....", ".....", ".....", ".....", ".....", "....."),
}

CHECKS: Final[dict[str, Callable[[Sender, Relation], bool]]] = {
    "reach, site": lambda sender, relation: access.may_reach(sender, relation, "site"),
    "reach, roster": lambda sender, relation: access.may_reach(sender, relation, "roster"),
    "hand over, site": lambda sender, relation: access.may_hand_over(sender, relation, "site"),
    "hand over, roster": lambda sender, relation: access.may_hand_over(sender, relation, "roster"),
    "see presence": access.may_see_presence,
    "subscribe": access.may_subscribe,
    "use the roster": access.may_use_roster,
    "change the password": lambda sender, relation: access.may_change_password(
        sender, relation, password=True
    ),
    "make a password": lambda sender, relation: access.may_change_password(
        sender, relation, password=False
    ),
}

MAY_USE_SERVICES: Final = {
    Role.DEVICE: True,
    Role.UNTRUSTED: False,
    Role.REVOKED: False,
    Role.REMOTE: True,
    Role.UNKNOWN: False,
    Role.OPERATOR: True,
}


def test_the_matrix_is_complete() -> None:
    assert list(SENDERS) == list(Role) == list(MAY_USE_SERVICES)
    assert list(Relation) == list(RELATIONS)
    assert set(get_args(Trust)) == {"site", "roster"}
    assert set(RIGHTS) == set(CHECKS)
    assert all(len(row) == len(Role) for row in RIGHTS.values())
    assert all(len(marks) == len(RELATIONS) for row in RIGHTS.values() for marks in row)


def test_no_right_is_left_out_of_the_matrix() -> None:
    functions = {
        n for n, f in vars(access).items() if n.startswith("may_") and inspect.isroutine(f)
    }
    assert functions == {
        "may_use_services", "may_manage_nodes", "may_reach", "may_hand_over", "may_answer",
        "may_see_presence", "may_subscribe", "may_use_roster", "may_change_password",
        "may_continue", "may_resume",
    }  # fmt: skip


TRUST_PROPERTIES: Final = frozenset({"provisioned", "trusted", "revoked"})
"""The properties of a sender on which its rights depend."""


def test_only_this_module_decides_about_access() -> None:
    """Features and the server call the rules; they pass these properties only to `relation`."""
    edge = Path(access.__file__).parents[2]
    property_uses = []
    paths = [*(edge / "features").rglob("*.py"), *(edge / "server").rglob("*.py")]
    assert len(paths) > 100
    for path in paths:
        tree = ast.parse(path.read_text("utf-8"))
        relation_arguments = {
            id(keyword.value)
            for call in ast.walk(tree)
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
            if call.func.attr == "relation" and ast.unparse(call.func) == "access.relation"
            for keyword in call.keywords
        }
        property_uses += [
            (path.name, ast.unparse(node))
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and node.attr in TRUST_PROPERTIES
            if id(node) not in relation_arguments
        ]
    own = {("peers.py", "self.trusted"), ("peers.py", "peer.trusted")}
    assert set(property_uses) <= own, "a peer stores the result of the rules"


@pytest.mark.parametrize("right", RIGHTS)
def test_every_right_of_every_role_and_relation(right: str) -> None:
    for (role, row), (column, relation) in product(
        zip(Role, RIGHTS[right], strict=True), enumerate(RELATIONS)
    ):
        allowed = CHECKS[right](SENDERS[role], relation)
        assert allowed is (row[column] == "x"), (right, role, relation)


@pytest.mark.parametrize(("role", "allowed"), MAY_USE_SERVICES.items())
def test_services_are_for_trusted_devices_and_users_of_trusted_domains(
    role: Role, allowed: bool
) -> None:
    assert access.role_of(SENDERS[role], TRUSTED_DOMAINS) is role
    assert access.may_use_services(SENDERS[role], TRUSTED_DOMAINS) is allowed
    assert access.may_use_services(SENDERS[role]) is (allowed and role is not Role.REMOTE)


def test_only_a_revoked_login_ends_a_session() -> None:
    assert [role for role in Role if not access.may_continue(SENDERS[role])] == [Role.REVOKED]


@pytest.mark.parametrize("trust", get_args(Trust))
def test_a_reply_is_allowed_only_if_the_request_was_allowed(trust: Trust) -> None:
    for role, peer, relation in product(Role, Role, RELATIONS):
        reply = access.may_answer(SENDERS[role], SENDERS[peer], relation, trust)
        may_ask = access.may_reach(SENDERS[peer], relation, trust)
        assert reply is (may_ask and role in (Role.DEVICE, Role.UNTRUSTED)), (role, peer, relation)


@pytest.mark.parametrize(
    ("own", "exists", "listed", "subscription", "expected"),
    [
        *((own, False, listed, s, Relation.NOBODY)
          for own in (True, False) for listed in (True, False)
          for s in ("none", "to", "from", "both")),
        *((True, True, listed, s, Relation.OWN)
          for listed in (True, False) for s in ("none", "to", "from", "both")),
        *((False, True, listed, s, Relation.SHOWS)
          for listed in (True, False) for s in ("from", "both")),
        (False, True, True, "none", Relation.LISTS),
        (False, True, True, "to", Relation.LISTS),
        (False, True, False, "none", Relation.OTHER),
        (False, True, False, "to", Relation.OTHER),
    ],
)  # fmt: skip
def test_relations_of_accounts(
    own: bool, exists: bool, listed: bool, subscription: str, expected: Relation
) -> None:
    relation = access.relation(own=own, exists=exists, listed=listed, subscription=subscription)
    assert relation is expected


@pytest.mark.parametrize(
    ("bare", "trusted"),
    [
        ("pump@plant.example", True), ("plant.example", False), ("@plant.example", False),
        ("pump@sub.plant.example", False), ("pump@plant.example.evil.example", False),
        ("plant.example@evil.example", False), ("", False),
    ],
)  # fmt: skip
def test_a_trusted_domain_is_the_whole_domain_of_a_user(bare: str, trusted: bool) -> None:
    assert access.is_in_trusted_domain(bare, TRUSTED_DOMAINS) is trusted


def test_an_untrusted_device_stays_untrusted_in_a_trusted_domain() -> None:
    untrusted = SENDERS[Role.REMOTE]._replace(provisioned=True)
    assert access.role_of(untrusted, TRUSTED_DOMAINS) is Role.UNTRUSTED
    assert access.role_of(untrusted._replace(provisioned=False, revoked=True), TRUSTED_DOMAINS) is (
        Role.REVOKED
    )


@pytest.mark.parametrize(
    ("account", "owner", "allowed"),
    [("a", "a", True), ("a", "b", False), ("a", "A", False), ("", "", False), ("a", "", False)],
)
def test_only_the_same_account_may_resume_a_session(
    account: str, owner: str, allowed: bool
) -> None:
    assert access.may_resume(account, owner) is allowed
