"""Seats: what joins an agent to whoever decides for it. A policy's seat works with tokens, a scripted one does not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from opentinker.dialogue import Dialogue
from opentinker.encoding import TokenIds
from opentinker.errors import ConfigError, InvalidAction
from opentinker.formats import ActionFormat, make_format
from opentinker.players import ScriptedPlayer, Situation, player_label
from opentinker.render import Renderer
from opentinker.seeding import Key, derive
from opentinker.types import (
    ActionText,
    AgentID,
    Attempt,
    Completion,
    Decision,
    FinishReason,
    PolicyRef,
    Sampler,
    SamplingParams,
    Verdict,
)

_SHOWN_LEGAL = 20


@dataclass(frozen=True, slots=True)
class InvalidRule:
    """What follows a reply that is no legal action.

    Raises:
        ConfigError: an unknown `then` or `others`, or negative `retries`.
    """

    then: Literal["fallback", "forfeit", "truncate"] = "fallback"
    """After the last retry: a random legal action is played, the player forfeits, or its game is cut off."""
    retries: int = 0
    """Further tries; the model reads what was wrong with its reply and is asked again."""
    penalty: float = 0.0
    """For form, on every invalid reply; <= 0 makes it a punishment."""
    others: Literal["keep", "drop"] = "drop"
    """After a forfeit: whether the other players' turns of that game stay trainable."""

    def __post_init__(self) -> None:
        if self.then not in ("fallback", "forfeit", "truncate"):
            raise ConfigError(f"rule for invalid actions: then={self.then!r}; use 'fallback', 'forfeit' or 'truncate'")
        if self.others not in ("keep", "drop"):
            raise ConfigError(f"rule for invalid actions: others={self.others!r}; use 'keep' or 'drop'")
        if self.retries < 0:
            raise ConfigError(f"rule for invalid actions: retries={self.retries}; it must be at least 0")


