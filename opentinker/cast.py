"""Who sits where: the configuration's `agents`, resolved to seats."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Protocol

from opentinker.config import RunConfig, SeatConfig, Window
from opentinker.envs import EnvHandle
from opentinker.errors import ConfigError
from opentinker.players import ScriptedPlayer, Situation, check_action, check_player, make_player
from opentinker.render import Renderer, make_renderer
from opentinker.seats import InvalidRule, PolicySeat, ScriptedSeat
from opentinker.seeding import Key
from opentinker.types import (
    ActionText,
    Attempt,
    Decision,
    Pace,
    PolicyRef,
    Sampler,
    SamplingParams,
    Seat,
    Verdict,
)

MOST_ACTIONS = 64
"""Legal actions that a look tries."""


LATEST = "latest"
_OWN_ACTIONS = ("solo", "turns", "simultaneous")
"""Coordinators that ask for the environment's own actions and for nothing else."""


class PacedSampler(Sampler, Pace, Protocol):
    """A sampler that can wait until every live coroutine has asked."""


class Serving(Protocol):
    """What a rollout needs of a policy host."""

    @property
    def sampler(self) -> PacedSampler:
        """Draws the policies' completions."""

    def tokenizer(self, policy: str) -> Any:
        """The policy's Hugging Face tokenizer."""

    def max_context(self, policy: str) -> int | None:
        """Tokens that prompt and completion may have together."""


