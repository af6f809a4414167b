"""Settings: origin of values, refused values, and agreement with conf/mesh.yaml."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from mesh import settings
from mesh.errors import MeshError
from tests.support.paths import ROOT

CONF = ROOT / "conf" / "mesh.yaml"


def test_conf_lists_every_setting_as_the_code_has_it() -> None:
    assert CONF.read_text() == settings.to_yaml(settings.Settings()), "run 'make conf'"


def test_conf_read_back_is_the_defaults() -> None:
    assert settings.load(CONF, {}) == settings.Settings()


def test_every_setting_has_one_sentence() -> None:
    lines = CONF.read_text().splitlines()
    comments = [line.strip() for line in lines if line.startswith("  #")]
    assert comments
    assert all(c.endswith(".") and len(c) > 10 for c in comments)


def test_the_environment_comes_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mesh.yaml"
    path.write_text("nats:\n  url: nats://file:1\nmanager:\n  port: 1\nlog:\n")
    loaded = settings.load(path, {"MESH_MANAGER_PORT": "2", "MESH_WORKER_TTL_S": "3"})
    assert loaded.nats.url == "nats://file:1"
    assert loaded.manager.port == 2
    assert loaded.worker.ttl_s == 3.0


def test_text_from_the_environment_stays_as_it_is() -> None:
    assert settings.load(None, {"MESH_NATS_PASSWORD": "0123"}).nats.password == "0123"


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("- a\n", "MESH-U100", "no mapping"),
        ("nats: {url: [\n", "MESH-U100", "can't be read"),
        ("natz: {}\n", "MESH-U101", '"natz" does not exist'),
        ("nats: {adress: x}\n", "MESH-U101", '"nats.adress" does not exist'),
        ("manager: {port: '1'}\n", "MESH-U102", "a whole number"),
        ("nats: {password: 0123}\n", "MESH-U102", "takes text"),
        ("manager: {port: true}\n", "MESH-U102", "a whole number"),
        ("manager: {lease_ttl_s: .nan}\n", "MESH-U103", "is nan; it has to be above 0"),
        ("manager: {lease_ttl_s: 0}\n", "MESH-U103", "is 0; it has to be above 0"),
        ("worker: {ttl_s: -1}\n", "MESH-U103", "is -1; it has to be above 0"),
        ("worker: {leave_s: .inf}\n", "MESH-U103", "is inf; it has to be 0 or more"),
        ("channels: {replicas: 6}\n", "MESH-U103", "is 6; it has to be 1 to 5"),
        ("channels: {partitions: 0}\n", "MESH-U103", "is 0; it has to be 1 or more"),
        ("manager: {port: 65536}\n", "MESH-U103", "it has to be 0 to 65535"),
        (
            "log: {level: chatty}\n",
            "MESH-U103",
            'is "chatty"; it has to be DEBUG, INFO, WARNING or ERROR',
        ),
        ("log: {style: xml}\n", "MESH-U103", 'is "xml"; it has to be text or json'),
        ("nats: {creds: a.creds, user: b}\n", "MESH-U104", "contradict"),
    ],
)
def test_a_file_that_says_something_else_is_refused(
    tmp_path: Path, text: str, code: str, words: str
) -> None:
    path = tmp_path / "mesh.yaml"
    path.write_text(text)
    with pytest.raises(MeshError) as error:
        settings.load(path, {})
    assert error.value.code == code
    assert words in error.value.message


@pytest.mark.parametrize("password", ["12345678", "-1.5", "2026-01-01", "[a, b]"])
def test_a_password_that_is_no_text_is_not_shown(tmp_path: Path, password: str) -> None:
    path = tmp_path / "mesh.yaml"
    path.write_text(f"nats: {{password: {password}}}\n")
    with pytest.raises(MeshError, match="U102") as error:
        settings.load(path, {})
    assert password not in error.value.render()


def test_every_default_is_within_its_bounds() -> None:
    for section in fields(settings.Settings()):
        values = getattr(settings.Settings(), section.name)
        for one in fields(values):
            value = getattr(values, one.name)
            assert isinstance(value, str) or one.metadata["bounds"].hold(value), one.name


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MeshError, match="can't be read"):
        settings.load(tmp_path / "none.yaml", {})


def test_a_variable_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(MeshError, match="can't be read"):
        settings.load(None, {"MESH_MANAGER_PORT": "[1"})
    with pytest.raises(MeshError, match="a whole number"):
        settings.load(None, {"MESH_MANAGER_PORT": "many"})


@pytest.mark.parametrize("level", ["WARNING", "warning"])
def test_a_choice_may_be_written_in_small_letters(level: str) -> None:
    assert settings.load(None, {"MESH_LOG_LEVEL": level}).log.level == "WARNING"
