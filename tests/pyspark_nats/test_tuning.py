"""The recommended settings: complete in the documents, and really set in the mesh's session."""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from pathlib import Path

import pyspark
import pytest

from mesh.spark import session
from pyspark_nats import tuning

_ALL = tuning.SETTINGS + tuning.JAVA_SETTINGS + tuning.JAVA_SETTINGS_LARGE


@pytest.mark.parametrize("setting", _ALL, ids=lambda one: one.key)
def test_every_setting_says_why_and_what_was_measured(setting: tuning.Setting) -> None:
    assert setting.reason.endswith(".")
    assert re.search(r"\d", setting.effect), "an effect is a figure"


def test_a_setting_stands_once() -> None:
    keys = [one.key for one in _ALL]

    assert len(keys) == len(set(keys))
    assert len(tuning.RECOMMENDED_CONF) == len(tuning.SETTINGS)


def test_the_session_of_the_mesh_has_the_recommended_settings() -> None:
    for key, value in tuning.RECOMMENDED_CONF.items():
        assert session.CONF[key] == value


def test_what_is_the_meshs_own_repeats_nothing() -> None:
    assert not set(session.MESH_CONF) & set(tuning.RECOMMENDED_CONF)


def test_a_lean_home_has_the_jars_and_no_python(tmp_path: Path) -> None:
    home = tuning.lean_home(tmp_path / "kept" / "spark", tmp_path / "spare")

    assert home == tmp_path / "kept" / "spark"
    assert (home / "jars").is_dir()
    assert (home / "bin" / "spark-submit").exists()
    assert not (home / "python").exists()
    assert not (tmp_path / "spare").exists()


def test_a_lean_home_that_is_there_is_used_again(tmp_path: Path) -> None:
    wanted = tmp_path / "spark"
    tuning.lean_home(wanted, tmp_path / "spare")
    made = wanted.stat().st_ino

    assert tuning.lean_home(wanted, tmp_path / "spare") == wanted
    assert list(tmp_path.iterdir()) == [wanted]
    assert wanted.stat().st_ino == made


def test_a_lean_home_whose_links_lead_nowhere_is_made_again(tmp_path: Path) -> None:
    wanted = tmp_path / "spark"
    wanted.mkdir()
    for name in ("bin", "jars", "sbin"):
        (wanted / name).symlink_to(tmp_path / "gone" / name)

    assert tuning.lean_home(wanted, tmp_path / "spare") == wanted
    assert (wanted / "bin" / "spark-submit").exists()
    assert (wanted / "jars").is_dir()


def test_a_lean_home_is_for_every_user_of_the_installation(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        home = tuning.lean_home(tmp_path / "spark", tmp_path / "spare")
    finally:
        os.umask(before)

    assert stat.S_IMODE(home.stat().st_mode) == 0o755


def test_a_lean_home_leaves_out_the_jars_that_are_named(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        home = tuning.lean_home(tmp_path / "spark", tmp_path / "spare", tuning.UNUSED_JARS)
    finally:
        os.umask(before)

    jars = home / "jars"
    kept = {jar.name for jar in jars.iterdir()}
    installed = {jar.name for jar in (Path(pyspark.__file__).parent / "jars").iterdir()}
    assert kept < installed
    for pattern in tuning.UNUSED_JARS:
        assert fnmatch.filter(installed, pattern), "the pattern names no jar of Spark any more"
        assert not fnmatch.filter(kept, pattern)
    # Queries, Parquet and ORC, and the masters of clusters.
    for name in ("spark-sql_", "parquet-hadoop-", "hive-storage-api-", "spark-yarn_", "spark-kub"):
        assert any(one.startswith(name) for one in kept), name
    assert stat.S_IMODE(jars.stat().st_mode) == 0o755


def test_a_lean_home_goes_elsewhere_where_nothing_can_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")

    home = tuning.lean_home(blocked / "spark", tmp_path / "spare")

    assert home == tmp_path / "spare"
    assert (home / "jars").is_dir()
