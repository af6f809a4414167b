"""Source ``file``: packed files, first and last lines, and files whose payloads can't be read."""

from __future__ import annotations

import asyncio
import bz2
import gzip
import lzma
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mesh.connect import registry
from mesh.connect.contract import Batch, Context, NodeAccess
from mesh.connect.spec import Role
from mesh.errors import MeshError
from mesh.mapping.text_sources import CsvSource
from mesh.model.types import Attribute, AttributeType, StreamSchema
from mesh.plan.build import plan
from mesh.receiver.types.file_source import FileSource
from mesh.testing.connectors import ConnectorScenario, Stage, conform

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

APP = """@App:name('{app}')
@source(type='file', dir.uri='{directory}/in', file.polling.interval='20', OPTIONS,
        @map(type='csv'))
define stream S (n int);
define stream T (n int);
from S select n insert into T;
"""


class Reader:
    """A source of the directory ``in`` whose batches are stored."""

    def __init__(self, directory: Path, **given: str) -> None:
        spec = registry.find(Role.SOURCE, "file")
        assert spec is not None
        options = {name.replace("_", "."): value for name, value in given.items()}
        values = spec.values(
            {"dir.uri": str(directory / "in"), "file.polling.interval": "1"} | options
        )
        self.context = Context("a", "S", values, NodeAccess(file_roots=(str(directory),)))
        self.position: Mapping[str, Any] | None = None

    def opened(self) -> FileSource:
        """A new source after the last position."""
        source = FileSource()
        asyncio.run(source.open(self.context, self.position))
        return source

    def batches(self) -> list[Batch]:
        """The batches that a new source reads after the last position."""

        async def read() -> list[Batch]:
            source, found = FileSource(), list[Batch]()
            await source.open(self.context, self.position)
            try:
                while (batch := await source.read()) is not None:
                    self.position = batch.position
                    found.append(batch)
                    await source.committed(batch.position)
                return found
            finally:
                await source.close()

        return asyncio.run(read())

    def lines(self) -> list[bytes]:
        return [one for batch in self.batches() for one in batch.payloads]


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def zstd(data: bytes) -> bytes:
    packed: bytes = pa.Codec("zstd").compress(data, asbytes=True)
    return packed


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress, "bz2": bz2.compress, "zst": zstd
}  # fmt: skip


