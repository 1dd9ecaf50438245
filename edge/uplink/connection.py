"""The connection to the centre: the uploader and its transport, which a reload replaces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edge.config.load import Config
from edge.reload import Change
from edge.uplink.backlog import StoreBacklog
from sync.common.regular_files import read_regular

if TYPE_CHECKING:  # imported with the first uplink: without one it takes no memory
    from edge.uplink.uploads import ConfiguredTransport
    from sync.uplink.uploader import Uploader


class _Key(NamedTuple):
    """The settings of a transport and its uploader; `enrolment` is the content of the file."""

    folder: str
    enrolment: bytes
    bandwidth: int
    live_share: float


class UplinkConnection:
    """The uploader of `backlog` and its transport, if an uplink is configured.

    Args:
        settings: the configuration in use.
        wall: returns seconds since 1970 UTC.
        on_done: called with each task that has ended; the gateway stops if the task failed.
    """

    def __init__(
        self,
        folder: Path,
        settings: Config,
        backlog: StoreBacklog,
        wall: Callable[[], float],
        on_done: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._backlog = backlog
        self._wall = wall
        self._on_done = on_done
        self._key: _Key | None = None
        self._configured: ConfiguredTransport | None = None
        self._uploader: Uploader | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start to upload segments, if an uplink is configured; raises `ConfigError`."""
        key = _key(self._folder, self._settings)
        self._use(key, self._build(self._settings))

    def wake(self) -> None:
        """Upload without waiting for the next attempt, because a segment was sealed."""
        if self._uploader is not None:
            self._uploader.wake()

    async def stop(self) -> None:
        """Stop the uploads and close the connection."""
        tasks, self._tasks = self._tasks, []
        configured, self._configured, self._uploader = self._configured, None, None
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError, Exception):  # handled by `on_done`
                await task
        if configured is not None:
            await configured.transport.close()

    async def prepare_reload(self, target: Config) -> Change:
        """Create the transport for the new configuration `target`; raises `ConfigError`.

        If the configuration of the uplink has not changed, the uploads continue.
        """
        key = _key(self._folder, target)
        if key is not None and key == self._key:
            return Change()
        configured = self._build(target)

        async def apply() -> None:
            await self.stop()
            self._use(key, configured)

        async def discard() -> None:
            if configured is not None:
                await configured.transport.close()

        return Change(apply, discard)

    def _build(self, settings: Config) -> ConfiguredTransport | None:
        if not (settings.uplink.folder or settings.uplink.enrolment):
            return None
        from edge.uplink import uploads

        return uploads.transport_for(self._folder, settings, self._backlog, self._wall)

    def _use(self, key: _Key | None, configured: ConfiguredTransport | None) -> None:
        self._key, self._configured = key, configured
        if configured is None:
            return
        from edge.uplink import uploads

        self._uploader = uploads.uploader(self._settings, self._backlog, configured.transport)
        work = [("uploader", self._uploader.run())]
        if configured.renewal is not None:
            work.append(("renewal", configured.renewal.run()))
        loop = asyncio.get_running_loop()
        for name, coroutine in work:
            task = loop.create_task(coroutine, name=name)
            task.add_done_callback(self._on_done)
            self._tasks.append(task)


def _key(folder: Path, settings: Config) -> _Key | None:
    """Return the uplink settings of a configuration; `None` if the enrolment cannot be read."""
    uplink = settings.uplink
    try:
        content = read_regular(folder / uplink.enrolment) if uplink.enrolment else b""
    except OSError:
        return None
    return _Key(uplink.folder, content, uplink.bandwidth, uplink.live_share)
