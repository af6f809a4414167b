"""The commands of the pages on one cluster of `mesh dev`, and their output beside the one recorded.

A file of ``tests/cases/pages`` has the commands of a page word for word, in order, and what they
print; ``test_blocks.py`` compares them with the page.  A case has a shell of its own in the
directory of its file, in which ``passage PAGE WORDS`` prints the page's block with ``WORDS``, and
``mesh`` and ``nats`` are those of this checkout.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cli.test_dev import Dev, running_dev, whole_tree
from tests.support import case_files
from tests.support.pages import every_passage
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.thorough,
    pytest.mark.timeout(500),
]  # fmt: skip

CASES = sorted((ROOT / "tests" / "cases" / "pages").glob("*.txt"))
#: Of a case, before it is ended.
COMMAND_S = 60
#: Of a command that is repeated until it says what it should.
UNTIL_S = 30
PRELUDE = f"""
mesh() {{ {shlex.quote(sys.executable)} -m mesh.cli "$@"; }}
nats() {{ {shlex.quote(sys.executable)} -m tests.support.nats_command "$@"; }}
python() {{ {shlex.quote(sys.executable)} "$@"; }}
until_said() {{
  local words=$1 end=$((SECONDS + {UNTIL_S})); shift
  until "$@" > said 2>&1; grep -q "$words" said; do
    if (( SECONDS > end )); then echo "$words: not in"; cat said; return 1; fi
  done
}}
"""
#: Parts of outputs that differ from run to run, with the words of the files for them.
VARYING = (
    # Progress, before its times are replaced.
    (re.compile(r"(?m)^.* \([^()\n]*\d+ s[^()\n]*\) \.\.\.\n"), ""),
    (re.compile(r" {3,}"), "  "),
    (re.compile(r"(?<=//)(\w+):[^@\s]+(?=@)"), r"\1:PASSWORD"),
    (re.compile(r"(127\.0\.0\.1|localhost):\d{4,5}"), r"\1:PORT"),
    (re.compile(r"(?<=  password )\S+"), "PASSWORD"),
    (re.compile(r"mesh_[\w-]{30,}"), "TOKEN"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?"), "TIME"),
    (re.compile(r"\b\d{4}-\d\d-\d\d\b"), "DATE"),
    (re.compile(r"\b\d\d:\d\d:\d\d(\.\d+)?\b"), "TIME"),
    (re.compile(r"\b1[789]\d{11}(\.0)?\b"), "MS"),
    (re.compile(r"(?<![\w.])\d+(\.\d+)? ?(ms|s|min|h)\b"), "N s"),
    (re.compile(r"(?<![\w.])\d+(\.\d+)? ?(B|kB|MB|GB|GiB)\b"), "N B"),
    (re.compile(r"\b(\d+)%"), "N%"),
    (re.compile(r"\d{8}T\d{6}-\d+"), "REVISION"),
    # The counters of an instance are reported a moment later.
    (re.compile(r"(?<=  running  )\d[ \d.]*"), ".."),
    (re.compile(r"─+"), "─"),
)


class Page:
    """A shell beside the cluster."""

    def __init__(self, dev: Dev, said: str) -> None:
        self.dev = dev
        #: Output of `mesh dev` until the manager was up.
        self.said = said
        self.urls = dict(re.findall(r"NATS (\w+) +(\S+)", said))
        (self.api,) = re.findall(r"https://\S+", said)
        (self.password,) = re.findall(r"password (\S+)", said)
        (self.ca,) = re.findall(r"certificate (\S+)\)", said)
        nats_at = self.urls["publisher"].rpartition("@")[2]
        self.own = {
            "publisher:PASSWORD@127.0.0.1:4222": self._login("publisher", nats_at),
            "reader:PASSWORD@127.0.0.1:4222": self._login("reader", nats_at),
            "https://localhost:9543": self.api,
            "https://m1:9543": self.api,
            "dev:PASSWORD": f"dev:{self.password}",
            ".mesh/dev/api.crt": self.ca,
            # A worker, a user and a token of the dev cluster in place of the page's.
            "curl -u ada -d": f"curl -sS --cacert {self.ca} -u dev:{self.password} -d",
            "curl -X POST": "curl -sS -X POST",
            "MESH_TOKEN=mesh_.. ": "",
            "mesh dev &": "",
        }

    def _login(self, name: str, address: str) -> str:
        return str(self.urls[name].removeprefix("nats://").rpartition("@")[0]) + "@" + address

    def run(self, directory: Path, given: str) -> str:
        """The output of the commands, without what differs from run to run."""
        if given == ". .venv/bin/activate\nmesh dev":
            return self.constant(self.said)
        lines = [_passages(line, directory) for line in given.split("\n")]
        command = "\n".join(line for line in lines if line)
        for shown, own in self.own.items():
            command = command.replace(shown, own)
        environment = self.dev.environment | {
            "PUBLISHER": self.urls["publisher"],
            "READER": self.urls["reader"],
        }
        done = subprocess.run(
            ["timeout", str(COMMAND_S), "bash", "-uo", "pipefail", "-c", PRELUDE + command],
            cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False,
        )  # fmt: skip
        ended = "" if done.returncode == 0 else f"\nexit code {done.returncode}"
        return self.constant(done.stdout.replace(str(directory), ".") + ended)

    def constant(self, text: str) -> str:
        text = text.replace(str(self.dev.directory), "DIRECTORY")
        for pattern, instead in VARYING:
            text = pattern.sub(instead, text)
        return "\n".join(line.rstrip() for line in text.split("\n"))


def _passages(line: str, directory: Path) -> str:
    """Write the file of a line ``passage PAGE WORDS > FILE``; other lines stay."""
    words = shlex.split(line, comments=True) if line.startswith("passage ") else []
    if not words:
        return line
    _, page, start, how, name = words
    (found,) = (one for one in every_passage() if one.page == page and start in one.first)
    with (directory / name).open("a" if how == ">>" else "w") as file:
        file.write(found.text + "\n")
    return ""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    (running,) = [running_dev(tmp_path_factory.mktemp("pages"))]
    dev = next(running)
    said = dev.wait_for("Ctrl-C ends all")
    whole_tree(dev)
    yield Page(dev, said)
    next(running, None)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_commands_of_the_page_print_what_is_recorded(
    page: Page, tmp_path: Path, path: Path, rewrite: bool
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    case_files.check(path, lambda given: page.run(tmp_path, given), rewrite=rewrite)
