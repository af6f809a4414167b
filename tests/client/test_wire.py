"""Messages as a client shows and sends them, and requests that NATS does not answer."""

from __future__ import annotations

import asyncio
import io
import json
from typing import TYPE_CHECKING

import msgpack  # type: ignore[import-untyped]  # has no stubs
import pyarrow as pa
import pytest

from mesh.client import ClientContext, wire
from mesh.errors import MeshError
from pyspark_nats.arrow import ipc_stream

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer


def test_messages_are_decoded_by_their_content_type() -> None:
    event = {"a": 1, "b": "x"}
    arrow = ipc_stream(pa.Table.from_pylist([event, event]))
    assert wire.decode(arrow, "application/vnd.apache.arrow.stream") == [event, event]
    assert wire.decode(msgpack.packb(event), "application/msgpack") == [event]
    assert wire.decode(b'{"a":1,"b":"x"}', "") == [event]
    assert wire.decode(b'[{"a":1,"b":"x"}]', "application/json; charset=utf-8") == [event]
    assert wire.decode(b'{"a":1,"b":"x"}\n{"a":1,"b":"x"}\n', "application/json") == [event] * 2
    for data, kind in ((b"{", ""), (b"no", "application/vnd.apache.arrow.stream")):
        with pytest.raises(MeshError, match="can't be read"):
            wire.decode(data, kind)


def test_csv_is_typed_by_the_stream() -> None:
    schema = {"n": "long", "x": "double", "ok": "bool", "s": "string"}
    text = 'n,x,ok,s,more\n1,2,true,"a, b",z\n,,,,\n\n-3,1e3,False,7,\n'
    rows = [json.loads(event) for event in wire.csv_events(io.StringIO(text), schema)]
    assert rows == [
        {"n": 1, "x": 2.0, "ok": True, "s": "a, b", "more": "z"},
        {"n": None, "x": None, "ok": None, "s": None, "more": None},
        {"n": -3, "x": 1000.0, "ok": False, "s": "7", "more": None},
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("n,ok\n1,\nmany,\n", "line 3: \"n\" is long, not 'many'"),
        ("ok,n\nyes,1\n", 'line 2: "ok" is bool'),
        ("n,ok\n1\n", "line 2 has 1 fields, not 2"),
        ("n;ok\n1;true\n", 'line 1 has no column "n"'),
        ("", 'line 1 has no column "n"'),
    ],
)
def test_csv_that_does_not_fit_names_the_line(text: str, words: str) -> None:
    with pytest.raises(MeshError) as error:
        list(wire.csv_events(io.StringIO(text), {"n": "long", "ok": "bool"}))
    assert words in error.value.message


def test_a_misspelt_column_is_named_with_the_attribute_that_it_means() -> None:
    schema = {"item": "string", "amount": "double"}
    with pytest.raises(MeshError) as error:
        list(wire.csv_events(io.StringIO("itm,amount\na,1\n"), schema))
    assert error.value.code == "MESH-U122"
    assert (error.value.detail, error.value.hint) == (
        "Columns: itm, amount.", 'Did you mean "item" by "itm"?',
    )  # fmt: skip


def test_a_request_that_nats_does_not_answer_is_told_of(nats_server: NatsServer) -> None:
    async def ask() -> None:
        async with wire.connected(ClientContext(nats=nats_server.url)) as client:
            # Nothing answers it: the stream's leader is gone.
            silent = await client.subscribe("silent")
            await client.request("silent", timeout=0.05)
            await silent.unsubscribe()

    with pytest.raises(MeshError, match="does not answer"):
        asyncio.run(ask())
