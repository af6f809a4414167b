"""Requests to a manager of the scene, as any client makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from bench.chaos.scene import Scene


async def ask(scene: Scene, manager: str, text: str) -> int | None:
    """POST an app to a manager; the status, None when it died over it."""
    return await call(scene, manager, "POST", "/siddhi-apps", content=text.encode())


async def call(scene: Scene, manager: str, method: str, path: str, **given: Any) -> int | None:
    """Make a request of a manager; the status, None when it died over it."""
    headers = {"Content-Type": "text/plain; charset=utf-8"}
    try:
        async with httpx.AsyncClient(timeout=30.0, headers=headers) as client:
            answer = await client.request(method, _url(scene, manager, path), **given)
            return answer.status_code
    except httpx.HTTPError:
        return None


async def says_why(scene: Scene, manager: str, reason: str) -> None:
    """Wait until a manager is not ready for a reason that has these words."""
    # Its address is read before a fault takes its heartbeats.
    url = _url(scene, manager, "/health/ready")
    async with httpx.AsyncClient(timeout=30.0) as client:

        async def says() -> bool:
            return reason in (await client.get(url)).text

        await scene.outside.until(f'manager {manager} not ready: "{reason}"', says)


def _url(scene: Scene, manager: str, path: str) -> str:
    nodes = {n.value.id: n.value.address for n in scene.outside.view.snapshot().nodes}
    return f"http://{nodes[manager]}{path}"
