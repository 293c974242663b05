"""Numbers and arrays as text and back, exactly."""

from __future__ import annotations

import math
import re
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SEPARATORS = re.compile(r"[\s,;\[\]()]+")
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_MAX_DIGITS = 400


def finite(value: Any) -> float | None:
    """A finite number as a float; None for anything else, truth values and texts of numbers included."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def array_text(value: Any) -> str:
    """A number, or nested lists of numbers, each the shortest that reads back as itself in the array's own precision."""
    array = np.asarray(value)
    if array.dtype.kind == "b":
        array = array.astype(np.int8)
    if array.ndim == 0:
        return _number_text(array[()])
    return "[" + ", ".join([array_text(row) for row in array]) + "]"


def _number_text(number: Any) -> str:
    if isinstance(number, np.floating):
        text = str(number)  # shortest in the number's own precision; repr would name the type
        return text[:-2] if text.endswith(".0") else text
    return str(int(number))


def read_array(text: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The array a text holds: as many numbers as the shape has entries, with any brackets, commas and white space.

    Raises:
        ValueError: it holds something else, in words a player can use.
    """
    words = [word for word in _SEPARATORS.split(text) if word]
    count = int(np.prod(shape, dtype=np.int64))
    if len(words) != count:
        raise ValueError(f"expected {count} number{'s' * (count != 1)}, found {len(words)} words")
    integral = not np.issubdtype(dtype, np.floating)
    pattern = _INTEGER if integral else _DECIMAL
    for word in words:
        if len(word) > _MAX_DIGITS or not pattern.fullmatch(word):
            raise ValueError(f"{word[:40]!r} is not {'a whole number' if integral else 'a decimal number'}")
    if integral:
        return _integers([int(word) for word in words], dtype).reshape(shape)
    with np.errstate(over="ignore"):
        array = np.array([dtype.type(word) for word in words], dtype).reshape(shape)
    if not np.isfinite(array).all():
        raise ValueError("a number is too large")
    return array


def _integers(numbers: list[int], dtype: np.dtype[Any]) -> NDArray[Any]:
    low, high = (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    if any(not low <= number <= high for number in numbers):
        raise ValueError(f"a number is not between {low} and {high}")
    return np.array(numbers, dtype)
