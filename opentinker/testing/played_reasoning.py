"""reasoning-gym's tasks, answered by random text players."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from opentinker.envs import env_ids
from opentinker.testing.played import Played, play_id

PARTS: dict[str, dict[str, Any]] = {"composite": {"datasets": [{"name": "chain_sum"}, {"name": "leg_counting"}]}}
"""Fields of tasks that cannot be made without."""


def played(ids: Iterable[str] | None = None, *, games: int = 1) -> Iterator[Played]:
    """`play_id` of each id; None: of all of reasoning-gym's tasks."""
    for id in env_ids("reasoning") if ids is None else ids:
        yield play_id(id, games=games, kwargs=PARTS.get(id.partition("/")[2]))