class Cast:
    """Who sits where: agent names and globs of the configuration, resolved to seats.

    Args:
        config: whose `agents` and `policies` are meant.
        host: serves the policies.
        prefix: stands before the policies' names where the host serves those of several runs.
        variant: `latest`, or `ema`: the weights that play for the policies that train.
        temperature: of these, outside training; None: their own, `sampling.temperature`.

    Raises:
        ConfigError: a scripted player that cannot play this environment, or is none.
        UnknownId: no such player.
    """

    def __init__(
        self,
        config: RunConfig,
        host: Serving,
        *,
        prefix: str = "",
        variant: str = LATEST,
        temperature: float | None = None,
    ) -> None:
        self.config = config
        self.host = host
        self._prefix, self._variant, self._temperature = prefix, variant, temperature
        self._renderers: dict[str, Renderer] = {}
        self._players: dict[str, ScriptedPlayer] = {
            seat.player: make_player(seat.player) for seat in config.agents.values() if seat.player is not None
        }
        for player in self._players.values():
            check_player(player, config.env.id)

    def seat_config(self, agent: str) -> SeatConfig:
        """The entry of `agents` for an agent: its exact name, else the first glob that matches.

        Raises:
            ConfigError: nothing matches.
        """
        agents = self.config.agents
        if agent in agents:
            return agents[agent]
        for pattern, seat in agents.items():
            if fnmatchcase(agent, pattern):
                return seat
        near = difflib.get_close_matches(agent, agents, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ConfigError(
            f"agent {agent!r} has no seat: `agents` has {sorted(agents)}{hint} Correct the name where the coordinator or "
            f"{self.config.env.id!r} uses it, or add it (or a glob) to `agents`"
        )

    def check_action(self, agent: str, env: EnvHandle, player: ScriptedPlayer | None = None) -> None:
        """Refuses a script that never has a legal action in an agent's seat, as far as that can be known before a game.

        Args:
            agent: whose seat it is.
            env: one of the environments.
            player: None: who sits there by the configuration, if it is a script.

        Raises:
            ConfigError: `always:ACTION` with no action of the agent's.
        """
        own = self.seat_config(agent).player
        found = player if player is not None or own is None else self._players[own]
        if found is not None and self.config.coordinator.id in _OWN_ACTIONS and agent in env.possible_agents:
            check_action(found, agent, env.codec(agent))

    def policy_of(self, agent: str) -> PolicyRef | None:
        """The policy in an agent's seat; None for scripted ones."""
        name = self.seat_config(agent).policy
        return PolicyRef.parse(name) if name is not None else None

    def learns(self, agent: str) -> bool:
        """Whether a policy that trains sits there, at its latest version."""
        ref = self.policy_of(agent)
        return ref is not None and ref.version == LATEST and self.config.policies[ref.name].trainable

    def renderer(self, policy: str) -> Renderer:
        """The policy's renderer, made once; the name with its prefix."""
        if policy not in self._renderers:
            self._renderers[policy] = make_renderer(self.host.tokenizer(policy))
        return self._renderers[policy]

    def seat(
        self, agent: str, seed_key: tuple[Key, ...], place: tuple[int, int], driver: ScriptedPlayer | None = None
    ) -> Seat:
        """A fresh seat for one episode."""
        chosen = self.seat_config(agent)
        if chosen.policy is None:
            assert chosen.player is not None
            return ScriptedSeat(
                agent,
                self._players[chosen.player],
                role=chosen.role,
                seed_key=seed_key,
                place=place,
                rule=_rule(chosen) if "on_invalid" in chosen.model_fields_set else None,
                env=self.config.env.id,
            )
        ref = PolicyRef.parse(chosen.policy)
        policy = self.config.policies[ref.name]
        sampling = policy.sampling
        learns = policy.trainable and ref.version == LATEST
        ref = PolicyRef(self._prefix + ref.name, self._variant if learns else ref.version)
        other = self._temperature if learns else None
        return PolicySeat(
            agent,
            ref=ref,
            sampler=self.host.sampler,
            renderer=self.renderer(ref.name),
            params=SamplingParams(
                sampling.max_tokens,
                sampling.temperature if other is None else other,
                sampling.top_p,
                sampling.top_k,
                tuple(sampling.stop),
            ),
            role=chosen.role,
            system=chosen.system,
            memory=chosen.memory.window if isinstance(chosen.memory, Window) else chosen.memory,
            format=chosen.format,
            rule=_rule(chosen),
            trainable=learns and self._variant == LATEST and other is None,
            seed_key=seed_key,
            place=place,
            max_context=self.host.max_context(ref.name),
            driver=driver,
            env=self.config.env.id,
        )


def _rule(seat: SeatConfig) -> InvalidRule:
    rule = seat.on_invalid
    return InvalidRule(rule.then, rule.retry, rule.penalty, rule.others)


class Look:
    """Sits in for an agent's seat, looks at its first prompt, and leaves."""

    trainable = False

    def __init__(self, cast: Cast, agent: str, drivable: bool) -> None:
        """A look at what an agent would be asked.

        Args:
            cast: gives the real seat.
            agent: whose seat it is.
            drivable: check that a policy could say every legal action.
        """
        self._cast, self._drivable = cast, drivable
        self._seat = cast.seat(agent, (), (0, 0))
        self.agent, self.role, self.policy, self.label = agent, self._seat.role, self._seat.policy, self._seat.label
        self.tokens = 0
        """Of the first prompt."""

    async def decide(self, observation: str, space: ActionText, mask: Any = None) -> Decision:
        """Leaves. Raises `ConfigError` where a legal action does not fit into the policy's `max_tokens`."""
        how = space.describe(mask)
        self.tokens = len(self._seat.final_prompt(f"{observation}\n{how}" if how else observation))
        if self._drivable and self.policy is not None:
            for action in (space.legal(mask) or ())[:MOST_ACTIONS]:
                driven = self._cast.seat(self.agent, (), (0, 0), driver=Constant(action))
                await driven.decide(observation, space, mask)
        return Decision((Attempt((), None, "", None, valid=False),), None, Verdict.TRUNCATE, "only looked")

    def tell(self, sender: str, text: str) -> None:
        self._seat.tell(sender, text)

    def final_prompt(self, observation: str) -> tuple[int, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Constant:
    """A scripted player that takes one action whatever it sees: asked with it, a seat shows its prompt and its ids."""

    action: Any

    def __call__(self, situation: Situation) -> Any:
        """The action."""
        return self.action
