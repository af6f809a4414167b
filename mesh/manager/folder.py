"""A folder of apps: what is put into it is deployed, what is changed there updated.

Each manager may watch one of its own (``manager.apps_dir``).  The system's notifications only say
when to look; what is done follows from what is in the folder then, so that one which is never
notified of, as on a network file system, is found by the next look.

A manager that starts can't know which is newer, its file or what is deployed.  It deploys what is
missing, and changes only what was deployed from its own folder before: an old copy on one of
several managers brings back nothing.  What is gone from the folder is undeployed while the manager
watches, and never because the folder itself, or the whole disk, has gone.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from watchfiles import awatch

from mesh.control.journal import Entry
from mesh.errors import MeshError, all_errors
from mesh.language.parser import parse_app
from mesh.language.substitution import substitute, variables_for
from mesh.logs import fields
from mesh.plan.groups import app_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from mesh.model.cluster import AppRecord

log = logging.getLogger(__name__)

SUFFIX: Final = ".siddhi"
#: How often the folder is looked at where nothing is heard of it, and failed calls tried again.
LOOK_MS: Final = 2000
#: How long a file must be left alone: editors write one in several steps.
SETTLE_MS: Final = 200


class Apps(Protocol):
    """What a folder needs of a manager."""

    def record(self, app: str) -> AppRecord | None:
        """What is desired under a name."""
        ...

    async def update(self, text: str, *, by: str = "") -> object:
        """Deploy ``text``, in the place of what is deployed under its name."""
        ...

    async def undeploy(self, app: str) -> None:
        """Remove an app."""
        ...


@dataclass(frozen=True, slots=True)
class Look:
    """What was in the folder at one moment."""

    #: App, which is the file's name without its suffix, to the file's text.
    texts: Mapping[str, str]
    #: Files that can't be read, by app, with the reason.
    unreadable: Mapping[str, str]

    def digest(self, app: str) -> str | None:
        """Tells texts of one app apart; None when there is no file."""
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
class Leave:
    """Do nothing about ``app``, and say why."""

    app: str
    why: str


def decide(
    look: Look,
    done: Mapping[str, str],
    deployed: Callable[[str], AppRecord | None],
    by: str,
) -> list[Deploy | Undeploy | Leave]:
    """What is to be done about a folder.

    Args:
        look: what is in it.
        done: app to the digest of the file that was last dealt with; empty at the start.
        deployed: what is desired under a name.
        by: whom a record names that was made from this folder.
    """
    steps: list[Deploy | Undeploy | Leave] = []
    for app in sorted(look.texts):
        if done.get(app) == look.digest(app):
            continue
        record = deployed(app)
        is_others = record is not None and not record.deleting and record.deployed_by != by
        if is_others and app not in done:
            steps.append(Leave(app, "it was not deployed from this folder"))
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
                Leave(app, "its file was removed, but it was not deployed from this folder")
            )
    return steps


def look_into(folder: Path) -> Look:
    """Read the apps in ``folder``; OSError when there is no such folder."""
    texts, unreadable = {}, {}
    for path in sorted(folder.iterdir()):
        if path.suffix != SUFFIX or path.name.startswith("."):
            continue
        try:
            texts[path.stem] = path.read_bytes().decode()
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            unreadable[path.stem] = str(error)
    return Look(texts, unreadable)


class AppsFolder:
    """Keeps apps as they are in a folder."""

    def __init__(
        self, folder: Path, apps: Apps, note: Callable[[Entry], None], manager: str
    ) -> None:
        self._folder = folder
        self._apps = apps
        self._note = note
        #: Whom records that it makes name.
        self.by = f"folder of {manager}"
        self._done: dict[str, str] = {}
        self._told: dict[str, str] = {}

    async def watch(self) -> None:
        """Deploy what is there, then follow what changes, for ever."""
        async for _ in self._hints():
            await self.follow()

    async def follow(self) -> None:
        """Look once, and do what follows from it."""
        try:
            look = look_into(self._folder)
        except OSError as error:
            # Not the same as an empty one: what was deployed from it stays.
            self._tell("", f"folder of apps can't be read: {error}")
            return
        self._told.pop("", None)
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
                # The folder is gone; this waits like the notification does.
                async for _ in awatch(
                    self._folder.parent, rust_timeout=LOOK_MS, yield_on_timeout=True
                ):
                    break
                yield

    async def _carry_out(self, step: Deploy | Undeploy | Leave, look: Look) -> bool:
        """Whether the step is over, well or not; if not, it is tried again at the next look."""
        try:
            match step:
                case Deploy(app):
                    await self._deploy(app, look.texts[app])
                case Undeploy(app):
                    await self._apps.undeploy(app)
                    log.info("undeployed, its file was removed", extra=fields(app=app))
                case Leave(app, why):
                    self._tell(app, f"left unchanged: {why}")
        except MeshError as error:
            text, name = look.texts.get(step.app), f"{step.app}{SUFFIX}"
            self._tell(step.app, "\n".join(one.render(text, name) for one in all_errors(error)))
            return error.code != "MESH-A503"
        return True

    async def _deploy(self, app: str, text: str) -> None:
        whole = substitute(text, variables_for(text))
        named = app_name(parse_app(whole))
        if named != app:
            raise MeshError(
                "MESH-A106",
                f'file "{app}{SUFFIX}" holds app "{named}"',
                detail="In a folder of apps the file has the name of its app.",
                hint=f'Rename it to "{named}{SUFFIX}".',
            )
        await self._apps.update(whole, by=self.by)
        self._told.pop(app, None)
        log.info("deployed from its file", extra=fields(app=app))

    def _remember(self, app: str, look: Look) -> None:
        digest = look.digest(app)
        if digest is None:
            self._done.pop(app, None)
        else:
            self._done[app] = digest

    def _tell(self, app: str, text: str) -> None:
        """Say something once, in the log and in the app's story."""
        if self._told.get(app) == text:
            return
        self._told[app] = text
        log.error("file of an app", extra=fields(app=app, folder=self._folder, error=text))
        if app:
            self._note(Entry(f"did not follow the file of {app}", text, by=self.by, app=app))
