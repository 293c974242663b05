"""What a run's seats would do at every information state of a game tree, from the models' own probabilities.

Exact for seats whose memory is `last` (the prompt is a function of the information state) and replies of one token:
the next-token distribution is summed over all tokens that read as an action. Longer replies count in their canonical form
with its end; what else would read as the same action then counts as invalid, so the probabilities are lower bounds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from opentinker.cast import Cast, Constant
from opentinker.config import RunConfig
from opentinker.envs import EnvHandle, TextCodec
from opentinker.envs.games.tree import GameTree
from opentinker.errors import ConfigError, InvalidAction
from opentinker.formats import ActionFormat, make_format
from opentinker.league.exploitability import information_states
from opentinker.types import PolicyRef


@dataclass(frozen=True, slots=True)
class Reading:
    """Behaviour read off the models."""

    behaviour: dict[str, dict[str, dict[str, float]]]
    """player → information state → action → probability, over legal actions, summing to 1."""
    invalid: float
    """Mean over the information states of the probability of a reply that is no legal action."""


@dataclass(frozen=True, slots=True)
class _Query:
    player: str
    observation: str
    legal: tuple[str, ...]
    ref: PolicyRef
    prompt: tuple[int, ...]
    replies: tuple[tuple[str, tuple[int, ...]], ...]
    """(action, ids that say it)"""
    temperature: float


class Probe:
    """Reads behaviour at all information states of a tree, again and again. Made by `Probe.open`."""

    def __init__(
        self,
        host: Any,
        states: Mapping[str, Mapping[str, tuple[str, ...]]],
        queries: Sequence[_Query],
        learning: Iterable[str],
    ) -> None:
        """Takes prepared queries.

        Args:
            host: the policy host; its `score` is asked.
            states: player → information state → legal actions.
            queries: one per player and information state.
            learning: policies that have other variants than `latest`.
        """
        self._host = host
        self._states = states
        self._learning = frozenset(learning)
        self._queries: defaultdict[PolicyRef, list[_Query]] = defaultdict(list)
        for query in queries:
            self._queries[query.ref].append(query)

    @classmethod
    async def open(cls, tree: GameTree, config: RunConfig, cast: Cast, host: Any, env: EnvHandle) -> Probe:
        """Prepares a prompt and the replies that say an action for every information state.

        Raises:
            ConfigError: a seat without a policy, or with another memory than `last`.
        """
        states = information_states(tree)
        queries = []
        for player, own in states.items():
            seat = cast.seat_config(player)
            ref = cast.policy_of(player)
            if ref is None:
                raise ConfigError(
                    f"evaluate.metrics: exploitability needs a policy in every seat; {player!r} is played by {seat.player!r}"
                )
            if seat.memory != "last":
                raise ConfigError(
                    f"evaluate.metrics: exploitability needs `memory: last` for {player!r}, so that its prompt is its "
                    f"information state; given: {seat.memory!r}"
                )
            sampling = config.policies[ref.name].sampling
            form = make_format(seat.format)
            codec = env.codec(player)
            for observation, legal in own.items():
                # asked through the seat itself: the prompt is the one that training sees
                asked = cast.seat(player, (0,), (0, 0), driver=Constant(legal[0]))
                decision = await asked.decide(codec.render(observation), codec, _mask(codec, legal))
                prompt = decision.attempts[0].prompt_ids
                if sampling.max_tokens == 1:
                    replies = _one_token_replies(host.tokenizer(ref.name), codec, form, legal)
                else:
                    renderer = cast.renderer(ref.name)
                    replies = [(act, renderer.encode_reply(form.wrap(codec.render_action(act)))) for act in legal]
                queries.append(_Query(player, observation, legal, ref, prompt, tuple(replies), sampling.temperature))
        return cls(host, states, queries, [name for name, policy in config.policies.items() if policy.trainable])

    def read(self, variant: str = "latest") -> Reading:
        """Behaviour of all players; seats that name a fixed version keep it.

        Args:
            variant: `latest` or `ema`: which weights of the policies named `@latest` are read.
        """
        behaviour: dict[str, dict[str, dict[str, float]]] = {player: {} for player in self._states}
        invalid: list[float] = []
        for ref, queries in self._queries.items():
            learns = ref.version == "latest" and ref.name in self._learning
            weights = replace(ref, version=variant) if learns else ref
            rows = [(query, ids) for query in queries for _, ids in query.replies]
            prompts, replies = [query.prompt for query, _ in rows], [ids for _, ids in rows]
            scores = iter(self._host.score(weights, prompts, replies, queries[0].temperature))
            for query in queries:
                mass = dict.fromkeys(query.legal, 0.0)
                for action, _ in query.replies:
                    mass[action] += math.exp(math.fsum(next(scores)))
                total = math.fsum(mass.values())
                invalid.append(max(0.0, 1.0 - total))
                behaviour[query.player][query.observation] = {
                    action: share / total if total > 0 else 1 / len(mass) for action, share in mass.items()
                }
        return Reading(behaviour, math.fsum(invalid) / len(invalid))


def _mask(codec: TextCodec, legal: tuple[str, ...]) -> Any:
    everything = codec.legal() or legal
    return None if set(everything) <= set(legal) else np.array([action in legal for action in everything], dtype=np.int8)


def _one_token_replies(
    tokenizer: Any, codec: TextCodec, form: ActionFormat, legal: tuple[str, ...]
) -> list[tuple[str, tuple[int, ...]]]:
    replies: list[tuple[str, tuple[int, ...]]] = []
    for token in range(len(tokenizer)):
        try:
            action = codec.parse(form.extract(tokenizer.decode([token], skip_special_tokens=True)))
        except InvalidAction:
            continue
        if action in legal:
            replies.append((action, (token,)))
    return replies
