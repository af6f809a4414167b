"""The service in memory of these tests has the calls of the manager's."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

from mesh.manager.backfills import Backfills
from mesh.manager.backups import Backups
from mesh.manager.events import AppEvents
from mesh.manager.feeds import Feeds
from mesh.manager.forks import Forks
from mesh.manager.guarantees import GuaranteeAudit
from mesh.manager.past import PastQuestions
from mesh.manager.previews import Previews, WhatIfs
from mesh.manager.promotions import Promotions
from mesh.manager.queries import Queries
from mesh.manager.service import ManagerService
from mesh.manager.telemetry import Telemetry
from mesh.manager.tracing import Tracer
from mesh.manager.verifying import Verification
from tests.support import api
from tests.support.api_checks import FakeChecks
from tests.support.api_feeds import FakeFeeds

if TYPE_CHECKING:
    from collections.abc import Iterator

PAIRS: list[tuple[type, tuple[type, ...]]] = [
    (api.FakeService, (ManagerService,)),
    (api.FakeEvents, (AppEvents,)),
    (api.FakeBackups, (Backups,)),
    (api.FakeForks, (Forks,)),
    (api.FakeBackfills, (Backfills,)),
    (api.FakePromotions, (Promotions,)),
    (api.FakePast, (PastQuestions,)),
    (api.FakeQueries, (Queries,)),
    (api.FakeWhatIfs, (WhatIfs,)),
    (api.FakePreviews, (Previews,)),
    (api.FakeTelemetry, (Telemetry,)),
    (api.FakeTracer, (Tracer,)),
    (FakeFeeds, (Feeds,)),
    (FakeChecks, (Verification, GuaranteeAudit)),
]


def calls_of(double: type) -> Iterator[tuple[str, Any]]:
    for name, call in vars(double).items():
        if inspect.isfunction(call) and not name.startswith("_"):
            yield name, call


@pytest.mark.parametrize(
    ("double", "originals"), PAIRS, ids=lambda one: getattr(one, "__name__", "")
)
def test_a_double_has_calls_of_the_original(double: type, originals: tuple[type, ...]) -> None:
    for name, call in calls_of(double):
        original = next(own[name] for own in map(vars, originals) if name in own)
        assert inspect.iscoroutinefunction(call) == inspect.iscoroutinefunction(original), name
        known, own = (inspect.signature(one).parameters for one in (original, call))
        given = [one for one in own.values() if one.kind is not one.VAR_KEYWORD]
        kinds = {one.name: known[one.name].kind for one in given}
        assert kinds == {one.name: one.kind for one in given}, name
