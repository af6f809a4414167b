"""What ``mesh dev`` keeps from one start to the next."""

from __future__ import annotations

import socket
import stat
from typing import TYPE_CHECKING

from mesh.cli import dev_state

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_kept_is_its_owners_and_another_file_counts_as_none(tmp_path: Path) -> None:
    mine = dev_state.DevState(1, 2)
    password = mine.password("dev")
    mine.write(tmp_path)
    assert stat.S_IMODE((tmp_path / "kept.json").stat().st_mode) == 0o600
    assert dev_state.read(tmp_path).password("dev") == password
    assert dev_state.read(tmp_path) == mine
    for text in ("", "[1]", '{"other": 1}', '{"nats_port": "x"}'):
        (tmp_path / "kept.json").write_text(text)
        assert dev_state.read(tmp_path) == dev_state.DevState()


def test_a_port_is_free_unless_a_program_listens_on_it() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
        one.listen()
        assert not dev_state.is_free(port)
    assert dev_state.is_free(port)
