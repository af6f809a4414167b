"""Source ``file``: matches, whole files and parts; files that are deleted or moved once stored."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

from mesh.connect import registry
from mesh.connect.contract import Batch, Context, NodeAccess
from mesh.connect.spec import Role
from mesh.errors import MeshError
from mesh.plan.build import plan
from mesh.receiver.types import file_source
from mesh.receiver.types.file_source import FileSource
from mesh.receiver.types.file_systems import LocalFiles
from mesh.testing.connectors import ConnectorScenario, Stage, conform

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

APP = """@App:name('{app}')
@source(type='file', dir.uri='{directory}', file.polling.interval='20', OPTIONS, @map(type='csv'))
define stream S (n int);
define stream T (n int);
from S select n insert into T;
"""


def source_of(directory: Path, position: Mapping[str, Any] | None, **given: str) -> FileSource:
    """An opened source of a directory; ``_`` in names is a dot."""
    spec = registry.find(Role.SOURCE, "file")
    assert spec is not None
    options = {name.replace("_", "."): value for name, value in given.items()}
    values = spec.values(
        {"dir.uri": str(directory / "in"), "file.polling.interval": "1", **options}
    )
    source = FileSource()
    roots = NodeAccess(file_roots=(str(directory),))
    asyncio.run(source.open(Context("a", "S", values, roots), position))
    return source


def read(source: FileSource) -> Batch | None:
    return asyncio.run(source.read())


def stored(source: FileSource) -> Batch:
    """The next batch, which is stored."""
    batch = read(source)
    assert batch is not None
    asyncio.run(source.committed(batch.position))
    return batch


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of each file, as if it were a large one."""
    monkeypatch.setattr(file_source, "_TOGETHER", 1)


