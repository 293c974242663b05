"""The nouns. Frozen values that every part speaks in, and the protocols at the borders. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

AgentID: TypeAlias = str
"""An agent's name inside its environment, e.g. `player_0`."""


class FinishReason(StrEnum):
    """Why a completion ended."""

    EOS = "eos"
    STOP = "stop"
    """A stop string appeared."""
    LENGTH = "length"
    """`max_tokens` were sampled."""
    CONTEXT = "context"
    """The model has no room left; the completion may be empty."""
    ABORTED = "aborted"


class EpisodeStatus(StrEnum):
    """How an episode ended. Failed episodes are never trained on."""

    TERMINATED = "terminated"
    TRUNCATED = "truncated"
    FAILED = "failed"


class OutReason(StrEnum):
    """Why a player left its game before the game was over."""

    FORFEIT = "forfeit"
    TRUNCATE = "truncate"
    TIMEOUT = "timeout"
    FAILED = "failed"


class Verdict(StrEnum):
    """What follows from a decision."""

    ACT = "act"
    FORFEIT = "forfeit"
    TRUNCATE = "truncate"


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to draw a completion."""

    max_tokens: int = 256
    temperature: float = 1.0
    """> 0; 0 means greedy, with the log-probabilities of temperature 1."""
    top_p: float = 1.0
    top_k: int = 0
    """0: no limit."""
    stop: tuple[str, ...] = ()
    seed: int | None = None
    """The request's own seed; None draws a fresh one from the operating system."""


@dataclass(frozen=True, slots=True)
class PolicyRef:
    """A policy at a version: `learner@latest`, `learner@120`, `learner@ema`, `learner@best`."""

    name: str
    version: str = "latest"

    @classmethod
    def parse(cls, text: str) -> PolicyRef:
        """`"name"` means `"name@latest"`."""
        name, _, version = text.partition("@")
        return cls(name, version or "latest")

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


SampleKey: TypeAlias = tuple[int, int, str, int, int]
"""(group, member, agent, turn index, attempt): names a request within a step; deterministic batches are sorted by it."""


@dataclass(frozen=True, slots=True)
class Completion:
    """What a sampler drew."""

    token_ids: tuple[int, ...]
    """Sampled ids, the end-of-text or stop ids included where they were sampled."""
    logprobs: tuple[float, ...]
    """One per sampled id: log-probability under the temperature-scaled distribution over the full vocabulary."""
    text: str
    """The ids as text, without the end-of-text token and without the stop string."""
    finish_reason: FinishReason
    policy: str
    version: int
    """The number of updates the sampled weights had had."""
    temperature: float = 1.0
    """The temperature of `logprobs`: the one it was drawn at; 1 for a greedy one."""


@dataclass(frozen=True, slots=True)
class Message:
    """Who was told what, and before which turn."""

    sender: str
    to: tuple[AgentID, ...]
    text: str
    turn: int
    """Length of `Episode.turns` when it was sent."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One reply of a seat: the first, or one more after an invalid action."""

    prompt_ids: tuple[int, ...]
    """Empty for seats that do not work with tokens."""
    completion: Completion | None
    """None for seats that do not work with tokens."""
    reply: str
    """The reply as text."""
    action: Any
    """None where invalid."""
    valid: bool
    error: str = ""
    """Why it was invalid."""
    penalty: float = 0.0
    """For form, by the seat's rule; <= 0 makes it a punishment. Kept apart from the world's reward."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a seat decided."""

    attempts: tuple[Attempt, ...]
    """At least one; the last one carries the action, where there is one."""
    action: Any
    verdict: Verdict = Verdict.ACT
    reason: str = ""
    """Why the player is out, where it is."""
    others: Literal["keep", "drop"] = "keep"
    """Whether the other players' turns of this game stay trainable after a forfeit."""
    n_legal: int | None = None
    """How many actions were legal, where they can be counted."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One attempt of one agent, as it stands on the record."""

    agent: AgentID
    role: str
    policy: str | None
    """None for seats without a policy."""
    version: int | None
    index: int
    """The agent's own decisions, from 0; attempts of one decision share it."""
    attempt: int
    """0, then 1, 2, ... after invalid replies."""
    phase: str
    prompt_ids: tuple[int, ...]
    completion: Completion | None
    observation: str
    action: Any
    valid: bool
    n_legal: int | None
    trainable: bool
    reward: float
    """What the world gave after this turn and before the agent's next."""
    penalty: float
    """For form."""
    reply: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Episode:
    """One game from reset to end, whole and immutable."""

    id: str
    """Unique in its run: `step/group/member`."""
    env: str
    seed: int
    group: int
    member: int
    roles: Mapping[AgentID, str]
    opponents: Mapping[AgentID, str]
    """Agents whose seat is not trainable, and what sat there."""
    turns: tuple[Turn, ...]
    """In the order in which decisions were completed; those of one barrier in the order in which they were asked for."""
    messages: tuple[Message, ...]
    final_prompts: Mapping[AgentID, tuple[int, ...]]
    """What a truncated agent would have seen next (token ids)."""
    rewards: Mapping[AgentID, float]
    """The world's reward summed per agent, penalties for form not included."""
    status: EpisodeStatus
    error: str = ""
    """Traceback of a failed episode."""
    outcome: Mapping[str, Any] = field(default_factory=dict)
    """What the coordinator, the environment and the rules noted: `forfeit`, `out`, `winner`, ..."""
    timings: Mapping[str, float] = field(default_factory=dict)
    """Seconds: `env`, `seats`, `total`."""


