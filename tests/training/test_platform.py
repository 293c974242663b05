"""The CPU platform, in fresh processes: verl picks its platform once per process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from opentinker.training.platform import CpuPlatform, accelerator_evidence


def run(code: str, **environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("VERL_")}
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, env=inherited | environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip().splitlines()[-1]


CHOSEN = "import verl; from verl.plugin.platform import get_platform as g; print(g().device_name)"
PLUGIN = {"VERL_USE_EXTERNAL_MODULES": "opentinker.training.platform"}


def test_no_accelerator_leaves_no_evidence(tmp_path):
    assert accelerator_evidence(files=[str(tmp_path / "nvidia*")], tools=["no-such-smi"]) == "" or _torch_sees_one()


def _torch_sees_one() -> bool:
    import torch

    return torch.accelerator.is_available()


def test_a_driver_file_or_tool_is_evidence(tmp_path, monkeypatch):
    (tmp_path / "nvidia0").touch()
    assert accelerator_evidence(files=[str(tmp_path / "nvidia[0-9]*")], tools=[]) == f"{tmp_path / 'nvidia0'} exists"
    tool = tmp_path / "some-smi"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "some-smi is installed" in accelerator_evidence(files=[], tools=["some-smi"])


def test_the_platform_declines_a_machine_with_an_accelerator(monkeypatch):
    from opentinker.training import platform

    monkeypatch.setattr(platform, "accelerator_evidence", lambda: "/dev/nvidia0 exists")
    assert not CpuPlatform().is_platform_available(use_smi_check=True)
    monkeypatch.setattr(platform, "accelerator_evidence", lambda: "")
    assert CpuPlatform().is_platform_available(use_smi_check=True)


def test_a_ray_actor_without_a_gpu_on_a_gpu_machine_stays_on_the_gpu_platform(tmp_path):
    """The machine has a driver, this process sees no device: verl must not choose the CPU."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nexit 0\n")
    tool.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    assert run(CHOSEN, PATH=path, CUDA_VISIBLE_DEVICES="", **PLUGIN) == "cuda"


@pytest.mark.skipif(accelerator_evidence() != "", reason="this machine has an accelerator")
def test_verl_finds_the_platform_by_itself_and_importing_it_stays_light():
    code = (
        "import opentinker.training.platform, sys\n"
        "heavy = {'verl.workers.engine', 'verl.workers.engine_workers', 'opentinker.training.worker'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n" + CHOSEN
    )
    assert run(code) == "cpu"


def test_every_method_of_the_platform_answers():
    platform = CpuPlatform()
    assert (platform.device_name, platform.vendor_name, platform.current_device()) == ("cpu", "cpu", "cpu")
    assert platform.device_count() == 1 and platform.is_available() and platform.communication_backend_name() == "gloo"
    assert platform.get_device_capability() == (None, None) and not platform.is_ipc_supported()
    assert platform.ray_resource_options(2) == {"num_gpus": 2}
    module = platform.device_module
    assert module is platform.device_module
    assert (module.max_memory_allocated(), module.mem_get_info(), module.current_device()) == (0, (0, 0), "cpu")
    assert module.empty_cache() is None and module.set_device(0) is None and module.is_available()
    with platform.nvtx_range("name"):
        pass
    for silent in (platform.synchronize, platform.empty_cache, platform.profiler_start, platform.profiler_stop):
        assert silent() is None
    assert platform.set_device(0) is None and platform.set_allocator_settings("") is None and platform.cudart() is None
    assert platform.ray_noset_envvars() == []
