"""The extension of VS Code is packed as its page says."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from typing import TYPE_CHECKING

import pytest

from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.extended
def test_the_extension_is_packed(tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    # As `mesh install editor --write` does.
    directory = tmp_path / "siddhiql"
    shutil.copytree(ROOT / "examples" / "editor", directory)
    try:
        install = ["npm", "install", "--no-audit", "--no-fund"]
        subprocess.run(install, cwd=directory, capture_output=True, timeout=180, check=True)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"its packages can't be had from npm: {error}")
    # It needs no network.
    environment = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), "http://localhost:9")
    environment |= {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    command = ["npm", "run", "--offline", "package"]
    packed = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert packed.returncode == 0, packed.stderr
    (made,) = directory.glob("siddhiql-*.vsix")
    names = zipfile.ZipFile(made).namelist()
    assert "extension/extension.js" in names
    assert "extension/node_modules/vscode-languageclient/node.js" in names
