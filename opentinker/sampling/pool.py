"""All engines of a sampler: requests find the one of their model."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from opentinker.errors import UnknownId
from opentinker.sampling.base import Request
from opentinker.sampling.batching import Answer, Failure, Limits, Row, screen
from opentinker.sampling.engine import Engine
from opentinker.sampling.network import Network
from opentinker.sampling.policies import Policies
from opentinker.sampling.prefixes import Prefixes

log = logging.getLogger(__name__)


class Pool:
    """An engine for each model that has something to draw.

    Args:
        policies: resolves references.
        limits: of the rows that one model draws together.
        prefixes: shared by all.
    """

    def __init__(self, policies: Policies, limits: Limits, prefixes: Prefixes) -> None:
        self._policies = policies
        self._limits = limits
        self._prefixes = prefixes
        self._engines: dict[Network, Engine] = {}

    @property
    def busy(self) -> bool:
        """Whether somebody waits."""
        return any(engine.busy for engine in self._engines.values())

    def put(self, requests: list[Request]) -> list[Answer]:
        """Requests wait to be drawn, in an order that does not depend on their arrival; the answers that need no model."""
        answers: list[Answer] = []
        try:
            requests.sort(key=Request.order)
        except Exception as error:  # e.g. keys or ids of types that do not compare
            log.exception("cannot make batches of %d requests", len(requests))
            failure = Failure(f"cannot make batches of {len(requests)} requests: {type(error).__name__}: {error}", error)
            return [(request, failure) for request in requests]
        for request in requests:
            try:
                served = self._policies.resolve(request.ref)
            except UnknownId as error:  # new weights were loaded since the request came
                answers.append((request, Failure(str(error), error)))
                continue
            found = screen(request, served)
            if isinstance(found, Row):
                self._engine(served.network).put(found)
            else:
                answers.append(found)
        return answers

    def work(self) -> list[Answer]:
        """One step of every engine; the answers that are ready."""
        answers: list[Answer] = []
        for engine in self._engines.values():
            if engine.busy:
                answers += engine.work()
        return answers

    def stop(self, message: str) -> list[Answer]:
        """Lets go of everything, with this answer."""
        rows = [row for engine in self._engines.values() for row in engine.stop_all()]
        return [(row.request, Failure(message)) for row in rows]

    def _engine(self, network: Network) -> Engine:
        if network not in self._engines:
            self._engines[network] = Engine(network, self._limits, self._prefixes)
        return self._engines[network]


def deliver(answers: Sequence[Answer]) -> None:
    """Releases those who wait, on their event loop's thread."""
    for request, found in answers:
        if isinstance(found, Failure):
            request.fail(found.message, found.cause)
        else:
            request.finish(found)
