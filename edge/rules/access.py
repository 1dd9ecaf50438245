"""Who may do what: every authorisation decision.

Whether somebody is who they say was settled before, by SASL; nothing here looks at a password.
"""

from __future__ import annotations

from typing import NamedTuple


class Sender(NamedTuple):
    """Whom a stanza comes from: JIDs, account, and what the gateway knows of it.

    `account` is the local part of a device of this gateway, the bare JID of another server's user;
    `generation` is the session's number.
    """

    full: str
    bare: str
    account: str
    provisioned: bool
    trusted: bool
    generation: int


def may_use_services(sender: Sender) -> bool:
    """Tell whether the gateway's services take messages from this sender (docs/architecture.md).

    They do from a provisioned device that its operator did not set apart with `--no-trust`.
    """
    return sender.provisioned and sender.trusted
