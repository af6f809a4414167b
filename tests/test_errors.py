"""The error that people see: with its line, as values, and unchanged over a process border."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.errors import MeshError, MeshErrors, Position, all_errors, error_of, not_supported

TEXTS = st.text(max_size=20)
ERRORS = st.builds(
    MeshError,
    st.from_regex(r"MESH-[A-Z][0-9]{3}", fullmatch=True),
    TEXTS,
    detail=st.none() | TEXTS.filter(bool),
    hint=st.none() | TEXTS.filter(bool),
    position=st.none() | st.builds(Position, *[st.integers(1, 99)] * 3),
)


def parts(error: MeshError) -> tuple[object, ...]:
    return error.code, error.message, error.detail, error.hint, error.position


def test_an_error_is_shown_with_its_line_and_a_mark_below_it() -> None:
    error = MeshError(
        "MESH-L104", "unknown", detail="It is none.", hint="Try.", position=Position(2, 3, 4)
    )
    assert error.render("first\n\tab cd", "a.siddhi").splitlines() == [
        "unknown [MESH-L104]",
        "  --> a.siddhi:2:3",
        "  2 |  ab cd",
        "        ^^^^",
        "  detail: It is none.",
        "  hint: Try.",
    ]
    assert str(error) == "unknown at 2:3 [MESH-L104]"


@pytest.mark.parametrize("text", [None, "", "one line"])
def test_a_line_that_is_not_there_is_not_shown(text: str | None) -> None:
    lines = MeshError("MESH-L104", "unknown", position=Position(7, 1)).render(text).splitlines()
    assert lines == ["unknown [MESH-L104]", "  --> app.siddhi:7:1"]


@given(line=st.text("ab\t", min_size=1, max_size=30), number=st.integers(1, 120), data=st.data())
def test_the_mark_is_below_what_it_marks(line: str, number: int, data: st.DataObject) -> None:
    column = data.draw(st.integers(1, len(line)))
    length = data.draw(st.integers(0, len(line) - column + 1))
    error = MeshError("MESH-L104", "m", position=Position(number, column, length))
    shown, mark = error.render("\n" * (number - 1) + line).splitlines()[2:4]
    at = mark.index("^")
    assert mark[at:] == "^" * max(1, length)
    assert shown[at] == line[column - 1].replace("\t", " ")
    assert len(shown) - at == len(line) - column + 1


@given(error=ERRORS)
def test_an_error_is_the_same_as_values_and_in_another_process(error: MeshError) -> None:
    assert parts(error_of(error.to_dict())) == parts(error)
    again = pickle.loads(pickle.dumps(error))
    assert parts(again) == parts(error)
    assert getattr(again, "__notes__", []) == getattr(error, "__notes__", [])


@given(errors=st.lists(ERRORS, min_size=1, max_size=4))
def test_several_errors_are_the_first_one_and_all(errors: list[MeshError]) -> None:
    several = MeshErrors(errors)
    assert parts(several) == parts(errors[0])
    again = pickle.loads(pickle.dumps(several))
    assert [parts(one) for one in all_errors(again)] == [parts(one) for one in errors]
    values = several.to_dict() | {"errors": [one.to_dict() for one in errors]}
    read = all_errors(error_of(values))
    assert [parts(one) for one in read] == [parts(one) for one in errors]
    assert all_errors(errors[0]) == (errors[0],)


def test_what_is_not_supported_leads_to_the_page() -> None:
    assert "docs/siddhiql.md" in str(not_supported("this").hint)
    assert not_supported("this", hint="Write that.").hint == "Write that."