class PolicySeat:
    """A policy at a table, for one episode.

    A prompt's last message is what the agent was told since its last decision, its observation, and how to answer where
    the space says so, in this order, a line each. The format's hint stands at the end of the system prompt.

    A reply is parsed whatever ended it. If that fails, the attempt's error starts with `length` where `max_tokens` cut it,
    `context` where the model had no room left, `aborted` where the sampler broke off, and `malformed` otherwise. Where not
    even one token fits behind the prompt, there is an attempt without a completion, and no retry.

    Args:
        agent: whom it plays.
        ref: the policy and its version.
        sampler: draws the replies.
        renderer: of the policy's tokenizer.
        params: how replies are drawn; `seed` is replaced by each request's own.
        role: default: the agent's name.
        system: system prompt.
        memory: `full` dialogue, `last` (the current decision only), or so many past decisions beside the current one. A
            decision stays whole: its retries come and go with it.
        format: how an action stands in a reply.
        rule: for replies that are no legal action.
        trainable: whether its turns are trained on.
        seed_key: what keys the requests' seeds, before (group, member, agent, turn, attempt).
        place: (group, member) of the episode.
        max_context: ids that prompt and reply may have together; None: the sampler knows.
        driver: answers instead of the policy, for warm starts: its moves as the policy would have to write them.
        env: the environment's id, for the driver.

    Raises:
        ConfigError: a memory that is none, or sampling that a trainable policy cannot have.
        UnknownId: no such format.
    """

    def __init__(
        self,
        agent: AgentID,
        *,
        ref: PolicyRef,
        sampler: Sampler,
        renderer: Renderer,
        params: SamplingParams,
        role: str | None = None,
        system: str | None = None,
        memory: Literal["full", "last"] | int = "full",
        format: str | ActionFormat = "plain",
        rule: InvalidRule | None = None,
        trainable: bool = True,
        seed_key: tuple[Key, ...] = (),
        place: tuple[int, int] = (0, 0),
        max_context: int | None = None,
        driver: ScriptedPlayer | None = None,
        env: str = "",
    ) -> None:
        if trainable:
            _check_trainable(agent, params)
        self.agent = agent
        self.role = agent if role is None else role
        self.policy: str | None = ref.name
        self.trainable = trainable
        self.label = str(ref)
        self._ref = ref
        self._sampler = sampler
        self._renderer = renderer
        self._params = params
        self._format = format if isinstance(format, ActionFormat) else make_format(format)
        self._rule = InvalidRule() if rule is None else rule
        self._seed_key = (*seed_key, *place, agent)
        self._place = place
        self._max_context = max_context
        self._driver = driver
        self._env = env
        self._world: Any = None
        system = "\n\n".join(part for part in (system, self._format.hint) if part)
        self._dialogue = Dialogue(renderer, system or None, _depth(memory))
        self._inbox: list[tuple[str, str]] = []
        self._turn = 0
        self._space: ActionText | None = None

    async def decide(self, observation: str, space: ActionText, mask: Any = None) -> Decision:
        """See `Seat.decide`. Raises what the sampler raises; a decision that was cancelled can be asked again."""
        self._space = space
        told = len(self._inbox)
        said = self._message(observation, space.describe(mask))
        legal = space.legal(mask)
        dialogue = self._dialogue
        dialogue.open()
        attempts: list[Attempt] = []
        while True:
            prompt = dialogue.prompt(said)
            completion = await self._answer(prompt, len(attempts), observation, space, mask)
            if completion is None:
                attempts.append(self._no_room(prompt))
                break
            dialogue.add(completion)
            attempt, error = self._read(prompt, completion, space, mask)
            attempts.append(attempt)
            if error is None or len(attempts) > self._rule.retries:
                break
            said = _correction(error)
        dialogue.close()
        del self._inbox[:told]
        self._turn += 1
        if attempts[-1].valid:
            return Decision(tuple(attempts), attempts[-1].action, n_legal=None if legal is None else len(legal))
        seed = derive(*self._seed_key, self._turn - 1, len(attempts))
        return _settle(self._rule, attempts, space, mask, seed, None if legal is None else len(legal))

    def see(self, observation: Any) -> None:
        """See `Seat`: for the driver."""
        self._world = observation

    def tell(self, sender: str, text: str) -> None:
        """See `Seat.tell`."""
        self._inbox.append((sender, text))

    def final_prompt(self, observation: str) -> TokenIds:
        """See `Seat.final_prompt`."""
        self._dialogue.open()
        return self._dialogue.prompt(self._message(observation, self._space.describe(None) if self._space else ""))

    def _message(self, observation: str, how: str) -> str:
        if not self._inbox:
            return f"{observation}\n{how}" if how and observation else observation or how
        lines = [f"{sender}: {text}" if sender else text for sender, text in self._inbox]
        return "\n".join([*lines, *(part for part in (observation, how) if part)])

    async def _answer(
        self, prompt: TokenIds, attempt: int, observation: str, space: ActionText, mask: Any
    ) -> Completion | None:
        """A reply, or None where the prompt leaves no room for one."""
        params = self._params
        tokens = params.max_tokens
        if self._max_context is not None:
            tokens = min(tokens, self._max_context - len(prompt))
            if tokens <= 0:
                return None
        seed = derive(*self._seed_key, self._turn, attempt)
        if self._driver is not None:
            told = tuple(self._inbox)
            situation = Situation(self.agent, self.role, observation, space, mask, seed, told, self._world, self._env)
            return self._drive(self._driver, situation, tokens)
        completion = await self._sampler.sample(
            self._ref,
            prompt,
            SamplingParams(tokens, params.temperature, params.top_p, params.top_k, params.stop, seed),
            key=(*self._place, self.agent, self._turn, attempt),
        )
        if tokens < params.max_tokens and completion.finish_reason is FinishReason.LENGTH:
            return replace(completion, finish_reason=FinishReason.CONTEXT)
        return completion

    def _drive(self, driver: ScriptedPlayer, situation: Situation, tokens: int) -> Completion:
        text = self._format.wrap(situation.space.render_action(driver(situation)))
        ids = self._renderer.encode_reply(text, False)
        if len(ids) > tokens:
            raise ConfigError(
                f"{player_label(driver)} answers {text!r} for {self.agent}, which is {len(ids)} tokens of {self._ref.name}; "
                f"there is room for {tokens}: raise max_tokens"
            )
        whole = self._renderer.encode_reply(text, True)
        ends = len(whole) <= tokens
        ids = whole if ends else ids
        reason = FinishReason.EOS if ends else FinishReason.LENGTH
        temperature = self._params.temperature or 1.0
        return Completion(ids, (0.0,) * len(ids), text, reason, self._ref.name, 0, temperature)

    def _read(
        self, prompt: TokenIds, completion: Completion, space: ActionText, mask: Any
    ) -> tuple[Attempt, InvalidAction | None]:
        reply = completion.text
        try:
            action = space.parse(self._format.extract(reply), mask)
        except InvalidAction as error:
            why = f"{_CUT.get(completion.finish_reason, 'malformed')}: {error.reason}"
            # a new one: the traceback of what was raised would hold on to this seat, and the seat's caller to the error
            told = InvalidAction(error.reply, error.reason, error.legal)
            return Attempt(prompt, completion, reply, None, False, why, self._rule.penalty), told
        return Attempt(prompt, completion, reply, action, True), None

    def _no_room(self, prompt: TokenIds) -> Attempt:
        why = f"context: the prompt has {len(prompt)} tokens, which leaves no room in {self._max_context}"
        return Attempt(prompt, None, "", None, False, why, self._rule.penalty)


