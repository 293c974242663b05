"""The garbage collector is put back as it was found."""

import gc

import pytest

from opentinker.collector import paused_collector, rare_collections


@pytest.fixture(autouse=True)
def _as_before():
    enabled, threshold = gc.isenabled(), gc.get_threshold()
    yield
    gc.set_threshold(*threshold)
    (gc.enable if enabled else gc.disable)()


@pytest.mark.parametrize("enabled", [True, False])
def test_a_pause_ends_as_it_began_also_when_something_raises(enabled):
    (gc.enable if enabled else gc.disable)()
    with pytest.raises(ImportError), paused_collector():
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled() is enabled


def test_pauses_within_pauses_end_with_the_outer_one():
    gc.enable()
    with paused_collector():
        with paused_collector():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_rare_collections_spare_what_was_there_and_put_the_thresholds_back():
    gc.set_threshold(700, 10, 10)
    with rare_collections():
        assert gc.get_threshold() == (100_000, 10, 10)
        assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == (700, 10, 10)
    assert gc.get_freeze_count() == 0
