"""Numbers and arrays as text and back, exactly."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from numbers import Real
from typing import Any

import numpy as np
from gymnasium.spaces import Box, MultiBinary, MultiDiscrete
from numpy.typing import NDArray

from opentinker.errors import ConfigError

IMAGE_SIDE = 32
"""An array two of whose axes are at least this long is an image: text of it is long and says little."""
MOST_NUMBERS = 10_000
"""No array longer than this is written out either."""

_SEPARATORS = re.compile(r"[\s,;\[\]()]+")
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_INFINITE = re.compile(r"[+-]?inf(inity)?", re.ASCII | re.IGNORECASE)
_MAX_DIGITS = 400

ArraySpace = Box | MultiDiscrete | MultiBinary


def finite(value: Any) -> float | None:
    """A finite number as a float; None for anything else, truth values and texts of numbers included."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def refuse_image(space: ArraySpace, what: str, cure: str) -> None:
    """Refuses arrays too large to be read as numbers.

    Args:
        space: of the arrays.
        what: `observations` or `actions`, for the message.
        cure: what helps, for the message.

    Raises:
        ConfigError: two axes of `IMAGE_SIDE` and more, or more than `MOST_NUMBERS` numbers.
    """
    count = math.prod(space.shape)
    image = sum(side >= IMAGE_SIDE for side in space.shape) >= 2
    if image or count > MOST_NUMBERS:
        why = f"the size of an image ({' x '.join(map(str, space.shape))})" if image else f"of {count} numbers"
        raise ConfigError(f"{what} {why} are not written as text: {space}; {cure}")


def array_text(value: Any, units: Sequence[str] | None = None) -> str:
    """A number, or nested lists of numbers, each the shortest that reads back as itself in the array's own precision.

    Args:
        value: a number or an array of any shape.
        units: one for each number, in the array's order; an empty one is not written.
    """
    if type(value) is int and units is None:
        return str(value)
    array = np.asarray(value)
    kind = array.dtype.kind
    if kind == "b":
        array, kind = array.astype(np.int8), "i"
    if units is None and kind in "iu":
        return str(array.tolist())  # Python writes lists of whole numbers as we do
    numbers = [_number_text(number) for number in array.flat]
    if units is not None:
        numbers = [f"{text} {unit}" if unit else text for text, unit in zip(numbers, units, strict=True)]
    return _nested(iter(numbers), array.shape)


def _nested(numbers: Iterator[str], shape: tuple[int, ...]) -> str:
    if not shape:
        return next(numbers)
    if len(shape) == 1:
        return "[" + ", ".join([next(numbers) for _ in range(shape[0])]) + "]"
    return "[" + ", ".join([_nested(numbers, shape[1:]) for _ in range(shape[0])]) + "]"


def _number_text(number: Any) -> str:
    if isinstance(number, np.floating):
        text = str(number)  # shortest in the number's own precision; repr would name the type
        return text[:-2] if text.endswith(".0") else text
    return str(int(number))


def read_array(text: str, shape: tuple[int, ...], dtype: np.dtype[Any], *, infinite: bool = False) -> NDArray[Any]:
    """The array a text holds: as many numbers as the shape has entries, with any brackets, commas and white space.

    Args:
        text: the reply.
        shape: of the array.
        dtype: of the array.
        infinite: whether `inf` and `-inf` are numbers.

    Raises:
        ValueError: it holds something else, in words a player can use.
    """
    words = [word for word in _SEPARATORS.split(text) if word]
    count = math.prod(shape)
    if len(words) != count:
        raise ValueError(f"expected {count} number{'s' * (count != 1)}, found {len(words)} words")
    integral = not np.issubdtype(dtype, np.floating)
    pattern = _INTEGER if integral else _DECIMAL
    for word in words:
        if len(word) > _MAX_DIGITS or not (pattern.fullmatch(word) or (infinite and _INFINITE.fullmatch(word))):
            raise ValueError(f"{word[:40]!r} is not {'a whole number' if integral else 'a decimal number'}")
    if integral:
        return _integers([int(word) for word in words], dtype).reshape(shape)
    with np.errstate(over="ignore"):
        array = np.array([dtype.type(word) for word in words], dtype)
    if not np.isfinite(array).all():
        for word, number in zip(words, array, strict=True):
            if not np.isfinite(number) and not (infinite and _INFINITE.fullmatch(word)):
                raise ValueError("a number is too large")
    return array.reshape(shape)


def _integers(numbers: list[int], dtype: np.dtype[Any]) -> NDArray[Any]:
    low, high = (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    if any(not low <= number <= high for number in numbers):
        raise ValueError(f"a number is not between {low} and {high}")
    return np.array(numbers, dtype)


def draw_box(space: Box, rng: np.random.Generator) -> NDArray[Any]:
    """A random element: uniform between two bounds, exponential from one, normal without any, as Gymnasium has it.

    Its own `Box.sample` fails where `high - low` is no float64, and draws but one number from the widest whole numbers.
    """
    with np.errstate(over="ignore"):
        array = _draw_whole(space, rng) if space.dtype.kind in "iub" else _draw_decimal(space, rng)
    # rounding to a narrower type may step over a bound; without axes the answer is no array
    return np.asarray(np.clip(array, space.low, space.high))


def _draw_whole(space: Box, rng: np.random.Generator) -> NDArray[Any]:
    below, above, shape = space.bounded_below, space.bounded_above, space.shape
    # unsigned ones always have both bounds
    wide = np.uint64 if space.dtype.kind == "u" else np.int64
    low, high = space.low.astype(wide), space.high.astype(wide)
    between = rng.integers(low, high, endpoint=True, size=shape, dtype=wide)
    if below.all() and above.all():
        return np.asarray(between).astype(space.dtype)
    steps = np.floor(np.where(below | above, rng.exponential(size=shape), rng.normal(size=shape))).astype(np.int64)
    start = np.where(below, low, np.where(above, high, 0)).astype(np.int64)
    away = np.where(above, np.maximum(start - steps, space.low), np.minimum(start + steps, space.high))
    return np.where(below & above, between, away.astype(wide)).astype(space.dtype)


def _draw_decimal(space: Box, rng: np.random.Generator) -> NDArray[Any]:
    below, above, shape = space.bounded_below, space.bounded_above, space.shape
    if below.all() and above.all():
        part = rng.random(shape)
        return np.asarray(space.low * (1 - part) + space.high * part).astype(space.dtype)
    low = np.where(below, space.low, 0.0).astype(np.float64)
    high = np.where(above, space.high, 0.0).astype(np.float64)
    part, steps = rng.random(shape), rng.exponential(size=shape)
    away = np.where(below, low + steps, np.where(above, high - steps, rng.normal(size=shape)))
    return np.where(below & above, low * (1 - part) + high * part, away).astype(space.dtype)
