"""The tree of settings: every key, its type, its default and what it means."""

from __future__ import annotations

import difflib
import re
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

from pydantic import BeforeValidator, Field, model_validator

from opentinker.config.values import (
    MOST,
    NAME,
    SECONDS,
    Kwargs,
    Line,
    PolicyName,
    Role,
    Schedule,
    Scheduled,
    Settings,
    StopText,
    Text,
    Units,
    at_most,
    is_number,
    plain_copy,
)


class EnvConfig(Settings):
    """The environment."""

    id: Line = Field(description="own id (kuhn_poker), gymnasium/…, pettingzoo/… or package.module:Class")
    kwargs: Kwargs = Field(default={}, description="arguments of the environment's constructor")
    isolation: Literal["inline", "thread", "process"] | None = Field(
        default=None, description="where it runs; null: inline for our own games, thread for all others"
    )
    step_timeout: float | None = Field(
        default=60.0, gt=0, le=SECONDS, description="seconds for one reset or step; null: no limit"
    )
    action_names: list[Text] | None = Field(default=None, description="names for the actions of a Discrete space")
    action_units: Units = Field(
        default=None, description="units of an action's numbers: a text, or lists and mappings of texts in the space's shape"
    )
    observation_units: Units = Field(default=None, description="likewise of an observation's numbers")
    render: Line | None = Field(
        default=None, description="package.module:function, observation to text; null: the codec's own words"
    )
    parse: Line | None = Field(
        default=None, description="package.module:function, text to action; null: the codec's own reading"
    )


class CoordinatorConfig(Settings):
    """Who acts when."""

    id: Line = Field(description="solo, turns, simultaneous or package.module:Class")
    kwargs: Kwargs = Field(default={}, description="arguments of the coordinator's constructor")
    turn_timeout: float | None = Field(
        default=None, gt=0, le=SECONDS, description="seconds for one decision; null: no limit; not where deterministic"
    )
    episode_timeout: float | None = Field(
        default=None, gt=0, le=SECONDS, description="seconds for one episode; null: no limit; not where deterministic"
    )


class OnInvalid(Settings):
    """What follows a reply that is no legal action."""

    short_forms: ClassVar[tuple[str, ...]] = ("forfeit", "truncate")

    then: Literal["fallback", "forfeit", "truncate"] = Field(
        default="fallback", description="after the last retry: act at random among the legal, forfeit, or truncate"
    )
    retry: int = Field(default=0, ge=0, le=1000, description="further tries before `then`")
    penalty: float = Field(
        default=0.0, ge=-1e6, le=0, description="for form, on every invalid reply; kept apart from the reward"
    )
    others: Literal["keep", "drop"] = Field(
        default="drop", description="after a forfeit: whether the other players' samples of that game count"
    )


def _on_invalid(value: Any) -> Any:
    """Short forms: forfeit, truncate, {forfeit: -2}, {penalty: -0.5}, {retry: 2}, {truncate: -1}."""
    if isinstance(value, str):
        if value not in ("forfeit", "truncate", "fallback"):
            near = difflib.get_close_matches(value, ("forfeit", "truncate", "fallback"), n=1)
            hint = f"did you mean {near[0]!r}?" if near else "use forfeit, truncate, fallback or {forfeit: -2}"
            raise ValueError(f"{value!r} is no rule; {hint}")
        return {"then": value}
    short = [name for name in OnInvalid.short_forms if isinstance(value, dict) and name in value]
    if not short:
        return value
    name = short[0]
    rest = {key: item for key, item in value.items() if key != name}
    if len(short) > 1 or "penalty" in rest or "then" in rest:
        both = " and ".join(key for key in value if key in (*short, "penalty", "then"))
        raise ValueError(f"{both} stand side by side; {{{name}: -2}} alone says what follows and the penalty")
    if not is_number(value[name]) or not value[name] <= 0:
        raise ValueError(f"`{name}` takes the penalty, a number of 0 or less, not {value[name]!r}")
    return {"then": name, "penalty": value[name], **rest}


class Window(Settings):
    """A memory of the last k exchanges."""

    window: int = Field(ge=1, description="exchanges kept beside the current one")


def _memory(value: Any) -> Any:
    if isinstance(value, Window) or value in ("full", "last"):
        return value
    short = re.fullmatch(r"window\(\s*([0-9]{1,9})\s*\)", value) if isinstance(value, str) else None
    match {"window": int(short[1])} if short else value:
        case {"window": int(k), **rest} if not rest and not isinstance(k, bool) and k >= 1:
            return Window(window=k)
    raise ValueError(f"must be full, last, window(k) or {{window: k}} with k 1 or more, not {value!r}")


