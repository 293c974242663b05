"""How the rest of OpenTinker sees a live environment: every call is awaited, wherever the environment runs."""

from __future__ import annotations

import asyncio
import functools
import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NoReturn

from opentinker.envs.codec import TextCodec, text_function
from opentinker.envs.process import ProcessEnded, RemoteError, RemoteWorld
from opentinker.envs.registry import build, is_builtin, prepare
from opentinker.envs.thread import EnvThread, Outcome, Overdue
from opentinker.envs.units import Units
from opentinker.envs.world import AgentTurn, EnvStats, Facts, Kind, World
from opentinker.errors import ConfigError, EnvError, EnvTimeout, OpenTinkerError, error_text, message_text

logger = logging.getLogger(__name__)

Isolation = Literal["inline", "thread", "process"]

OPEN_TIMEOUT = 120.0
"""Seconds for making an environment: imports and downloads of its own included."""
CLOSE_TIMEOUT = 5.0
"""Seconds for `close`, and for a call that a cancelled caller left behind."""
_BREATHER = 256
"""Inline calls between two turns of the event loop: a script that does nothing else can then still be timed out."""


def open_env(
    id: str,
    kwargs: Mapping[str, Any] | None = None,
    *,
    isolation: Isolation | None = None,
    step_timeout: float | None = None,
    action_names: Sequence[str] | None = None,
    action_units: Units = None,
    observation_units: Units = None,
    render: Callable[[Any], str] | str | None = None,
    parse: Callable[[str], Any] | str | None = None,
    stats: EnvStats | None = None,
) -> EnvHandle:
    """Makes an environment and returns its handle. Blocks while it is made; may be called from any thread.

    Args:
        id: as for `make_env`.
        kwargs: of the environment's constructor.
        isolation: `inline` (plain calls in the event loop: for environments that never block), `thread` (one daemon thread),
            `process` (a private interpreter and a real kill). None: inline for what comes with this package, else thread.
        step_timeout: seconds for one call; an environment that overruns it is abandoned. None: no limit. Inline calls
            cannot be interrupted and have no limit of their own.
        action_names: see `TextCodec`.
        action_units: see `TextCodec`.
        observation_units: see `TextCodec`.
        render: see `TextCodec`; a function or its import path `package.module:function`. It runs in this interpreter,
            wherever the environment does.
        parse: likewise.
        stats: where abandonments and errors are counted, shared by as many handles as you like.

    Raises:
        UnknownId: no such environment.
        ConfigError: it cannot be made from this id and these arguments, or `render` or `parse` cannot be used.
        EnvError: its constructor raised, or overran `OPEN_TIMEOUT` (EnvTimeout).
    """
    arguments = dict(kwargs or {})
    options = {
        "action_names": action_names,
        "action_units": action_units,
        "observation_units": observation_units,
        "render": text_function("render", render),
        "parse": text_function("parse", parse),
    }
    if isolation is None:
        isolation = "inline" if is_builtin(id) else "thread"
    if isolation == "process":
        # A class given by its path is imported only there: its module's globals stay out of this interpreter.
        make = functools.partial(build, id, arguments) if ":" in id else prepare(id, arguments)
        world: World | RemoteWorld = RemoteWorld(make)
    else:
        world = World(functools.partial(build, id, arguments))
    return EnvHandle(world, id, isolation, step_timeout, options, stats)


