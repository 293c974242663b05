"""Who acts when, and who hears what."""

if __name__ == "coordinators":
    raise ImportError("import this package as `opentinker.coordinators`, not as `coordinators`")

from opentinker.coordinators.base import Coordinator, Query, agents_of
from opentinker.coordinators.episode import play_episode
from opentinker.coordinators.failures import forget_failures
from opentinker.coordinators.registry import COORDINATORS, coordinator_factory, make_coordinator
from opentinker.coordinators.simultaneous import Simultaneous
from opentinker.coordinators.solo import Solo
from opentinker.coordinators.table import Table
from opentinker.coordinators.turns import Turns

__all__ = [
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
