"""Several who use one storage, one call at a time: a test says whose turn it is, and cuts one off.

Each is a thread that waits before each call of the storage until it is its turn, so that every
order of calls can be had, and had again. A cut ends it at a call that is not made any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tests.helpers.memory_storage import Disk, MemoryStorage

PATIENCE_S = 60.0


class Cut(BaseException):
    """The end of who is cut off: nothing that handles errors may hold it up."""


class Actor:
    """One of them: `work` is called with its storage, and gets as far as it has turns."""

    def __init__(self, disk: Disk, work: Callable[[MemoryStorage], None]) -> None:
        self._work = work
        self._storage = MemoryStorage(disk, self._ask)
        self._turn, self._waits = threading.Semaphore(0), threading.Semaphore(0)
        self._cut = False
        self._raised: BaseException | None = None
        self.over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._await()

    def go_on(self) -> None:
        """Have it make one call, or end. Raises what it raised."""
        if not self.over:
            self._turn.release()
            self._await()

    def cut(self) -> None:
        """End it where it is."""
        self._cut = True
        while not self.over:
            self.go_on()

    def _await(self) -> None:
        assert self._waits.acquire(timeout=PATIENCE_S)
        if self.over:
            self._thread.join(PATIENCE_S)
            if self._raised is not None:
                raise self._raised

    def _ask(self, _call: str) -> None:
        self._waits.release()
        self._turn.acquire()
        if self._cut:
            raise Cut

    def _run(self) -> None:
        try:
            self._work(self._storage)
        except Cut:
            pass
        except BaseException as error:
            self._raised = error
        self.over = True
        self._waits.release()