def test_a_position_forgets_files_that_are_gone_once_it_is_full(
    tmp_path: Path, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_source, "POSITION_BYTES_MAX", 3 * (len(str(inbox)) + 70))
    source = source_of(tmp_path, None)

    def lines() -> list[bytes]:
        found: list[bytes] = []
        while (batch := read(source)) is not None:
            asyncio.run(source.committed(batch.position))
            found += batch.payloads
        return found

    for name in "abcd":
        (inbox / name).write_text(f"{name}\n")
    assert lines() == [b"a", b"b", b"c", b"d"]
    (inbox / "a").rename(tmp_path / "a")
    # It has room for one that comes back, unless there is none for another one.
    (tmp_path / "a").rename(inbox / "a")
    assert lines() == []
    (inbox / "e").write_text("e\n")
    with (inbox / "b").open("a") as file:
        file.write("b2\n")
    assert lines() == [b"b2"]
    assert "more files than a position holds, 4" in str(source.problem)
    (inbox / "a").unlink()
    assert lines() == [b"e"]
    assert source.problem is None


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("mode", ["text.full", "binary.full"])
def test_a_whole_file_is_a_payload_and_is_deleted(tmp_path: Path, inbox: Path, mode: str) -> None:
    (inbox / "a").write_text("1\n2\n")
    (inbox / "b").write_text("3")
    (inbox / "empty").touch()
    source = source_of(tmp_path, None, mode=mode)
    first = stored(source)
    assert list(first.payloads) == [b"1\n2\n"]
    assert first.properties == [
        {
            "file.path": str(inbox / "a"),
            "file.name": "a",
            "sequence.number": "1",
            "content.length": "4",
            "eof": "true",
        }
    ]
    assert sorted(os.listdir(inbox)) == ["b", "empty"]
    second = read(source)
    assert second is not None
    # It was stored, and its host ended before it was deleted.
    again = source_of(tmp_path, second.position, mode=mode)
    assert read(again) is None
    assert os.listdir(inbox) == ["empty"]
    # Another file of the name, with whatever inode.
    (inbox / "b").write_text("4")
    assert list(stored(source_of(tmp_path, second.position, mode=mode)).payloads) == [b"4"]


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "text.full", "tailing": "false", "action_after_process": "keep"},
        {"mode": "line", "tailing": "true"},
    ],
)
def test_files_that_were_read_cost_the_others_of_a_directory_nothing(
    tmp_path: Path, inbox: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    count = 40
    for number in range(count):
        (inbox / f"{number:02}.txt").write_text(f"{number}\n")
        os.utime(inbox / f"{number:02}.txt", (1, 1))
    opened: list[str] = []
    opening = LocalFiles.opened

    def noted(self: LocalFiles, path: str) -> Any:
        opened.append(path)
        return opening(self, path)

    monkeypatch.setattr(LocalFiles, "opened", noted)
    source = source_of(tmp_path, None, **options)
    batch = stored(source)
    assert [one.strip() for one in batch.payloads] == [b"%d" % number for number in range(count)]
    assert len(set(batch.names or ())) == count
    properties = batch.properties or ()
    assert [one["file.name"] for one in properties] == sorted(os.listdir(inbox))
    # Each is opened once for its contents, and once to see that it has no more.
    assert len(opened) <= 2 * count
    assert read(source) is None
    # A later look opens none of them, and finds what has come, before and after them.
    opened.clear()
    for name in ("000.txt", "99.txt"):
        (inbox / name).write_text(f"{name}\n")
    assert [one.strip() for one in stored(source).payloads] == [b"000.txt", b"99.txt"]
    assert {os.path.basename(path) for path in opened} == {"000.txt", "99.txt"}
    # One that was changed, although not in size, is read.
    (inbox / "07.txt").write_text("8\n")
    changed = read(source)
    assert changed is not None
    assert [one.strip() for one in changed.payloads] == [b"8"]


def test_a_kept_file_is_read_again_when_it_was_written_again(tmp_path: Path, inbox: Path) -> None:
    (inbox / "a").write_text("1")
    options = {"mode": "text.full", "action_after_process": "keep"}
    source = source_of(tmp_path, None, **options)
    batch = stored(source)
    assert read(source) is None
    assert read(source_of(tmp_path, batch.position, **options)) is None
    (inbox / "a").write_text("2")
    os.utime(inbox / "a", ns=(1, 1))
    assert list(stored(source).payloads) == [b"2"]


@pytest.mark.parametrize("exists", ["overwrite", "keep"])
def test_lines_of_a_file_that_is_moved(tmp_path: Path, inbox: Path, exists: str) -> None:
    (inbox / "a.csv").write_text("1\n2")
    (tmp_path / "done").mkdir()
    (tmp_path / "done" / "a.csv").write_text("old")
    options = {
        "tailing": "false",
        "action_after_process": "move",
        "move_after_process": str(tmp_path / "done"),
        "move_if_exist_mode": exists,
    }
    source = source_of(tmp_path, None, **options)
    batch = stored(source)
    assert list(batch.payloads) == [b"1", b"2"]
    moved = sorted(one.read_text() for one in (tmp_path / "done").iterdir())
    assert moved == (["1\n2"] if exists == "overwrite" else ["1\n2", "old"])
    # A file of another content with the inode of the one that was moved.
    (inbox / "a.csv").write_text("7\n8\n9\n")
    place = batch.position["files"][str(inbox / "a.csv")]
    place[0] = (inbox / "a.csv").stat().st_ino
    again = stored(source_of(tmp_path, batch.position, **options))
    assert list(again.payloads) == [b"7", b"8", b"9"]


def test_parts_are_alike_however_a_file_is_read(tmp_path: Path, inbox: Path) -> None:
    whole = bytes(range(256)) * 40_000
    (inbox / "a").write_bytes(whole)
    source = source_of(tmp_path, None, mode="binary.chunked", buffer_size="3000000")
    found: list[Any] = []
    names: list[str] = []
    while os.listdir(inbox):
        batch = stored(source)
        found += zip(batch.payloads, batch.properties or (), strict=True)
        names += batch.names or ()
    assert b"".join(part for part, _ in found) == whole
    assert [len(part) for part, _ in found] == [3_000_000] * 3 + [len(whole) - 9_000_000]
    assert [p["eof"] for _, p in found] == ["false"] * 3 + ["true"]
    assert [p["sequence.number"] for _, p in found] == ["1", "2", "3", "4"]
    assert len(set(names)) == 4


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [
        ("<a>", "</a>", ["<a>1\n2</a>", "<a>é</a>"]),
        ("<a>", "", ["<a>1\n2</a>x", "<a>é</a>", "<a>3"]),
        ("", "</a>", ["junk<a>1\n2</a>", "x<a>é</a>"]),
    ],
)
def test_payloads_begin_and_end_where_patterns_match(
    tmp_path: Path, inbox: Path, begin: str, end: str, expected: list[str]
) -> None:
    given = {"begin_regex": begin, "end_regex": end}
    options = {name: value for name, value in given.items() if value} | {"mode": "regex"}
    (inbox / "a").write_text("junk<a>1\n2</a>x<a>é</a><a>3")
    source = source_of(tmp_path, None, tailing="false", **options)
    assert [p.decode() for p in stored(source).payloads] == expected
    assert read(source) is None
    assert os.listdir(inbox) == ["a"]
    # Followed, an unfinished one waits for its end.
    source = source_of(tmp_path, None, **options)
    first = stored(source)
    count = len(expected) - (not end)
    assert [p.decode() for p in first.payloads] == expected[:count]
    with (inbox / "a").open("a") as file:
        file.write("4</a><a>")
    (rest,) = stored(source_of(tmp_path, first.position, **options)).payloads
    assert rest.decode() == "<a>34</a>"


