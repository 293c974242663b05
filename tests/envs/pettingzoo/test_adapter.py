"""Ids of PettingZoo: what needs a package says which, what cannot be told in words says why."""

from __future__ import annotations

import sys
import warnings

import pytest
from pettingzoo.env_registry import spec

from opentinker.envs import EnvHandle, env_ids, make_env
from opentinker.errors import ConfigError, MissingExtra


@pytest.fixture
def without(monkeypatch):
    """Hides a package from an environment that is made next."""

    def hide(package, *users):
        for module in (*users, *[name for name in sys.modules if name.partition(".")[0] == package]):
            monkeypatch.delitem(sys.modules, module, raising=False)
        monkeypatch.setitem(sys.modules, package, None)
        spec._load_env_creator.cache_clear()

    yield hide
    spec._load_env_creator.cache_clear()


RLCARD = "pettingzoo.classic.rlcard_envs"


@pytest.mark.parametrize(
    ("game", "package", "users"),
    [
        ("leduc_holdem_v4", "rlcard", (f"{RLCARD}.rlcard_base", f"{RLCARD}.leduc_holdem")),
        ("texas_holdem_v4", "rlcard", (f"{RLCARD}.rlcard_base", f"{RLCARD}.texas_holdem")),
        ("chess_v6", "chess", ("pettingzoo.classic.chess.chess", "pettingzoo.classic.chess.chess_utils")),
        ("hanabi_v5", "shimmy", ()),
    ],
)
def test_the_extra_of_the_classic_games_is_named(without, game, package, users):
    without(package, *users)
    with pytest.raises(MissingExtra, match=rf"pettingzoo/classic/{game} .*pip install 'opentinker\[classic\]'") as caught:
        make_env(f"pettingzoo/classic/{game}")
    assert package in str(caught.value) or game == "hanabi_v5"  # which tells a story of its own


def test_other_families_name_the_extra_of_the_library(without):
    without("pymunk", "pettingzoo.butterfly.pistonball.pistonball")
    with pytest.raises(ConfigError, match=r"pettingzoo/butterfly/pistonball_v6 needs .*pymunk.*'pettingzoo\[butterfly\]'"):
        make_env("pettingzoo/butterfly/pistonball_v6")


def test_images_are_refused_with_a_word():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        handle = EnvHandle.wrap(make_env("pettingzoo/butterfly/cooperative_pong_v6"))
    with pytest.raises(ConfigError, match="size of an image .*`render` function"):
        handle.codec("paddle_0")


def test_unversioned_and_newest():
    assert "pettingzoo/classic/chess_v6" in env_ids("pettingzoo")
    with pytest.raises(Exception, match="did you mean 'pettingzoo/classic/chess_v6'"):
        make_env("pettingzoo/classic/chess_v5")
