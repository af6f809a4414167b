"""Forms of the pages, sent with the token that their page has."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx


async def send(client: httpx.AsyncClient, page: str, to: str = "", **values: Any) -> httpx.Response:
    """Send a form with the token of its page."""
    shown = await client.get(page, headers={"Accept": "text/html"})
    assert shown.status_code == 200, shown.text
    (token,) = set(re.findall(r'name="token" value="([^"]+)"', shown.text))
    return await client.post(to or page.partition("?")[0], data={"token": token, **values})
