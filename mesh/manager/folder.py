"""A watched folder of apps: new files are deployed, changed ones updated.

Each manager may watch one of its own (``manager.apps_dir``).  Notifications of the
system only trigger a poll; a decision rests on the contents of the folder.  So a change without a
notification, as on a network file system, is found by the next poll.

A manager that starts can't know which is newer, its file or the deployed app.  It deploys missing
apps, and changes only apps that were deployed from its own folder: an old copy on one of several
managers restores nothing.  An app whose file is deleted is undeployed while the manager watches,
but never because the folder itself, or the whole disk, is gone.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from watchfiles import awatch

from mesh.control.journal import JournalEntry
from mesh.errors import MeshError, all_errors
from mesh.language.naming import named
from mesh.language.substitution import substitute, variables_for
from mesh.model import names
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from mesh.model.cluster import AppRecord

log = logging.getLogger(__name__)

SUFFIX: Final = ".siddhi"
#: Period of polls without a notification, and of retries of failed calls.
LOOK_MS: Final = 2000
#: Time for which a file must be left alone: editors write one in several steps.
SETTLE_MS: Final = 200
#: Largest file, as large as a text that the API takes.
TEXT_BYTES_MAX: Final = 1_000_000


class FolderTarget(Protocol):
    """Calls of a manager that a folder needs."""

    def record(self, app: str) -> AppRecord | None:
        """The desired state of an app."""
        ...

    async def name_of(self, text: str) -> str:
        """The name of the app of a text."""
        ...

    async def update(self, text: str, *, by: str = "") -> object:
        """Deploy ``text``, in place of the app of its name."""
        ...

    async def undeploy(self, app: str, *, by: str = "") -> None:
        """Remove an app."""
        ...


@dataclass(frozen=True, slots=True)
class FolderContents:
    """Contents of the folder at one moment."""

    #: App, whose name is the file's without its suffix, to the file's text.
    texts: Mapping[str, str]
    #: Files that can't be read, by app, with the reason.
    unreadable: Mapping[str, str]

    def digest(self, app: str) -> str | None:
        """Digest of the text of an app; None if it has no file."""
        text = self.texts.get(app)
        return None if text is None else hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Deploy:
    """Deploy the file of ``app``, or update it."""

    app: str


@dataclass(frozen=True, slots=True)
class Undeploy:
    """Remove ``app``, whose file is gone."""

    app: str


@dataclass(frozen=True, slots=True)
class LeaveApp:
    """Do nothing about ``app``, and say why."""

    app: str
    why: str


def decide(
    look: FolderContents,
    done: Mapping[str, str],
    deployed: Callable[[str], AppRecord | None],
    by: str,
) -> list[Deploy | Undeploy | LeaveApp]:
    """Decide what to do about a folder.

    Args:
        look: its contents.
        done: app to the digest of the file that was processed last; empty at the start.
        deployed: desired state by name.
        by: the author of records that stem from this folder.
    """
    steps: list[Deploy | Undeploy | LeaveApp] = []
    for app in sorted(look.texts):
        if done.get(app) == look.digest(app):
            continue
        record = deployed(app)
        is_others = record is not None and not record.deleting and record.deployed_by != by
        if is_others and app not in done:
            steps.append(LeaveApp(app, "it was not deployed from this folder"))
        else:
            steps.append(Deploy(app))
    for app in sorted(set(done) - set(look.texts) - set(look.unreadable)):
        record = deployed(app)
        if record is None or record.deleting:
            continue
        if record.deployed_by == by:
            steps.append(Undeploy(app))
        else:
            steps.append(
                LeaveApp(app, "its file was removed, but it was not deployed from this folder")
            )
    return steps


def read_folder(folder: Path) -> FolderContents:
    """Read the apps in ``folder``; OSError when there is no such folder."""
    texts, unreadable = {}, {}
    for path in sorted(folder.iterdir()):
        if path.suffix != SUFFIX or path.name.startswith("."):
            continue
        app = names.app_token(path.stem)
        if not names.is_app_name(app):
            unreadable[app] = "no app can have this name"
            continue
        try:
            # Not a pipe, on which a read would wait, nor a file that no API would take.
            info = path.stat()
            if not stat.S_ISREG(info.st_mode):
                unreadable[app] = "it is no regular file"
            elif info.st_size > TEXT_BYTES_MAX:
                unreadable[app] = f"it has more than {TEXT_BYTES_MAX} bytes"
            else:
                texts[app] = path.read_bytes().decode()
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            unreadable[app] = str(error)
    return FolderContents(texts, unreadable)


@dataclass(eq=False, repr=False)
class AppsFolder:
    """Keeps apps as they are in a folder."""

    _folder: Path
    _apps: FolderTarget
    _note: Callable[[JournalEntry], None]
    manager: str
    #: Names of environment variables that files may use, separated by commas.  Others may be
    #: secrets, and users who may view apps see their texts.
    variables: str = ""
    _done: dict[str, str] = field(default_factory=dict)
    _reported: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        #: Author of the records that it writes.
        self.by = f"folder of {self.manager}"
        self._variables = {name.strip() for name in self.variables.split(",")}

    async def watch(self) -> None:
        """Deploy the contents, then follow changes, without end."""
        async for _ in self._hints():
            await self.follow()

    async def follow(self) -> None:
        """Poll once and act on the contents."""
        try:
            look = await asyncio.to_thread(read_folder, self._folder)
        except OSError as error:
            # A missing folder is not an empty one: its apps stay deployed.
            self._tell("", f"folder of apps can't be read: {error}")
            return
        self._reported.pop("", None)
        for app, reason in look.unreadable.items():
            self._tell(app, f"its file can't be read: {reason}")
        for step in decide(look, self._done, self._apps.record, self.by):
            if await self._carry_out(step, look):
                self._remember(step.app, look)

    async def _hints(self) -> AsyncIterator[None]:
        yield
        while True:
            try:
                async for _ in awatch(
                    self._folder,
                    recursive=False,
                    step=SETTLE_MS // 2,
                    debounce=SETTLE_MS,
                    rust_timeout=LOOK_MS,
                    yield_on_timeout=True,
                ):
                    yield
            except OSError:
                # The folder is gone, or the system has no more notifications to give.
                await asyncio.sleep(LOOK_MS / 1000)
                yield

    async def _carry_out(self, step: Deploy | Undeploy | LeaveApp, look: FolderContents) -> bool:
        """Whether the step is over, well or not; if not, it is tried again at the next look."""
        try:
            match step:
                case Deploy(app):
                    await self._deploy(app, look.texts[app])
                case Undeploy(app):
                    await self._apps.undeploy(app, by=self.by)
                    log.info("undeployed, its file was removed", extra=fields(app=app))
                case LeaveApp(app, why):
                    self._tell(app, f"left unchanged: {why}")
        except MeshError as error:
            text = look.texts.get(step.app)
            name = f"{names.app_of_token(step.app)}{SUFFIX}"
            self._tell(step.app, "\n".join(one.render(text, name) for one in all_errors(error)))
            return error.code != "MESH-A503"
        # A file that no check has foreseen must not keep the others from being deployed.
        except Exception as error:
            log.exception("file of an app failed", extra=fields(app=step.app))
            self._tell(step.app, f"{type(error).__name__}: {error}")
        return True

    async def _deploy(self, app: str, text: str) -> None:
        allowed = {name: os.environ[name] for name in self._variables & set(os.environ)}
        whole: str = substitute(text, variables_for(text, environment=allowed))
        whole = named(whole, names.app_of_token(app))
        other = await self._apps.name_of(whole)
        if other != app:
            held = names.app_of_token(other)
            raise MeshError(
                "MESH-A106",
                f'file "{names.app_of_token(app)}{SUFFIX}" holds app "{held}"',
                detail="In a folder of apps the file has the name of its app.",
                hint=f'Rename it to "{held}{SUFFIX}".',
            )
        await self._apps.update(whole, by=self.by)
        self._reported.pop(app, None)
        log.info("deployed from its file", extra=fields(app=app))

    def _remember(self, app: str, look: FolderContents) -> None:
        digest = look.digest(app)
        if digest is None:
            self._done.pop(app, None)
        else:
            self._done[app] = digest

    def _tell(self, app: str, text: str) -> None:
        """Say something once, in the log and in the app's story."""
        if self._reported.get(app) == text:
            return
        self._reported[app] = text
        log.error("file of an app", extra=fields(app=app, folder=self._folder, error=text))
        if app:
            self._note(JournalEntry(f"did not follow the file of {app}", text, by=self.by, app=app))
