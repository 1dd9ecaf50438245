"""Find objects that wait for Python's garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def garbage() -> Iterator[list[object]]:
    """Yield a list, in which the objects are that the block has left for the garbage collector,
    after it has ended."""
    with no_garbage_collection():
        yield (found := [])
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        gc.set_debug(0)
        found += gc.garbage
        gc.garbage.clear()
