"""``mesh dev --watch``: deploys the apps of a folder, and again when one is saved."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from mesh.cli.apps import deploy_and_wait, describe_deploy
from mesh.cli.client import CommandClient
from mesh.cli.options import filled
from mesh.cli.output import show_error
from mesh.errors import MeshError, all_errors
from mesh.plan.build import plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from mesh.client import ClientContext

SUFFIX: Final = ".siddhi"
#: A file that is left alone for so long is complete: editors write one in several steps.
SETTLE_MS: Final = 100
#: Period of looks without a notification.
LOOK_MS: Final = 500
#: Time for an app to run, also while the first session starts.
RUN_S: Final = 60.0


def texts_of(folder: Path) -> dict[Path, str]:
    """The apps of a folder; a file that vanishes or has other bytes than text is left out."""
    texts = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            texts[path] = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError):
            continue
    return texts


def changed(before: Mapping[Path, str], now: Mapping[Path, str]) -> list[Path]:
    """The files that are new or have another text, in order."""
    return [path for path, text in now.items() if before.get(path) != text]


def removed(before: Mapping[Path, str], now: Mapping[Path, str]) -> list[Path]:
    """The files that have vanished, in order."""
    return [path for path in before if path not in now]


async def keep_deployed(at: ClientContext, folder: Path, say: Callable[[str], None]) -> None:
    """Deploy each app of ``folder`` now and whenever it is saved, without end.

    An error is shown with its line, and the app continues with its last text.  The app of a removed
    file stays deployed: a file is easily moved, and its states are not easily made again.
    """
    # Imported late: only this option needs it.
    from watchfiles import awatch

    previous: dict[Path, str] = {}
    # A look without a notification finds the first texts, and changes on a network file system.
    async for _ in awatch(
        folder, step=SETTLE_MS, recursive=False, yield_on_timeout=True, rust_timeout=LOOK_MS
    ):
        now = texts_of(folder)
        for path in removed(previous, now):
            say(f"{path.name} is gone; its app stays deployed: mesh undeploy removes it")
        todo, previous = changed(previous, now), now
        for path in todo:
            await asyncio.to_thread(deploy_file, at, path, now[path], say)


def deploy_file(at: ClientContext, path: Path, text: str, say: Callable[[str], None]) -> bool:
    """Deploy one text, and show its outcome or its errors; whether it was accepted."""
    try:
        text = filled(text, {}, path)
        # Here all errors are found; a manager reports the first.
        plan(text)
        with CommandClient(at) as client:
            say(f"{path.name}: {describe_deploy(deploy_and_wait(client, text, RUN_S))}")
    except MeshError as error:
        for one in all_errors(error):
            show_error(one, text, path.name)
        say(f"{path.name} is not deployed; it is tried again when you save it")
        return False
    return True