def test_a_file_without_a_match_is_done_with_and_a_check_leaves_it(
    tmp_path: Path, inbox: Path
) -> None:
    (inbox / "a").write_text("nothing")
    options = {
        "mode": "regex",
        "begin_regex": "<",
        "tailing": "false",
        "action_after_process": "delete",
    }
    check = source_of(tmp_path, None, **options)
    for _ in range(3):
        read(check)
    assert os.listdir(inbox) == ["a"]
    assert list(stored(source_of(tmp_path, None, **options)).payloads) == []
    assert os.listdir(inbox) == []


@pytest.mark.parametrize("uri", ["dir.uri", "file.uri"])
def test_logs_that_are_rotated_are_read_once_each(tmp_path: Path, inbox: Path, uri: str) -> None:
    log = inbox / "app.log"

    def opened(position: Mapping[str, Any] | None) -> FileSource:
        # Without the pattern's suffix: names after a rotation need not match.
        options = {"dir_uri": str(inbox), "file_name_pattern": ".*log"}
        return source_of(
            tmp_path, position, **(options if uri == "dir.uri" else {"file_uri": str(log)})
        )

    def lines_of(position: Mapping[str, Any] | None) -> tuple[list[str], Mapping[str, Any] | None]:
        source, found = opened(position), []
        while (batch := read(source)) is not None:
            found += [payload.decode() for payload in batch.payloads]
            position = batch.position
        return found, position

    log.write_text("1\n2\n")
    found, position = lines_of(None)
    assert found == ["1", "2"]
    # Twice, with lines that were written before the first rotation and after it.
    with log.open("a") as file:
        file.write("3\n")
        os.rename(log, inbox / "app.log.1")
        log.write_text("5\n")
        file.write("4\n")
    found, position = lines_of(position)
    assert sorted(found) == ["3", "4", "5"]
    with (inbox / "app.log.1").open("a") as file:
        file.write("6\n")
    os.rename(inbox / "app.log.1", inbox / "app.log.2")
    os.rename(log, inbox / "app.log.1")
    log.write_text("7\n")
    found, position = lines_of(position)
    assert sorted(found) == ["6", "7"]
    # Another file with the inode of one that is gone.
    assert position is not None
    os.unlink(log)
    log.write_text("8, which is longer\n")
    places = dict(position["files"])
    places[str(log)] = [log.stat().st_ino, *places[str(log)][1:]]
    found, _ = lines_of({**position, "files": places})
    assert found == ["8, which is longer"]
    assert lines_of(position)[1] is not None


def test_files_are_read_when_cron_says_so(
    tmp_path: Path, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = 1_000_000_000_000  # 01:46:40 UTC
    monkeypatch.setattr("mesh.receiver.types.schedule._WAIT_S", 0.0)
    monkeypatch.setattr("mesh.clock.SystemClock.wall_ms", lambda _: now_ms)
    (inbox / "a.csv").write_text("1\n")
    source = source_of(
        tmp_path, None, tailing="false", action_after_process="delete",
        cron_expression="0 0/5 * * * ?",
    )  # fmt: skip
    assert read(source) is None
    now_ms += 200_000  # 01:50:00
    assert list(stored(source).payloads) == [b"1"]
    assert not os.listdir(inbox)
    assert read(source) is None
    (inbox / "b.csv").write_text("2\n")
    assert read(source) is None, "the look has ended"
    now_ms += 300_000
    assert list(stored(source).payloads) == [b"2"]


def test_a_file_is_not_moved_to_where_it_is_read(tmp_path: Path, inbox: Path) -> None:
    with pytest.raises(MeshError, match="the directory that is read"):
        source_of(
            tmp_path,
            None,
            mode="text.full",
            action_after_process="move",
            move_after_process=str(inbox),
        )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("mode='text.full', tailing='true'", "needs the mode line or regex"),
        ("action.after.process='delete'", "needs tailing='false'"),
        ("tailing='false', action.after.process='move'", "needs move.after.process"),
        ("mode='regex'", "needs begin.regex or end.regex"),
        ("mode='regex', begin.regex='('", "is no regular expression"),
        ("move.after.process='smb://h/d'", "smb is not supported"),
    ],
)
def test_options_that_do_not_go_together_are_refused_with_the_app(
    options: str, reason: str
) -> None:
    text = APP.replace("{app}", "A").replace("{directory}", "/in").replace("OPTIONS", options)
    with pytest.raises(MeshError) as refused:
        plan(text)
    assert refused.value.code == "MESH-P231"
    assert reason in str(refused.value)


