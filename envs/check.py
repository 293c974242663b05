"""What environment authors run: the upstream API tests, and what training adds to them."""

from __future__ import annotations

import contextlib
import io
import itertools
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from opentinker.envs.adapters.vector import brought
from opentinker.envs.codec import text_function
from opentinker.envs.probe import Event, Probe
from opentinker.envs.registry import prepare
from opentinker.envs.units import Units
from opentinker.envs.world import kind_of
from opentinker.errors import ConfigError, error_text, message_text

_RAISED = (Exception, SystemExit, GeneratorExit)
"""What an environment may raise; all of it is a finding."""

CURES = {
    "text": "raise the space's max_length, or say less",
    "parse": "`parse` must read every text that stands for a legal action, and a space must hold what it draws",
    "mask": "leave an agent that is to act at least one action (one to pass, say), end it otherwise, and give the mask one "
    "entry for each action",
    "after_end": "pay everything with the step that ends an agent; after that give it no rewards, take it out of `agents`, "
    "and let the step of one who has ended do nothing but `_was_dead_step(action)`",
    "global_random": "draw from the environment's own generator, which reset(seed=...) seeds: self.np_random of a Gymnasium "
    "environment, self.rng of TextAECEnv and TextParallelEnv, else a random.Random that `reset` makes",
    "seed": "let `reset` set everything anew and seed the one generator from which all chance comes; none of it from the "
    "clock, the operating system, the constructor or the episode before",
    "shared_state": "keep what changes on `self`: no attributes of the class or the module that are written to, no default "
    "arguments that are, and no generator that objects have in common",
    "slow": "do the work once, in the constructor, or make it faster; where the world is slow by nature, raise the bound "
    "and play more games at once (rollout.groups): they wait side by side",
}
"""What to do about a finding, by its rule; `play` and `api` say so themselves."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with an environment."""

    rule: str
    """`api`, `play`, `text`, `parse`, `mask`, `after_end`, `seed`, `shared_state`, `global_random` or `slow`."""
    message: str
    """What was seen; then, for all but `api` and `play`, what to do about it."""


def check_env(
    env_or_id: Any,
    *,
    kwargs: Mapping[str, Any] | None = None,
    seed: int = 0,
    max_steps: int = 500,
    slowest: float | None = None,
    action_names: Sequence[str] | None = None,
    action_units: Units = None,
    observation_units: Units = None,
    render: Callable[[Any], str] | str | None = None,
    parse: Callable[[str], Any] | str | None = None,
) -> list[Finding]:
    """Plays an environment at random and reports what would spoil a training run.

    - `api`: what Gymnasium's `check_env`, PettingZoo's `api_test` or `parallel_api_test` objects to.
    - `play`: a call raised, or the spaces have no text form.
    - `text`: a rendered observation is no text, or a text observation is outside of its space.
    - `parse`: an action is not read back from its own text.
    - `mask`: an agent that is to act has no legal action, or its mask does not fit its space.
    - `after_end`: an agent of a PettingZoo environment is paid after its end, or by the last step of another one.
    - `seed`: two episodes with one seed and the same actions differ, on one object or on two.
    - `shared_state`: two objects played turn about do not play as one alone does.
    - `global_random`: it draws from the global generator of Python, NumPy or torch.
    - `slow`: a step takes longer than `slowest`.

    Args:
        env_or_id: an id as for `make_env`; a class or a function that makes an environment; or a live object, which is reset
            and played. What needs a second object (`shared_state`, a part of `seed`) is not looked for with a live one.
        kwargs: of the constructor, for an id, a class or a function.
        seed: of the episodes.
        max_steps: longer episodes are cut.
        slowest: seconds a step may take, without the codec; a step counts as slow if it is in two episodes with one seed.
            None: any time.
        action_names: see `TextCodec`.
        action_units: see `TextCodec`.
        observation_units: see `TextCodec`.
        render: see `open_env`.
        parse: see `open_env`.

    Returns:
        What was found, each rule once; empty for a sound environment.

    Raises:
        UnknownId, ConfigError: as `open_env`; `kwargs` were given for a live object, or `slowest` is not above 0.
    """
    options = {
        "action_names": action_names,
        "action_units": action_units,
        "observation_units": observation_units,
        "render": text_function("render", render),
        "parse": text_function("parse", parse),
    }
    if slowest is not None and not slowest > 0:
        raise ConfigError(f"slowest must be above 0 seconds, or None for any time; given: {slowest!r}")
    check = _Check(_builder(env_or_id, kwargs or {}), seed, max_steps, options)
    alone = check.episode(check.env)
    if alone is not None:
        check.same("seed", "two episodes with one seed and the same actions differ", alone, check.episode(check.env))
        check.slow(slowest)
        if check.build is not None:
            check.two_objects(alone)
    check.upstream()
    return check.findings


