"""Notes on an episode's outcome, made safe to be written as JSON."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

_DEEPEST = 50
_WIDEST_INT = 2000
"""Bits; Python refuses to write very long integers in decimal, at the least from 640 digits on."""


def plain(value: Any, above: tuple[int, ...] = ()) -> Any:
    """A copy of plain data: texts, numbers, truth values, None, lists and dicts with text keys; all else as text.

    `above`: what contains the value, by `id`.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value if value.bit_length() <= _WIDEST_INT else hex(value)
    if isinstance(value, float):
        return float(value)
    if len(above) >= _DEEPEST or id(value) in above:
        return shown(value)
    above = (*above, id(value))
    try:
        if isinstance(value, Mapping):
            return {key if isinstance(key, str) else shown(key): plain(item, above) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(item, above) for item in value]
        if hasattr(value, "tolist"):  # numpy scalars and arrays
            return plain(value.tolist(), above)
    except Exception:  # an author's own container may raise anything
        return shown(value)
    return shown(value)


def shown(value: Any) -> str:
    """A value as text, whatever it is; long containers shortened."""
    if isinstance(value, (Mapping, list, tuple)):
        return reprlib.repr(value)
    try:
        return str(value)
    except Exception as error:
        return f"<{type(value).__name__} that has no text: {type(error).__name__}>"
