"""An FTP server of tests, in a process of its own."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SERVER = """
import sys
from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.servers import FTPServer

class Handler(FTPHandler):
    authorizer = DummyAuthorizer()
    # Tests open many connections within a short time.
    auth_failed_timeout = 0

Handler.authorizer.add_user("mesh", "s3cret", sys.argv[1], perm="elradfmwMT")
server = FTPServer(("127.0.0.1", 0), Handler)
print(server.address[1], flush=True)
server.serve_forever()
"""


@contextlib.contextmanager
def server(directory: Path) -> Iterator[str]:
    """A server of a directory; its URL with the login."""
    pytest.importorskip("pyftpdlib")
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(directory)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port, "the FTP server did not start"
        yield f"ftp://mesh:s3cret@127.0.0.1:{port}"
    finally:
        process.terminate()
        process.communicate(timeout=10)
