"""Failures in the log: whole where they are new, one line where they repeat. The whole text is on every episode anyway."""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)

_seen: set[tuple[str, ...]] = set()


def log_failure(text: str) -> None:
    """Logs a failure: with its traceback the first time it comes from a place, then its first line only.

    Args:
        text: a line that says what failed, then whatever holds the traceback.
    """
    lines = text.splitlines()
    place = tuple(line.strip() for line in lines if line.lstrip().startswith("File "))
    if place in _seen:
        log.warning("%s (as before)", lines[0])
    else:
        _seen.add(place)
        log.error("%s", text)


def forget_failures() -> None:
    """Takes all failures for new again: called when a step's rollout starts."""
    _seen.clear()