def _targets(value: Any) -> Any:
    if isinstance(value, str) or (isinstance(value, list) and value and all(isinstance(item, str) for item in value)):
        return value
    raise ValueError("must be text or a list of names of layers")


class SamplingConfig(Settings):
    """How a policy's tokens are drawn."""

    max_tokens: int = Field(default=64, ge=1, le=MOST, description="at most so many tokens an answer")
    temperature: float = Field(default=1.0, ge=1e-4, le=1e4, description="divides the logits, in sampler and trainer alike")
    top_p: float = Field(default=1.0, gt=0, le=1, description="nucleus; must stay 1 for a policy that trains")
    top_k: int = Field(default=0, ge=0, le=10**9, description="0: off; must stay 0 for a policy that trains")
    stop: list[StopText] = Field(default=[], description="strings that end an answer")


class SeatConfig(Settings):
    """Who sits where an agent plays: a policy or a scripted player, and how."""

    policy: Line | None = Field(default=None, description="a key of `policies`; NAME@ema: its averaged weights, untrained")
    player: Text | None = Field(
        default=None, description="a script: random, minimax, greedy, alphabeta:DEPTH, always:ACTION, module:function"
    )
    role: Role | None = Field(default=None, description="baselines, prompts and figures follow it; null: the agent's name")
    system: Text | None = Field(default=None, description="system prompt")
    memory: Annotated[Literal["full", "last"] | Window, BeforeValidator(_memory)] = Field(
        default="full", description="full dialogue, last observation only, or window(k)"
    )
    format: Literal["plain", "tag", "boxed", "json"] = Field(default="plain", description="how an action stands in a reply")
    on_invalid: Annotated[OnInvalid, BeforeValidator(_on_invalid)] = Field(
        default=OnInvalid(), description="for replies that are no legal action; short: forfeit, {forfeit: -2}, {retry: 2}"
    )

    @model_validator(mode="after")
    def _one_occupant(self) -> SeatConfig:
        if (self.policy is None) == (self.player is None):
            raise ValueError(f"give either `policy` or `player`, not {'both' if self.player is not None else 'neither'}")
        return self


class AdapterConfig(Settings):
    """A LoRA adapter."""

    rank: int = Field(ge=1, le=MOST, description="rank of the update")
    alpha: float = Field(default=16.0, gt=0, le=1e6, description="the update is scaled by alpha / rank")
    targets: Annotated[str | list[str], BeforeValidator(_targets)] = Field(
        default="all-linear", description="all-linear (all linear layers but the output), or names of layers or their ends"
    )


class PolicyConfig(Settings):
    """One set of weights."""

    model: Line = Field(description="tiny, a local folder or a hub id")
    adapter: AdapterConfig | None = Field(
        default=None,
        description="LoRA; policies of one model, rank, alpha and targets share one base; null: all weights train",
    )
    trainable: bool = Field(default=True, description="false: frozen, never changed")
    sampling: SamplingConfig = Field(default=SamplingConfig(), description="how its tokens are drawn")
    seed: int | None = Field(
        default=None,
        ge=0,
        lt=2**63,
        description="for the weights of `tiny`; null: from the run's seed and the name, under an adapter from the seed",
    )

    @model_validator(mode="after")
    def _full_distribution(self) -> PolicyConfig:
        if self.trainable and (self.sampling.top_p < 1 or self.sampling.top_k):
            raise ValueError(
                "a policy that trains samples its full distribution: leave sampling.top_p at 1 and sampling.top_k at 0 "
                f"(given: {self.sampling.top_p} and {self.sampling.top_k}), or set trainable: false"
            )
        return self


class WarmStart(Settings):
    """Supervised steps on a scripted player's moves, before the first rollout."""

    player: Text = Field(description="random_legal, minimax, greedy, alphabeta:DEPTH, always:ACTION or module:function")
    steps: int = Field(ge=0, le=10**9, description="gradient steps")
    lr: Annotated[Scheduled, at_most(1e3)] = Field(
        default=Schedule(start=1e-3, end=1e-3), description="learning rate; {start, end} moves it over these steps"
    )
    episodes: int = Field(default=64, ge=1, le=MOST, description="fresh episodes a step")


