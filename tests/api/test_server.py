"""The server of the API: settings that it refuses, and pages of other sites."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.api.server import ApiServer, listen
from mesh.errors import MeshError
from mesh.settings import ManagerSettings
from tests.support.api import FakeService
from tests.support.api_asked import ask

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://elsewhere.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "rebound.example"}, 403),
        ({"Host": "localhost:9543"}, 200),
    ],
)
def test_pages_of_other_sites_do_not_reach_an_anonymous_api(
    headers: dict[str, str], status: int
) -> None:
    assert ask(FakeService(), "GET", "/siddhi-apps", headers=headers).status_code == status


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        (ManagerSettings(port=0, host="0.0.0.0", anonymous=True), "MESH-A102"),
        (ManagerSettings(port=0, host="0.0.0.0", users_file="users"), "MESH-A103"),
        (ManagerSettings(port=0, anonymous=True, tls_cert="only.crt"), "MESH-A104"),
        (ManagerSettings(port=0, host="192.0.2.1", users_file="u", tls_cert="c", tls_key="k"),
         "MESH-A105"),
    ],
)  # fmt: skip
def test_settings_that_leave_the_api_open_are_refused(settings: ManagerSettings, code: str) -> None:
    with pytest.raises(MeshError) as error:
        listen(settings)
    assert error.value.code == code


@pytest.mark.parametrize("text", [None, "", "ada\n", "ada:plain\n", ":$argon2\n"])
def test_a_users_file_without_users_is_refused(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "users"
    if text is not None:
        path.write_text(text)
    settings = ManagerSettings(port=0, users_file=str(path))
    listener = listen(settings)
    with pytest.raises(MeshError) as error:
        ApiServer(FakeService().as_manager, settings, listener)
    listener.close()
    assert error.value.code in ("MESH-A100", "MESH-A102")
