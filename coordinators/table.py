"""The table: the only thing that talks to seats."""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from opentinker.coordinators.barrier import cancel_requests, together
from opentinker.coordinators.base import Query
from opentinker.coordinators.drafts import Draft, Player
from opentinker.coordinators.failures import log_failure
from opentinker.coordinators.record import Record
from opentinker.errors import ConfigError, CoordinationError, EnvError, SeatOut, error_text, message_text
from opentinker.seeding import generator
from opentinker.types import ActionText, AgentID, Decision, OutReason, Pace, Seat, Verdict

if TYPE_CHECKING:
    from opentinker.envs.handle import EnvHandle

_PHASE: ContextVar[str] = ContextVar("opentinker_phase", default="")  # per task: side conversations may run side by side

_PATIENCE = 10
"""How often in a row a player who has left may be asked while nothing else happens."""
_BREATHER = 256
"""Decisions of a player between two turns of the event loop; a scripted seat never waits for anything by itself."""

_REASONS = {Verdict.FORFEIT: OutReason.FORFEIT, Verdict.TRUNCATE: OutReason.TRUNCATE}


class _Asked(NamedTuple):
    """A query made ready: rendered, so that nothing that happens later shows in it."""

    player: Player
    text: str
    space: ActionText
    mask: Any


class Table(Record):
    """One episode's table: its record, and the way to the seats. Attributes are those of `Record`."""

    def __init__(
        self,
        env: EnvHandle,
        seat_of: Callable[[AgentID], Seat],
        *,
        episode_id: str,
        seed: int,
        group: int = 0,
        member: int = 0,
        turn_timeout: float | None = None,
        pace: Pace | None = None,
    ) -> None:
        """Makes an empty table.

        Args:
            env: the live environment.
            seat_of: a fresh seat for an agent; called once per agent, when it first matters.
            episode_id: unique in the run.
            seed: for `env.reset`, and for `rng`.
            group: number of the group in the step.
            member: number of the episode in the group.
            turn_timeout: seconds for one decision, retries included; None: no limit.
            pace: told how many coroutines of this episode may ask the sampler. The caller enters the episode itself.
        """
        super().__init__(env, seat_of, episode_id=episode_id, seed=seed, group=group, member=member)
        self._turn_timeout = turn_timeout
        self._pace = pace
        self._rng: random.Random | None = None

    @property
    def rng(self) -> random.Random:
        """The episode's own generator: equal for all members of a group, drawn from by the coordinator only."""
        if self._rng is None:
            self._rng = generator("table", self.seed)
        return self._rng

    async def ask(self, agent: AgentID, observation: Any, *, space: ActionText | None = None, mask: Any = None) -> Any:
        """One decision.

        Args:
            agent: who decides.
            observation: what it sees: text, or anything the environment's codec renders.
            space: how to answer; None: the environment's actions of that agent.
            mask: which actions are legal now; None: what the observation's own `action_mask` says, else all.

        Returns:
            The action, never None.

        Raises:
            SeatOut: the player forfeits, is truncated, fails or runs out of time; also when it has left before, so that a
                loop over all agents can skip it.
            CoordinationError: the agent has ended, is being asked already, or the episode is over; or it has left and is
                asked for the tenth time in a row while nothing else happens: no call of the environment, no decision.
            EnvError: the environment's mask is none, or fits no action.
            ConfigError: the seat cannot play as it is configured.
        """
        try:
            asked = self._prepare(agent, observation, space, mask)
        except Exception:
            await asyncio.sleep(0)  # a loop that goes on after every error can be timed out
            raise
        start = perf_counter()
        try:
            return await self._decide(asked)
        finally:
            self.seat_seconds += perf_counter() - start

    async def ask_all(
        self, queries: Mapping[AgentID, Query], *, on_out: Literal["release", "skip"] = "release"
    ) -> dict[AgentID, Any]:
        """A barrier: all decide on the same state, at the same time, and none sees another's action.

        Args:
            queries: what each is asked.
            on_out: when a player leaves: `release` calls off the others' decisions at once and raises; `skip` waits for the
                others and leaves that player's action out of the answer.

        Returns:
            The actions, in the order of `queries`.

        Raises:
            SeatOut: of the first player to leave (`release`).
            CoordinationError, EnvError, ConfigError: as `ask`.
        """
        try:
            ready = [self._prepare(agent, query.observation, query.space, query.mask) for agent, query in queries.items()]
        except Exception:
            await asyncio.sleep(0)
            raise
        if not ready:
            await asyncio.sleep(0)
            return {}
        start = perf_counter()
        try:
            return await self._barrier(ready, release=on_out == "release")
        finally:
            self.seat_seconds += perf_counter() - start

    @asynccontextmanager
    async def phase(self, name: str) -> AsyncIterator[None]:
        """Names a phase: turns asked for inside carry it. Phases nest; the inner name counts."""
        token = _PHASE.set(name)
        try:
            yield
        finally:
            _PHASE.reset(token)

    def _prepare(self, agent: AgentID, observation: Any, space: ActionText | None, mask: Any) -> _Asked:
        player = self._player(agent)
        if player.out:
            raise self._refusal(player)
        if self._closed:
            raise CoordinationError(self.describe(f"{agent} was asked after the episode had ended"))
        if player.ended:
            raise CoordinationError(self.describe(f"{agent} was asked after table.end({agent!r}, ...); skip ended agents"))
        if player.busy:
            raise CoordinationError(self.describe(f"{agent} was asked while it is still deciding; await its answer first"))
        text, own_mask = self._render(player, observation)
        if space is None:
            space = self._codec(player)
            if mask is None:
                mask = own_mask
        if player.see is not None:
            player.see(observation)
        return _Asked(player, text, space, mask)

    def _refusal(self, player: Player) -> Exception:
        """What whoever asks a player who has left is told."""
        # all three only ever grow: the sum stands still as long as nothing happens
        happened = self.env.calls + len(self._drafts) + len(self.out)
        times, since = player.refused
        times = times + 1 if since == happened else 1
        player.refused = (times, happened)
        if times < _PATIENCE:
            return SeatOut(player.agent, player.out, "it was asked again after it had left")
        return CoordinationError(
            self.describe(
                f"{player.agent} has left ({player.out}) and was asked {times} times in a row while nothing else happened; "
                "let SeatOut end the game, or go on without the player"
            )
        )

    async def _decide(self, asked: _Asked) -> Any:
        player, text, space, mask = asked
        player.busy = True
        player.pending = text
        phase = _PHASE.get()
        requests = cancel_requests()
        try:
            if player.decisions % _BREATHER == _BREATHER - 1:
                await asyncio.sleep(0)
            if self._turn_timeout is None:
                decision = await player.seat.decide(text, space, mask)
            else:
                decision = await self._decide_in_time(asked, self._turn_timeout)
            player.check(decision)
        except (Exception, SystemExit) as error:
            if isinstance(error, ConfigError):
                raise
            if cancel_requests() > requests:  # the seat turned its cancellation into an error of its own
                raise asyncio.CancelledError from error
            if isinstance(error, SeatOut):
                self.note_out(error)
                raise
            if isinstance(error, EnvError):  # a mask that is none: not the seat's fault
                raise EnvError(self.describe(f"asking {player.agent}: {message_text(error)}")) from error
            raise self._fail(player, error) from error
        except asyncio.CancelledError as error:
            if cancel_requests():
                raise
            # nobody cancelled this task: what the seat waited for was cancelled under it, e.g. by a sampler that closed
            raise self._fail(player, error) from error
        finally:
            player.busy = False
        player.pending = None
        self._record(player, decision, phase, text)
        if decision.verdict is Verdict.ACT:
            return decision.action
        player.drops_others = decision.verdict is Verdict.FORFEIT and decision.others == "drop"
        raise self._leave(player, _REASONS[decision.verdict], decision.reason)

    async def _decide_in_time(self, asked: _Asked, seconds: float) -> Decision:
        player, text, space, mask = asked
        overdue = f"no decision within {seconds:g} s"
        try:
            async with asyncio.timeout(seconds) as scope:
                decision = await player.seat.decide(text, space, mask)
        except Exception as error:
            if not scope.expired():
                raise
            raise self._leave(player, OutReason.TIMEOUT, overdue) from error
        if scope.expired():  # the seat swallowed its cancellation and answered late
            raise self._leave(player, OutReason.TIMEOUT, overdue)
        return decision

    def _record(self, player: Player, decision: Decision, phase: str, text: str) -> None:
        for number, attempt in enumerate(decision.attempts):
            draft = Draft(player, attempt, number, phase, text, decision.n_legal)
            self._drafts.append(draft)
        player.last = draft
        player.decisions += 1

    def _leave(self, player: Player, reason: OutReason, detail: str) -> SeatOut:
        out = SeatOut(player.agent, reason.value, detail)
        self.note_out(out)
        return out

    def _fail(self, player: Player, error: BaseException) -> SeatOut:
        text = "".join(traceback.format_exception(error))
        log_failure(self.describe(f"the seat of {player.agent} ({player.seat.label}) failed\n{text}"))
        self._notes.setdefault("tracebacks", {})[player.agent] = text
        return self._leave(player, OutReason.FAILED, error_text(error))

    async def _barrier(self, ready: list[_Asked], release: bool) -> dict[AgentID, Any]:
        actions: dict[AgentID, Any] = {}

        async def one(asked: _Asked) -> None:
            try:
                actions[asked.player.agent] = await self._decide(asked)
            except SeatOut:
                if release:
                    raise

        start = len(self._drafts)
        try:
            await together([one(asked) for asked in ready], self._pace)
        finally:
            self._put_in_order(start, ready)
        return {asked.player.agent: actions[asked.player.agent] for asked in ready if asked.player.agent in actions}

    def _put_in_order(self, start: int, ready: list[_Asked]) -> None:
        # who is answered first is the sampler's affair, and depends on who plays beside this game
        rank = {asked.player: number for number, asked in enumerate(ready)}
        places = [at for at in range(start, len(self._drafts)) if self._drafts[at].player in rank]
        drafts = sorted((self._drafts[at] for at in places), key=lambda draft: rank[draft.player])
        for at, draft in zip(places, drafts, strict=True):
            self._drafts[at] = draft
