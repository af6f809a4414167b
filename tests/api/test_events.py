"""Failed events and events for a test, at the API."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.model.error_entry import SimulatedEvent
from tests.support.api import TEXT, FakeService
from tests.support.api_asked import ask


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("method", "path", "body", "done"),
    [
        ("POST", "/error-handler/Shop/replay", {"ids": [2, 3]}, ("replay", "Shop", [2, 3], None)),
        ("POST", "/error-handler/Shop/replay", {"all": True}, ("replay", "Shop", None, None)),
        ("POST", "/error-handler/Shop/replay", {"id": 4, "event": {"a": 1}},
         ("replay", "Shop", [4], b'{"a":1}')),
        ("POST", "/error-handler/Shop/replay", {"id": 4, "payload": "a,b", "to": "stream"},
         ("replay", "Shop", [4], b"a,b", "stream")),
        ("POST", "/error-handler/error-entries", [{"id": 4, "siddhiAppName": "Shop"}],
         ("replay", "Shop", [4], None, "stream")),
        ("POST", "/error-handler/error-entries",
         [{"id": 4, "siddhiAppName": "Shop", "event": {"a": 1}}],
         ("replay", "Shop", [4], b'{"a":1}', "stream")),
        ("DELETE", "/error-handler/error-entries/5?siddhiApp=Shop", None,
         ("discard", "Shop", [5])),
        ("DELETE", "/error-handler/error-entries?siddhiApp=Shop", None, ("older", "Shop", 0)),
        ("DELETE", "/error-handler/error-entries?retentionDays=1&siddhiApp=Shop", None,
         ("older", "Shop", 86400.0)),
        ("DELETE", "/error-handler/Shop/5", None, ("discard", "Shop", [5])),
        ("DELETE", "/error-handler/Shop?all=true", None, ("discard", "Shop", None)),
        ("DELETE", "/error-handler/Shop?olderThan=60", None, ("older", "Shop", 60.0)),
        ("POST", "/simulation/single",
         {"siddhiAppName": "Shop", "streamName": "Orders", "data": ["pen", 2], "timestamp": 7},
         ("send", "Shop", SimulatedEvent("Orders", ["pen", 2], 7))),
        ("POST", "/simulation/feed",
         [{"app": "Shop", "stream": "Orders", "data": {"item": "pen"}}] * 2,
         ("send", "Shop", *[SimulatedEvent("Orders", {"item": "pen"})] * 2)),
        ("POST", "/error-handler/Shop/replay", {"ids": "all"}, 400),
        ("POST", "/error-handler/Shop/replay", [], 400),
        ("POST", "/error-handler/Shop/replay", {"id": 1, "to": "moon"}, 400),
        ("DELETE", "/error-handler/error-entries", None, 400),
        ("GET", "/error-handler/error-entries?siddhiApp=*", None, 400),
        ("GET", "/error-handler/error-entries/9", None, 404),
        ("POST", "/error-handler/error-entries", [{"id": 1}], 400),
        ("DELETE", "/error-handler/Shop", None, 400),
        ("DELETE", "/error-handler/Shop/9", None, 404),
        ("DELETE", "/error-handler/Shop?olderThan=never", None, 400),
        ("POST", "/simulation/single", {"app": "Shop", "data": []}, 400),
        ("POST", "/simulation/single", {"app": "S", "stream": "T", "data": [], "time_ms": ""}, 400),
        ("POST", "/simulation/feed", {"app": "Shop"}, 400),
        ("POST", "/simulation/feed?action=run", [], 400),
    ],
)  # fmt: skip
def test_events_are_replayed_discarded_and_sent(
    method: str, path: str, body: Any, done: tuple[Any, ...] | int
) -> None:
    service = FakeService()
    more = {"json": body} if body is not None else {}
    answer = ask(service, method, path, **more)
    if isinstance(done, int):
        assert answer.status_code == done
        assert service.events.done == []
    else:
        assert answer.status_code == 200
        assert service.events.done == [done]


@pytest.mark.slow
def test_failed_events_are_listed() -> None:
    service = FakeService(texts={"Shop": TEXT})
    assert ask(service, "GET", "/error-handler").json() == [{"app": "Shop", "count": 5}]
    entries = "/error-handler/error-entries"
    assert ask(service, "GET", f"{entries}/count").json() == {"entriesCount": 5}
    some = ask(service, "GET", f"{entries}?siddhiApp=Shop&limit=2&offset=1").json()
    assert [(e["id"], e["siddhiAppName"]) for e in some] == [(3, "Shop"), (4, "Shop")]
    assert ask(service, "GET", f"{entries}/3").json()["errorOccurrence"] == "STORE_ON_STREAM_ERROR"
    listed = ask(service, "GET", "/error-handler/Shop?limit=2&before=4")
    assert listed.json() == [{"id": 2}, {"id": 3}]
    assert ask(service, "GET", "/error-handler/Shop/3").json() == {"id": 3}
