"""A manager's folder of apps: the decisions about it, and their execution."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from mesh.errors import MeshError
from mesh.manager.folder import (
    TEXT_BYTES_MAX,
    AppsFolder,
    Deploy,
    FolderContents,
    LeaveApp,
    Undeploy,
    decide,
    read_folder,
)
from mesh.manager.manager import running
from mesh.model.cluster import AppRecord
from mesh.plan.build import plan
from mesh.settings import ManagerSettings, NatsSettings, Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mesh.control.journal import JournalEntry
    from mesh.jetstream.server import NatsServer
    from mesh.manager.manager import Manager
    from tests.support.environment import Variables


OURS = "folder of m1"


def text(app: str, limit: int = 1) -> str:
    return (
        f"@App:name('{app}') define stream S (a int); from S[a > {limit}] select a insert into T;"
    )


def record(app: str, by: str, *, deleting: bool = False) -> AppRecord:
    return AppRecord(plan(text(app)).spec, "i1", 0, by, deleting)


def look(*apps: str, unreadable: tuple[str, ...] = ()) -> FolderContents:
    return FolderContents(
        {app: text(app) for app in apps}, dict.fromkeys(unreadable, "no permission")
    )


def digest(app: str) -> str:
    found = look(app).digest(app)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("found", "done", "deployed", "steps"),
    [
        pytest.param(look("A", "B"), {}, [], [Deploy("A"), Deploy("B")], id="new files"),
        pytest.param(look("A"), {"A": "old"}, [record("A", OURS)], [Deploy("A")], id="edited"),
        pytest.param(look("A"), {"A": digest("A")}, [record("A", OURS)], [], id="dealt with"),
        pytest.param(look("A"), {}, [record("A", OURS)], [Deploy("A")], id="ours, at the start"),
        pytest.param(
            look("A"), {}, [record("A", "folder of m2")],
            [LeaveApp("A", "it was not deployed from this folder")], id="another's, at the start",
        ),
        pytest.param(
            look("A"), {"A": "old"}, [record("A", "ada")], [Deploy("A")], id="changed",
        ),
        pytest.param(
            look("A"), {}, [record("A", "ada", deleting=True)], [Deploy("A")], id="going",
        ),
        pytest.param(look(), {"A": "x"}, [record("A", OURS)], [Undeploy("A")], id="removed"),
        pytest.param(look(), {}, [record("A", OURS)], [], id="gone before it looked"),
        pytest.param(look(), {"A": "x"}, [], [], id="removed and undeployed"),
        pytest.param(
            look(), {"A": "x"}, [record("A", "ada")],
            [LeaveApp("A", "its file was removed, but it was not deployed from this folder")],
            id="removed, but another's",
        ),
        pytest.param(
            look(unreadable=("A",)), {"A": "x"}, [record("A", OURS)], [], id="can't be read now",
        ),
    ],
)  # fmt: skip
def test_what_is_done_about_a_folder(
    found: FolderContents, done: dict[str, str], deployed: list[AppRecord], steps: list[object]
) -> None:
    known = {one.spec.name: one for one in deployed}
    assert decide(found, done, known.get, OURS) == steps


def test_only_files_of_apps_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "A.siddhi").write_text(text("A"))
    (tmp_path / ".B.siddhi").write_text(text("B"))
    (tmp_path / "C.siddhi~").write_text(text("C"))
    (tmp_path / "D.siddhi").write_bytes(b"\xff")
    found = read_folder(tmp_path)
    assert found.texts == {"A": text("A")}
    assert list(found.unreadable) == ["D"]


@pytest.mark.slow
async def test_a_manager_follows_its_folder(nats_server: NatsServer, tmp_path: Path) -> None:
    folder = tmp_path / "apps"
    folder.mkdir()
    settings = Settings(
        nats=NatsSettings(url=nats_server.url),
        manager=ManagerSettings(id="m1", apps_dir=str(folder)),
    )

    async def until(manager: Manager, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not holds():
                version = manager.view.version
                if not holds():
                    await manager.view.changed(version, 30)

    (folder / "A.siddhi").write_text(text("A"))
    (folder / "Wrong.siddhi").write_text(text("Right"))
    (folder / "Bad.siddhi").write_text("@App:name('Bad') define strem S (a int);")
    async with running(settings) as (manager, service):
        await until(manager, lambda: service.record("A") is not None)
        made = service.record("A")
        assert made is not None
        assert made.deployed_by == OURS
        # Moved there as a whole file, as a careful program does, without a name in it.
        (folder / "new").write_text(text("B").partition(") ")[2])
        (folder / "new").rename(folder / "B.siddhi")
        await until(manager, lambda: service.record("B") is not None)
        (folder / "A.siddhi").unlink()
        await until(manager, lambda: service.record("A") is None)
        # A faulty one keeps no other from being deployed, and its story has the error.
        assert [app.app for app in await service.apps()] == ["B"]
        await manager.journal.stored()
        for app, code in (("Wrong", "MESH-A106"), ("Bad", "MESH-L1")):
            (told,) = [e for e in await service.story(app) if "did not follow" in e.text]
            assert code in told.cause


class FakeApps:
    """Records its requests; while away, it answers as a manager without NATS does."""

    def __init__(self) -> None:
        self.records: dict[str, AppRecord] = {}
        self.is_away = False

    def record(self, app: str) -> AppRecord | None:
        return self.records.get(app)

    async def name_of(self, text: str) -> str:
        return plan(text).spec.name

    async def update(self, text: str, *, by: str = "") -> None:
        if self.is_away:
            raise MeshError("MESH-A503", "NATS did not answer")
        spec = plan(text).spec
        self.records[spec.name] = AppRecord(spec, "i1", 0, by)

    async def undeploy(self, app: str, *, by: str = "") -> None:
        del self.records[app]


async def test_a_folder_that_is_gone_takes_no_app_along(tmp_path: Path) -> None:
    (tmp_path / "apps").mkdir()
    (tmp_path / "apps" / "A.siddhi").write_text(text("A"))
    apps = FakeApps()
    folder = AppsFolder(tmp_path / "apps", apps, lambda _: None, "m1")
    await folder.follow()
    (tmp_path / "apps").rename(tmp_path / "elsewhere")
    await folder.follow()
    assert list(apps.records) == ["A"]
    (tmp_path / "apps").mkdir()
    await folder.follow()
    assert apps.records == {}


async def test_what_nats_did_not_answer_is_tried_again(tmp_path: Path) -> None:
    (tmp_path / "A.siddhi").write_text(text("A"))
    apps = FakeApps()
    apps.is_away = True
    noted: list[JournalEntry] = []
    folder = AppsFolder(tmp_path, apps, noted.append, "m1")
    await folder.follow()
    await folder.follow()
    assert [entry.app for entry in noted] == ["A"]
    apps.is_away = False
    await folder.follow()
    assert list(apps.records) == ["A"]


async def test_a_file_that_breaks_the_compiler_keeps_no_other_from_being_deployed(
    tmp_path: Path,
) -> None:
    deep = "-" * 5000
    (tmp_path / "A.siddhi").write_text(
        "@App:name('A') define stream S (a int);\n"
        f"define function f[python] return int {{return {deep}1}};\n"
        "from S select f(a) as b insert into T;"
    )
    (tmp_path / "B.siddhi").write_text(text("B"))
    apps = FakeApps()
    noted: list[JournalEntry] = []
    folder = AppsFolder(tmp_path, apps, noted.append, "m1")
    await folder.follow()
    assert list(apps.records) == ["B"]
    assert [(entry.app, "MESH-L228" in entry.cause) for entry in noted] == [("A", True)]


async def test_a_file_that_nobody_foresaw_keeps_no_other_from_being_deployed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for app in "AB":
        (tmp_path / f"{app}.siddhi").write_text(text(app))
    apps = FakeApps()
    update = apps.update

    async def failing(text: str, *, by: str = "") -> None:
        if "'A'" in text:
            raise ZeroDivisionError("by zero")
        await update(text, by=by)

    monkeypatch.setattr(apps, "update", failing)
    noted: list[JournalEntry] = []
    folder = AppsFolder(tmp_path, apps, noted.append, "m1")
    await folder.follow()
    await folder.follow()
    assert list(apps.records) == ["B"]
    assert [entry.cause for entry in noted] == ["ZeroDivisionError: by zero"]


@pytest.mark.parametrize(("variables", "limit"), [("", "1"), ("OTHER, LOWEST", "17")])
async def test_files_use_only_the_variables_that_are_listed(
    tmp_path: Path, environment: Variables, variables: str, limit: str
) -> None:
    environment["MESH_NATS_PASSWORD"] = "123"
    environment["LOWEST"] = "17"
    (tmp_path / "A.siddhi").write_text(text("A").replace("> 1", "> ${LOWEST:1}"))
    (tmp_path / "B.siddhi").write_text(text("B").replace("> 1", "> ${MESH_NATS_PASSWORD}"))

    apps = FakeApps()
    noted: list[JournalEntry] = []
    await AppsFolder(tmp_path, apps, noted.append, "m1", variables).follow()
    assert [one.spec.text for one in apps.records.values()] == [
        text("A").replace("> 1", f"> {limit}")
    ]
    (told,) = noted
    assert "MESH-L108" in told.cause


def test_pipes_and_huge_files_are_reported_and_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "A.siddhi")
    (tmp_path / "B.siddhi").write_text(text("B"))
    (tmp_path / "C.siddhi").write_text(" " * (TEXT_BYTES_MAX + 1))
    for name in (b"\xff.siddhi", b"a b.siddhi"):
        (tmp_path / os.fsdecode(name)).write_text("")
    found = read_folder(tmp_path)
    assert list(found.texts) == ["B", "a--20b"]
    assert found.unreadable == {
        "--3F": "no app can have this name",
        "A": "it is no regular file",
        "C": f"it has more than {TEXT_BYTES_MAX} bytes",
    }
