"""Calls of blocking clients, in threads of the host."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(call: Callable[P, T], *arguments: P.args, **more: P.kwargs) -> T:
    """The result of a call; it ends before a cancelled caller continues.

    A client must not be closed while a thread uses it.
    """
    task = asyncio.create_task(asyncio.to_thread(call, *arguments, **more))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):
            await task
        raise
