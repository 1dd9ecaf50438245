from __future__ import annotations

import pytest

from edge.config.limits import Limits
from edge.engine.dispatch.hooks import RegistrationError, new_context
from edge.features import ping
from edge.features.adhoc_commands.service import CommandError
from edge.features.presence.service.messages import RosterPush
from edge.xmpp import PROTOCOL
from tests.helpers.store import DOMAIN


def test_duplicate_registrations_are_an_error() -> None:
    hooks = new_context(DOMAIN, Limits()).hooks
    with pytest.raises(RegistrationError, match="the same key in server_iqs"):
        ping.register(hooks)


def test_encoders_and_error_mappings_are_registered_once_per_protocol() -> None:
    hooks = new_context(DOMAIN, Limits()).hooks
    hooks.encode("other", RosterPush, lambda _context, _push: b"")
    hooks.error_mapping("other", CommandError, str)
    with pytest.raises(RegistrationError, match="the same key in encoders"):
        hooks.encode(PROTOCOL, RosterPush, lambda _context, _push: b"")
    with pytest.raises(RegistrationError, match="the same key in error_mappings"):
        hooks.error_mapping(PROTOCOL, CommandError, str)


def test_time_off_ages_the_same_rows_on_a_component() -> None:
    hooks = {each: new_context(DOMAIN, Limits(), accounts=each).hooks for each in (True, False)}
    assert len(hooks[True].on_time_off) >= 5
    assert hooks[False].on_time_off == hooks[True].on_time_off
