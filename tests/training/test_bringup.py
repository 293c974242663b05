from __future__ import annotations

import os

import pytest

from opentinker.errors import ConfigError
from opentinker.training.bringup import bring_up, check_verl, verl_environment


@pytest.mark.parametrize("version", ["0.9.1", "0.9.2", "0.9.9.dev1"])
def test_versions_this_package_was_written_for(version):
    check_verl(version)


@pytest.mark.parametrize("version", ["0.9.0", "0.8.5", "0.10.0", "1.0"])
def test_other_versions_of_verl_are_refused(version):
    with pytest.raises(ConfigError, match=f"needs verl >=0.9.1,<0.10, installed is {version}"):
        check_verl(version)


def test_a_missing_verl_says_how_to_get_it(monkeypatch):
    import importlib.metadata

    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(ConfigError, match="pip install 'verl>=0.9.1,<0.10'"):
        check_verl()


def test_the_environment_is_put_back_and_given_values_count(monkeypatch):
    monkeypatch.setenv("MASTER_PORT", "4711")
    monkeypatch.setenv("VERL_ENGINE_DEVICE", "cuda")
    monkeypatch.delenv("RANK", raising=False)
    before = dict(os.environ)
    with verl_environment():
        assert (os.environ["RANK"], os.environ["MASTER_PORT"]) == ("0", "4711")
        assert "VERL_ENGINE_DEVICE" not in os.environ
    assert dict(os.environ) == before


def test_bringing_up_twice_changes_nothing():
    import logging

    import torch.distributed as dist

    bring_up()
    before, handlers = dict(os.environ), list(logging.getLogger().handlers)
    bring_up()
    assert dict(os.environ) == before and logging.getLogger().handlers == handlers
    assert (dist.get_world_size(), dist.get_backend()) == (1, "gloo")


def test_one_of_several_processes_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="WORLD_SIZE is 2"):
        bring_up()


def test_another_platform_is_refused(monkeypatch):
    """As where verl was used before the host on a machine with a GPU: a clear error instead of a half-moved model."""
    bring_up()
    import verl.plugin.platform as verl_platform
    from verl.plugin.platform.platform_cuda import PlatformCUDA

    monkeypatch.setattr(verl_platform, "get_platform", PlatformCUDA)
    with pytest.raises(ConfigError, match="trains on the CPU, but verl already runs on platform 'cuda'"):
        bring_up()
