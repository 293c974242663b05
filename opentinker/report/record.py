"""Episodes as plain data: what is written to `episodes/step-*.jsonl` and read back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from opentinker.types import Completion, Episode, EpisodeStatus, FinishReason, Message, Turn


def episode_to_json(episode: Episode, advantages: Sequence[float] | None = None) -> dict[str, Any]:
    """One JSON object. What JSON does not know is written as text, also numbers that are not finite (`"nan"`, `"-inf"`).

    Args:
        episode: whole and frozen.
        advantages: one per turn, written beside it where given.
    """
    row = _fields(episode)
    row["turns"] = [_turn(turn) for turn in episode.turns]
    if advantages is not None:
        for turn, advantage in zip(row["turns"], advantages, strict=True):
            turn["advantage"] = advantage
    row["messages"] = [_fields(message) for message in episode.messages]
    return plain(row)  # type: ignore[no-any-return]


def episode_from_json(row: Mapping[str, Any]) -> Episode:
    """The episode that `episode_to_json` wrote; actions come back as JSON values."""
    data = dict(row)
    data["turns"] = tuple(_turn_back(turn) for turn in row["turns"])
    data["messages"] = tuple(Message(**{**message, "to": tuple(message["to"])}) for message in row["messages"])
    data["final_prompts"] = {agent: tuple(ids) for agent, ids in row["final_prompts"].items()}
    data["rewards"] = {agent: float(reward) for agent, reward in row["rewards"].items()}
    data["timings"] = {name: float(seconds) for name, seconds in row["timings"].items()}
    data["status"] = EpisodeStatus(row["status"])
    return Episode(**data)


def _turn(turn: Turn) -> dict[str, Any]:
    row = _fields(turn)
    if turn.completion is not None:
        row["completion"] = _fields(turn.completion)
    return row


def _fields(value: Episode | Turn | Completion | Message) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _turn_back(row: Mapping[str, Any]) -> Turn:
    data = {key: value for key, value in row.items() if key != "advantage"}
    data["prompt_ids"] = tuple(row["prompt_ids"])
    data["reward"], data["penalty"] = float(row["reward"]), float(row["penalty"])
    if row["completion"] is not None:
        inner = dict(row["completion"])
        inner["token_ids"], inner["logprobs"] = tuple(inner["token_ids"]), tuple(map(float, inner["logprobs"]))
        inner["finish_reason"] = FinishReason(inner["finish_reason"])
        data["completion"] = Completion(**inner)
    return Turn(**data)


def plain(value: Any) -> Any:
    """The value as JSON knows it: other objects and numbers that are not finite as text, keys as text."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return plain(value.tolist())
    return str(value)