class EnvHandle:
    """One live environment. Made by `open_env` or `EnvHandle.wrap`.

    Attributes:
        id: the environment's id, for messages.
        kind: `solo` (Gymnasium), `aec` or `parallel` (PettingZoo).
        possible_agents: all agents there may be; `("agent",)` for solo, empty where the environment does not say.
        seed: of the last reset.
        stats: the counts it adds to.
        calls: how many were made.
        rewords: whether it was opened with a `render` of the caller's own.
    """

    id: str
    kind: Kind
    possible_agents: tuple[str, ...]
    seed: int | None
    stats: EnvStats
    calls: int
    rewords: bool

    def __init__(
        self,
        world: World | RemoteWorld,
        id: str,
        isolation: Isolation,
        step_timeout: float | None,
        codec_options: Mapping[str, Any],
        stats: EnvStats | None,
    ) -> None:
        if isolation not in ("inline", "thread", "process"):
            raise ConfigError(f"isolation must be inline, thread or process, given: {isolation!r}")
        self.id, self.seed, self.calls = id, None, 0
        self._given_up = ""  # why, once it is
        self.stats = EnvStats() if stats is None else stats
        self._timeout, self._closed = step_timeout, False
        self._world = world if isolation == "inline" else None
        self._remote = world if isinstance(world, RemoteWorld) else None
        self._thread = None if isolation == "inline" else EnvThread(world, id, self.stats)
        if self._thread is not None:
            # A handle that is dropped without close() must not leave its thread waiting for ever.
            weakref.finalize(self, self._thread.stop).atexit = False
        facts: Facts = self._ask_now("open", (), OPEN_TIMEOUT)
        self.kind, self.possible_agents = facts.kind, facts.possible_agents
        self._spaces = dict(facts.spaces)
        self._codec_options = codec_options
        self.rewords = codec_options.get("render") is not None
        self._codecs: dict[str, TextCodec] = {}

    @classmethod
    def wrap(
        cls,
        env: Any,
        *,
        id: str | None = None,
        isolation: Isolation | None = None,
        step_timeout: float | None = None,
        action_names: Sequence[str] | None = None,
        action_units: Units = None,
        observation_units: Units = None,
        render: Callable[[Any], str] | None = None,
        parse: Callable[[str], Any] | None = None,
        stats: EnvStats | None = None,
    ) -> EnvHandle:
        """A handle for a live object; arguments as for `open_env`, the id defaults to the class's name.

        Raises:
            ConfigError: the object is no environment, or process isolation is asked for (an object cannot move).
        """
        if isolation == "process":
            raise ConfigError("process isolation makes the environment in the new process: use open_env with an id")
        if isolation is None:
            isolation = "inline" if type(env).__module__.startswith("opentinker.envs.") else "thread"
        options = {
            "action_names": action_names,
            "action_units": action_units,
            "observation_units": observation_units,
            "render": render,
            "parse": parse,
        }
        return cls(World(lambda: env), id or type(env).__name__, isolation, step_timeout, options, stats)

    def __repr__(self) -> str:
        return f"<EnvHandle {self.id} {self.kind}{' abandoned' if self._given_up else ''}>"

    @property
    def abandoned(self) -> bool:
        """Whether it overran a deadline or its process has ended, also between two calls; it is never used again."""
        if self._remote is not None and not (self._given_up or self._closed) and self._remote.ended:
            self._bury()
        return bool(self._given_up)

    def codec(self, agent: str) -> TextCodec:
        """The agent's observations and actions as text; the same object for every call.

        Raises:
            ConfigError: its spaces have no text form.
            EnvError: the environment has no such agent.
        """
        codec = self._codecs.get(agent)
        if codec is None:
            if agent not in self._spaces:  # an agent born after the environment was made
                self._spaces[agent] = self._ask_now("spaces", (agent,), self._timeout)
            codec = self._codecs[agent] = TextCodec(*self._spaces[agent], **self._codec_options)
        return codec

    async def reset(self, seed: int | None, options: dict[str, Any] | None = None) -> Any:
        """A new episode. Returns what the environment's `reset` returns: (observation(s), info(s)), or None for AEC.

        This and every other call:

        Raises:
            EnvTimeout: no answer in time; the environment is abandoned.
            EnvError: the environment raised (the original is the cause), or was abandoned or closed before.
        """
        if not (self._given_up or self._closed):
            self.seed = seed
        return await self._ask("reset", seed, options)

    async def step(self, action: Any) -> Any:
        """One step. Returns the environment's five-tuple; None for AEC. A parallel one takes a dict of actions by agent."""
        return await self._ask("step", action)

    async def turn(self) -> AgentTurn | None:
        """AEC only: who is to act and what it is told; None when no agents are left."""
        turn: AgentTurn | None = await self._ask("turn")
        return turn

    async def step_turn(self, action: Any) -> AgentTurn | None:
        """AEC only: `step`, then `turn`, in one hop."""
        turn: AgentTurn | None = await self._ask("step_turn", action)
        return turn

    async def owed(self) -> dict[str, float]:
        """AEC only: what each agent was given since its own last step; see `World.owed`."""
        owed: dict[str, float] = await self._ask("owed")
        return owed

    async def live_agents(self) -> tuple[str, ...]:
        """Agents still in the game."""
        agents: tuple[str, ...] = await self._ask("live_agents")
        return agents

    async def call(self, name: str, *args: Any) -> Any:
        """A method's answer or an attribute's value, by name."""
        return await self._ask("call", name, args)

    async def close(self) -> None:
        """Closes the environment; a second time, or once it is abandoned, does nothing.

        For clean-up code, so it does not raise: an error is logged and counted, an environment that does not close within
        `CLOSE_TIMEOUT` seconds is abandoned and counted.
        """
        if self._closed or self._given_up:
            return
        try:
            await self._ask("close", timeout=CLOSE_TIMEOUT)
        except EnvError:
            logger.warning("environment %s did not close", self.id, exc_info=True)
        self._closed = True
        if self._thread is not None and not self._given_up:
            self._thread.stop()

    async def _ask(self, op: str, *args: Any, timeout: float | None = None) -> Any:
        if self._given_up or self._closed:
            self._refuse()
        self.calls += 1
        if self._thread is None:
            if not self.calls % _BREATHER:
                await asyncio.sleep(0)
            try:
                return getattr(self._world, op)(*args)
            except KeyboardInterrupt:
                raise
            except BaseException as raised:  # a plain call: what is thrown into this coroutine never comes out of it
                raise self._failed(op, raised) from raised
        try:
            value, error = await self._thread.run(op, args, timeout or self._timeout)
        except Overdue:
            raise self._overdue(op, timeout or self._timeout) from None
        if error is not None:
            raise self._failed(op, error) from _cause(error)
        return value

    def _ask_now(self, op: str, args: tuple[Any, ...], timeout: float | None) -> Any:
        if self._given_up or self._closed:
            self._refuse()
        try:
            value, error = self._plain(op, args) if self._thread is None else self._thread.run_blocking(op, args, timeout)
        except Overdue:
            raise self._overdue(op, timeout) from None
        if error is None:
            return value
        if op == "open" and self._thread is not None:
            self._thread.stop()
        if isinstance(error, OpenTinkerError) and not isinstance(error, EnvError):
            raise error  # a wrong id or argument, not a fault of the environment
        raise self._failed(op, error) from _cause(error)

    def _plain(self, op: str, args: tuple[Any, ...]) -> Outcome:
        try:
            return getattr(self._world, op)(*args), None
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return None, error

    def _overdue(self, op: str, timeout: float | None) -> EnvTimeout:
        assert self._thread is not None
        if not self._given_up:  # several calls may have waited
            self._give_up("was abandoned after it overran its deadline")
            self._thread.abandon()
        return EnvTimeout(f"{self._name()} did not answer {op} within {timeout} s; it was abandoned and is not used again")

    def _failed(self, op: str, error: BaseException) -> EnvError:
        self.stats.errors += 1
        if isinstance(error, ProcessEnded):
            self._bury()
        text = message_text(error) if isinstance(error, (RemoteError, EnvError)) else error_text(error)
        return EnvError(f"{self._name()} raised in {op}: {text}")

    def _bury(self) -> None:
        """Gives up an environment whose process has ended; callers who still wait are told so by the call they made."""
        assert self._thread is not None
        if not self._given_up:
            self._give_up("is gone: its process has ended")
            self._thread.stop()

    def _give_up(self, why: str) -> None:
        self._given_up = why
        self.stats.abandoned += 1

    def _refuse(self) -> NoReturn:
        raise EnvError(f"{self._name()} {self._given_up or 'is closed'}; open another one")

    def _name(self) -> str:
        return f"environment {self.id}" + ("" if self.seed is None else f" (seed {self.seed})")


def _cause(error: BaseException) -> BaseException:
    """What really happened: for an error in a child process the traceback it brought along."""
    return error.__cause__ if isinstance(error, RemoteError) and error.__cause__ is not None else error
