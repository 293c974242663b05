"""verl's platform for a CPU: the module behind the entry point `opentinker` of the group `verl.plugins`.

Importing it registers the platform with verl, which is what verl's plugins do, and nothing else; it stays light because
verl imports it while verl itself is being imported. verl asks the platforms in order and takes the first that says it is
available, so this one says so only where the machine has no accelerator at all: a Ray actor that was given no GPU on a
machine with some must not turn into a CPU machine. `VERL_PLATFORM=cpu` chooses it on any machine.
"""

from __future__ import annotations

import glob
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from typing_extensions import override
from verl.plugin.platform import PlatformBase, PlatformRegistry

NAME = "cpu"

_DRIVER_FILES = (
    "/proc/driver/nvidia/version",
    "/dev/nvidiactl",
    "/dev/nvidia[0-9]*",
    "/dev/dxg",  # NVIDIA below Windows' Linux
    "/dev/kfd",  # AMD
    "/dev/davinci[0-9]*",  # Ascend
    "/dev/accel/accel[0-9]*",
)
_DRIVER_TOOLS = ("nvidia-smi", "rocm-smi", "npu-smi")


def accelerator_evidence(files: Sequence[str] = _DRIVER_FILES, tools: Sequence[str] = _DRIVER_TOOLS) -> str:
    """What speaks for an accelerator on this machine, whether this process may use it or not; empty where nothing does.

    Args:
        files: glob patterns of driver files.
        tools: names of drivers' commands.
    """
    if torch.accelerator.is_available() and torch.accelerator.current_accelerator() != torch.device("cpu"):
        return f"torch can use {torch.accelerator.current_accelerator()}"
    for pattern in files:
        if found := glob.glob(pattern):
            return f"{found[0]} exists"
    for tool in tools:
        if path := shutil.which(tool):
            return f"{path} is installed"
    return ""


def _device_module() -> ModuleType:
    """`torch.cpu` with the memory and generator calls that verl makes on a device module."""
    module = ModuleType("opentinker.training.platform.cpu_device")
    module.__dict__.update({name: value for name, value in vars(torch.cpu).items() if not name.startswith("__")})
    for name in ("max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved"):
        setattr(module, name, _zero)
    for name in ("empty_cache", "reset_peak_memory_stats", "ipc_collect", "set_device", "synchronize"):
        setattr(module, name, _nothing)
    for name, value in {
        "manual_seed": torch.manual_seed,
        "manual_seed_all": torch.manual_seed,
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
        "mem_get_info": lambda *_: (0, 0),
        "get_device_name": lambda *_: NAME,
        "current_device": lambda: NAME,
    }.items():
        setattr(module, name, value)
    return module


def _zero(*_: Any, **__: Any) -> int:
    return 0


def _nothing(*_: Any, **__: Any) -> None:
    return None


@PlatformRegistry.register(platform=NAME)
class CpuPlatform(PlatformBase):
    """A machine without an accelerator."""

    _module: ModuleType | None = None

    @property
    @override
    def device_name(self) -> str:
        return NAME

    @property
    @override
    def vendor_name(self) -> str:
        return NAME

    @property
    @override
    def device_module(self) -> ModuleType:
        if CpuPlatform._module is None:
            CpuPlatform._module = _device_module()
        return CpuPlatform._module

    @override
    def is_available(self) -> bool:
        """Always: whoever asked for this platform by name gets it."""
        return True

    @override
    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        """Only where nothing speaks for an accelerator; verl asks this when no platform was named."""
        return not accelerator_evidence()

    @override
    def current_device(self) -> Any:
        # verl passes it to `.to(...)`, where an index would mean an accelerator
        return NAME

    @override
    def device_count(self) -> int:
        return 1

    @override
    def set_device(self, device_index: int) -> None:
        return None

    @override
    def synchronize(self, device_index: int | None = None) -> None:
        return None

    @override
    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    @override
    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    @override
    def set_allocator_settings(self, settings: str) -> None:
        return None

    @override
    def empty_cache(self) -> None:
        return None

    @override
    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    @override
    def communication_backend_name(self) -> str:
        return "gloo"

    @override
    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    @override
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    @override
    def profiler_start(self) -> None:
        return None

    @override
    def profiler_stop(self) -> None:
        return None

    @override
    def ray_resource_name(self) -> str:
        # verl's placement asks for accelerators; `ray.init(num_gpus=N)` names logical slots of this kind
        return "GPU"

    @override
    def ray_noset_envvars(self) -> list[str]:
        return []

    @override
    def is_ipc_supported(self) -> bool:
        return False

    @override
    def cudart(self) -> Any:
        return None
