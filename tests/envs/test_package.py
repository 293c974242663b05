import subprocess
import sys
from pathlib import Path

import opentinker.envs

ROOT = Path(opentinker.envs.__file__).resolve().parents[1]


def run(program):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)


def test_the_public_names():
    assert sorted(opentinker.envs.__all__) == sorted(
        """ENVS AgentTurn EnvHandle EnvStats Finding TextAECEnv TextCodec TextEnv TextParallelEnv TextSpace
        check_env env_ids make_env open_env register_env""".split()
    )
    assert all(hasattr(opentinker.envs, name) for name in opentinker.envs.__all__)


def test_the_folder_is_not_to_be_imported_under_its_bare_name():
    done = run("import envs")
    assert done.returncode == 1 and "ImportError: this folder was imported as 'envs'" in done.stderr
    assert "import opentinker.envs instead" in done.stderr


def test_importing_it_brings_in_neither_torch_nor_verl_nor_pygame():
    done = run(
        "import sys, opentinker.envs; print([name for name in ('torch', 'ray', 'verl', 'pygame') if name in sys.modules])"
    )
    assert done.stdout == "[]\n"
