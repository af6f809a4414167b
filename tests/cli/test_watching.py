"""`mesh init` and `mesh dev --watch`: a new project, its test, and its app at each save."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from mesh.cli.commands import app
from mesh.cli.watching import changed, deploy_file, removed, texts_of
from mesh.client import ClientContext
from tests.cli.test_dev import Dev, running_dev, whole_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

EDITS = 10
PASS = """@App:name('Shop')
define stream Orders (n int);
@info(name='pass') from Orders select n, {edit} as edit insert into Passed;
"""


def test_a_new_project_passes_its_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["init", "shop"]).exit_code == 0
    names = {path.name for path in (tmp_path / "shop").iterdir()}
    assert names == {
        "README.md", "compose.override.yaml", "shop.events.jsonl", "shop.expected.jsonl",
        "shop.siddhi",
    }  # fmt: skip
    assert "@App:name('Shop')" in (tmp_path / "shop" / "shop.siddhi").read_text()
    assert "mesh tap Shop Totals" in (tmp_path / "shop" / "README.md").read_text()
    said = CliRunner().invoke(app, ["test", "shop/shop.siddhi"])
    assert (said.exit_code, "as expected" in said.stdout) == (0, True)
    assert CliRunner().invoke(app, ["format", "--check", "shop/shop.siddhi"]).exit_code == 0

    again = CliRunner().invoke(app, ["init", "shop"])
    assert again.exit_code == 1
    assert "MESH-U163" in again.stderr
    for name in ("a/b", "..", "a.b", ""):
        assert CliRunner().invoke(app, ["init", name]).exit_code == 1


def test_files_that_are_new_or_changed_are_deployed_and_others_are_not(tmp_path: Path) -> None:
    one, two = tmp_path / "one.siddhi", tmp_path / "two.siddhi"
    one.write_text("a")
    two.write_text("b")
    (tmp_path / "bytes.siddhi").write_bytes(b"\xff\xfe")
    (tmp_path / "other.txt").write_text("c")
    before = texts_of(tmp_path)
    assert changed({}, before) == [one, two]
    one.write_text("a")
    two.write_text("d")
    assert changed(before, texts_of(tmp_path)) == [two]
    one.unlink()
    assert removed(before, texts_of(tmp_path)) == [one]


def test_every_error_is_shown_with_its_line_and_nothing_is_sent(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = "@App:name('A')\ndefine stream S (a int);\nfrom S select b insert into T;\n"
    path = tmp_path / "a.siddhi"
    said: list[str] = []
    # A context without a server: a request would fail with another error.
    assert not deploy_file(ClientContext(), path, text, said.append)
    shown = capfd.readouterr().err
    assert "a.siddhi:3:15" in shown
    assert "^" in shown
    assert said == ["a.siddhi is not deployed; it is tried again when you save it"]


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Dev]:
    yield from running_dev(tmp_path, "--watch")


@pytest.mark.extended
@pytest.mark.nats
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_ten_edits_under_load_lose_and_double_nothing(watching: Dev) -> None:
    path = watching.directory / "shop.siddhi"
    # With a session, which starts slowly on a busy machine, the app runs soon.
    watching.wait_for("The manager is up")
    whole_tree(watching)
    path.write_text(PASS.format(edit=0))
    watching.wait_for('app "Shop" runs')

    publishing = subprocess.Popen(
        [sys.executable, "-m", "mesh.cli", "publish", "Shop", "Orders"],
        cwd=watching.directory, env=watching.environment, stdin=subprocess.PIPE,
    )  # fmt: skip
    assert publishing.stdin is not None
    ended = threading.Event()
    count = 0

    def publish() -> None:
        nonlocal count
        assert publishing.stdin is not None
        # 200 a second until the edits are done.
        while not ended.wait(0.005):
            os.write(publishing.stdin.fileno(), f'{{"n": {count}}}\n'.encode())
            count += 1

    writer = threading.Thread(target=publish)
    writer.start()
    try:
        for edit in range(1, EDITS + 1):
            path.write_text(PASS.format(edit=f"b{edit}"))
            watching.wait_for("is not deployed")
            path.write_text(PASS.format(edit=edit))
            assert 'app "Shop" runs' in watching.wait_for("group default is")
    finally:
        ended.set()
        writer.join()
        publishing.stdin.close()
        assert publishing.wait(60) == 0
    assert count > 100
    wanted = ["tap", "Shop", "Passed", "--from-start", "--count", str(count)]
    rows = [json.loads(line) for line in watching.mesh(*wanted).splitlines()]
    assert [row["n"] for row in rows] == list(range(count))
    edits = [row["edit"] for row in rows]
    assert edits == sorted(edits)
    assert edits[-1] == EDITS
    # The report on the last run follows within about a second.
    behind = 1
    while behind:
        (instance,) = json.loads(watching.mesh("status", "Shop", "-o", "json"))["instances"]
        behind = instance["behind"]
