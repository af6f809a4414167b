"""The files that other programs read of this project name commands that exist."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.support.paths import ROOT

GITHUB = ROOT / ".github"
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))


def read(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text("utf-8"))


def test_workflows_run_what_a_developer_runs() -> None:
    jobs = read(".github/workflows/ci.yml")["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert commands == ["make check", "bash .ci/run"]
    assert {c.removeprefix("make ") for c in commands if c.startswith("make")} <= TARGETS
    assert (ROOT / ".ci" / "run").exists()


def test_folders_of_the_quick_check_exist() -> None:
    (folders,) = re.findall(r"^PURE = \$\(addprefix tests/,(.*)\)$", MAKEFILE, re.MULTILINE)
    assert [one for one in folders.split() if not (ROOT / "tests" / one).is_dir()] == []


def test_options_of_commands_are_no_variables_of_the_file() -> None:
    options = set(re.findall(r"\$\(if \$\(([A-Z_]+)\)", MAKEFILE))
    assigned = set(re.findall(r"^([A-Z_]+) *:?=", MAKEFILE, re.MULTILINE))
    assert "RUNS" in options
    assert options & assigned == set()


def test_hooks_are_the_linters_of_make() -> None:
    (local,) = read(".pre-commit-config.yaml")["repos"]
    entries = [hook["entry"].split() for hook in local["hooks"]]
    (recipe,) = re.findall(r"^LINT = (.*)$", MAKEFILE, re.MULTILINE)
    linters = [part.split("/")[1].split()[0] for part in recipe.split(" && ")]
    assert [entry[0].rpartition("/")[2] for entry in entries] == linters


@pytest.mark.parametrize("form", ["fault", "wish"])
def test_forms_have_fields(form: str) -> None:
    fields = read(f".github/ISSUE_TEMPLATE/{form}.yml")["body"]
    assert all(field["attributes"]["label"] for field in fields)


#: Pattern in each file of a checklist's example.
EXAMPLES = {
    "str:charFrequency": r"charFrequency",
    "lossyFrequent": r"lossyFrequent",
    "rabbitmq": r"(?i)rabbitmq",
    # Hints and remedies name the command, and stay as they are with another one.
    "streams": r"siddhi-apps/\{app\}/streams|AppOperations\.streams|mesh streams\b(?! (APP|\{))",
    "mesh_element_rows": r"mesh_element_rows",
}
CHECKLISTS = dict(
    re.findall(
        r"^### [^\n]*`([^`]+)`\n(.*?)(?=^###|\Z)",
        (ROOT / "CONTRIBUTING.md").read_text("utf-8"),
        re.MULTILINE | re.DOTALL,
    )
)


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_checklist_names_each_file_that_its_example_is_in(example: str) -> None:
    listed = set(re.findall(r"^- \[ \] `(.+?)`", CHECKLISTS[example], re.MULTILINE))
    texts = {
        str(path.relative_to(ROOT)): path.read_text("utf-8")
        for place in ("mesh", "conf", "docs", "pyproject.toml", *listed)
        for path in ([ROOT / place] if (ROOT / place).is_file() else (ROOT / place).rglob("*"))
        if path.suffix in {".json", ".jsonl", ".md", ".py", ".toml", ".txt", ".yaml", ".yml"}
    }
    named = {path for path, text in texts.items() if re.search(EXAMPLES[example], text)}
    # Lists of what was changed, and of what was found.
    assert listed == named - {"docs/changelog.md", "docs/threats.md"}


def test_no_script_names_a_place_beside_the_repository() -> None:
    for script in (ROOT / "Makefile", *(ROOT / ".ci").iterdir()):
        assert "../" not in script.read_text("utf-8"), script


def test_commands_of_the_first_page_exist() -> None:
    for name in ("CONTRIBUTING.md", "README.md"):
        used = re.findall(r"^    make ([a-z-]+)", (ROOT / name).read_text("utf-8"), re.MULTILINE)
        assert used
        assert set(used) <= TARGETS