class RolloutConfig(Settings):
    """How much is played a step."""

    groups: int = Field(default=32, ge=1, le=MOST, description="tasks a step")
    group_size: int = Field(default=1, ge=1, le=MOST, description="episodes of each task")
    concurrency: int = Field(default=0, ge=0, le=MOST, description="episodes at once; 0: all")
    max_failed_fraction: float = Field(
        default=0.1, ge=0, le=1, description="share of failed episodes above which the run stops"
    )
    record_every: int = Field(default=50, ge=1, description="steps between the steps whose episodes are written to disk")
    record: int = Field(default=16, ge=0, description="episodes of such a step that are written; failed ones always are")

    @model_validator(mode="after")
    def _fits_in_memory(self) -> RolloutConfig:
        if self.groups * self.group_size > MOST:
            raise ValueError(f"groups * group_size is {self.groups * self.group_size} episodes a step; at most {MOST}")
        return self


Beta = Annotated[float, Field(ge=0, lt=1)]


class OptimConfig(Settings):
    """AdamW."""

    lr: Annotated[Scheduled, at_most(1e3)] = Field(
        default=Schedule(start=1e-5, end=1e-5), description="learning rate: a number or {start, end}"
    )
    # strict would refuse YAML's list
    betas: tuple[Beta, Beta] = Field(default=(0.9, 0.999), strict=False, description="decay of the two moments")
    weight_decay: float = Field(default=0.0, ge=0, le=1e3, description="decoupled, per unit of learning rate")
    clip: float = Field(default=1.0, gt=0, le=1e30, description="gradient norm is cut to this")


class KeepBest(Settings):
    """Which checkpoint is the best."""

    figure: Line = Field(description="a key of metrics.jsonl, for example eval/exploitability/ema")
    goal: Literal["min", "max"] = Field(description="whether less or more of it is better")


class TrainConfig(Settings):
    """What is learned from the episodes."""

    credit: Line = Field(default="grpo", description="reinforce, grpo, dr_grpo, rae, state_baseline or module:function")
    credit_kwargs: Kwargs = Field(default={}, description="settings of the credit function")
    loss: Line = Field(default="vanilla", description="a policy loss of verl's registry")
    loss_agg: Literal["token-mean", "token-sum"] = Field(default="token-mean", description="how token losses become one")
    clip_ratio: float = Field(default=0.2, gt=0, lt=1e3, description="of the policy loss")
    entropy_coeff: float = Field(default=0.0, ge=0, le=1e3, description="verl's entropy bonus over the whole vocabulary")
    legal_entropy: Annotated[Scheduled, at_most(1e3)] = Field(
        default=Schedule(start=0, end=0),
        description="entropy bonus over the legal actions, as a term of the advantage: a number or {start, end}",
    )
    epochs: int = Field(default=1, ge=1, le=MOST, description="passes over a step's samples")
    mini_batches: int = Field(default=1, ge=1, le=MOST, description="optimiser steps a pass")
    micro_batch_tokens: int = Field(default=65536, ge=1, description="padded tokens in one forward pass")
    merge_identical: bool = Field(default=True, description="train identical rows once, where that is exact")
    optim: OptimConfig = Field(default=OptimConfig(), description="AdamW")
    ema: float = Field(default=0.0, ge=0, lt=1, description="decay of the averaged weights; 0: none kept")
    steps: int = Field(default=100, ge=1, le=10**9, description="rollouts and updates of the whole run")
    checkpoint_every: int = Field(default=50, ge=1, description="steps between checkpoints; the last step is always saved")
    keep_last: int | None = Field(default=None, ge=1, le=10**9, description="newest checkpoints that are kept; null: all")
    keep_best: KeepBest | None = Field(default=None, description="the checkpoint with the best figure is kept beside them")


class EvaluateConfig(Settings):
    """What is measured between updates."""

    every: int = Field(default=50, ge=1, description="steps; the last step is always measured")
    metrics: list[Literal["exploitability"]] = Field(
        default=[], description="exploitability: exact, for two-player games with a tree"
    )
    average_from: int = Field(default=1, ge=1, description="first step of the iterate average")
    opponents: list[Line] = Field(
        default=[],
        description="games against them when due: random, minimax, greedy, alphabeta:DEPTH, module:function, RUN@STEP, self",
    )
    games: int = Field(
        default=64, ge=1, le=MOST, description="evaluation games for each opponent and seat, on seeds of their own"
    )
    policy_version: Literal["latest", "ema"] = Field(default="latest", description="the weights that play these games")
    temperature: float | None = Field(
        default=None,
        ge=0,
        le=1e4,
        description="of policies that train, in games outside training (0: greedy); null: their `sampling.temperature`",
    )


