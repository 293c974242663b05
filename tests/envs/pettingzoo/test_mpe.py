"""The particle worlds: Box observations, Discrete and Box actions, all agents at once or in turns."""

from __future__ import annotations

import importlib
import sys

import pytest

from opentinker.envs import env_ids, make_env
from opentinker.envs.registry import canonical_id
from opentinker.errors import ConfigError, MissingExtra, UnknownId

pytest.importorskip("mpe2")
MAKERS = {"aec": "env", "parallel": "parallel_env"}
CYCLES = 4


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("api", MAKERS)
@pytest.mark.parametrize("id", env_ids("mpe"))
def test_c2_a_particle_world_is_played_and_paid_as_by_a_raw_loop(arena, id, api, continuous):
    kwargs = {"max_cycles": CYCLES, "continuous_actions": continuous}
    handle = arena.open(id, {**kwargs, "api": api})
    make = getattr(importlib.import_module(f"mpe2.{id.partition('/')[2]}"), MAKERS[api])
    for seed in (3, 4):  # one object, so the second episode is not its first
        episode, told = arena.through(handle, seed).episode, arena.raw(make(**kwargs), seed)
        arena.same(episode, told)
        assert len(told.turns) == CYCLES * len(told.rewards) or not all(cut for _, cut in told.ends.values())


def test_all_of_them_are_there():
    ids = env_ids("mpe")
    assert len(ids) == 12 and "mpe/simple_spread_v3" in ids and "mpe/collect_treasure_v1" in ids


def test_a_name_without_a_version_is_the_newest():
    assert canonical_id("mpe/simple_spread") == canonical_id("mpe/simple_spread-v3") == "mpe/simple_spread_v3"
    assert str(make_env("mpe/simple", max_cycles=2)) == "simple_v3"
    assert canonical_id("mpe/nonsense") == "mpe/nonsense"


def test_what_is_not_there_is_refused():
    with pytest.raises(UnknownId, match="mpe/simple_spred_v3'; did you mean 'mpe/simple_spread_v3'"):
        make_env("mpe/simple_spred_v3")
    with pytest.raises(UnknownId, match="did you mean 'mpe/simple_spread_v3'"):
        make_env("mpe/simple_spread_v1")
    with pytest.raises(ConfigError, match="mpe/simple_v3 has no api 'solo'; it has: aec, parallel"):
        make_env("mpe/simple_v3", api="solo")
    with pytest.raises(ConfigError, match="cannot be made with.*max_cycle"):
        make_env("mpe/simple_v3", max_cycle=3)


def test_the_extra_is_named_where_the_package_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpe2", None)
    assert env_ids("mpe") == []
    with pytest.raises(MissingExtra, match=r"mpe/simple_v3 needs an optional dependency: pip install 'opentinker\[mpe\]'"):
        make_env("mpe/simple_v3")
    assert canonical_id("mpe/simple_v3") == "mpe/simple_v3"
