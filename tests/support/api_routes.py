"""The routes of the API."""

from __future__ import annotations

from starlette.routing import Route

from mesh.api.auth import Access
from mesh.api.routes import make_app
from tests.support.api import FakeService


def all_routes() -> list[Route]:
    found = make_app(FakeService().as_manager, Access(None)).routes
    return [one for one in found if isinstance(one, Route)]
