"""The set-up that the scripts share, run for real with a stand-in for pip that writes down what it was asked."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PIP = """
import pathlib, sys
here = pathlib.Path(__file__).parents[1]
if sys.argv[1:] == ["--version"]:
    raise SystemExit
with open(here / "calls", "a") as calls:
    print(*sys.argv[1:], file=calls)
if (here / "broken").exists():
    sys.exit("ERROR: no route to the index")
if sys.argv[-1] == "torch":
    info = here / "torch-2.13.0+cpu.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: torch\\nVersion: 2.13.0+cpu\\n")
else:
    command = pathlib.Path(sys.executable).with_name("opentinker")
    command.write_text("#!/bin/sh\\necho opentinker in $PWD: $*\\n")
    command.chmod(0o755)
"""


class Machine:
    """A checkout, an empty home and a directory of commands."""

    def __init__(self, folder: Path) -> None:
        self.tree, self.site, self.home = folder / "a tree", folder / "site", folder / "home"
        for made in (self.tree, self.site / "pip", self.home):
            made.mkdir(parents=True)
        (self.site / "pip" / "__init__.py").touch()
        (self.site / "pip" / "__main__.py").write_text(PIP)
        shutil.copytree(ROOT / "scripts", self.tree / "scripts")
        for name in ("pyproject.toml", "constraints.txt"):
            shutil.copy2(ROOT / name, self.tree / name)
        (folder / "chrome").mkdir()
        (folder / "chrome" / "chromium").symlink_to("/bin/true")
        self.env = {
            "PATH": f"{folder / 'chrome'}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "PYTHONPATH": str(self.site),
            "PYTHON": sys.executable,
        }

    def venv(self) -> Path:
        made = self.tree / ".venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True)
        return made

    def run(self, script: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.tree / "scripts" / script), *args],
            cwd=self.home,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def calls(self) -> list[str]:
        """What pip was asked since the last look."""
        path = self.site / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    def common(self) -> str:
        return "install --quiet --disable-pip-version-check -c"


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_quickstart_from_nothing_installs_torch_first_then_runs(machine):
    done = machine.run("quickstart", "train.steps=2")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"opentinker in {machine.tree}: train configs/kuhn_selfplay.yaml --resume train.steps=2\n"
    assert machine.calls() == [
        f"{machine.common()} {machine.tree}/constraints.txt torch",
        f"{machine.common()} {machine.tree}/.venv/constraints.txt -e {machine.tree}",
    ]
    assert "torch==2.13.0+cpu\n" in (machine.tree / ".venv" / "constraints.txt").read_text()
    assert len(done.stderr.splitlines()) == 4


def test_a_second_run_installs_nothing_until_the_pins_change(machine):
    machine.venv()
    assert machine.run("quickstart").returncode == 0
    assert len(machine.calls()) == 2
    assert machine.run("quickstart").returncode == 0
    assert machine.calls() == []
    with open(machine.tree / "constraints.txt", "a") as pins:
        pins.write("rich==15.0.0\n")
    assert machine.run("quickstart").returncode == 0
    assert machine.calls() == [f"{machine.common()} {machine.tree}/.venv/constraints.txt -e {machine.tree}"]


def test_an_installed_torch_stays(machine):
    machine.venv()
    info = machine.site / "torch-2.11.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0\n")
    assert machine.run("quickstart").returncode == 0
    assert len(machine.calls()) == 1
    pins = (machine.tree / ".venv" / "constraints.txt").read_text().splitlines()
    assert [line for line in pins if line.startswith("torch==")] == ["torch==2.11.0"]


def test_the_index_of_torch_can_be_chosen(machine):
    machine.venv()
    assert machine.run("quickstart", OPENTINKER_TORCH_INDEX="file:///wheels here").returncode == 0
    first, second = machine.calls()
    assert first == f"{machine.common()} {machine.tree}/constraints.txt --index-url file:///wheels here torch"
    assert "--index-url" not in second


def test_a_failed_install_shows_the_error_and_what_to_do_and_is_tried_again(machine):
    machine.venv()
    (machine.site / "broken").touch()
    done = machine.run("quickstart")
    assert done.returncode == 1
    assert "ERROR: no route to the index" in done.stderr
    assert "run this again" in done.stderr.splitlines()[-1]
    assert done.stdout == ""
    (machine.site / "broken").unlink()
    assert machine.run("quickstart").returncode == 0


def test_an_unfit_python_is_refused_by_name(machine):
    done = machine.run("quickstart", PYTHON="/bin/false")
    assert done.returncode == 1
    assert done.stderr == "quickstart: PYTHON=/bin/false is no Python 3.11 or 3.12\n"


def commands(folder: Path, **scripts: str) -> str:
    """A PATH with the usual tools, and these instead of any Python."""
    folder.mkdir()
    for name in ("bash", "dirname", "grep", "env"):
        (folder / name).symlink_to(shutil.which(name))
    for name, text in scripts.items():
        path = folder / name.replace("_", ".")
        path.write_text(text)
        path.chmod(0o755)
    return str(folder)


def test_no_fitting_python_is_a_clear_error(machine, tmp_path):
    path = commands(tmp_path / "bin", python3="#!/bin/sh\nexit 1\n")
    done = machine.run("quickstart", PATH=path, PYTHON="")
    assert done.returncode == 1
    assert done.stderr.startswith("quickstart: needs Python 3.11 or 3.12, and found none")
    assert not (machine.tree / ".venv").exists()


@pytest.mark.parametrize("name", ["python3_11", "python3", "python"])
def test_python_is_found_under_its_usual_names(machine, tmp_path, name):
    # `python3.12` is a shim of a version manager: it is there, and runs nothing.
    found = f'#!/bin/sh\n[ "$2" = venv ] && set -- "$@" --without-pip\nexec "{sys.executable}" "$@"\n'
    path = commands(tmp_path / "bin", python3_12="#!/bin/sh\nexit 127\n", **{name: found})
    done = machine.run("quickstart", PATH=path, PYTHON="")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("opentinker in ")


def test_test_installs_the_dev_extra_and_passes_its_arguments_on(machine):
    venv = machine.venv()
    (machine.site / "pytest.py").write_text("import os, sys\nprint(os.environ['OMP_NUM_THREADS'], *sys.argv[1:])\n")
    done = machine.run("test", "tests/envs", "-k", "a b")
    assert done.stdout == "1 -q -n 2 -m not slow tests/envs -k a b\n", done.stderr
    assert machine.calls()[-1].endswith(f"-e {machine.tree}[dev]")
    assert machine.run("test", "--all").stdout == "1 -q -n 2 -m slow or not slow\n"
    assert machine.run("quickstart").returncode == 0  # the extra brought the rest with it
    assert machine.calls() == []
    assert (venv / "installed-dev").read_text() == (venv / "installed").read_text()


def test_test_fails_as_pytest_fails(machine):
    machine.venv()
    (machine.site / "pytest.py").write_text("raise SystemExit(3)\n")
    assert machine.run("test").returncode == 3


APT = """#!/bin/sh
echo "$@" >>"{calls}"
[ "$1" = update ] || {fate}
"""

FOUND = '{{ printf "#!/bin/sh\\n" >"{bin}/chromium"; chmod 755 "{bin}/chromium"; }}'


def bare_path(folder: Path, fate: str, user: int = 0, sudo: str = "", apt: bool = True) -> str:
    """A PATH without a browser; what apt-get is asked goes into `calls` beside it, and `fate` is what installing does."""
    made = folder / "bin"
    tools = {"id": f"#!/bin/sh\necho {user}\n"}
    if apt:
        tools["apt-get"] = APT.format(calls=folder / "calls", fate=fate.format(bin=made))
    if sudo:
        tools["sudo"] = sudo
    path = commands(made, **tools)
    for name in ("true", "rm", "chmod", "sh"):
        (made / name).symlink_to(shutil.which(name))
    return path


@pytest.fixture
def ready(machine):
    """A machine on which only the browser is missing."""
    machine.venv()
    (machine.site / "pytest.py").write_text("print('tests ran')\n")
    return machine


def asked(folder: Path) -> list[str]:
    calls = folder / "calls"
    return calls.read_text().splitlines() if calls.exists() else []


INSTALL = ["update -q", "install -q -y --no-install-recommends chromium"]


@pytest.mark.parametrize("user", [0, 1000])
def test_a_missing_browser_is_installed_as_root_or_by_a_sudo_that_asks_nothing(ready, tmp_path, user):
    sudo = '#!/bin/sh\n[ "$1" = -n ] || exit 1\nshift\nexec "$@"\n' if user else ""
    path = bare_path(tmp_path, FOUND, user, sudo)
    done = ready.run("test", PATH=path)
    assert done.returncode == 0 and done.stdout == "tests ran\n", done.stderr
    assert asked(tmp_path) == INSTALL
    assert "installing Chromium" in done.stderr.splitlines()[-1]
    again = ready.run("test", PATH=path)
    assert again.stdout == "tests ran\n" and again.stderr == ""
    assert asked(tmp_path) == INSTALL


def test_an_install_of_a_browser_that_fails_is_told_and_not_tried_again(ready, tmp_path):
    path = bare_path(tmp_path, "{{ echo E: no route >&2; exit 100; }}")
    done = ready.run("test", PATH=path)
    assert done.returncode == 0 and done.stdout == "tests ran\n"
    assert "could not be installed" in done.stderr and "E: no route" not in done.stderr
    assert "E: no route" in (ready.tree / ".venv" / "browser.log").read_text()
    again = ready.run("test", PATH=path)
    assert again.returncode == 0 and again.stdout == "tests ran\n"
    assert asked(tmp_path) == INSTALL
    (said,) = again.stderr.splitlines()
    assert "browser-tried" in said and "skipped" in said


@pytest.mark.parametrize("lacking", ["apt-get", "a right", "consent"])
def test_where_no_browser_may_be_installed_one_line_says_how_to_get_one(ready, tmp_path, lacking):
    refuses = "#!/bin/sh\necho a password is required >&2\nexit 1\n"
    path = bare_path(tmp_path, FOUND, user=0 if lacking == "consent" else 1000, sudo=refuses, apt=lacking != "apt-get")
    asks = {"OPENTINKER_BROWSER": "none"} if lacking == "consent" else {}
    done = ready.run("test", PATH=path, **asks)
    assert done.returncode == 0 and done.stdout == "tests ran\n"
    assert asked(tmp_path) == []
    said = done.stderr.splitlines()[-1]
    assert (
        "skipped" in said and ("OPENTINKER_BROWSER=none" if lacking == "consent" else "Install the package chromium") in said
    )


def test_a_run_of_the_quickstart_needs_no_browser(ready, tmp_path):
    done = ready.run("quickstart", PATH=bare_path(tmp_path, FOUND))
    assert done.returncode == 0, done.stderr
    assert asked(tmp_path) == []
