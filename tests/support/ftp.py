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

    from tests.support.certificates import Pair

_SERVER = """
import sys
from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler, TLS_FTPHandler
from pyftpdlib.servers import FTPServer

class Handler(TLS_FTPHandler if len(sys.argv) > 2 else FTPHandler):
    authorizer = DummyAuthorizer()
    # Names of files as the system has them, which may be no UTF-8.
    unicode_errors = "surrogateescape"
    # Tests open many connections within a short time.
    auth_failed_timeout = 0

if len(sys.argv) > 2:
    Handler.certfile, Handler.keyfile = sys.argv[2:]
    Handler.tls_control_required = Handler.tls_data_required = True
Handler.authorizer.add_user("mesh", "s3cret", sys.argv[1], perm="elradfmwMT")
server = FTPServer(("127.0.0.1", 0), Handler)
print(server.address[1], flush=True)
server.serve_forever()
"""


@contextlib.contextmanager
def server(directory: Path, pair: Pair | None = None) -> Iterator[str]:
    """A server of a directory; its URL with the login.  ``pair``: it takes encrypted calls only."""
    pytest.importorskip("pyftpdlib")
    if pair is not None:
        pytest.importorskip("OpenSSL")
    files = [str(pair.cert), str(pair.key)] if pair is not None else []
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(directory), *files],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port, "the FTP server did not start"
        scheme = "ftp" if pair is None else "ftps"
        yield f"{scheme}://mesh:s3cret@127.0.0.1:{port}"
    finally:
        process.terminate()
        process.communicate(timeout=10)
