"""``mesh validate`` and ``mesh format``: output, written files, and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from mesh.cli.commands import app
from mesh.client.checking import check
from mesh.language.layout import format_app
from mesh.language.substitution import variables_for
from tests.support.paths import EXAMPLE

if TYPE_CHECKING:
    from typer.testing import Result

    from tests.support.environment import Variables


DEFINED = "define stream S (a int, b string);"
VALID = f"@App:name('A') {DEFINED}\nfrom S select a insert into T;\n"
MISSPELT_TWICE = (
    f"@App:name('A') {DEFINED}\nfrom S selct a insert into T;\nfrom S select a insrt into T;"
)
#: Valid, and does not run yet; use another app once it does.
NOT_RUN = (
    f"@App:name('A') {DEFINED}\ndefine function f[r] return int {{ return(1) }};\n"
    "from S select a insert into T;\n"
)


def run(*arguments: object, given: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=given)


@pytest.fixture
def write(tmp_path: Path) -> Path:
    (tmp_path / "valid.siddhi").write_text(VALID)
    (tmp_path / "twice.siddhi").write_text(MISSPELT_TWICE)
    (tmp_path / "binary.siddhi").write_bytes(b"\x7fELF\xff\x00\xfe")
    return tmp_path


# mesh validate


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.siddhi").write_bytes(b"\xef\xbb\xbf" + VALID.encode())
    assert run("validate", tmp_path / "a.siddhi").exit_code == 0


def test_all_errors_of_all_files_are_shown_with_their_lines(write: Path) -> None:
    said = run("validate", write / "twice.siddhi", write / "valid.siddhi", write / "none.siddhi")
    assert said.exit_code == 1
    assert said.stderr.count("[MESH-L104]") == 2
    for line in (2, 3):
        assert f"--> {write / 'twice.siddhi'}:{line}:" in said.stderr
    assert said.stderr.count("^^^^^") == 2
    assert said.stderr.count("hint: Did you mean") == 2
    assert "[MESH-U120]" in said.stderr
    assert "2 of 3 files are not valid" in said.stderr
    assert said.stdout == f'{write / "valid.siddhi"}: app "A" is valid\n'


def test_what_is_wrong_besides_the_name_is_told_too(write: Path) -> None:
    unnamed = f"@App:name('') {DEFINED} from S select none insert into T;"
    said = run("validate", "-", given=unnamed)
    assert said.exit_code == 1
    assert "[MESH-P101]" in said.stderr
    assert "[MESH-L202]" in said.stderr
    assert "--> <stdin>:1:" in said.stderr


def test_programs_get_every_file_in_one_form(write: Path) -> None:
    said = run("validate", "-o", "json", *sorted(write.iterdir()))
    assert said.exit_code == 1
    values = json.loads(said.stdout)
    assert values["valid"] is False
    binary, twice, valid = values["files"]
    assert [error["code"] for error in binary["errors"]] == ["MESH-U120"]
    assert [error["position"]["line"] for error in twice["errors"]] == [2, 3]
    assert valid == {
        "file": str(write / "valid.siddhi"),
        "valid": True,
        "app": "A",
        "groups": ["default"],
        "errors": [],
        "warnings": [],
        "notes": [],
    }


def test_what_does_not_run_yet_is_a_warning_and_with_deployable_an_error(write: Path) -> None:
    said = run("validate", "-", given=NOT_RUN)
    assert said.exit_code == 0
    assert said.stderr.startswith("warning: not supported yet: ")
    assert said.stdout == '<stdin>: app "A" is valid, but this version does not run all of it yet\n'
    said = run("validate", "--deployable", "-", given=NOT_RUN)
    assert said.exit_code == 1
    assert said.stderr.startswith("not supported yet: ")
    assert said.stdout == ""


def test_a_valid_app_that_runs_is_deployable(write: Path) -> None:
    assert run("validate", "--deployable", write / "valid.siddhi", EXAMPLE).exit_code == 0


def test_variables_come_from_options_then_the_environment_then_defaults(
    environment: Variables,
) -> None:
    text = "@App:name('A') define stream S (a ${TYPE:int}); from S select a insert into T;"
    said = run("validate", "-", given=text)
    assert said.exit_code == 0
    environment["TYPE"] = "wrong"
    said = run("validate", "-", given=text)
    assert said.exit_code == 1
    # The caret is below the text as the user wrote it.
    assert "define stream S (a ${TYPE:int})" in said.stderr
    assert run("validate", "--var", "TYPE=long", "-", given=text).exit_code == 0
    assert run("plan", "--var", "TYPE=long", "-", given=text).exit_code == 0


def test_a_variable_without_value_is_told_with_the_values_there_are() -> None:
    text = "define stream S (a ${KIND}, b ${OTHER});"
    said = run("validate", "--var", "KIN=int", "--var", "OTHER=int", "-", given=text)
    assert said.exit_code == 1
    assert "[MESH-L108]" in said.stderr
    assert "Variables given: KIN, OTHER." in said.stderr
    assert 'Did you mean "KIN"?' in said.stderr


def test_only_variables_that_the_text_asks_for_are_taken_from_the_environment() -> None:
    environment = {"A": "1", "SECRET": "x", "B": "2"}
    assert variables_for("${A} ${B:3} ${C}", {"B": "4", "D": "5"}, environment) == {
        "A": "1",
        "B": "4",
        "D": "5",
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ("validate",),
        ("validate", "-", "-"),
        ("validate", "--var", "NAME", "-"),
        ("validate", "--var", "a b=1", "-"),
        ("format",),
        ("format", "-", "-"),
        ("format", "--chek", "-"),
    ],
)
def test_wrong_usage_ends_with_2(arguments: tuple[str, ...]) -> None:
    assert run(*arguments, given=VALID).exit_code == 2


@pytest.mark.parametrize("command", ["validate", "format", "plan"])
def test_what_is_no_text_is_told_and_never_a_traceback(write: Path, command: str) -> None:
    locked = write / "locked.siddhi"
    locked.symlink_to(locked)
    for file in (write, write / "binary.siddhi", locked, write / "none"):
        said = run(command, file)
        assert said.exit_code == 1
        assert "[MESH-U120]" in said.stderr
        assert isinstance(said.exception, SystemExit)
    said = run(command, "-", given=b"\xff\xfe\x00")
    assert said.exit_code == 1
    assert "It is not UTF-8: byte 0xff at 0." in said.stderr


@pytest.mark.slow
def test_a_file_whose_name_is_no_text_is_shown_all_the_same(write: Path) -> None:
    file = str(write).encode() + b"/\xff.siddhi"
    Path(file.decode("utf-8", "surrogateescape")).write_text(VALID)
    for more in (["-o", "json"], []):
        said = subprocess.run(
            [sys.executable, "-m", "mesh.cli", "validate", file, *more], capture_output=True
        )
        assert said.returncode == 0, said.stderr
        assert b"udcff" in said.stdout


@given(st.text() | st.text(alphabet="define stream S(a int);from'\"@#![]${}<>-/*\n"))
def test_any_text_is_valid_or_has_errors_with_places(text: str) -> None:
    checked = check(text, {})
    assert all(error.position is not None for error in checked.errors)
    assert checked.is_valid == (not checked.errors)


# mesh format


def test_a_file_is_rewritten_once_and_then_left_alone(write: Path) -> None:
    file = write / "valid.siddhi"
    said = run("format", file)
    assert (said.exit_code, said.stdout) == (0, f"{file} formatted\n")
    assert file.read_text() == format_app(VALID) != VALID
    said = run("format", file)
    assert (said.exit_code, said.stdout) == (0, "")


def test_check_names_the_files_that_would_change_and_writes_nothing(write: Path) -> None:
    formatted = write / "formatted.siddhi"
    formatted.write_text(format_app(VALID))
    said = run("format", "--check", write / "valid.siddhi", formatted)
    assert said.exit_code == 1
    assert said.stdout == f"{write / 'valid.siddhi'} would change\n"
    assert (write / "valid.siddhi").read_text() == VALID
    assert run("format", "--check", formatted).exit_code == 0


def test_diff_shows_what_would_change_and_writes_nothing(write: Path) -> None:
    said = run("format", "--diff", write / "valid.siddhi")
    assert said.exit_code == 1
    assert "-from S select a insert into T;\n" in said.stdout
    assert "+insert into T;\n" in said.stdout
    assert (write / "valid.siddhi").read_text() == VALID


def test_standard_input_goes_to_standard_output() -> None:
    text = "-- caf\N{LATIN SMALL LETTER E WITH ACUTE}\r\n" + VALID
    said = run("format", "-", given=text.encode())
    assert said.exit_code == 0
    assert said.stdout_bytes.decode() == format_app(text)


def test_a_file_with_a_mistake_stays_as_it_is(write: Path) -> None:
    said = run("format", write / "twice.siddhi", write / "valid.siddhi")
    assert said.exit_code == 1
    assert said.stderr.count("[MESH-L104]") == 2
    assert (write / "twice.siddhi").read_text() == MISSPELT_TWICE
    # The others are formatted all the same.
    assert (write / "valid.siddhi").read_text() == format_app(VALID)


def test_a_file_that_can_not_be_written_is_told(
    write: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, data: bytes) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    said = run("format", write / "valid.siddhi")
    assert said.exit_code == 1
    assert "[MESH-U125]" in said.stderr
    assert "detail: Permission denied." in said.stderr


def test_a_valid_app_is_said_to_be(alone: Path) -> None:
    said = CliRunner().invoke(app, ["validate", str(EXAMPLE)])
    assert said.exit_code == 0
    assert 'app "Temperature" is valid' in said.output


def test_a_fault_is_shown_with_its_line_and_exit_code_1(alone: Path) -> None:
    path = alone / "bad.siddhi"
    path.write_text(EXAMPLE.read_text().replace("e1=TempStream", "e1=TempStreem"))
    said = CliRunner().invoke(app, ["validate", str(path)])
    assert said.exit_code == 1
    assert said.stdout == ""
    assert f"--> {path}:7:" in said.stderr
    assert "^" in said.stderr
    assert "Traceback" not in said.stderr
