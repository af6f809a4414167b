"""Source ``fileeventlistener``: each difference of a directory is reported once."""

from __future__ import annotations

import asyncio
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from mesh.connect import registry
from mesh.connect.contract import Context, NodeAccess, UnavailableError
from mesh.connect.spec import Role
from mesh.errors import MeshError
from mesh.plan.build import plan
from mesh.receiver.types.file_events import FileEventSource, differences
from mesh.testing.connectors import ConnectorScenario, conform

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.testing.connectors import Stage

APP = """@App:name('{app}')
@source(type='fileeventlistener', dir.uri='{directory}', monitoring.interval='10')
define stream S (filepath string, filename string, status string);
from S select filename, status insert into T;
"""


class Listener:
    """A source of a directory, which continues after its stored position when it is made again."""

    def __init__(self, directory: Path, **given: str) -> None:
        self.directory, self.given = directory, given
        self.position: Mapping[str, Any] | None = None
        self.problem: str | None = None

    def events(self) -> list[tuple[str, str]]:
        """Path below the directory and status of the next look of a new source; all are stored."""
        return asyncio.run(self._events())

    async def _events(self) -> list[tuple[str, str]]:
        spec = registry.find(Role.SOURCE, "fileeventlistener")
        assert spec is not None
        options = {name.replace("_", "."): value for name, value in self.given.items()}
        given = {"dir.uri": str(self.directory), "monitoring.interval": "1", **options}
        source = FileEventSource()
        access = NodeAccess(
            file_roots=(str(self.directory),), mesh_files=(str(self.directory / "key"),)
        )
        await source.open(Context("a", "S", spec.values(given), access), self.position)
        batch = await source.read()
        self.problem = source.problem
        if batch is None:
            return []
        self.position = batch.position
        assert batch.properties is not None
        found = [(str(one["filepath"]), str(one["status"])) for one in batch.properties]
        return [(path.removeprefix(f"{self.directory}/"), status) for path, status in found]


@pytest.mark.slow
def test_a_deep_directory_hides_no_other_file(alone: Path) -> None:
    (alone / "a").write_text("1")
    # Deeper than Python calls functions, and than the system has paths.
    for _ in range(2100):
        os.mkdir("d")
        os.chdir("d")
    (alone / "z").write_text("1")
    listener = Listener(alone)
    try:
        assert listener.events() == [("a", "created"), ("z", "created")]
        assert "File name too long" in str(listener.problem)
        (alone / "z").unlink()
        assert listener.events() == [("z", "removed")]
    finally:
        subprocess.run(["rm", "-rf", str(alone / "d")], check=True)


def test_names_count_as_the_position_has_them(tmp_path: Path) -> None:
    for number in range(1500):
        (tmp_path / ("\x01" * 80 + str(number))).write_text("")
    with pytest.raises(UnavailableError, match="too many files"):
        Listener(tmp_path).events()


def test_each_difference_since_the_position_is_reported_once(tmp_path: Path) -> None:
    listener = Listener(tmp_path)
    assert listener.events() == []
    (tmp_path / "b").write_text("1")
    (tmp_path / "a").write_text("1")
    assert listener.events() == [("a", "created"), ("b", "created")]
    assert listener.events() == []
    (tmp_path / "a").write_text("12")
    (tmp_path / "b").rename(tmp_path / "c")
    assert listener.events() == [("a", "modified"), ("b", "removed"), ("c", "created")]
    # One that takes the place of another has its name, and no more.
    (tmp_path / "new").write_text("ab")
    stat = (tmp_path / "a").stat()
    os.utime(tmp_path / "new", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    (tmp_path / "new").rename(tmp_path / "a")
    (tmp_path / "c").unlink()
    assert listener.events() == [("a", "modified"), ("c", "removed")]
    assert listener.events() == []


def test_directories_inside_are_looked_into_and_links_to_them_are_not(tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "f").write_text("1")
    (tmp_path / "loop").symlink_to(tmp_path / "in")
    os.mkfifo(tmp_path / "pipe")
    listener = Listener(tmp_path)
    assert listener.events() == [("in/deep/f", "created")]
    (tmp_path / "in" / "deep" / "f").unlink()
    assert listener.events() == [("in/deep/f", "removed")]


def test_files_that_are_closed_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k")
    (tmp_path / "out").symlink_to("/etc/passwd")
    (tmp_path / "a").write_text("1")
    listener = Listener(tmp_path)
    assert listener.events() == [("a", "created")]
    assert "is not open to connectors" in str(listener.problem)
    (tmp_path / "key").unlink()
    (tmp_path / "out").unlink()
    assert listener.events() == []
    assert listener.problem is None


def test_only_the_named_files_are_reported(tmp_path: Path) -> None:
    listener = Listener(tmp_path, file_name_list="a, b.csv")
    for name in ("a", "b.csv", "c"):
        (tmp_path / name).write_text("1")
    assert listener.events() == [("a", "created"), ("b.csv", "created")]


def test_what_can_not_be_read_counts_as_unchanged() -> None:
    before = {"a": [1, 1, 1], "b": [2, 2, 2]}
    assert differences(before, {}, {"b"}) == [("a", "removed")]
    assert differences(before, {"a": [1, 1, 2]}, {"a"}) == [("b", "removed")]


def test_a_directory_of_a_server_is_refused_where_it_is_planned() -> None:
    text = APP.replace("{app}", "A").replace("{directory}", "ftp://host/in")
    with pytest.raises(MeshError, match="a directory of the worker, and not ftp://"):
        plan(text)


@pytest.mark.slow
@pytest.mark.nats
async def test_differences_are_reported_exactly_once(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def change(stage: Stage) -> None:
        own = tmp_path / f"run{stage.spec.name.removeprefix('Run')}"

        async def has(count: int) -> bool:
            return len(await stage.events("S")) >= count

        def put(name: str, text: str) -> None:
            # A look may find a file between its creation and its content.
            (tmp_path / "part").write_text(text)
            (tmp_path / "part").rename(own / name)

        put("a", "1")
        put("b", "1")
        await stage.until("both", lambda: has(2))
        put("a", "12")
        (own / "b").unlink()

    async def stored(stage: Stage) -> list[tuple[str, str]]:
        return sorted((row["filename"], row["status"]) for row in await stage.events("S"))

    use = ConnectorScenario(APP, "receiver-S", change, stored, lambda found: len(found) >= 4)
    moments = await conform(nats_server.url, use, tmp_path)
    steps = {"read", "publish", "store a position", "committed"}
    assert {f"{when} {step}" for when in ("before", "after") for step in steps} <= set(moments)
