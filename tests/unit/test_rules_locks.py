from __future__ import annotations

import pytest

from edge.features.queues.rules.locks import Lock, Role, Verdict, may_delete, may_unlock

ALL = list(Role)


@pytest.mark.parametrize("role", ALL)
def test_who_has_the_lock_deletes_and_unlocks_and_is_told(role: Role) -> None:
    assert may_delete(Lock.MINE, role) is Verdict.DONE_AND_TOLD
    assert may_unlock(Lock.MINE, role) is Verdict.DONE_AND_TOLD


@pytest.mark.parametrize("role", ALL)
def test_the_lock_of_another_is_a_conflict_to_those_who_have_to_do_with_the_node(
    role: Role,
) -> None:
    expected = Verdict.FORBIDDEN if role is Role.NOBODY else Verdict.CONFLICT
    assert may_delete(Lock.OTHERS, role) is expected
    assert may_unlock(Lock.OTHERS, role) is expected


def test_of_an_item_that_nobody_has_the_owner_and_for_deletion_its_publisher_may() -> None:
    deletes = {role: may_delete(Lock.NONE, role) for role in ALL}
    unlocks = {role: may_unlock(Lock.NONE, role) for role in ALL}
    assert deletes[Role.RECEIVER] is unlocks[Role.RECEIVER] is Verdict.UNEXPECTED
    assert {role for role in ALL if deletes[role] is Verdict.DONE} == {Role.OWNER, Role.AUTHOR}
    assert {role for role in ALL if unlocks[role] is Verdict.DONE} == {Role.OWNER}
    for verdicts in (deletes, unlocks):
        for role in (Role.PUBLISHER, Role.SUBSCRIBER, Role.NOBODY):
            assert verdicts[role] is Verdict.FORBIDDEN
