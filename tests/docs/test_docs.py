"""Pages match the code: links have targets, settings exist, and each command has a line."""

from __future__ import annotations

import re
from pathlib import Path

import typer.main

from mesh.cli.commands import app
from mesh.connect import registry
from mesh.settings import Settings, to_yaml
from tests.support.paths import ROOT
from tests.support.together import together
from tools.docgen import documents

DOCUMENTS = sorted(
    [ROOT / "README.md", ROOT / "connectors" / "README.md", *(ROOT / "docs").rglob("*.md")]
)


@together("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(document: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text())
    missing = [
        link
        for link in links
        if not link.startswith("http") and not (document.parent / link).exists()
    ]
    assert missing == []


def test_every_command_is_in_the_documents() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    command = typer.main.get_command(app)
    names = set(command.commands)  # type: ignore[attr-defined]  # the app is a group
    assert {name for name in names if f"mesh {name}" not in text} == set()


def test_settings_in_the_documents_exist() -> None:
    conf = to_yaml(Settings())
    options = {f"`{option.name}`" for spec in registry.builtin_specs() for option in spec.options}
    for document in DOCUMENTS:
        if document.name == "connector.md":
            # It needs nothing of mesh; "spark." begins Spark's own settings there.
            continue
        pattern = r"`(nats|channels|manager|worker|spark|log)\.([a-z_]+)\b"
        text = document.read_text()
        for option in options if document.name == "connectors.md" else ():
            text = text.replace(option, "")
        for section, name in re.findall(pattern, text):
            assert f"\n  {name}: " in conf, f"{section}.{name} in {document.name}"


def test_what_is_made_from_the_code_is_current(rewrite: bool) -> None:
    for path, text in documents(ROOT).items():
        if rewrite:
            path.write_text(text, encoding="utf-8")
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run make docs"


@together("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_headings(document: Path) -> None:
    missing = []
    for path, anchor in re.findall(r"\]\(([^)#]*)#([^)]*)\)", document.read_text()):
        if not path.startswith("http"):
            page = (document.parent / path) if path else document
            if anchor not in _anchors(page):
                missing.append(f"{path}#{anchor}")
    assert missing == []


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}
