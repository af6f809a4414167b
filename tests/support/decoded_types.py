"""Attributes of every type, decoded."""

from __future__ import annotations

import base64
from datetime import date
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from pyspark_nats import decode
from pyspark_nats.decode import rules

AT = pa.timestamp("us", "UTC")
LOCAL = pa.timestamp("us")
ADDRESS = pa.struct([("zip", pa.int32()), ("city", pa.string())])


def decoded(
    payloads: list[bytes], schema: pa.Schema, kind: str = "json", missing: str = "error"
) -> decode.DecodeResult:
    content_type = pa.array([f"application/{kind}"] * len(payloads), pa.string())
    return decode.decode_messages(
        pa.array(payloads, pa.binary()), content_type, schema, missing=missing
    )


FIELDS: list[Any] = [
    ("n", pa.int32()), ("x", pa.float64()), ("f", pa.float32()), ("s", pa.string()),
    ("at", AT), ("ntz", LOCAL), ("day", pa.date32()), ("raw", pa.binary()),
    ("d", pa.decimal128(6, 2)), ("l", pa.list_(pa.float64())), ("o", ADDRESS),
    ("t", pa.list_(AT)), ("ol", pa.list_(pa.struct([("b", pa.bool_()), ("d", pa.date32())]))),
    ("m", pa.map_(pa.string(), pa.int64())), ("deep", pa.struct([("in", ADDRESS)])),
]  # fmt: skip
TWO = st.integers(0, 99).map("{:02d}".format)
DAYS = st.one_of(
    st.dates().map(date.isoformat),
    st.builds("{}-{}-{}".format, st.sampled_from(["0000", "0001", "2020", "9999"]), TWO, TWO),
)
TIMES = st.one_of(
    DAYS,
    st.builds(
        "{}{}{}{}{}".format, DAYS, st.sampled_from("T t"),
        st.sampled_from(["05", "05:06", "05:06:07", "23:59:59", "24:00:00", "23:59:60", "5:6", ""]),
        st.sampled_from(["", "", ".5", ".123456", ".1234567", ".", ",5"]),
        st.sampled_from(
            ["", "Z", "z", "+01", "+01:30", "-0130", "+23:59", "+24:00", "-00:60", " Z", "UTC"]
        ),
    ),
)  # fmt: skip
NUMBERS = st.one_of(
    st.integers(-(2**65), 2**65).map(str), st.floats(allow_nan=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str),
    st.sampled_from(["-0", "-0.0", "0.00", "1e2", "1E-2", "-1.5e+1", "1e400", "NaN", "9999.99",
                     "99999", "10000", "1.10", "01", ".5", "5.", "+1", "1e-7", "0e9", "1_0"]),
)  # fmt: skip
ENCODED = st.one_of(
    st.binary(max_size=5).map(lambda octets: base64.b64encode(octets).decode()),
    st.sampled_from(
        ["A", "AA==", "AB==", "A===", "=AAA", "AA=A", "AA==AAAA", "AA-_", "AAA=", "é€"]
    ),
)


def by_the_rules(
    payloads: list[bytes], schema: pa.Schema, missing: str, events_of: Any
) -> tuple[list[Any], list[tuple[int, int, str]]]:
    """Every event alone."""
    by_rules = rules.rules(schema, missing)
    rows: list[Any] = []
    errors: list[tuple[int, int, str]] = []
    for number, payload in enumerate(payloads):
        for place, event in enumerate(events_of(payload)):
            row = event if isinstance(event, str) else rules.row_of(event, by_rules, missing)
            if isinstance(row, str):
                errors.append((number, place, row))
                continue
            arrays = [pa.array([v], f.type) for v, f in zip(row, schema, strict=True)]
            rows.append((number, place, *(repr(array[0].as_py()) for array in arrays)))
    return rows, errors


def seen(found: decode.DecodeResult) -> tuple[list[Any], list[tuple[int, int, str]]]:
    found.rows.validate(full=True)
    values = [[repr(value) for value in column.to_pylist()] for column in found.rows.columns]
    places = (found.message.tolist(), found.index.tolist())
    return list(zip(*places, *values, strict=True)), found.errors
