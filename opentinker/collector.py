"""When Python's garbage collector walks: seldom while a run steps, never while libraries are imported."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """No walk inside: what imports make stays for good, and to look for garbage among it was a quarter of a run's start."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def rare_collections() -> Iterator[None]:
    """Spares the collector the walk over what was there before, and most walks over a step's episodes.

    Episodes hold no cycles, so they are freed without it; measured on Kuhn poker, its walks were a quarter of a step. There
    is no walk first, which takes half a second behind torch and verl: call `gc.collect()` before they are imported.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(100_000, before[1], before[2])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