class ScriptedSeat:
    """A scripted player at a table, for one episode. It works without tokens and yields no samples.

    Args:
        agent: whom it plays.
        player: returns actions.
        role: default: the agent's name.
        seed_key: what keys its draws, before (group, member, agent, turn, attempt).
        place: (group, member) of the episode.
        rule: for a player without a legal action to give; it is not asked twice.
        env: the environment's id, which the player is told.
    """

    policy: str | None = None
    trainable = False

    def __init__(
        self,
        agent: AgentID,
        player: ScriptedPlayer,
        *,
        role: str | None = None,
        seed_key: tuple[Key, ...] = (),
        place: tuple[int, int] = (0, 0),
        rule: InvalidRule | None = None,
        env: str = "",
    ) -> None:
        self.agent = agent
        self.role = agent if role is None else role
        self.label = player_label(player)
        self._env = env
        self._world: Any = None
        self._player = player
        self._seed_key = (*seed_key, *place, agent)
        self._rule = InvalidRule("forfeit", others="keep") if rule is None else rule
        self._inbox: list[tuple[str, str]] = []
        self._turn = 0

    async def decide(self, observation: str, space: ActionText, mask: Any = None) -> Decision:
        """See `Seat.decide`. Raises what the player raises, `InvalidAction` excepted."""
        seed = derive(*self._seed_key, self._turn, 0)
        told = tuple(self._inbox)
        situation = Situation(self.agent, self.role, observation, space, mask, seed, told, self._world, self._env)
        self._inbox.clear()
        self._turn += 1
        legal = space.legal(mask)
        n_legal = None if legal is None else len(legal)
        try:
            action = self._player(situation)
            if legal is not None and action not in legal:
                raise InvalidAction(str(action), "not legal now")
        except InvalidAction as error:
            attempt = Attempt((), None, error.reply, None, False, f"illegal: {error.reason}", self._rule.penalty)
            return _settle(self._rule, [attempt], space, mask, derive(*self._seed_key, self._turn - 1, 1), n_legal)
        return Decision((Attempt((), None, space.render_action(action), action, True),), action, n_legal=n_legal)

    def see(self, observation: Any) -> None:
        """See `Seat`: the player's `Situation.world`."""
        self._world = observation

    def tell(self, sender: str, text: str) -> None:
        """See `Seat.tell`."""
        self._inbox.append((sender, text))

    def final_prompt(self, observation: str) -> TokenIds:
        """Empty: there are no tokens here."""
        return ()


_CUT = {FinishReason.LENGTH: "length", FinishReason.CONTEXT: "context", FinishReason.ABORTED: "aborted"}


def _settle(
    rule: InvalidRule, attempts: list[Attempt], space: ActionText, mask: Any, seed: int, n_legal: int | None
) -> Decision:
    """What the rule makes of a decision whose last attempt is invalid."""
    last = attempts[-1]
    if rule.then == "forfeit":
        return Decision(tuple(attempts), None, Verdict.FORFEIT, last.error, rule.others, n_legal)
    if rule.then == "truncate":
        return Decision(tuple(attempts), None, Verdict.TRUNCATE, last.error, "keep", n_legal)
    action = space.sample(seed, mask)
    attempts[-1] = replace(last, error=f"{last.error}; played {space.render_action(action)!r} instead")
    return Decision(tuple(attempts), action, n_legal=n_legal)


def _correction(error: InvalidAction) -> str:
    text = f"This is not a legal action: {error.reason}."
    if error.legal:
        more = ", ..." if len(error.legal) > _SHOWN_LEGAL else ""
        text += f" Legal: {', '.join(error.legal[:_SHOWN_LEGAL])}{more}."
    return text + " Answer again."


def _depth(memory: str | int) -> int | None:
    if memory == "full":
        return None
    if memory == "last":
        return 0
    if isinstance(memory, int) and not isinstance(memory, bool) and memory >= 1:
        return memory
    raise ConfigError(f"memory is {memory!r}; use 'full', 'last' or a number of past decisions, at least 1")


def _check_trainable(agent: AgentID, params: SamplingParams) -> None:
    if params.top_p < 1 or params.top_k or params.temperature <= 0:
        raise ConfigError(
            f"the seat of {agent} trains, so it must sample the full distribution; given: temperature {params.temperature}, "
            f"top_p {params.top_p}, top_k {params.top_k}; use a temperature above 0, top_p 1 and top_k 0"
        )
