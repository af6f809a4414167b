"""Forks, comparisons, lineage and past events, at the API."""

from __future__ import annotations

import pytest

from mesh.model.history import HistoryInput
from tests.support.api import TEXT, TEXT_PLAIN, FakeService
from tests.support.api_asked import ask


def test_an_app_is_forked() -> None:
    service = FakeService()
    done = ask(service, "POST", "/siddhi-apps/Shop/fork?as=Next&from=17&until=20&sinks=true")
    assert (done.status_code, done.headers["location"]) == (201, "/siddhi-apps/Next")
    assert done.json()["of"] == "Shop"
    assert service.forks.asked == {
        "text": None, "begin": "17", "until": "20", "sinks": True, "by": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("Shop/fork", 400),
        ("Shop/fork?as=Next&sinks=some", 400),
        ("Gone/fork?as=Next", 404),
    ],
)
def test_what_can_not_be_forked_says_so(path: str, status: int) -> None:
    assert ask(FakeService(), "POST", f"/siddhi-apps/{path}").status_code == status


@pytest.mark.slow
def test_an_app_is_deployed_after_its_history() -> None:
    service = FakeService()
    path = "/siddhi-apps/backfill?path=old&stream=Orders&time=at"
    done = ask(service, "POST", f"{path}&until=9", content="text", headers=TEXT_PLAIN)
    assert (done.status_code, done.headers["location"]) == (201, "/siddhi-apps/Shop")
    assert done.json()["rows"] == 7
    assert service.backfills.asked == [HistoryInput("Orders", "old", "at", "9")]
    more = f"{path}&stream=Payments&path=paid&until=9&until="
    assert ask(service, "POST", more, content="text", headers=TEXT_PLAIN).status_code == 201
    assert service.backfills.asked == [
        HistoryInput("Orders", "old", "at", "9"), HistoryInput("Payments", "paid", "at"),
    ]  # fmt: skip
    # Messages have times of their own.
    log = "/siddhi-apps/backfill?path=nats:OLD&stream=Orders"
    assert ask(service, "POST", log, content="text", headers=TEXT_PLAIN).status_code == 201
    assert service.backfills.asked == [HistoryInput("Orders", "nats:OLD", "")]
    for wrong in (f"{path}&stream=Payments", f"{path}&until=1&until=2", f"{log}&path=x&stream=P"):
        assert ask(service, "POST", wrong, content="text", headers=TEXT_PLAIN).status_code == 400
    refused = ask(
        service, "POST", path.removesuffix("&time=at"), content="text", headers=TEXT_PLAIN
    )
    assert (refused.status_code, refused.json()["code"]) == (400, "MESH-A400")


def test_an_events_lineage_is_asked_for_by_its_sequence() -> None:
    found = ask(FakeService(), "GET", "/siddhi-apps/Shop/why/Dear/7?index=1")
    assert found.json() == {"stream": "Dear", "sequence": 7, "index": 1, "inputs": []}
    assert ask(FakeService(), "GET", "/siddhi-apps/Shop/why/Dear/x").status_code == 400
    assert ask(FakeService(), "GET", "/siddhi-apps/Shop/why/Dear/10").status_code == 404


def test_outputs_of_two_apps_are_compared() -> None:
    path = "/siddhi-apps/Shop/compare/Next?stream=Dear&key=item&key=shop&ignore=seen"
    found = ask(FakeService(), "GET", path).json()
    wanted = {"app": "Shop", "fork": "Next", "streams": ["Dear"], "key": ["item", "shop"]}
    wanted |= {"ignored": ["seen"]}
    assert found == wanted


def test_a_fork_is_promoted() -> None:
    done = ask(FakeService(), "POST", "/siddhi-apps/Next/promote")
    assert (done.status_code, done.json()["app"], done.json()["fork"]) == (200, "Shop", "Next")
    other = ask(FakeService(), "POST", "/siddhi-apps/Next/promote?replaces=Other")
    assert other.status_code == 409
    assert ask(FakeService(), "POST", "/siddhi-apps/Gone/promote").status_code == 404


@pytest.mark.slow
def test_an_app_is_backed_up_and_restored() -> None:
    service = FakeService({"Shop": TEXT})
    made = ask(service, "POST", "/siddhi-apps/Shop/backup")
    assert made.status_code == 201
    assert made.headers["Location"] == "/siddhi-apps/Shop/revisions/r1"
    assert (made.json()["revision"], made.json()["bytes"]) == ("r1", 3000)
    assert [b["revision"] for b in ask(service, "GET", "/siddhi-apps/Shop/revisions").json()] == [
        "r1"
    ]
    done = ask(service, "POST", "/siddhi-apps/Shop/restore?revision=r1&as=Twin&replay=false")
    assert done.json()["app"] == "Twin"
    ask(service, "POST", "/siddhi-apps/Shop/restore?before=2026-11-21T20:30:00Z")
    assert service.backups.asked["before_ms"] == 1795293000000
    assert service.backups.asked["replay"] is True
    assert ask(service, "DELETE", "/siddhi-apps/Shop/revisions/r1").json()["deleted"] == 1
    assert ask(service, "DELETE", "/siddhi-apps/Shop/revisions").json()["deleted"] == 0


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("Other/backup", 404),
        ("Shop/restore?revision=lost", 410),
        ("Shop/restore?before=noon", 400),
        ("Shop/restore?replay=perhaps", 400),
    ],
)
def test_what_can_not_be_backed_up_or_restored_says_so(path: str, status: int) -> None:
    assert ask(FakeService({"Shop": TEXT}), "POST", f"/siddhi-apps/{path}").status_code == status
