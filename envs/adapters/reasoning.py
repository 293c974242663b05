"""`reasoning/TASK`: the tasks of reasoning-gym, https://github.com/open-thought/reasoning-gym, one question an episode."""

from __future__ import annotations

import copy
import dataclasses
import difflib
import importlib
import logging
import math
from collections.abc import Mapping
from typing import Any, Literal

from gymnasium.error import ResetNeeded

from opentinker.envs.adapters.generators import own_generators
from opentinker.envs.adapters.reasoning_answers import answer_in, fit_to_score
from opentinker.envs.text import MAX_LENGTH, TextEnv, TextSpace
from opentinker.errors import ConfigError, MissingExtra, error_text, value_text

logger = logging.getLogger(__name__)

INSTRUCTION = "Write your answer between <answer> and </answer>."
"""Stands below each question."""

_SEEDS = 2**32
"""The library hands its seeds on to NumPy, which knows no larger ones."""
_OURS = ("seed", "size")
_READ_ONCE = frozenset({"arc_agi", "figlet_font", "group_anagrams", "word_ladder"})
"""Tasks that read a file of seconds before they draw anything: it is read once, and the task's seed set afterwards."""
_READ: dict[tuple[str, str], Any] = {}


def names() -> list[str]:
    """All tasks; none without reasoning-gym."""
    try:
        return sorted(_tasks())
    except MissingExtra:
        return []


def known(name: str) -> bool:
    """Whether there is such a task.

    Raises:
        MissingExtra: reasoning-gym is not installed; `make` raises it as well.
    """
    return name in _tasks()


def canonical(name: str) -> str:
    """The name itself: tasks have one spelling."""
    return name


def make(name: str, *, instruction: str | None = INSTRUCTION, **config: Any) -> ReasoningTask:
    """A task as an environment.

    Args:
        name: such as `chain_sum`.
        instruction: stands below each question, which says what is asked, but rarely how to mark the answer; None: nothing.
        config: the fields of the task's configuration, such as `max_terms=3`; `seed` and `size` excepted. `composite` takes
            `datasets`, a list of mappings `{name, weight, config}`.

    Raises:
        ConfigError: no such field, or one that belongs to `reset`.
        AssertionError, TypeError, ValueError: the task's own objections; `make_env` turns them into a ConfigError.
    """
    fields = [field.name for field in dataclasses.fields(_tasks()[name][1]) if field.name not in _OURS]
    for key, value in config.items():
        if key in _OURS:
            given = f"{key}={value_text(value)}"
            raise ConfigError(f"reasoning/{name}: leave out {given}; the seed of `reset` picks the instance")
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(fields)}"
            raise ConfigError(f"reasoning/{name} has no field {key!r}; {hint}")
    return ReasoningTask(name, config, instruction)


class ReasoningTask(TextEnv):
    """One question an episode, one answer, the task's own score as the reward.

    The answer is what stands in the reply's last `<answer>...</answer>`, else the whole reply. One that is not
    `fit_to_score` scores as an empty one does, one at which the scorer raises 0.

    Args:
        name: the task.
        config: fields of its configuration.
        instruction: stands below each question.
    """

    def __init__(self, name: str, config: Mapping[str, Any], instruction: str | None) -> None:
        self.metadata = {"name": f"reasoning_{name}", "render_modes": []}
        self.observation_space = TextSpace(MAX_LENGTH)
        self.action_space = TextSpace(MAX_LENGTH)
        self._name, self._config = name, dict(config)
        self._below = f"\n{instruction}" if instruction else ""
        self._entry: dict[str, Any] = {}
        self._state: Literal["new", "asked", "answered"] = "new"
        with own_generators(0):
            self._dataset = self._seeded(0)  # objects to a wrong configuration

    def _seeded(self, seed: int) -> Any:
        if self._name not in _READ_ONCE:
            return self._made(seed)
        key = self._name, repr(sorted(self._config.items()))
        if key not in _READ:
            _READ[key] = self._made(0)
        dataset = copy.copy(_READ[key])
        dataset.seed = seed
        return dataset

    def _made(self, seed: int) -> Any:
        dataset, config = _tasks()[self._name]
        fields = dict(self._config)
        if self._name == "composite":
            fields["datasets"] = _parts(fields.get("datasets"))
        return dataset(config(**fields, seed=seed, size=1))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """A question: for a seed below 2**32 the first one of the library's `create_dataset(task, seed=seed, size=1)`."""
        super().reset(seed=seed)
        chosen = int(self.np_random.integers(_SEEDS)) if seed is None else seed % _SEEDS
        with own_generators(chosen):
            self._dataset = self._seeded(chosen)
            self._entry = self._dataset[0]
        self._state = "asked"
        return f"{self._entry['question']}{self._below}", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Scores the reply and ends the episode. The info holds the `answer` that was read in it.

        Raises:
            ResetNeeded: nothing has been asked, or it has been answered.
        """
        if self._state != "asked":
            raise ResetNeeded(f"reasoning/{self._name} asks one question an episode: call reset() for the next one")
        self._state = "answered"
        return "", self.score(action), True, False, {"answer": answer_in(action)}

    def score(self, reply: str) -> float:
        """What the task gives for a reply to the present question."""
        entry, answer = self._asked(), answer_in(reply)
        task = entry["metadata"].get("source_dataset", self._name)
        if not fit_to_score(task, answer, str(entry["answer"])):
            logger.debug("reasoning/%s: an answer was not handed to the scorer: %s", task, value_text(answer))
            answer = ""
        try:
            score = float(self._dataset.score_answer(answer, entry))
        except Exception as error:  # each scorer has its own way to stumble over what is no answer
            logger.debug("reasoning/%s: the scorer raised %s for %s", task, error_text(error), value_text(answer))
            return 0.0
        return score if math.isfinite(score) else 0.0

    def solution(self) -> str | None:
        """The task's own answer to the present question; None where it has none, being able to judge any."""
        answer = self._asked()["answer"]
        return None if answer is None else str(answer)

    def _asked(self) -> dict[str, Any]:
        if self._state == "new":
            raise ResetNeeded(f"reasoning/{self._name} has asked nothing yet: call reset() first")
        return self._entry


def _parts(given: Any) -> Any:
    spec = importlib.import_module("reasoning_gym.composite").DatasetSpec
    names = [field.name for field in dataclasses.fields(spec)]
    parts = given if isinstance(given, (list, tuple)) else ()
    if not parts or not all(isinstance(part, Mapping) and {"name"} <= set(part) <= set(names) for part in parts):
        raise ConfigError(f"reasoning/composite needs datasets, a list of mappings of {', '.join(names)}, given: {given!r}")
    strange = [part["name"] for part in parts if not known(part["name"])]
    if strange:
        raise ConfigError(f"reasoning/composite: no such tasks: {', '.join(map(str, strange))}")
    return [spec(part["name"], part.get("weight", 1.0), dict(part.get("config") or {})) for part in parts]


def _tasks() -> Mapping[str, tuple[Any, Any]]:
    """(class, class of its configuration) by name."""
    try:
        importlib.import_module("reasoning_gym.composite")  # registers itself and, with its package, all others
    except ModuleNotFoundError as error:
        raise MissingExtra("reasoning/…", "reasoning") from error
    tasks: Mapping[str, tuple[Any, Any]] = importlib.import_module("reasoning_gym.factory").DATASETS
    return tasks
