import subprocess
import sys

import pytest

import opentinker.coordinators
from opentinker.coordinators import COORDINATORS, Coordinator, Simultaneous, Solo, Turns, make_coordinator
from opentinker.errors import ConfigError, UnknownId


class Hasty(Coordinator):
    def play(self, env, table):
        table.end("agent", True, False)


def test_the_public_names():
    assert opentinker.coordinators.__all__ == [
        "COORDINATORS",
        "Coordinator",
        "Query",
        "Simultaneous",
        "Solo",
        "Table",
        "Turns",
        "agents_of",
        "coordinator_factory",
        "forget_failures",
        "make_coordinator",
        "play_episode",
    ]
    assert all(hasattr(opentinker.coordinators, name) for name in opentinker.coordinators.__all__)


def test_ids_make_coordinators():
    assert [type(make_coordinator(id)) for id in COORDINATORS] == [Simultaneous, Solo, Turns]
    assert make_coordinator("turns", max_turns=3).max_turns == 3
    assert isinstance(make_coordinator("opentinker.coordinators.solo:Solo"), Solo)


def test_wrong_ids_and_arguments_say_what_would_do():
    with pytest.raises(UnknownId, match="unknown coordinator 'turn'; did you mean 'turns'"):
        make_coordinator("turn")
    with pytest.raises(ConfigError, match=r"coordinator 'turns' does not take .*'rounds'.*it takes \(max_turns"):
        make_coordinator("turns", rounds=3)
    with pytest.raises(ConfigError, match="max_turns must be at least 1 or null, not 0"):
        make_coordinator("solo", max_turns=0)
    for wrong in ("collections:OrderedDict", "sys:maxsize"):
        with pytest.raises(ConfigError, match=f"'{wrong}' is no coordinator; give a subclass"):
            make_coordinator(wrong)
    with pytest.raises(ConfigError, match="made a str, which is no Coordinator"):
        make_coordinator("os:getcwd")
    with pytest.raises(ConfigError, match=r"play\(\) must be `async def play"):
        make_coordinator(f"{__name__}:Hasty")


def test_the_folder_is_no_package_of_its_own():
    done = subprocess.run([sys.executable, "-c", "import coordinators"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "ImportError: import this package as `opentinker.coordinators`" in done.stderr


def test_importing_coordinators_brings_in_neither_torch_nor_environments():
    heavy = {"torch", "ray", "verl", "gymnasium", "pettingzoo"}
    code = f"import sys, opentinker.coordinators; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
