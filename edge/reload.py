"""Reload the configuration of a running gateway: all that can change, or nothing.

Everything is checked and prepared first: the file, the certificates, the uplink's transport, the
address of the status page. Only if all of that succeeds, the options change, in place, and the
parts apply their prepared changes. Options that need a restart keep their values and are reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from edge.config import changes, load
from edge.config.changes import Changes
from edge.config.load import Config
from edge.engine.store import events, space
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent
from edge.engine.store.group_commit import Store
from edge.errors import ConfigError, FieldpostError
from edge.features.eventlog.rules import levels
from edge.ops.gateway.control import ReloadReport


async def _nothing() -> None:
    pass


class Change(NamedTuple):
    """A prepared change of a part of the gateway. Neither function may raise.

    Attributes:
        apply: runs after the options have changed.
        discard: runs in place of `apply` if the reload fails.
    """

    apply: Callable[[], Awaitable[None]] = _nothing
    discard: Callable[[], Awaitable[None]] = _nothing


Part = Callable[[Config], Awaitable[Change]]
"""Prepares a part of the gateway for a new configuration; raises `FieldpostError`."""


class Reloader:
    """Reloads the configuration in `folder`.

    Args:
        settings: the configuration in use, which is changed in place.
        parts: prepare the changes of the parts of the gateway, in this order.
        on_reloaded: called after a reload, with the bytes of `fieldpost.toml`.
    """

    def __init__(
        self,
        folder: Path,
        settings: Config,
        store: Store,
        parts: Sequence[Part],
        on_reloaded: Callable[[bytes], None],
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._store = store
        self._parts = parts
        self._on_reloaded = on_reloaded
        self._lock = asyncio.Lock()

    async def reload(self) -> ReloadReport:
        """Reload the configuration; return the changed options, or the faults because of which
        nothing was changed."""
        async with self._lock:
            try:
                text = load.read(self._folder)
                new = await asyncio.to_thread(_parse, text)
                if isinstance(new, Config):
                    return await self._apply(text, new)
                return ReloadReport(faults=new)
            except FieldpostError as error:
                return ReloadReport(faults=[str(error)])

    async def _apply(self, text: bytes, new: Config) -> ReloadReport:
        found, target = changes.compare(self._settings, new), changes.merge(self._settings, new)
        for conflict in load.find_conflicts(target):
            restart = ", ".join(found.restart)
            raise ConfigError(
                f"{restart} can change only at a restart, and the other options conflict with the"
                f" values in use: {conflict}; restart the gateway to apply all changes"
            )
        prepared: list[Change] = []
        try:
            for part in self._parts:
                prepared.append(await part(target))  # noqa: PERF401 - discarded after a failure
            await self._store.run(lambda tx: _store_unit(tx, target, found))
        except BaseException:
            for change in reversed(prepared):
                await change.discard()
            raise
        changes.assign(self._settings, target)
        for change in prepared:
            await change.apply()
        self._on_reloaded(text)
        return ReloadReport(changed=found.reloadable, restart=found.restart)


def _store_unit(tx: Transaction, target: Config, found: Changes) -> None:
    events.set_urgent(tx, levels.at_least(target.uplink.urgent_level))
    space.set_max_bytes(tx, target.limits.database_bytes)
    tags = {"restart": ", ".join(found.restart)} if found.restart else None
    event = NewEvent(
        "system",
        name="reloaded",
        value=float(len(found.reloadable)),
        level="Notice",
        text=", ".join(found.reloadable) or None,
        tags=tags,
    )
    events.append(tx, events.SYSTEM, event)


def _parse(text: bytes) -> Config | list[str]:
    """Return the configuration, or all its faults."""
    try:
        return load.parse(text)
    except ConfigError:
        from edge.ops.checks import config_check  # only a faulty file needs it

        return list(map(str, config_check.check_text(text).faults))
