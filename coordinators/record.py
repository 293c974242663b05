"""What happened in an episode: who sits where, what was said and paid, frozen once at its end."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opentinker.answers import flag, reward_number
from opentinker.coordinators.drafts import Draft, Player, final_prompts_of
from opentinker.coordinators.failures import log_failure
from opentinker.coordinators.notes import plain, shown
from opentinker.errors import ConfigError, CoordinationError, EnvError, SeatOut, value_text
from opentinker.types import AgentID, Episode, EpisodeStatus, Message, OutReason, Seat

if TYPE_CHECKING:
    from opentinker.envs.handle import EnvHandle


class Record:
    """One episode's record while it grows; `Table` adds the questions.

    Attributes:
        env: the environment's handle; its id and its codecs are read, nothing is called.
        id: the episode's id.
        seed: the environment's seed, equal for all members of a group.
        group: the group's number in its step.
        member: the episode's number in its group.
        seat_seconds: time spent waiting for seats.
    """

    def __init__(
        self, env: EnvHandle, seat_of: Callable[[AgentID], Seat], *, episode_id: str, seed: int, group: int, member: int
    ) -> None:
        self.env = env
        self.id = episode_id
        self.seed = seed
        self.group = group
        self.member = member
        self.seat_seconds = 0.0
        self._seat_of = seat_of
        self._players: dict[AgentID, Player] = {}
        self._drafts: list[Draft] = []
        self._messages: list[Message] = []
        self._notes: dict[str, Any] = {}
        self._closed = False

    @property
    def out(self) -> dict[AgentID, str]:
        """Who has left the game early, and why (a value of `OutReason`)."""
        return {agent: player.out for agent, player in self._players.items() if player.out}

    def seat(self, agent: AgentID) -> Seat:
        """Who sits where an agent plays; seated now if nobody does yet."""
        return self._player(agent).seat

    def tell(self, to: AgentID | Sequence[AgentID], text: str, *, sender: str) -> None:
        """A message into other agents' context before their next turn.

        Args:
            to: one agent or several.
            text: what they are told.
            sender: who says it: an agent or any name.
        """
        receivers = (to,) if isinstance(to, str) else tuple(to)
        players = [self._player(agent) for agent in receivers]
        self._messages.append(Message(sender, receivers, text, len(self._drafts)))
        for player in players:
            player.seat.tell(sender, text)

    def reward(self, agent: AgentID, reward: float) -> None:
        """What the world gave: it belongs to the agent's latest turn, before its first turn to the episode.

        Raises:
            EnvError: the reward is no finite number.
        """
        value = reward_number(reward)
        if not math.isfinite(value):
            what = f"gave {agent} the reward {value_text(reward)}; give a finite number"
            raise EnvError(f"{self.env.id!r} (seed {self.seed}) {what}")
        player = self._player(agent)
        player.reward += value
        if player.last is not None:
            player.last.reward += value

    def end(self, agent: AgentID, terminated: bool, truncated: bool, *, observation: Any = None) -> None:
        """The agent acts no more.

        Args:
            agent: who.
            terminated: the game ended for it, inside its rules.
            truncated: it was cut off from outside, e.g. by a step limit.
            observation: what a truncated agent would have seen next; its prompt is kept for bootstrapping.

        Raises:
            EnvError: a flag is no truth value.
        """
        over, cut = flag(terminated, "terminated", agent, self.env.id), flag(truncated, "truncated", agent, self.env.id)
        player = self._player(agent)
        player.ended = True
        player.truncated = cut and not over
        if player.truncated and observation is not None:
            player.final = self._render(player, observation)[0]

    def assign_role(self, agent: AgentID, role: str) -> None:
        """From now on prompts and baselines of the agent follow this role."""
        player = self._player(agent)
        player.role = role
        player.seat.role = role

    def note(self, key: str, value: Any) -> None:
        """Adds to the episode's outcome.

        Values are copied and will be written as JSON: what JSON does not know is kept as text, and so is what it cannot
        hold (a container inside itself, numbers of more than some 600 digits).
        """
        self._notes[key if isinstance(key, str) else shown(key)] = plain(value)

    def freeze(
        self, status: EpisodeStatus | None = None, error: str = "", timings: Mapping[str, float] | None = None
    ) -> Episode:
        """The episode as a value; the table takes no further questions.

        Args:
            status: how it ended; None: truncated where the world truncated an agent, else terminated.
            error: the traceback, where it failed.
            timings: seconds, to go with the seats' own.

        Raises:
            ConfigError: a seat cannot make its last prompt as it is configured.
        """
        self._closed = True
        players = self._players
        if status is None:
            if players and not error and not any(player.ended or player.out for player in players.values()):
                log_failure(self.describe("the script returned, and nobody's game was over: call table.end for each agent"))
            cut = any(player.truncated for player in players.values())
            status = EpisodeStatus.TRUNCATED if cut else EpisodeStatus.TERMINATED
        final_prompts: dict[AgentID, tuple[int, ...]] = {}
        if status is not EpisodeStatus.FAILED:
            try:
                final_prompts = final_prompts_of(players.values(), status is EpisodeStatus.TRUNCATED)
            except (ConfigError, KeyboardInterrupt):
                raise
            except BaseException:
                status, error = EpisodeStatus.FAILED, self.describe(traceback.format_exc())
                log_failure(error)
        for player in players.values():
            player.last = None  # a draft knows its player: pointing at each other they would wait for the garbage collector
        droppers = {agent for agent, player in players.items() if player.drops_others}
        return Episode(
            id=self.id,
            env=self.env.id,
            seed=self.seed,
            group=self.group,
            member=self.member,
            roles={agent: player.role for agent, player in players.items()},
            opponents={agent: player.seat.label for agent, player in players.items() if not player.seat.trainable},
            turns=tuple([draft.freeze(bool(droppers) and draft.player.agent not in droppers) for draft in self._drafts]),
            messages=tuple(self._messages),
            final_prompts=final_prompts,
            rewards={agent: player.reward for agent, player in players.items()},
            status=status,
            error=error,
            outcome=dict(self._notes),
            timings={"seats": self.seat_seconds, **(timings or {})},
        )

    def note_out(self, out: SeatOut) -> None:
        """Puts a player's leaving on the record, once."""
        player = self._player(out.agent)
        if player.out:
            return
        player.out = out.reason
        self._notes.setdefault("out", {})[out.agent] = out.reason
        if out.detail:
            self._notes.setdefault("detail", {})[out.agent] = out.detail
        if out.reason == OutReason.FORFEIT:
            self._notes.setdefault("forfeit", out.agent)

    def describe(self, what: str) -> str:
        """A text with the episode, the environment and the seed in front, so that it can be found and played again."""
        return f"episode {self.id} of {self.env.id} (seed {self.seed}): {what}"

    def waiting(self) -> list[AgentID]:
        """Whose answer is awaited."""
        return [agent for agent, player in self._players.items() if player.pending is not None and not player.out]

    def _player(self, agent: AgentID) -> Player:
        try:
            return self._players[agent]
        except KeyError:
            pass
        if not isinstance(agent, str):
            raise CoordinationError(self.describe(f"an agent's name is a text, given: {value_text(agent)}"))
        player = self._players[agent] = Player(agent, self._seat_of(agent))
        return player

    def _codec(self, player: Player) -> Any:
        if player.codec is None:
            player.codec = self.env.codec(player.agent)
        return player.codec

    def _render(self, player: Player, observation: Any) -> tuple[str, Any]:
        """The observation as text, and the mask it carries."""
        if isinstance(observation, str) and not (self.env.rewords and self._codec(player).rewords):
            return observation, None
        codec = self._codec(player)
        seen, mask = codec.split(observation, {})
        return codec.render(seen), mask