@pytest.mark.parametrize("suffix", PACKED)
def test_packed_files_are_read_as_what_is_in_them(
    tmp_path: Path, inbox: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr("mesh.receiver.types.file_source._BYTES", 10_000)
    monkeypatch.setattr("mesh.receiver.types.file_source._TOGETHER", 1)
    lines = [f"{n}" for n in range(9_000)]
    pack = PACKED[suffix]
    (inbox / f"a.csv.{suffix}").write_bytes(pack("\n".join(lines).encode()))
    (inbox / "b.csv").write_text("x\n")
    reader = Reader(tmp_path)
    found = reader.batches()
    assert [one.decode() for batch in found for one in batch.payloads] == [*lines, "x"]
    assert len(found) > 4
    assert found[-2].properties is not None
    assert found[-2].properties[-1]["eof"] == "true", "it does not grow, in a directory that does"
    names = [name for batch in found for name in batch.names or ()]
    assert len(set(names)) == len(names)
    assert reader.lines() == []
    # A source that begins in the middle unpacks what is before.
    for batch in found[:-2]:
        reader.position = batch.position
        at = int(batch.payloads[-1]) + 1
        assert [one.decode() for one in reader.lines()] == [*lines[at:], "x"]


@pytest.mark.parametrize("suffix", PACKED)
def test_a_packed_file_that_is_not_whole_waits(tmp_path: Path, inbox: Path, suffix: str) -> None:
    pack, path = PACKED[suffix], inbox / f"a.{suffix}"
    reader = Reader(tmp_path)
    path.touch()
    assert reader.lines() == []
    data = pack(b"1\n") + pack(b"2\n")
    path.write_bytes(data[:-5])
    (inbox / f"b.{suffix}").write_bytes(b"3\n4\n")
    assert reader.lines() == []
    path.write_bytes(data)
    assert reader.lines() == [b"1", b"2"]
    source = reader.opened()
    assert asyncio.run(source.read()) is None
    assert "b." in str(source.problem)
    assert "can't be unpacked" in str(source.problem)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"PK\x03\x04\x14\x00\n1\n", "a ZIP archive or a workbook"),
        (zstd(b"1\n"), "packed by zstd, and not named .zst"),
        (gzip.compress(b"1\n", mtime=0), "packed by gzip, and not named .gz"),
        (bz2.compress(b"1\n"), "packed by bzip2, and not named .bz2"),
        (lzma.compress(b"1\n"), "packed by xz, which is not read"),
        (b"Obj\x01\n1\n", "an Avro file"),
        (b"PAR1\x15\x04\n1\n", "a Parquet file"),
        ("\ufeff1\n".encode("utf-16-le"), "UTF-16"),
    ],
)
def test_lines_of_files_without_text_are_no_events(
    tmp_path: Path, inbox: Path, data: bytes, reason: str
) -> None:
    (inbox / "a").write_bytes(data)
    (inbox / "b").write_text("PAR1,1\n")
    reader = Reader(tmp_path)
    source = reader.opened()
    batch = asyncio.run(source.read())
    assert batch is not None
    assert list(batch.payloads) == [b"PAR1,1"]
    assert asyncio.run(source.read()) is None
    assert reason in str(source.problem)
    # A mapper may read it.
    whole = Reader(tmp_path, mode="binary.full", action_after_process="keep", tailing="false")
    assert data in whole.lines()


def test_odd_names_are_names_of_files(tmp_path: Path, inbox: Path) -> None:
    names = ["a b.csv", "new\nline.csv", ".hidden.csv", "\u00e9.csv", "-.csv", "a%20b.csv", "#"]
    for number, name in enumerate(names):
        (inbox / name).write_text(f"{number}\n")
    (inbox / "members.gz").write_bytes(gzip.compress(b"8\n") + gzip.compress(b"9\n"))
    found = sorted(int(line) for line in Reader(tmp_path).lines())
    assert found == [*range(len(names)), 8, 9]


def test_lines_of_a_value_in_quotes_are_one_payload(tmp_path: Path, inbox: Path) -> None:
    attributes = (Attribute("s", AttributeType.STRING), Attribute("n", AttributeType.INT))
    mapper = CsvSource(StreamSchema("S", attributes).arrow)
    reader = Reader(tmp_path)
    reader.context = replace(reader.context, is_open=mapper.is_open)
    text = b'x,1\n"a ""b"" \n\ny,7\nc",2\n5" pipe,3\n"z",4\n"open\n'
    (inbox / "a.csv").write_bytes(text)
    whole = [b"x,1", b'"a ""b"" \n\ny,7\nc",2', b'5" pipe,3', b'"z",4']
    (batch,) = reader.batches()
    assert list(batch.payloads) == whole
    assert [name.rpartition("-")[2] for name in batch.names or ()] == [
        str(text.index(one)) for one in whole
    ]
    assert reader.lines() == [], "the value may go on"
    with (inbox / "a.csv").open("ab") as file:
        file.write(b'still",5\n"never\n')
    assert reader.lines() == [b'"open\nstill",5']
    with (inbox / "a.csv").open("ab") as file:
        file.write(b"".join(b"%d,0\n" % n for n in range(20_000)))
    lines = reader.lines()
    assert lines[:2] == [b'"never', b"0,0"]
    assert len(lines) == 20_001
    found = mapper.decode([*whole, *lines[:2]])
    assert [number for number, _, _ in found.errors] == [2, 4]
    # Of a file that does not grow nothing is awaited.
    (inbox / "b.csv").write_bytes(b'"open\nx,1')
    reader.context = replace(reader.context, options={**reader.context.options, "tailing": False})
    reader.position = None
    assert reader.lines()[-2:] == [b'"open', b"x,1"]


