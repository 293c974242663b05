"""What settings are made of: their base class, and values with the checks that go with them."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
"""Names that become folders."""

MOST = 1_000_000
"""Of what a step may hold: far above any use, and below what exhausts memory before anybody is told."""

SECONDS = 1e7
"""Of a time limit: four months. Clocks overflow far above it."""


class Settings(BaseModel):
    """Base of every node: unknown keys are errors, nothing is guessed from another type, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    short_forms: ClassVar[tuple[str, ...]] = ()
    """Keys that are understood beside the fields."""

    @classmethod
    def valid_keys(cls) -> list[str]:
        """What may stand here."""
        return [*cls.model_fields, *cls.short_forms]


class Schedule(Settings):
    """A number that moves exponentially from `start` to `end` over the training steps. A plain number is constant."""

    start: float = Field(ge=0, description="value at the first step")
    end: float = Field(ge=0, description="value at the last step; exponential in between, linear if one end is 0")

    def at(self, step: int, steps: int) -> float:
        """The value at step 0 .. steps-1."""
        if steps <= 1 or self.start == self.end:
            return self.start
        progress = min(max(step / (steps - 1), 0.0), 1.0)
        if self.start > 0 and self.end > 0:
            return float(self.start ** (1 - progress) * self.end**progress)
        return self.start + (self.end - self.start) * progress


def is_number(value: Any) -> bool:
    """Whether it is one to somebody who writes YAML: true and false are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _schedule(value: Any) -> Any:
    if isinstance(value, (Schedule, dict)):
        return value
    if is_number(value) and 0 <= value < math.inf:
        return {"start": value, "end": value}
    raise ValueError("must be a number, 0 or more, or a mapping {start, end}")


Scheduled = Annotated[Schedule, BeforeValidator(_schedule)]


def at_most(limit: float) -> AfterValidator:
    """A check of a schedule's two ends."""
    def check(schedule: Schedule) -> Schedule:
        if max(schedule.start, schedule.end) > limit:
            raise ValueError(f"must be at most {limit:g}")
        return schedule

    return AfterValidator(check)


def _text(value: str) -> str:
    if any(unicodedata.category(mark) == "Cs" for mark in value):
        raise ValueError("must hold no half of a surrogate pair, which is no character")
    return value


def _line(value: str) -> str:
    bad = next((mark for mark in value if unicodedata.category(mark) in ("Cc", "Cs", "Zl", "Zp")), None)
    if bad is not None:
        raise ValueError(f"must be one line of printable text, without {bad!a}")
    return value


def _figures_name(value: str) -> str:
    if "/" in value or value == "all":
        raise ValueError("figures are named after it, and `all` stands for a whole step: take a name without '/', not 'all'")
    return value


Text = Annotated[str, AfterValidator(_text)]
"""Text that can be written and tokenized."""

StopText = Annotated[str, Field(min_length=1), AfterValidator(_text)]
"""Text that is there."""

Line = Annotated[str, Field(min_length=1), AfterValidator(_line)]
"""A name, an id or a path."""

Role = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_line), AfterValidator(_figures_name)]
"""A name of figures."""

PolicyName = Annotated[str, Field(pattern=NAME, max_length=100), AfterValidator(_figures_name)]
"""A name of figures and of folders."""


def plain_copy(value: Any) -> Any:
    """A copy that shares no mapping or list with its source; tuples become lists."""
    if isinstance(value, Mapping):
        return {key: plain_copy(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_copy(item) for item in value]
    return value


def _plain_data(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        for name, item in value.items():
            _plain_data(name, key)
            _plain_data(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _plain_data(item, f"{key}.{index}")
    elif isinstance(value, float) and math.isnan(value):
        raise ValueError(f"{key}: NaN does not equal itself; use a number or null")
    elif value is not None and type(value) not in (bool, int, float, str):
        raise ValueError(f"{key}: YAML cannot hold a {type(value).__name__}; use numbers, text, lists and mappings")
    return value


def _units(value: Any) -> Any:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    if parts is not None:
        for part in parts:
            _units(part)
    elif value is not None and not isinstance(value, str):
        raise ValueError(f"units are texts, or lists and mappings of them; put {value!r} in quotes")
    return _plain_data(value)


Units = Annotated[Any, AfterValidator(_units)]
"""Units of numbers, in the shape of their space: see `opentinker.envs.TextCodec`."""

Kwargs = Annotated[dict[str, Any], AfterValidator(_plain_data)]
"""Arguments for something that the configuration does not know: plain data, so that `config.yaml` can hold them."""