class RuntimeConfig(Settings):
    """Where and how it runs."""

    kind: Literal["local"] = Field(default="local", description="local: everything in this process")
    deterministic: bool = Field(
        default=True, description="a resumed run's figures equal the uninterrupted run's bit for bit"
    )
    threads: int = Field(default=1, ge=1, le=1024, description="torch threads")
    kv_cache_mib: int = Field(
        default=512, ge=1, le=MOST, description="MiB of keys and values that the sampler keeps of what it has read"
    )


class RunConfig(Settings):
    """A whole run."""

    name: str = Field(default="run", pattern=NAME, max_length=100, description="its folder below `runs_dir`")
    seed: int = Field(default=0, ge=0, lt=2**63, description="of every random draw of the run")
    runs_dir: Line = Field(default="runs", description="where run folders live")
    env: EnvConfig = Field(description="the environment")
    coordinator: CoordinatorConfig = Field(description="who acts when")
    agents: dict[Line, SeatConfig] = Field(
        min_length=1, description="agent name or glob to seat; the first match counts, exact names first"
    )
    policies: dict[PolicyName, PolicyConfig] = Field(default={}, description="name to weights")
    warm_start: WarmStart | None = Field(
        default=None, description="supervised steps on a scripted player's moves, before the first rollout"
    )
    rollout: RolloutConfig = Field(default=RolloutConfig(), description="how much is played a step")
    train: TrainConfig = Field(default=TrainConfig(), description="what is learned from the episodes")
    evaluate: EvaluateConfig = Field(default=EvaluateConfig(), description="what is measured between updates")
    runtime: RuntimeConfig = Field(default=RuntimeConfig(), description="where and how it runs")
    loggers: list[Literal["tensorboard", "wandb"]] = Field(
        default=[], description="where the figures go beside metrics.jsonl, through verl's Tracking"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> RunConfig:
        faults = [*self._wrong_references(), *self._clocks_in_step()]
        faults += [
            f"agents.{agent}: figures are named after its role, and `all` stands for a whole step; give it a `role` "
            "without '/' that is not 'all'"
            for agent, seat in self.agents.items()
            if seat.role is None and ("/" in agent or agent == "all")
        ]
        if faults:
            raise ValueError("\n".join(faults))
        return self

    def _clocks_in_step(self) -> list[str]:
        """A reply then waits for those of all other episodes: a clock would blame a player for the others' slowness."""
        return [
            f"coordinator.{name}: replies come in step with those of all other episodes while runtime.deterministic is "
            "true, so a clock would blame a player for the others' slowness; set runtime.deterministic=false to use it, "
            "or leave it out (env.step_timeout works either way)"
            for name in ("turn_timeout", "episode_timeout")
            if self.runtime.deterministic and getattr(self.coordinator, name) is not None
        ]

    def _wrong_references(self) -> list[str]:
        faults, used = [], set()
        for agent, seat in self.agents.items():
            if seat.policy is None:
                continue
            name, _, version = seat.policy.partition("@")
            used.add(name)
            fault = self._wrong_version(name, version or "latest") if name in self.policies else self._unknown_policy(name)
            if fault:
                faults.append(f"agents.{agent}.policy: {fault} (given: {seat.policy!r})")
        unused = sorted(set(self.policies) - used)
        if unused and used <= set(self.policies):  # else the wrong name above is why
            faults.append(f"policies {unused} are used by no agent; map an agent to them or remove them")
        return faults

    def _unknown_policy(self, name: str) -> str:
        near = difflib.get_close_matches(name, self.policies, n=1)
        return "not in `policies`; " + (f"did you mean {near[0]!r}?" if near else f"it has {sorted(self.policies)}")

    def _wrong_version(self, name: str, version: str) -> str:
        if version == "latest":
            return ""
        if version != "ema":
            return f"unknown version {version!r}; use {name}, {name}@latest or {name}@ema"
        if not self.train.ema or not self.policies[name].trainable:
            return "averaged weights are kept for a policy that trains, with train.ema above 0"
        return ""

    def dump(self) -> dict[str, Any]:
        """The resolved tree as plain data; `load_config` makes an equal tree of it."""
        return plain_copy(self.model_dump())  # type: ignore[no-any-return]


def settings_in(annotation: Any) -> type[Settings] | None:
    """The class of settings that stands in an annotation, where there is one."""
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return annotation
    return next((found for inner in get_args(annotation) if (found := settings_in(inner))), None)


def is_named(annotation: Any) -> bool:
    """Whether a field maps names of the user's choice to settings."""
    return get_origin(annotation) is dict and settings_in(annotation) is not None
