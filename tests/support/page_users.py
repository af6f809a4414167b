"""Users at the pages."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx

from mesh.api.users import hash_of
from mesh.jetstream.directory import DirectoryUser
from mesh.model.access import ROLES, Grant

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.dashboard import Site

HTML = {"Accept": "text/html"}


async def user(at: Site, name: str, role: str, apps: str = "*") -> None:
    """A user of the directory whose password is ``pw``."""
    hashed = await asyncio.to_thread(hash_of, name, "pw")
    await at.directory.put_user(DirectoryUser(name, hashed, (Grant(ROLES[role], apps),)))


@asynccontextmanager
async def browser(at: Site, name: str = "") -> AsyncIterator[httpx.AsyncClient]:
    """A client that has signed in."""
    async with httpx.AsyncClient(base_url=at.url, headers=HTML, timeout=30) as client:
        if name:
            done = await client.post("/login", data={"user": name, "password": "pw"})
            assert done.status_code == 303, done.text
        yield client
