"""Sink ``file`` with a path for each event, and with files that are rolled."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from mesh.connect import registry
from mesh.connect.contract import Context, NodeAccess, Record, UnavailableError
from mesh.connect.spec import Role
from mesh.errors import MeshError
from mesh.plan.build import plan
from mesh.receiver.types.file_sink import FileSink
from mesh.testing.connectors import ConnectorScenario, Stage, conform

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

APP = """@App:name('{app}')
define stream S (k string, n int);
@sink(type='file', file.uri='{directory}/OPTIONS, @map(type='csv'))
define stream T (k string, n int);
from S select k, n insert into T;
"""


def opened(directory: Path, state: Mapping[str, Any] | None = None, **given: str) -> FileSink:
    """An opened sink; ``_`` in names is a dot."""
    spec = registry.find(Role.SINK, "file")
    assert spec is not None
    options = {"file.uri": str(directory / "out.txt")}
    values = spec.values(options | {n.replace("_", "."): value for n, value in given.items()})
    sink = FileSink()
    access = NodeAccess(file_roots=(str(directory),))
    asyncio.run(sink.open(Context("a", "T", values, access, producer="p"), state))
    return sink


def written(sink: FileSink, *payloads: str, uri: str = "") -> list[str | None]:
    options = {"file.uri": uri} if uri else {}
    records = [Record(f"k/{n}", p.encode(), options) for n, p in enumerate(payloads)]
    return list(asyncio.run(sink.write(records)))


def files(directory: Path) -> dict[str, str]:
    found = {}
    for path in sorted(directory.rglob("*")):
        # One that is rolled is missing for a moment.
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and not path.name.startswith("."):
                found[str(path.relative_to(directory))] = path.read_text()
    return found


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.nats
@pytest.mark.parametrize(
    ("options", "whole"),
    [
        ("{{k}}/out.csv'", {"a/out.csv": "a,0\na,2\na,4\n", "b/out.csv": "b,1\nb,3\n"}),
        ("out.csv', roll.size='8'", {"": "a,0\nb,1\na,2\nb,3\na,4\n"}),
        ("{{n}}', append='false'", {str(n): f"{'ab'[n % 2]},{n}\n" for n in range(5)}),
    ],
)
async def test_files_are_written_exactly_once(
    nats_server: NatsServer, tmp_path: Path, options: str, whole: dict[str, str]
) -> None:
    async def publish(stage: Stage) -> None:
        rows = [{"k": "ab"[n % 2], "n": n} for n in range(5)]
        await stage.publish("T", *rows[:2])

        async def is_out() -> bool:
            return "0" in "".join((await found(stage)).values())

        # Two writes, so that the second one rolls.
        await stage.until("the first write", is_out)
        await stage.publish("T", *rows[2:])

    async def found(stage: Stage) -> dict[str, str]:
        own = files(tmp_path / f"run{stage.spec.name.removeprefix('Run')}")
        # Where a file ends depends on what is written together.
        return {"": "".join(own.values())} if "roll" in options else own

    text = APP.replace("OPTIONS", options)
    use = ConnectorScenario(
        text, "sink-T", publish, found, lambda f: sum(map(len, f.values())) >= 20
    )
    moments = await conform(nats_server.url, use, tmp_path)
    assert {"before write", "after write", "after store a position"} <= set(moments)
    own = files(tmp_path / "run0")
    assert (len(own) > 1 and "out-000001.csv" in own) if "roll" in options else own == whole


def test_a_file_is_rolled_once_and_never_over_another(tmp_path: Path) -> None:
    (tmp_path / "out-000001.txt").write_text("of an earlier app")
    sink = opened(tmp_path, roll_size="4")
    written(sink, "abc")
    state = sink.state
    written(sink, "d")
    # The host ended before it had stored the second write, which is longer in the next attempt.
    again = opened(tmp_path, state, roll_size="4")
    written(again, "defghijk")
    assert files(tmp_path) == {
        "out-000001.txt": "of an earlier app",
        "out-000002.txt": "abc\n",
        "out.txt": "defghijk\n",
    }
    last = opened(tmp_path, again.state, roll_size="4")
    written(last, "l")
    assert files(tmp_path)["out-000003.txt"] == "defghijk\n"


def test_a_file_is_rolled_by_the_age_of_its_first_payload(tmp_path: Path) -> None:
    sink = opened(tmp_path, roll_interval="1 hour")
    written(sink, "a")
    written(sink, "b")
    assert sink.state is not None
    assert files(tmp_path) == {"out.txt": "a\nb\n"}
    state = {**sink.state, "since": sink.state["since"] - 3_600_000}
    written(opened(tmp_path, state, roll_interval="1 hour"), "c")
    assert files(tmp_path) == {"out-000001.txt": "a\nb\n", "out.txt": "c\n"}


def test_a_clock_that_was_set_back_delays_a_roll_by_one_interval_at_most(tmp_path: Path) -> None:
    sink = opened(tmp_path, roll_interval="1 hour")
    written(sink, "a")
    assert sink.state is not None
    # As if the clock had been a day ahead then.
    ahead = {**sink.state, "since": sink.state["since"] + 86_400_000}
    again = opened(tmp_path, ahead, roll_interval="1 hour")
    written(again, "b")
    assert again.state is not None
    assert again.state["since"] < sink.state["since"] + 3_600_000


def test_events_whose_path_is_not_open_are_refused_and_a_failed_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "open"
    uri = str(root / "{{k}}")
    (root / "dir").mkdir(parents=True)
    sink = opened(root, file_uri=uri)
    records = [
        Record(f"k/{n}", b"x", {"file.uri": str(root / name)})
        for n, name in enumerate(("a", "../b", "dir", "a"))
    ]
    good, closed, directory, also = asyncio.run(sink.write(records))
    assert (good, also) == (None, None)
    assert "is not open to connectors" in str(closed)
    assert str(directory).endswith("is a directory")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("mesh.receiver.types.file_sink.os.fsync", full)
    state = sink.state
    with pytest.raises(UnavailableError, match="No space"):
        written(sink, "y", uri=str(root / "a"))
    assert sink.state == state
    monkeypatch.undo()
    assert files(root) == {"a": "x\nx\n"}


def test_the_directory_of_a_new_file_is_made(tmp_path: Path) -> None:
    sink = opened(tmp_path, file_uri=str(tmp_path / "a" / "b" / "out.txt"))
    assert written(sink, "x") == [None]
    assert files(tmp_path) == {"a/b/out.txt": "x\n"}


def test_a_file_that_another_program_has_cut_gets_no_zeros(tmp_path: Path) -> None:
    path = tmp_path / "out"
    sink = opened(tmp_path, file_uri=str(path))
    written(sink, "a", "b")
    state = sink.state
    os.truncate(path, 1)
    for one in (sink, sink):
        with pytest.raises(UnavailableError, match="it has 1 bytes, and 4 were written"):
            written(one, "c")
    assert (path.read_text(), sink.state) == ("a", state)
    # A file that is put back is continued.
    path.write_text("a\nb\n")
    written(sink, "c")
    assert path.read_text() == "a\nb\nc\n"


def test_options_that_do_not_go_together_are_refused_with_the_app() -> None:
    for options, reason in (
        ("{{k}}', roll.size='1 MB'", "the same path for all events"),
        ("{{x}}'", 'names attribute "x"'),
    ):
        text = APP.format(app="A", directory="/d").replace("OPTIONS", options)
        with pytest.raises(MeshError, match=reason):
            plan(text)


def test_the_journal_is_where_the_path_is_fixed(tmp_path: Path) -> None:
    sink = opened(tmp_path, file_uri=str(tmp_path / "in" / "{{k}}"))
    written(sink, "a", uri=str(tmp_path / "in" / "x"))
    assert sorted(n[:6] for n in os.listdir(tmp_path / "in")) == [".mesh-", "x"]


def test_a_path_of_an_event_stays_below_the_fixed_part_and_is_no_journal(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    sink = opened(tmp_path, file_uri=str(tmp_path / "out" / "{{k}}"))
    for name in ("../in/x.csv", "a/../../in/x.csv", "../out.csv", ".mesh-0123", "a/.mesh-0123"):
        (reason,) = written(sink, "a", uri=str(tmp_path / "out" / name))
        assert reason is not None
    assert written(sink, "a", uri=str(tmp_path / "out" / "a" / "b")) == [None]
    assert files(tmp_path) == {"out/a/b": "a\n"}


def test_a_journal_cuts_no_file_that_the_sink_can_not_have_written(tmp_path: Path) -> None:
    roots = tmp_path / "roots"
    (roots / "out").mkdir(parents=True)
    outside, beside, own = tmp_path / "outside", roots / "beside", roots / "out" / "own"
    for path in (outside, beside, own):
        path.write_text("x" * 900)
    sink = opened(roots, file_uri=str(roots / "out" / "{{k}}"))
    written(sink, "a", uri=str(roots / "out" / "k"))
    (journal,) = (roots / "out").glob(".mesh-*")
    named = {str(path): 0 for path in (outside, beside, own)}
    journal.write_bytes(orjson.dumps({"write": 1, "files": named}))
    opened(roots, {"write": 0}, file_uri=str(roots / "out" / "{{k}}"))
    assert [path.stat().st_size for path in (outside, beside, own)] == [900, 900, 0]
