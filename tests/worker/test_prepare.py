"""What `mesh.worker.prepare` says where there is no archive of Spark's classes."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

import pytest

from mesh.spark import class_archive
from mesh.worker import prepare

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.environment import Variables


pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(class_archive, "directory", lambda: tmp_path)
    monkeypatch.setattr(prepare, "_java", lambda *_: True)


def test_a_session_that_takes_too_long_is_not_blamed_on_java(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prepare, "_SESSION_S", 0.01)
    assert prepare.make() == "a session was not ready after 0.01 s; is the machine busy?"


def test_a_session_that_fails_is_named_with_its_reason(environment: Variables) -> None:
    environment["PYTHONPATH"] = "/nowhere"
    environment["PYTHONSAFEPATH"] = "1"
    environment["PYTHONHOME"] = "/nowhere"
    found = prepare.make()
    assert isinstance(found, str)
    assert found.startswith("a session ended with 1: ")


def test_a_java_that_can_not_write_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "_java", lambda *_: False)
    assert "cannot write one" in str(prepare.make())


def test_java_that_has_not_finished_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(prepare, "_JVM_S", 0)
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    assert str(prepare.make()).startswith("Java had not written it 0 s after")


def test_the_archive_of_an_installation_in_a_path_with_a_blank_is_one_option(
    environment: Variables, tmp_path: Path
) -> None:
    path = tmp_path / "a path" / "spark.jsa"
    path.parent.mkdir()
    path.touch()
    assert f"-XX:SharedArchiveFile={path}" in shlex.split(class_archive.java_option(path))
    environment[class_archive.WRITE_VARIABLE] = "1"
    new = class_archive.unfinished(path)
    assert f"-XX:ArchiveClassesAtExit={new}" in shlex.split(class_archive.java_option(path))
