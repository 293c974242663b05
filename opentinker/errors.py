"""Every failure OpenTinker raises.

OpenTinkerError
├── ConfigError            (ValueError)   the configuration is wrong; nothing was started
├── UnknownId              (KeyError)     no such environment, coordinator, credit function, ...
├── DuplicateId            (ValueError)   an id was registered twice
├── MissingExtra           (ImportError)  an optional dependency is not installed
├── InvalidAction          (ValueError)   a reply is no legal action
├── SeatOut                               a player left its game: forfeit, truncation, failure or time
├── EnvError               (RuntimeError) an environment raised, or was used wrongly
│   └── EnvTimeout         (TimeoutError) an environment overran its deadline and was abandoned
├── CoordinationError      (RuntimeError) a coordinator used its table against the rules
├── SamplerError           (RuntimeError) a generation request failed for good
├── CreditError            (ValueError)   advantages do not fit their episodes
├── RolloutFailed          (RuntimeError) too many episodes or environments of a step failed
├── TrainingFailed         (RuntimeError) an update left weights that are no numbers
├── CheckpointError        (RuntimeError) a checkpoint is torn, altered or of another run
├── WriteFailed            (OSError)      a run's figures or episodes cannot be written: no space, no right
├── RunExists              (FileExistsError) a run of this name is already there
├── LeaseLost              (RuntimeError) a lease ended before its holder was done
└── Interrupted                           a signal asked the run to stop; its state was saved
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any


class OpenTinkerError(Exception):
    """Base of all errors of this package. They cross process borders whole."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def message_text(error: BaseException) -> str:
    """`str(error)` for an error that others wrote: its own `__str__` may raise."""
    try:
        return str(error)
    except Exception as second:
        return f"(its __str__ raised {type(second).__name__})"


def error_text(error: BaseException) -> str:
    """An error's type and message, e.g. `OSError: no licence`, whatever its own `__str__` does."""
    return f"{type(error).__name__}: {message_text(error)}"


def value_text(value: Any, room: int = 200) -> str:
    """`repr(value)` for a value that others gave, cut to `room` characters, whatever its own `__repr__` does."""
    try:
        text = repr(value)
    except Exception as error:  # a whole number of more than 4300 digits raises as well
        text = f"a {type(value).__name__} (its __repr__ raised {type(error).__name__})"
    return text if len(text) <= room else text[: room - 3] + "..."


def _rebuild(kind: type[OpenTinkerError], args: tuple[Any, ...], attributes: dict[str, Any]) -> OpenTinkerError:
    # past __init__, whose arguments are not the message; OSError insists on its own __new__
    error: OpenTinkerError = (OSError if issubclass(kind, OSError) else Exception).__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


class ConfigError(OpenTinkerError, ValueError):
    """The configuration is wrong. The message says which key, what was given and what would do."""


class UnknownId(OpenTinkerError, KeyError):
    """An id that no registry entry carries; near names are suggested."""

    def __init__(self, kind: str, given: str, known: Iterable[str], hint: str = "") -> None:
        names = sorted(known)
        near = difflib.get_close_matches(given, names, n=3, cutoff=0.5)
        message = f"unknown {kind} {given!r}"
        if near:
            message += f"; did you mean {' or '.join(map(repr, near))}?"
        elif names:
            shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
            message += f"; known: {shown}"
        if hint:
            message += f" ({hint})"
        super().__init__(message)
        self.kind, self.given, self.near = kind, given, near

    def __str__(self) -> str:  # KeyError would print the repr
        return str(self.args[0])


class DuplicateId(OpenTinkerError, ValueError):
    """An id that is already registered."""


class MissingExtra(OpenTinkerError, ImportError):
    """A part that needs an optional dependency was asked for without it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional dependency: pip install 'opentinker[{extra}]'")


class InvalidAction(OpenTinkerError, ValueError):
    """A reply that is no legal action.

    Attributes:
        reply: the text as the player gave it.
        reason: why it is not an action, in words a player can use.
        legal: the legal actions as text, where they can be listed; else empty.
    """

    def __init__(self, reply: str, reason: str, legal: Sequence[str] = ()) -> None:
        shown = reply if len(reply) <= 80 else reply[:77] + "..."
        message = f"invalid action {shown!r}: {reason}"
        if legal:
            message += f"; legal: {', '.join(list(legal)[:20])}{', ...' if len(legal) > 20 else ''}"
        super().__init__(message)
        self.reply, self.reason, self.legal = reply, reason, tuple(legal)


class SeatOut(OpenTinkerError):
    """A player is out of its game.

    Attributes:
        agent: who.
        reason: one of `opentinker.types.OutReason`'s values.
        detail: one sentence; the error's text where a failure caused it.
    """

    def __init__(self, agent: str, reason: str, detail: str = "") -> None:
        super().__init__(f"{agent} is out ({reason})" + (f": {detail}" if detail else ""))
        self.agent, self.reason, self.detail = agent, reason, detail


class EnvError(OpenTinkerError, RuntimeError):
    """An environment raised an error or was used against its contract."""


class EnvTimeout(EnvError, TimeoutError):
    """An environment overran its deadline; it was abandoned and is never used again."""


class CoordinationError(OpenTinkerError, RuntimeError):
    """A coordinator used its table against the rules: asked an agent twice at once, one that has ended, or after the end."""


class SamplerError(OpenTinkerError, RuntimeError):
    """A generation request failed for good."""


class CreditError(OpenTinkerError, ValueError):
    """Advantages do not fit their episodes: one missing, one too many, or not a finite number."""


class RolloutFailed(OpenTinkerError, RuntimeError):
    """More episodes failed, or more environments were abandoned, than the configuration allows.

    Attributes:
        episodes: those that failed.
    """

    def __init__(self, message: str, episodes: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.episodes = tuple(episodes)


class TrainingFailed(OpenTinkerError, RuntimeError):
    """An update left a policy's weights useless; nothing was saved after it."""


class CheckpointError(OpenTinkerError, RuntimeError):
    """A checkpoint that cannot be used: torn, altered, or of another run or version."""


class WriteFailed(OpenTinkerError, OSError):
    """A run's figures or episodes cannot be written. What its last checkpoint holds is kept."""


class RunExists(OpenTinkerError, FileExistsError):
    """A run folder of this name exists and does not belong to this configuration."""


class LeaseLost(OpenTinkerError, RuntimeError):
    """A lease expired or was taken back before its holder was done."""


class Interrupted(OpenTinkerError):
    """A signal asked the run to stop; everything up to its last whole step was saved.

    Attributes:
        signum: the signal's number; the command exits with 128 + signum.
    """

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(message)
        self.signum = signum
