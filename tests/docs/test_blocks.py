"""Each block of README.md and of the pages is planned, run, or named with the reason why not.

``test_commands.py`` runs the commands on a cluster.  Here is what needs none: texts of SiddhiQL are
planned, arguments of commands parsed, values read; and no block is left out.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
from typing import TYPE_CHECKING, Any, Final

import orjson
import pytest
import typer.main
import yaml
from typer import BadParameter

from mesh.cli.commands import app
from mesh.language.parser import parse_on_demand_query
from mesh.plan.build import plan
from mesh.settings import load
from tests.docs.block_proofs import BLOCKS, WHOLE_PAGES, Around, By, Proof
from tests.docs.prose import prose_lines
from tests.docs.test_tiers import marked_tests
from tests.support import case_files
from tests.support.pages import PAGES, Passage, every_passage
from tests.support.paths import ROOT
from tests.support.together import together

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.environment import Variables


#: A command whose output is an argument; texts in quotes may have brackets.
_INNER: Final = r"""\$\(((?:'[^']*'|[^()'])*)\)"""
#: Starts of JSON, and of parts of a settings file.
_VALUES: Final = ("{", "oidc:", "traces:", "mesh:", "# stores.sources_file")
COMMAND: Final[Any] = typer.main.get_command(app)
PASSAGES: Final = every_passage()


def recorded() -> set[str]:
    """The lines of all files of commands."""
    files = (ROOT / "tests" / "cases" / "pages").glob("*.txt")
    return {
        line for path in files for case in case_files.read(path) for line in case.given.split("\n")
    }


def proof_of(passage: Passage) -> Proof | None:
    """The most exact entry of a block."""
    found = [
        (len(first), proof)
        for (page, first), proof in BLOCKS.items()
        if page == passage.page and first in passage.first
    ]
    return max(found, key=lambda one: one[0])[1] if found else WHOLE_PAGES.get(passage.page)


def is_by_itself(passage: Passage) -> bool:
    """Whether a test of this file proves the block without an entry."""
    return (
        passage.is_drawing
        or passage.first.startswith("@App:name")
        or passage.text.startswith(_VALUES)
    )


def test_each_block_is_proven_or_has_its_reason() -> None:
    lines = recorded()
    left = [
        f"{one}: {one.first}"
        for one in PASSAGES
        if not is_by_itself(one)
        and proof_of(one) is None
        and not (one.is_shell and all(any(c in line for line in lines) for c in one.commands))
        and not any(line.startswith(f"passage {one.page} ") and _names(line, one) for line in lines)
    ]
    assert left == []


def _names(line: str, passage: Passage) -> bool:
    return shlex.split(line)[2] in passage.first


def test_each_entry_is_of_a_block_and_each_test_exists() -> None:
    unused = [
        f"{page}: {first}"
        for page, first in BLOCKS
        if not any(one.page == page and first in one.first for one in PASSAGES)
    ]
    assert unused == []
    tests = {one.test for one in (*WHOLE_PAGES.values(), *BLOCKS.values()) if isinstance(one, By)}
    assert sorted(tests - marked_tests().keys()) == []


@together(
    "passage",
    [one for one in PASSAGES if one.is_siddhi and not isinstance(proof_of(one), By)],
    ids=str,
)
def test_a_text_of_siddhi_is_planned(passage: Passage) -> None:
    proof = proof_of(passage)
    around = proof.text if isinstance(proof, Around) else "{}"
    assert plan(around.replace("{}", passage.text)).spec.groups or "table" in passage.text


def commands() -> list[tuple[Passage, str]]:
    """Every command of ours, by its block."""
    return [
        (passage, command)
        for passage in PASSAGES
        if passage.is_shell and not passage.is_drawing
        for line in passage.commands
        for command in _ours(line)
    ]


def _ours(line: str) -> Iterator[str]:
    """The calls of `mesh`, `make` and modules of ours in a line of shell."""
    for inner in re.findall(_INNER, line):
        yield from _ours(inner)
    plain = re.sub(_INNER, "VALUE", line)
    words = shlex.shlex(plain, punctuation_chars="|&;<>")
    words.whitespace_split = True
    call: list[str] = []
    for word in [*words, ";"]:
        if set(word) <= set("|&;<>"):
            while call and re.match(r"\w+=", call[0]):
                call.pop(0)
            if call and re.search(r"(?:^|/)(?:mesh|make|python)$", call[0]):
                yield " ".join(call)
            call = []
        else:
            call.append(word)


@together(("passage", "command"), commands(), ids=lambda one: str(one)[:60])
def test_a_command_has_these_arguments(
    passage: Passage, command: str, environment: Variables
) -> None:
    # Instead of asking for it.
    environment["MESH_NEW_PASSWORD"] = "twelve letters"
    program, *arguments = shlex.split(command)
    match program.rpartition("/")[2]:
        case "make":
            targets = [one for one in arguments if "=" not in one]
            makefile = (ROOT / "Makefile").read_text("utf-8")
            for target in set(targets) - {".venv/.installed"}:
                assert re.search(rf"^(?:[\w -]* )?{target}(?: [\w -]*)?:", makefile, re.M), target
        case "python":
            assert arguments[0] == "-m"
            assert arguments[1] == "venv" or importlib.util.find_spec(arguments[1]) is not None
        case _:
            parse(COMMAND, arguments, passage)


def parse(command: Any, arguments: list[str], passage: Passage) -> None:
    """Parse the arguments as the command does, without its files."""
    parent: Any = None
    try:
        while True:
            context = command.make_context(command.name, list(arguments), parent)
            if not hasattr(command, "resolve_command"):
                break
            rest = [*context._protected_args, *context.args]
            _, found, arguments = command.resolve_command(context, rest)
            assert found is not None, passage
            command, parent = found, context
    except BadParameter as error:
        # The page's files are not here.
        if "does not exist" in error.message:
            return
        raise
    for name, value in context.params.items():
        if name == "query" and isinstance(value, str):
            parse_on_demand_query(value)


@pytest.mark.parametrize(
    "passage",
    [one for one in PASSAGES if one.text.startswith(_VALUES)],
    ids=str,
)
def test_a_value_can_be_read(passage: Passage, tmp_path: Path) -> None:
    if passage.text.startswith("{"):
        text = passage.text.replace('".."', '"x"')
        lines = text.split("\n") if text.count("\n{") else [text]
        assert all(isinstance(orjson.loads(line), dict) for line in lines)
    else:
        values = yaml.safe_load(passage.text)
        assert isinstance(values, dict)
        if passage.page != "docs/stores.md":
            (tmp_path / "mesh.yaml").write_text(passage.text)
            load(tmp_path / "mesh.yaml", {})


def test_commands_in_the_prose_have_these_options() -> None:
    wrong = []
    for path in PAGES:
        text = "\n".join(prose_lines(path.read_text("utf-8")))
        for span in re.findall(r"`((?:\S*/)?mesh [a-z][^`]*)`", text):
            wrong += [f"{path.name}: {span}: {one}" for one in unknown_in(span)]
    assert wrong == []


def unknown_in(span: str) -> list[str]:
    """The command of a span, if it does not exist; its options that do not."""
    command = COMMAND
    for word in span.split()[1:]:
        if not hasattr(command, "commands"):
            break
        name = word.rstrip(",.;:")
        if name not in command.commands:
            return [name]
        command = command.commands[name]
    known = {one for option in command.params for one in (*option.opts, *option.secondary_opts)}
    return sorted(set(re.findall(r"(?<!\S)--[a-z][a-z-]*", span)) - known - {"--help"})