def test_a_packed_file_is_deleted_whole_and_a_cut_one_waits(tmp_path: Path, inbox: Path) -> None:
    data = gzip.compress(b"1\n2\n" * 50)
    (inbox / "a.gz").write_bytes(data[:-9])
    (inbox / "b.gz").write_bytes(data)
    reader = Reader(tmp_path, mode="text.full")
    assert reader.lines() == [b"1\n2\n" * 50]
    assert [path.name for path in inbox.iterdir()] == ["a.gz"]
    (inbox / "a.gz").write_bytes(data)
    assert reader.lines() == [b"1\n2\n" * 50]
    assert list(inbox.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"read_only_header": "true"}, [b"h"]),
        ({"read_only_header": "true", "header_line_count": "2"}, [b"h", b"1"]),
        ({"read_only_trailer": "true"}, [b"t"]),
        ({"skip_trailer": "true"}, [b"h", b"1", b"2"]),
        ({"skip_trailer": "true", "header_present": "true"}, [b"1", b"2"]),
    ],
)
@pytest.mark.parametrize("size", [4, 1 << 20])
def test_first_and_last_lines(
    tmp_path: Path, inbox: Path, monkeypatch: pytest.MonkeyPatch, size: int,
    options: dict[str, str], expected: list[bytes],
) -> None:  # fmt: skip
    """``size``: bytes that are read together."""
    monkeypatch.setattr("mesh.receiver.types.file_source._BYTES", size)
    (inbox / "a").write_text("h\n1\r\n2\nt\n")
    reader = Reader(tmp_path, tailing="false", **options)
    found = reader.batches()
    assert [one for batch in found for one in batch.payloads] == expected
    assert all(len(batch.names or ()) == len(batch.payloads) for batch in found)
    assert reader.lines() == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("skip.trailer='true'", "skip.trailer needs tailing='false'"),
        ("mode='text.full', read.only.header='true'", "read.only.header needs the mode line"),
        ("action.after.failure='delete'", "action.after.failure='delete' needs tailing='false'"),
        ("tailing='false', action.after.failure='move'", "needs move.after.failure"),
    ],
)
def test_options_that_do_not_go_together(options: str, reason: str) -> None:
    with pytest.raises(MeshError, match=reason):
        plan(APP.replace("{app}", "A").replace("OPTIONS", options))


@pytest.mark.slow
@pytest.mark.nats
async def test_files_with_payloads_that_can_not_be_read_go_elsewhere(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Lines of a file are in several batches: the position remembers the first.
    monkeypatch.setattr("mesh.receiver.types.file_source._BYTES", 4)
    options = (
        "tailing='false', action.after.process='delete', action.after.failure='move',"
        "move.after.failure='{directory}/bad'"
    )

    async def write(stage: Stage) -> None:
        own = tmp_path / f"run{stage.spec.name.removeprefix('Run')}" / "in"
        own.mkdir()
        (own / ".bad").write_text("0\nx\n1\n2\n")
        (own / ".bad").rename(own / "bad")
        (own / ".good").write_text("3\n4\n")
        (own / ".good").rename(own / "good")

    async def found(stage: Stage) -> list[Any]:
        own = tmp_path / f"run{stage.spec.name.removeprefix('Run')}"
        files = sorted(str(path.relative_to(own)) for path in own.rglob("*") if path.is_file())
        rows = sorted(event["n"] for event in await stage.events("S"))
        return [rows, len(await stage.errors()), files]

    use = ConnectorScenario(
        APP.replace("OPTIONS", options), "receiver-S", write, found,
        lambda seen: seen == [[0, 1, 2, 3, 4], 1, ["bad/bad"]],
    )  # fmt: skip
    assert await conform(nats_server.url, use, tmp_path)
