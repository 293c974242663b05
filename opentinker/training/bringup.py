"""Bringing verl up in this process, on the CPU, alone."""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import logging
import os
import warnings
from collections.abc import Iterator

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from opentinker.collector import paused_collector
from opentinker.errors import ConfigError
from opentinker.training import gaps

logger = logging.getLogger(__name__)

VERL_VERSIONS = ">=0.9.1,<0.10"


def check_verl(installed: str | None = None) -> None:
    """Refuses versions of verl that this package was not written for.

    Args:
        installed: a version to check instead of the installed one.

    Raises:
        ConfigError: verl is missing or of another version.
    """
    if installed is None:
        try:
            installed = importlib.metadata.version("verl")
        except importlib.metadata.PackageNotFoundError as error:
            raise ConfigError(f"training needs verl, which is not installed: pip install 'verl{VERL_VERSIONS}'") from error
    if Version(installed) not in SpecifierSet(VERL_VERSIONS, prereleases=True):
        raise ConfigError(
            f"training needs verl {VERL_VERSIONS}, installed is {installed}: pip install 'verl{VERL_VERSIONS}'"
        )


@contextlib.contextmanager
def verl_environment() -> Iterator[None]:
    """The environment variables verl reads while it is imported and while a worker is built; put back afterwards.

    Those of the process group keep a value that is already there:

    - `RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=0`: a worker alone; the port is never opened.
    - `VERL_PLATFORM=cpu`: the platform of this package; on a machine with an accelerator, too.
    - `VERL_LOGGING_LEVEL=WARN`, `TOKENIZERS_PARALLELISM=false`, `HF_HUB_OFFLINE=1`: quiet, and without a network.

    `VERL_ENGINE_DEVICE`, which would choose another engine than the platform's, is left out meanwhile.
    """
    defaults = {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
        "VERL_PLATFORM": "cpu",
        "VERL_LOGGING_LEVEL": "WARN",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }
    before = dict(os.environ)
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    os.environ.pop("VERL_ENGINE_DEVICE", None)
    try:
        yield
    finally:
        for name in defaults.keys() | {"VERL_ENGINE_DEVICE", "REDIS_STORE_SERVER_HOST"}:
            if name in before:
                os.environ[name] = before[name]
            else:
                os.environ.pop(name, None)


def bring_up() -> None:
    """Imports verl on the CPU platform and joins a process group of one. Repeating it is cheap.

    Raises:
        ConfigError: verl is missing or of another version, another platform is active, or this process is one of several.
    """
    import_verl()
    size = os.environ.get("WORLD_SIZE", "1")
    if size != "1":
        raise ConfigError(f"the local host trains in one process, but WORLD_SIZE is {size}: start it without torchrun")
    with verl_environment(), quiet():
        gaps.join_process_group()
        import torch.distributed as dist

        if dist.get_world_size() != 1:
            raise ConfigError(
                f"the local host trains in one process, but this one belongs to a process group of {dist.get_world_size()}"
            )


def import_verl() -> None:
    """Imports verl's workers on the CPU platform and registers this package's engine.

    Raises:
        ConfigError: verl is missing or of another version, or another platform is active.
    """
    check_verl()
    with verl_environment(), quiet(), paused_collector():
        _choose_platform()
        from opentinker.training import engine, worker  # noqa: F401


def _choose_platform() -> None:
    from verl.plugin.platform import get_platform

    from opentinker.training import platform  # registers itself

    active = get_platform().device_name
    if active != platform.NAME:
        raise ConfigError(
            f"the local host trains on the CPU, but verl already runs on platform {active!r} in this process; "
            "create the host before anything else uses verl, or set VERL_PLATFORM=cpu"
        )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Logs at DEBUG what verl and its libraries print while they are imported and built; root logging stays as it was."""
    from transformers.utils import logging as hf_logging

    root, fx = logging.getLogger(), logging.getLogger("torch.fx._symbolic_trace")
    handlers, level, fx_level = list(root.handlers), root.level, fx.level
    bar = hf_logging.is_progress_bar_enabled()
    hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    # warns once a process, on FSDP2's first forward pass, of something only torch's own code can heed
    fx.setLevel(logging.ERROR)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            # verl warns of each engine whose library is not installed
            warnings.simplefilter("ignore")
            yield
    finally:
        if bar:
            hf_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
        fx.setLevel(fx_level)
        # verl calls logging.basicConfig when it is imported
        root.handlers[:] = handlers
        root.setLevel(level)
        for line in printed.getvalue().splitlines():
            if line.strip():
                logger.debug("verl: %s", line.strip())
