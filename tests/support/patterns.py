"""Apps with patterns."""

from __future__ import annotations

from hypothesis import strategies as st

TIMES = {"30 sec": "30 milliseconds", "10 sec": "10 milliseconds"}
#: Annotation with which a recorder observes the streams of a partition.
BESIDE = (
    "from O select * insert into P; from S select k insert into X; from T select k insert into X;"
)


def shape(text: str, select: str) -> str:
    for written, meant in TIMES.items():
        text = text.replace(written, meant)
    return f"from {text} select {select} insert into O;"


_VALUE = st.one_of(st.none(), st.floats(-5, 5).map(lambda x: round(x, 1)))
EVENT = st.tuples(
    st.sampled_from("ST"),
    st.integers(-40, 12),
    st.one_of(st.none(), st.integers(-1, 2)),
    _VALUE,
    st.sampled_from([None, "a", "b", "null"]),
)