@pytest.mark.slow
@pytest.mark.nats
async def test_files_that_are_deleted_are_read_exactly_once(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    text = APP.replace("OPTIONS", "mode='text.full', file.name.pattern='.*csv'")

    async def write(stage: Stage) -> None:
        own = tmp_path / f"run{stage.spec.name.removeprefix('Run')}"
        for number, data in enumerate(("0\n1\n", "x\n", "2\n3\n4\n")):
            (own / f".{number}").write_text(data)
            os.replace(own / f".{number}", own / f"{number}.csv")

    async def found(stage: Stage) -> Any:
        own = tmp_path / f"run{stage.spec.name.removeprefix('Run')}"
        bad = [entry["data"] for entry in await stage.errors()]
        return [row["n"] for row in await stage.events("S")], bad, sorted(os.listdir(own))

    def is_whole(outcome: Any) -> bool:
        return len(outcome[0]) + len(outcome[1]) >= 6 and not outcome[2]

    use = ConnectorScenario(text, "receiver-S", write, found, is_whole)
    moments = await conform(nats_server.url, use, tmp_path)
    steps = {"read", "publish", "store a position", "committed"}
    assert {f"{when} {step}" for when in ("before", "after") for step in steps} <= set(moments)


def test_a_file_that_can_not_be_read_holds_up_no_other(tmp_path: Path, inbox: Path) -> None:
    # In the order of names: a name that is no UTF-8, a link out, a file that is too large.
    with open(os.fsencode(inbox) + b"/1-\xff", "w") as odd:
        odd.write("1")
    (inbox / "2").symlink_to("/etc/hostname")
    (inbox / "3").write_bytes(b" " * ((4 << 20) + 1))
    (inbox / "4").write_text("4")
    source = source_of(tmp_path, None, mode="text.full", tailing="false")
    batch = stored(source)
    assert list(batch.payloads) == [b"4"]
    (inbox / "5").write_text("5")
    assert list(stored(source).payloads) == [b"5"]
    assert read(source) is None
    assert "UTF-8" in str(source.problem)
    os.unlink(os.fsencode(inbox) + b"/1-\xff")
    assert read(source) is None
    assert "not open to connectors" in str(source.problem)
    (inbox / "2").unlink()
    assert read(source) is None
    assert "more than" in str(source.problem)
    (inbox / "3").unlink()
    assert read(source) is None
    assert source.problem is None


@pytest.mark.usefixtures("one_by_one")
def test_a_file_that_can_not_be_moved_holds_up_no_other(tmp_path: Path, inbox: Path) -> None:
    given = {"action_after_process": "move", "move_after_process": str(tmp_path / "done")}
    source = source_of(tmp_path, None, mode="text.full", tailing="false", **given)
    (tmp_path / "done").mkdir()
    (inbox / "1").write_text("1")
    (inbox / "2").write_text("2")
    finish = source._after.perform

    def perform(path: str, inode: int) -> None:
        if path.endswith("1"):
            raise OSError(28, "no space", path)
        finish(path, inode)

    source._after.perform = perform  # type: ignore[method-assign]
    assert [list(stored(source).payloads) for _ in range(2)] == [[b"1"], [b"2"]]
    assert read(source) is None
    assert "no space" in str(source.problem)
    assert [path.name for path in (tmp_path / "done").iterdir()] == ["2"]
    assert (inbox / "1").exists()


@pytest.mark.usefixtures("one_by_one")
def test_a_file_that_is_renamed_between_two_batches_of_a_look_is_followed(
    tmp_path: Path, inbox: Path
) -> None:
    for name in ("a.log", "b.log", "c.log"):
        (inbox / name).write_text(f"{name} 1\n")
    source = source_of(tmp_path, None, mode="line", tailing="true")
    assert list(stored(source).payloads) == [b"a.log 1"]
    assert list(stored(source).payloads) == [b"b.log 1"]
    with (inbox / "b.log").open("a") as file:
        file.write("b.log 2\n")
    (inbox / "b.log").rename(inbox / "b.log.1")
    (inbox / "b.log").write_text("b.log 3\n")
    found: list[bytes] = []
    while len(found) < 3:
        found += map(bytes, stored(source).payloads)
    assert sorted(found) == [b"b.log 2", b"b.log 3", b"c.log 1"]
    assert read(source) is None
