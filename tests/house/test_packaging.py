"""What is built from the tree holds the linked packages and works away from it. No network: the installed tools build."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINKED = ("opentinker/envs/__init__.py", "opentinker/coordinators/__init__.py")
TREE = ("opentinker", "envs", "coordinators", "pyproject.toml", "README.md", "LICENSE")


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def build_wheel(tree: Path, out: Path) -> Path:
    command = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", out, ".")
    run(sys.executable, *command, cwd=tree)
    (wheel,) = out.glob("opentinker-*.whl")
    return wheel


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """The tree as a checkout has it, links kept: a build leaves its traces in it."""
    copy = tmp_path_factory.mktemp("tree")
    for name in TREE:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, copy / name)
    assert (copy / "opentinker" / "envs").is_symlink()
    return copy


@pytest.fixture(scope="module")
def wheel(tree, tmp_path_factory):
    return build_wheel(tree, tmp_path_factory.mktemp("wheel"))


def modules(folder: str) -> set[str]:
    return {f"opentinker/{folder}/{path.relative_to(ROOT / folder).as_posix()}" for path in (ROOT / folder).rglob("*.py")}


def test_the_wheel_holds_every_module_once(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    packed = {name for name in names if name.endswith(".py")}
    own = {f"opentinker/{path.relative_to(ROOT / 'opentinker').as_posix()}" for path in (ROOT / "opentinker").rglob("*.py")}
    assert packed == own | modules("envs") | modules("coordinators")
    assert "opentinker/py.typed" in names
    page = {f"opentinker/report/page/{path.name}" for path in (ROOT / "opentinker/report/page").iterdir() if path.is_file()}
    assert {name for name in names if name.startswith("opentinker/report/page/")} == page
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_wheel_declares_command_and_plugin(wheel):
    archive = zipfile.ZipFile(wheel)
    (entry,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
    text = archive.read(entry).decode()
    assert "opentinker = opentinker.cli:main" in text
    assert "[verl.plugins]\nopentinker = opentinker.training.platform" in text


def test_the_wheel_installed_elsewhere_imports(wheel, tmp_path):
    site = tmp_path / "site"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, wheel, cwd=tmp_path)
    code = """
import opentinker, opentinker.envs, opentinker.coordinators
from opentinker import Coordinator, TextEnv
for module in (opentinker, opentinker.envs, opentinker.coordinators):
    print(module.__file__)
"""
    printed = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(site)).splitlines()
    assert printed == [str(site / name) for name in ("opentinker/__init__.py", *LINKED)]


def test_the_sdist_builds_the_same_wheel(tree, wheel, tmp_path):
    code = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"
    name = run(sys.executable, "-c", code, tmp_path, cwd=tree).splitlines()[-1]
    with tarfile.open(tmp_path / name) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / name.removesuffix(".tar.gz")
    assert all((unpacked / linked).is_file() for linked in LINKED)
    rebuilt = build_wheel(unpacked, tmp_path / "again")
    assert sorted(zipfile.ZipFile(rebuilt).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())
