"""One episode: a coordinator plays it, and every ending becomes data."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar, cast

from opentinker.coordinators.barrier import call_off
from opentinker.coordinators.base import agents_of
from opentinker.coordinators.failures import log_failure
from opentinker.errors import ConfigError, CoordinationError, SeatOut, error_text, value_text
from opentinker.types import Episode, EpisodeStatus, OutReason

if TYPE_CHECKING:
    from opentinker.coordinators.base import Coordinator
    from opentinker.coordinators.table import Table
    from opentinker.envs.handle import EnvHandle

log = logging.getLogger(__name__)

T = TypeVar("T")

_STATUS = {
    OutReason.FORFEIT: EpisodeStatus.TERMINATED,
    OutReason.TRUNCATE: EpisodeStatus.TRUNCATED,
    OutReason.TIMEOUT: EpisodeStatus.TRUNCATED,
    OutReason.FAILED: EpisodeStatus.FAILED,
}


async def play_episode(
    coordinator: Coordinator, env: EnvHandle, table: Table, *, episode_timeout: float | None = None
) -> Episode:
    """Plays one episode to its end, whatever end that is.

    | ending | status | on the record |
    |---|---|---|
    | `play` returns | terminated; truncated where the world truncated an agent | |
    | a player forfeits and the coordinator lets it through | terminated | `outcome["forfeit"]`, `outcome["out"]` |
    | a player is truncated or runs out of time | truncated | `outcome["out"]` |
    | a player's seat fails | failed | `outcome["out"]`, the traceback |
    | the episode's deadline | truncated | `outcome["deadline"]`: environment, seed, what was waited for |
    | the environment or the coordinator raises, SystemExit included | failed | environment, seed, the traceback |

    Args:
        coordinator: who acts when.
        env: a live environment, not in use elsewhere.
        table: a fresh table on it.
        episode_timeout: seconds for the whole episode; None: no limit.

    Returns:
        The episode, with `timings` in seconds: `env`, `seats` and `total`.

    Raises:
        ConfigError: the coordinator or a seat cannot play as it is configured; no other episode could either.
        asyncio.CancelledError: the caller was cancelled; like KeyboardInterrupt it passes through.
    """
    watched = WatchedEnv(env)
    start = perf_counter()
    status: EpisodeStatus | None = None
    error = ""
    # In a task of its own: what seats and coordinators make of a cancellation can then not be taken for the caller's.
    game = asyncio.ensure_future(_play(coordinator, watched, table))
    try:
        if not await _ends(game, episode_timeout):
            status = EpisodeStatus.TRUNCATED
            _note_deadline(watched, table, episode_timeout)
    finally:
        if not game.done():
            await call_off((game,))
    failure = asyncio.CancelledError("cancelled from below") if game.cancelled() else game.exception()
    if failure is not None:
        for leaf in _leaves(failure):
            if isinstance(leaf, ConfigError):
                raise leaf
            if isinstance(leaf, KeyboardInterrupt):
                raise failure
    if status is not None:
        if failure is not None and not isinstance(failure, asyncio.CancelledError):
            log.warning("%s", table.describe("an error after its deadline"), exc_info=failure)
    elif failure is not None:  # GeneratorExit too: a game that is thrown away by the interpreter never gets here
        status, error = _ending(failure, table)
    return table.freeze(status, error, {"env": watched.seconds, "total": perf_counter() - start})


async def _ends(game: asyncio.Task[None], seconds: float | None) -> bool:
    """Whether a task ends within a time; `asyncio.wait` for one task, without its bookkeeping."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def wake(_: Any = None) -> None:
        if not over.done():
            over.set_result(None)

    game.add_done_callback(wake)
    timer = None if seconds is None else loop.call_later(seconds, wake)
    try:
        await over
    finally:
        if timer is not None:
            timer.cancel()
    return game.done()


async def _play(coordinator: Coordinator, env: WatchedEnv, table: Table) -> None:
    handle = cast("EnvHandle", env)
    try:
        for agent in agents_of(coordinator, handle):
            table.seat(agent)
        await coordinator.play(handle, table)
    except SystemExit as error:  # a task lets it through to the event loop, and the whole process would end
        what = f"the game was left by {value_text(error)}; return from play() instead"
        raise CoordinationError(table.describe(what)) from error


def _note_deadline(env: WatchedEnv, table: Table, seconds: float | None) -> None:
    waited = [f"env.{env.current}"] if env.current else table.waiting()
    text = table.describe(f"overran its {seconds:g} s" + (f", waiting for {', '.join(waited)}" if waited else ""))
    table.note("deadline", text)
    log.warning("%s", text)


def _ending(failure: BaseException, table: Table) -> tuple[EpisodeStatus, str]:
    out = _first_out(failure)
    if out is not None and out.reason in _STATUS:
        table.note_out(out)
        status = _STATUS[OutReason(out.reason)]
        if status is not EpisodeStatus.FAILED:
            return status, ""
        # the table has logged the seat's own traceback
        return status, table.describe(_text(failure))
    error = table.describe(_text(failure))
    log_failure(error)
    return EpisodeStatus.FAILED, error


def _text(failure: BaseException) -> str:
    shown = "".join(traceback.format_exception(failure))
    return f"{error_text(failure)}\n{shown}"


def _first_out(failure: BaseException) -> SeatOut | None:
    """The player's leaving behind an exception, also where a coordinator's own task group wrapped it."""
    leaves = list(_leaves(failure))
    if all(isinstance(leaf, SeatOut) for leaf in leaves):
        return cast("SeatOut", leaves[0])
    return None


def _leaves(failure: BaseException) -> Iterator[BaseException]:
    if isinstance(failure, BaseExceptionGroup):
        for inner in failure.exceptions:
            yield from _leaves(inner)
    else:
        yield failure


class WatchedEnv:
    """An environment's handle that counts the seconds spent in it and knows which call is under way.

    Stands in for the handle while an episode is played; all else is the handle's own.
    """

    __slots__ = ("_env", "current", "seconds")

    def __init__(self, env: EnvHandle) -> None:
        self._env = env
        self.seconds = 0.0
        self.current = ""
        """The call that is awaited, or was when it was cancelled; empty between calls."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    async def _timed(self, name: str, call: Awaitable[T]) -> T:
        self.current = name
        start = perf_counter()
        try:
            result = await call
        except Exception:
            self.current = ""
            raise
        finally:
            self.seconds += perf_counter() - start
        self.current = ""
        return result

    def reset(self, seed: int | None, options: dict[str, Any] | None = None) -> Awaitable[Any]:
        """As the handle's."""
        return self._timed("reset", self._env.reset(seed, options))

    def step(self, action: Any) -> Awaitable[Any]:
        """As the handle's."""
        return self._timed("step", self._env.step(action))

    def turn(self) -> Awaitable[Any]:
        """As the handle's."""
        return self._timed("turn", self._env.turn())

    def step_turn(self, action: Any) -> Awaitable[Any]:
        """As the handle's."""
        return self._timed("step", self._env.step_turn(action))

    def call(self, name: str, *args: Any) -> Awaitable[Any]:
        """As the handle's."""
        return self._timed(name, self._env.call(name, *args))
