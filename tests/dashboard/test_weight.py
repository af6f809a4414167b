"""Bytes that a browser loads of each page: with its files, as they are sent."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import httpx
import pytest

from tests.dashboard.test_browser import PAGES, shop
from tests.support.dashboard import site

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats

WEIGHT_MAX: Final = 400_000
_FILES: Final = re.compile(r'<(?:script|link|img)[^>]* (?:src|href)="([^"]+)"')
#: Other files that a style loads.
_LOADS: Final = re.compile(r"""@import|url\((?!["']?(?:data:|#))""")
_HEADERS: Final = {"Accept": "text/html", "Accept-Encoding": "gzip"}


@pytest.mark.slow
async def test_a_page_with_its_files_is_small_and_of_this_host(nats_server: NatsServer) -> None:
    async with (
        site(nats_server) as at,
        httpx.AsyncClient(base_url=at.url, timeout=130, headers=_HEADERS) as client,
    ):
        await shop(at)
        sizes: dict[str, int] = {}

        async def load(path: str) -> str:
            """The text of a page or a file; its bytes on the way are noted."""
            async with client.stream("GET", path) as answer:
                assert answer.status_code == 200, path
                text = (await answer.aread()).decode()
                sizes[path] = answer.num_bytes_downloaded
                return text

        for path in PAGES.values():
            files = set(_FILES.findall(await load(path)))
            assert files
            assert all(file.startswith("/static/") for file in files), (path, files)
            for file in files - set(sizes):
                text = await load(file)
                assert not file.endswith(".css") or _LOADS.search(text) is None, file
            weight = sum(sizes[one] for one in (path, *files))
            assert weight <= WEIGHT_MAX, f"{path} loads {weight:,} bytes"