@dataclass(frozen=True, slots=True)
class Group:
    """Episodes of one task: same environment seed, roles, opponents and table generator; only sampling seeds differ."""

    task: str
    """Baselines are kept per task and role."""
    episodes: tuple[Episode, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One row for the trainer. All sequences have the length of `token_ids`."""

    policy: str
    agent: AgentID
    role: str
    token_ids: tuple[int, ...]
    loss_mask: tuple[int, ...]
    """1 on sampled ids, 0 on everything else."""
    logprobs: tuple[float, ...]
    """The sampler's, 0.0 where the mask is 0."""
    advantages: tuple[float, ...]
    """0.0 where the mask is 0."""
    values: tuple[float, ...] = ()
    """A critic's, where there is one; else empty."""
    returns: tuple[float, ...] = ()
    episode: str = ""
    """The episode's id."""
    temperature: float = 1.0
    """The temperature its ids were sampled at."""
    weight: int = 1
    """How many equal rows it stands for. `advantages` is their sum; a mean over tokens counts its tokens so many times."""


@runtime_checkable
class ActionText(Protocol):
    """An agent's actions as text: what a seat needs in order to ask for one and to read a reply. `TextCodec` is one."""

    def describe(self, mask: Any = None) -> str:
        """How to answer, in words; empty where the observation already says so."""

    def parse(self, text: str, mask: Any = None) -> Any:
        """The action a reply names. Raises `InvalidAction`."""

    def render_action(self, action: Any) -> str:
        """The text that `parse` reads back as this action."""

    def legal(self, mask: Any = None) -> tuple[Any, ...] | None:
        """All legal actions, or None where they cannot be listed."""

    def sample(self, seed: int, mask: Any = None) -> Any:
        """A uniformly drawn legal action, from a generator seeded by `seed`."""


@runtime_checkable
class Seat(Protocol):
    """A player at a table: a policy, a script, a human, an endpoint.

    One that has a method `see(observation)` is handed every observation as the coordinator gave it, before it is put into
    words and before `decide`.
    """

    agent: AgentID
    role: str
    policy: str | None
    """The policy's name for seats that yield samples; else None."""
    trainable: bool
    label: str
    """What sits here, for the record: `learner@latest`, `random_legal`, ..."""

    async def decide(self, observation: str, space: ActionText, mask: Any = None) -> Decision:
        """One decision; retries after invalid replies are the seat's own."""

    def tell(self, sender: str, text: str) -> None:
        """A message to be read before the next decision."""

    def final_prompt(self, observation: str) -> tuple[int, ...]:
        """The prompt ids this seat would have acted on next; empty for seats without tokens."""


class Sampler(Protocol):
    """Draws completions."""

    async def sample(
        self, ref: PolicyRef, prompt_ids: Sequence[int], params: SamplingParams, *, key: SampleKey
    ) -> Completion:
        """One completion. Raises `SamplerError` when the request fails for good."""


class Pace(Protocol):
    """Counts the coroutines that may still ask the sampler, so that it can wait for all of them (deterministic mode)."""

    def enter(self, n: int = 1) -> None:
        """n more coroutines may ask."""

    def leave(self, n: int = 1) -> None:
        """n fewer."""


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """What an update did."""

    version: int
    """The policy's version after it."""
    metrics: Mapping[str, float]
    """`loss`, `grad_norm`, `clip_fraction`, `kl`, `entropy`, `lr`, `rows`, `tokens`, ..."""


class PolicyHost(Protocol):
    """The border to execution: everything a run asks of the machinery that holds weights."""

    async def sample(
        self, ref: PolicyRef, prompt_ids: Sequence[int], params: SamplingParams, *, key: SampleKey
    ) -> Completion: ...

    def score(
        self,
        ref: PolicyRef,
        prompts: Sequence[Sequence[int]],
        completions: Sequence[Sequence[int]],
        temperature: float = 1.0,
    ) -> list[list[float]]:
        """Log-probabilities of given ids, one list per row."""

    def update(self, policy: str, samples: Sequence[Sample], *, lr: float) -> UpdateResult: ...

    def snapshot(self, policy: str) -> Mapping[str, Any]:
        """Weights by name, detached from later updates."""

    def offload(self, policy: str) -> None: ...

    def onload(self, policy: str) -> None: ...

    def save(self, policy: str, folder: str) -> None: ...

    def load(self, policy: str, folder: str) -> None: ...


class LeaseMode(StrEnum):
    """What a lease is for."""

    SERVE = "serve"
    TRAIN = "train"


@dataclass(frozen=True, slots=True)
class Lease:
    """A fenced right to devices. An acknowledgement with a stale epoch is refused."""

    id: str
    holder: str
    policies: tuple[str, ...]
    mode: LeaseMode
    epoch: int
    deadline: float | None
    """Seconds of the scheduler's clock; None: no deadline."""


class SchedulerClient(Protocol):
    """The border to resources."""

    def lease(self, policies: Sequence[str], mode: LeaseMode) -> AbstractAsyncContextManager[Lease]: ...

    async def renew(self, lease: Lease) -> Lease:
        """Raises `LeaseLost` for a stale epoch."""

    def should_yield(self, lease: Lease) -> bool:
        """Asked at step boundaries only."""
