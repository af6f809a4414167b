"""Files that are written as a whole, on a disk that is full: ``/dev/full`` refuses each write."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from mesh.files.whole_files import is_full, replacing
from mesh.jetstream.blob_store import put_durably
from mesh.jetstream.connection import unreachable

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_is_the_earlier_one_or_the_new_one(tmp_path: Path) -> None:
    path, temporary = tmp_path / "a", tmp_path / "a.tmp"
    with replacing(path, temporary) as file:
        file.write(b"1")
        assert not path.exists()

    def fail() -> None:
        with replacing(path, temporary) as file:
            file.write(b"2")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert path.read_bytes() == b"1"
    assert os.listdir(tmp_path) == ["a"]


def test_a_full_disk_is_named_with_the_path_and_nothing_stays_on_it(tmp_path: Path) -> None:
    path, temporary = tmp_path / "a", tmp_path / "a.tmp"
    temporary.symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device: '.*/a'") as full:
        put_durably(path, [b"x" * 100_000])
    assert full.value.errno == errno.ENOSPC
    assert is_full(full.value)
    assert os.listdir(tmp_path) == []
    error = unreachable(full.value)
    assert (error.code, error.message) == (
        "MESH-A503",
        "this process has no space left on its disk",
    )
    assert str(path) in str(error.detail)
    # A quota is no other reason, and a connection that is lost is none.
    assert is_full(OSError(errno.EDQUOT, "Disk quota exceeded"))
    assert unreachable(ConnectionResetError(errno.ECONNRESET, "reset")).message != error.message
