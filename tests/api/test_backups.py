"""Backups at the API."""

from __future__ import annotations

import pytest

from tests.support.api import TEXT, FakeService
from tests.support.api_asked import ask


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
