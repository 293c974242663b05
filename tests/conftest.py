"""For all tests: those marked `alone` get the machine to themselves when several processes share the work."""

import fcntl
from collections.abc import Generator
from typing import Any

import hypothesis
import pytest

# a deadline in wall-clock time tests the machine's load, not the code
hypothesis.settings.register_profile("shared_machine", deadline=None)
hypothesis.settings.load_profile("shared_machine")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
    if not hasattr(item.config, "workerinput"):  # one process: every test is alone
        return (yield)
    kind = fcntl.LOCK_EX if item.get_closest_marker("alone") else fcntl.LOCK_SH
    with open(item.config.rootpath / "pyproject.toml") as shared:  # any file that all workers see
        fcntl.flock(shared, kind)
        try:
            return (yield)
        finally:
            fcntl.flock(shared, fcntl.LOCK_UN)


@pytest.fixture(autouse=True)
def _failures_are_new():
    """What one test logged must not shorten what the next one logs."""
    from opentinker.coordinators import forget_failures

    forget_failures()