def _builder(env_or_id: Any, kwargs: Mapping[str, Any]) -> Callable[[], Any] | Any:
    """What makes the environment, or the live one itself."""
    if isinstance(env_or_id, str):
        return prepare(env_or_id, kwargs)
    if callable(env_or_id):
        return lambda: env_or_id(**kwargs)
    if kwargs:
        raise ConfigError(f"kwargs are for an environment's id; {type(env_or_id).__name__} is made already")
    return env_or_id


class _Check:
    def __init__(self, given: Any, seed: int, max_steps: int, codec_options: dict[str, Any]) -> None:
        self.build: Callable[[], Any] | None = given if callable(given) else None
        self.env = brought(given() if callable(given) else given)
        self.findings: list[Finding] = []
        self._seed, self._max_steps, self._options = seed, max_steps, codec_options
        self._seconds: list[list[float]] = []

    def find(self, rule: str, seen: str) -> None:
        """Each rule is reported once: what follows is mostly the same fault again."""
        if all(finding.rule != rule for finding in self.findings):
            self.findings.append(Finding(rule, f"{seen}; {CURES[rule]}" if rule in CURES else seen))

    def episode(self, env: Any) -> list[Event] | None:
        """What happens in an episode; None if something is raised."""
        probe = Probe(env, self.find, self._options)
        try:
            with self._own_chance("an episode"):
                events = list(probe.events(self._seed, self._max_steps))
        except _RAISED as error:
            self.find("play", error_text(error))
            return None
        self._seconds.append(probe.seconds)
        return events

    def same(self, rule: str, seen: str, first: list[Event], second: list[Event] | None) -> None:
        """Finds the first difference of two episodes."""
        for index, (one, other) in enumerate(itertools.zip_longest(first, second or [])):
            if one != other:
                self.find(rule, f"{seen}: event {index} was {one!r}, then {other!r}")
                return

    def slow(self, slowest: float | None) -> None:
        """A step that took its time in both episodes did not only meet a busy machine."""
        steps = [min(times) for times in zip(*self._seconds, strict=False)]
        if slowest is not None and max(steps, default=0) > slowest:
            number = int(np.argmax(steps))
            self.find("slow", f"step {number + 1} took {steps[number]:.3g} s, more than {slowest:g} s")

    def two_objects(self, alone: list[Event]) -> None:
        """A fresh object must play as the first one did, and while another one plays the first must do so still."""
        assert self.build is not None
        try:
            with self._own_chance("its constructor"):
                fresh = self.build()
            self.same("seed", "two objects with one seed and the same actions differ", alone, self.episode(fresh))
            one, other = (
                Probe(env, self.find, self._options).events(seed, self._max_steps)
                for env, seed in ((self.env, self._seed), (fresh, self._seed + 1))
            )
            mixed = [event for event, _ in itertools.zip_longest(one, other) if event is not None]
        except _RAISED as error:
            self.find("shared_state", f"two objects played turn about: {error_text(error)}")
            return
        if all(finding.rule != "seed" for finding in self.findings):  # else the two differ anyhow
            self.same("shared_state", "an object plays differently while another one plays", alone, mixed)

    @contextlib.contextmanager
    def _own_chance(self, who: str) -> Iterator[None]:
        before = _global_generators()
        yield
        moved = [name for name, state in _global_generators().items() if before.get(name, state) != state]
        if moved:
            self.find("global_random", f"{who} drew from or seeded the global generator of {' and '.join(moved)}")

    def upstream(self) -> None:
        """What the ecosystem's own tests object to."""
        try:
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")  # advice; only what the tests refuse is a finding
                _UPSTREAM[kind_of(self.env)](self.env)
        except AttributeError as error:
            # api_test reads the dtype of every observation; a plain str of a sound environment has none.
            if "'str' object has no attribute 'dtype'" not in message_text(error):
                self.find("api", error_text(error))
        except _RAISED as error:
            self.find("api", error_text(error))


def _solo_api(env: Any) -> None:
    from gymnasium.utils.env_checker import check_env as check

    check(env.unwrapped, skip_render_check=True, skip_close_check=True)


def _aec_api(env: Any) -> None:
    from pettingzoo.test import api_test  # type: ignore[import-untyped]

    api_test(env, num_cycles=50)


def _parallel_api(env: Any) -> None:
    from pettingzoo.test import parallel_api_test

    absent = object()
    before = getattr(env, "max_cycles", absent)
    try:
        parallel_api_test(env, num_cycles=50)
    finally:  # the test writes its own limit into the environment
        if before is absent:
            del env.max_cycles
        else:
            env.max_cycles = before


_UPSTREAM = {"solo": _solo_api, "aec": _aec_api, "parallel": _parallel_api}


def _global_generators() -> dict[str, Any]:
    """The states of all global generators that an environment may have reached for."""
    name, keys, *rest = np.random.get_state()
    states: dict[str, Any] = {
        "Python's random": random.getstate(),
        "numpy.random": (name, np.asarray(keys).tobytes(), *rest),
    }
    if "torch" in sys.modules:  # environments need none, so it is not imported for this
        states["torch"] = sys.modules["torch"].random.get_rng_state().numpy().tobytes()
    return states
