"""What every sampler shares: the request, and the room in which requests wait to become a batch. No torch here."""

from __future__ import annotations

import asyncio
import reprlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from operator import index

from opentinker.errors import ConfigError, SamplerError
from opentinker.types import Completion, PolicyRef, SampleKey, SamplingParams

SEED_BITS = 64

_COLDEST = 1e-6
"""Logits divided by less leave float32's range, or its precision."""
_PLAIN = {int}
_KEY = (int, int, str, int, int)


@dataclass(slots=True, eq=False)
class Request:
    """One completion that somebody waits for. Compared by identity."""

    ref: PolicyRef
    prompt: tuple[int, ...]
    params: SamplingParams
    seed: int
    """In [0, 2**64)."""
    key: SampleKey
    future: asyncio.Future[Completion]

    def order(self) -> tuple[SampleKey, tuple[int, ...], int, str, str]:
        """Sorts a batch independently of arrival; what follows the key decides where two callers used one."""
        return self.key, self.prompt, self.seed, self.ref.name, self.ref.version

    def fail(self, message: str, cause: BaseException | None = None) -> None:
        """Releases the waiter with a `SamplerError` of its own."""
        if not self.future.done():
            error = SamplerError(message)
            error.__cause__ = cause
            self.future.set_exception(error)

    def finish(self, completion: Completion) -> None:
        """Releases the waiter, unless it went away meanwhile."""
        if not self.future.done():
            self.future.set_result(completion)


def request_seed(params: SamplingParams) -> int:
    """The request's own seed, or a fresh one from the operating system."""
    return secrets.randbits(SEED_BITS) if params.seed is None else params.seed & ((1 << SEED_BITS) - 1)


def check_params(params: SamplingParams) -> None:
    """Refuses what cannot be drawn.

    Raises:
        ConfigError: names the field, what was given and what is allowed.
    """
    for name, whole in (("max_tokens", params.max_tokens), ("top_k", params.top_k), ("seed", params.seed)):
        if type(whole) is not int and not (name == "seed" and whole is None):
            raise ConfigError(f"{name} must be an int, given: {whole!r}")
    if params.max_tokens < 1:
        raise ConfigError(f"max_tokens must be at least 1, given: {params.max_tokens}")
    check_temperature("temperature", params.temperature)
    if not isinstance(params.top_p, Real) or not 0.0 < params.top_p <= 1.0:
        raise ConfigError(f"top_p must lie in (0, 1], given: {params.top_p}")
    if params.top_k < 0:
        raise ConfigError(f"top_k must be at least 0 (0: no limit), given: {params.top_k}")
    if isinstance(params.stop, str) or not all(isinstance(string, str) for string in params.stop):
        raise ConfigError(f"stop must be a tuple of strings, given: {params.stop!r}")
    if "" in params.stop:
        raise ConfigError("an empty stop string would end every completion at once; leave it out of `stop`")


def check_temperature(name: str, temperature: float, *, greedy: bool = True) -> None:
    """Refuses temperatures that logits cannot be divided by.

    Args:
        name: what the message calls it.
        temperature: of any type.
        greedy: whether 0 is allowed.

    Raises:
        ConfigError: says what was given and what is allowed.
    """
    fine = isinstance(temperature, Real) and (_COLDEST <= temperature < float("inf") or (greedy and temperature == 0))
    if not fine:
        rule = f"must be finite and at least {_COLDEST:g}" + (", or 0 (greedy)" if greedy else "")
        raise ConfigError(f"{name} {rule}, given: {temperature!r}")


def prompt_of(ids: Sequence[int]) -> tuple[int, ...]:
    """A prompt as a tuple of plain ints; what counts as one, such as numpy's, is made one.

    Raises:
        ConfigError: it is no sequence of ints.
    """
    try:
        prompt = tuple(ids)
        kinds = set(map(type, prompt))  # in C: prompts are long and many
        if kinds <= _PLAIN:
            return prompt
        if bool not in kinds:
            return tuple(map(index, prompt))
        why = "bool is none"
    except TypeError as error:
        why = str(error)
    raise ConfigError(f"a prompt must be a sequence of ints, given: {reprlib.repr(ids)} ({why})")


def check_key(key: SampleKey) -> None:
    """Refuses keys that could not be sorted among others.

    Raises:
        ConfigError: it is no tuple of (group, member, agent, turn, attempt).
    """
    if not isinstance(key, tuple) or tuple(map(type, key)) != _KEY:
        raise ConfigError(f"a key must be (int group, int member, str agent, int turn, int attempt), given: {key!r}")


class WaitingRoom:
    """Collects requests and hands them over as batches, on the event loop's thread. It is a `Pace`.

    In step (`in_step=True`), a batch is handed over when every coroutine that entered waits here: its composition then
    depends on the run and not on timing. Otherwise whatever waits goes at the next turn of the loop. Who asks without
    having entered is served too, but in step it stands in for one that has entered.

    Serves one event loop at a time; counts left behind by a loop that was closed are forgotten.

    Args:
        hand_over: takes a batch.
        in_step: as above.
        deserted: called when the last that entered has left.
    """

    def __init__(
        self,
        hand_over: Callable[[list[Request]], None],
        *,
        in_step: bool,
        deserted: Callable[[], None] = lambda: None,
    ) -> None:
        self._hand_over = hand_over
        self._in_step = in_step
        self._deserted = deserted
        self._waiting: list[Request] = []
        self._entered = 0
        self._scheduled = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def entered(self) -> int:
        """Coroutines that may still ask."""
        return self._entered

    @property
    def waiting(self) -> int:
        """Requests that wait to be handed over, those cancelled since the last check included."""
        return len(self._waiting)

    def enter(self, n: int = 1) -> None:
        """Counts n more coroutines that may ask. Call it before they start, for all at once."""
        self._bind(_current_loop())
        self._entered += n

    def leave(self, n: int = 1) -> None:
        """Counts n fewer; those who wait may now be all.

        Raises:
            RuntimeError: more left than had entered; the count is kept.
        """
        if n > self._entered:
            raise RuntimeError(f"{n} leave the sampler, but only {self._entered} have entered: every leave needs its enter")
        self._entered -= n
        self.check()
        if n and not self._entered:
            self._deserted()

    def put(self, request: Request) -> None:
        """The request waits from now on."""
        self._waiting.append(request)
        self.check()

    def empty(self) -> list[Request]:
        """Takes out everything that waits, unserved."""
        taken, self._waiting = self._waiting, []
        return taken

    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop, to which this room now belongs."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._bind(loop)
        return loop

    def check(self) -> None:
        """Plans a handing over if one is due."""
        if self._due() and not self._scheduled and self._loop is not None and not self._loop.is_closed():
            self._scheduled = True
            self._loop.call_soon(self._fire)

    def _due(self) -> bool:
        return bool(self._waiting) and (not self._in_step or len(self._waiting) >= self._entered)

    def _fire(self) -> None:
        self._scheduled = False
        # a cancelled request leaves here and not earlier; until then it can only make a check too early, never too late
        self._waiting = [request for request in self._waiting if not request.future.done()]
        if self._due():
            self._hand_over(self.empty())

    def _bind(self, loop: asyncio.AbstractEventLoop | None) -> None:
        if loop is self._loop or (loop is None and self._loop is not None and not self._loop.is_closed()):
            return
        if self._loop is not None:
            if not self._loop.is_closed() and (self._waiting or self._entered):
                raise SamplerError("this sampler is in use by another event loop; give each loop a sampler of its own")
            self._waiting, self._entered, self._scheduled = [], 0, False
            self._deserted()
        self._loop = loop


def _current_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
