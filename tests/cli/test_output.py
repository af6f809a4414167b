"""Output of commands: tables, counts, errors with their lines, and names of odd files."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest
import typer

from mesh.cli.output import (
    Output,
    because,
    counted,
    pointing_at,
    read_source,
    show,
    show_rows,
    show_table,
    shown_path,
    writes,
)
from mesh.errors import MeshError, MeshErrors, Position


def test_a_table_has_numbers_on_the_right_and_nothing_for_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_table(
        ["name", "n", "ok"], [["[b]x[/b]", 1234, True], ["y", None, False], ["z", 5.25, None]]
    )
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines() if line.strip()]
    head, _, first, second, third = lines
    assert "[b]x[/b]" in first, "no markup"
    end = head.index("n ", head.index("name") + 4) + 1
    assert first[:end].endswith("1,234")
    assert third[:end].endswith("5.2")
    assert first.endswith("yes")
    assert second.split() == ["y", "no"]


def test_a_text_among_numbers_stays_on_the_left(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(["value"], [[1], ["word"], [True]])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if line.strip()][2:] == [["1"], ["word"], ["yes"]]
    assert {len(line) - len(line.lstrip()) for line in lines[-4:-1]} <= {0, 1}


def test_yes_and_no_are_no_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(["is it so"], [[True], [False]])
    raw = capsys.readouterr().out.splitlines()
    head = next(line for line in raw if "is it so" in line)
    assert next(line for line in raw if "yes" in line).index("yes") == head.index("is it so")


def test_values_are_printed_in_the_form_that_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(Output.JSON, {"a": 1}, "text")
    assert json.loads(capsys.readouterr().out) == {"a": 1}
    show(Output.TEXT, {"a": 1}, "text")
    show(Output.TEXT, {"a": 1}, "")
    assert capsys.readouterr().out == "text\n"
    show_rows(Output.JSON, [{"a": 1}], ["a"], iter([]))
    assert json.loads(capsys.readouterr().out) == [{"a": 1}]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 events"), (1, "1 event"), (2000, "2,000 events")]
)
def test_a_count_has_its_plural(count: int, text: str) -> None:
    assert counted(count, "event") == text


def test_a_reason_follows_a_state() -> None:
    assert because({"reason": "no node"}) == ": no node"
    assert because({"reason": None}) == because({}) == ""


def test_a_text_is_read_from_a_file_or_from_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.siddhi"
    path.write_bytes(b"\xef\xbb\xbfdefine")
    assert read_source(path) == "define"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("ä".encode())))
    assert read_source(Path("-")) == "ä"
    path.write_bytes(b"ab\xff")
    with pytest.raises(MeshError, match="can't be read") as refusal:
        read_source(path)
    assert refusal.value.detail == "It is not UTF-8: byte 0xff at 2."
    with pytest.raises(MeshError, match="can't be read") as refusal:
        read_source(tmp_path / "none")
    assert refusal.value.detail == "No such file or directory."
    with pytest.raises(MeshError, match="can't be read"):
        read_source(Path("a\0b"))


def test_a_name_that_is_no_text_is_shown() -> None:
    assert shown_path(Path("-")) == "<stdin>"
    odd = Path(os.fsdecode(b"a\xff.siddhi"))
    shown_path(odd).encode("utf-8")
    assert shown_path(odd).endswith(".siddhi")


def test_what_keeps_a_file_from_being_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(MeshError) as refusal, writes(tmp_path / "x"):
        (tmp_path / "none" / "x").write_text("")
    assert refusal.value.code == "MESH-U125"
    assert refusal.value.detail == "No such file or directory."


def test_all_errors_of_a_text_are_shown_with_their_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    several = MeshErrors(
        [MeshError(f"MESH-L10{n}", "wrong", position=Position(n, 1)) for n in (1, 2)]
    )
    with pytest.raises(typer.Exit) as ended, pointing_at(Path("a"), "one\ntwo"):
        raise several
    assert ended.value.exit_code == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert [line for line in said.err.splitlines() if " | " in line] == ["  1 | one", "  2 | two"]
    with pytest.raises(typer.Exit), pointing_at(Path("a"), "one\ntwo", Output.JSON):
        raise several
    values = json.loads(capsys.readouterr().out)
    assert (values["file"], values["error"]["code"], len(values["errors"])) == ("a", "MESH-L101", 2)
