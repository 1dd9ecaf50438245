"""Judge whether the gateway works: the one judgement that every view of the gateway shows.

`/health`, the status page, `fieldpost status`, `fieldpost doctor`, the journal, systemd and the
`ready` line take it from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from edge.config.load import Config
from edge.ops.checks import database as database_checks
from edge.ops.checks import folder as folder_checks
from edge.ops.checks import space
from edge.ops.checks.finding import NOTICE, OK, WRONG, Finding
from edge.ops.gateway.status import NO_ANSWER, RUNNING, Limit, Status, space_of

HEALTHY: Final = "ok"
DEGRADED: Final = "degraded"
FAILING: Final = "failing"

LINK: Final = "link"
"""The name of the finding that a component has no link to its server."""

_LINK_REMEDY: Final = (
    "start or correct the XMPP server, or xmpp.component and its secret; the gateway tries again"
    " at least once a minute"
)

_FRONT_REMEDY: Final = (
    "the gateway starts it again after 30 s at most; if it ends again, `fieldpost events --kind"
    " system` and `journalctl -u fieldpost` have the reason"
)


class Health(NamedTuple):
    """The judgement of a gateway, and the findings that are `wrong`.

    Attributes:
        failures: findings because of which no device can connect or no message is accepted.
        others: findings that concern a part, such as a limit that is reached.
    """

    failures: list[Finding]
    others: list[Finding]

    @property
    def state(self) -> str:
        """Return `FAILING`, `DEGRADED` or `HEALTHY`."""
        return FAILING if self.failures else DEGRADED if self.others else HEALTHY

    @property
    def problems(self) -> list[Finding]:
        """Return all findings, the failures first."""
        return self.failures + self.others


def judge(folder: Path, settings: Config, status: Status, now: int) -> Health:
    """Judge the gateway; `now` is in ms since 1970."""
    failures = _wrong(essentials(folder, settings, status))
    others = _wrong(fronts(status))
    files = _wrong(certificates(folder, settings, now))
    if status.certificate_error is not None:  # the running gateway keeps the previous certificate
        others += files
    else:
        failures += files
    return with_limits(Health(failures, others), status)


def with_limits(found: Health, status: Status) -> Health:
    """Add the limits that are reached to a judgement that was made without them."""
    return found._replace(others=[*found.others, *_wrong(database_checks.limits(status))])


def status_object(status: Status, found: Health) -> dict[str, object]:
    """Return a status and its judgement as an object for JSON."""
    return status._asdict() | {
        "health": found.state,
        "problems": [problem._asdict() for problem in found.problems],
        "fronts": msgspec.to_builtins(status.fronts),
        "waiting": status.waiting._asdict(),
        "limits": {limit.name: _limit(limit) for limit in status.limits},
    }


def _limit(limit: Limit) -> dict[str, object]:
    fields: dict[str, object] = {"allowed": limit.allowed, "unit": limit.unit}
    if limit.counted:
        fields["used"] = None if limit.used is None else limit.used.value
    if limit.used is not None and limit.used.of is not None:
        fields["of"] = limit.used.of
    return fields


def essentials(folder: Path, settings: Config, status: Status) -> Iterator[Finding]:
    """Check what every device and message needs; if a finding is `wrong`, the gateway fails."""
    yield from process(status, settings)
    if status.store_error is not None:
        remedy = "see `fieldpost doctor`, and `journalctl -u fieldpost` for the reason"
        yield Finding("database", WRONG, f"the gateway cannot write: {status.store_error}", remedy)
    yield from space.room(folder, *space_of(status))


def certificates(folder: Path, settings: Config, now: int) -> Iterator[Finding]:
    """Check the certificates with which the gateway accepts devices, if it does so itself.

    `now` is in ms since 1970.
    """
    if settings.component is None:
        yield from folder_checks.certificates(folder, settings.gateway.domain, now)


def process(status: Status, settings: Config) -> Iterator[Finding]:
    """Check whether the gateway is running, reachable for devices, and with the limits that
    `fieldpost.toml` has now."""
    if status.state == RUNNING and status.accepts_devices:
        yield Finding("gateway", OK, f"the gateway is running, fieldpost {status.version}")
    elif status.state == RUNNING and settings.component is not None:
        server, reason = settings.xmpp.component, status.link_error or ""
        named = "" if server in reason else f" {server}"
        text = (
            "the gateway is running, but devices cannot connect: it has no link to the XMPP server"
            f"{named}: {reason}"
        )
        yield Finding(LINK, WRONG, text, _LINK_REMEDY)
    elif status.state == RUNNING and _all_ended(status):
        text = "devices cannot connect: no front process runs"
        yield Finding("gateway", WRONG, text, _FRONT_REMEDY)
    elif status.state == RUNNING:
        text = "devices cannot connect: the gateway is starting or stopping"
        yield Finding("gateway", WRONG, text, "wait some seconds and look again")
    elif status.state == NO_ANSWER:
        remedy = "wait if the machine is busy; otherwise `systemctl restart fieldpost`"
        text = status.trouble or "the gateway does not answer"
        yield Finding("gateway", WRONG, text, remedy)
    else:
        text = "the gateway is not running"
        remedy = "`systemctl start fieldpost`; if it stops again, see `journalctl -u fieldpost`"
        yield Finding("gateway", WRONG, text, remedy)
    if status.changed:
        text = "the running gateway uses other limits than fieldpost.toml"
        yield Finding("gateway", NOTICE, text, "apply them with `fieldpost reload`")


def fronts(status: Status) -> Iterator[Finding]:
    """Check that all front processes run, if one of them does; `process` reports if none does."""
    ended = [str(front.number) for front in status.fronts if front.pid is None]
    if ended and not _all_ended(status):
        text = f"front processes that do not run: {', '.join(ended)}; devices use the others"
        yield Finding("fronts", WRONG, text, _FRONT_REMEDY)


def _all_ended(status: Status) -> bool:
    return bool(status.fronts) and all(front.pid is None for front in status.fronts)


def _wrong(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.verdict == WRONG]
