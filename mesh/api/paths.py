"""Paths of routes: every ``{app}`` matches names of apps only, every ``{id}`` numbers only.

A path is decoded once before it is matched, so ``%2A`` arrives as ``*``.  A name that reached a
NATS subject or filter with a wildcard in it would mean every app.  So no handler can receive one:
a path with another name matches no route, and its response is 404.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.convertors import Convertor, register_url_convertor
from starlette.routing import Route

from mesh.model import names

if TYPE_CHECKING:
    from collections.abc import Callable


class AppName(Convertor[str]):
    """The name of an app, see ``names.is_app_name``."""

    regex = names.APP_NAME

    def convert(self, value: str) -> str:
        """The name as it is."""
        return value

    def to_string(self, value: str) -> str:
        """The name as it is."""
        return value


class EntryId(Convertor[int]):
    """The number of a failed event; 18 digits at most, so that every value is a JSON integer."""

    regex = "[0-9]{1,18}"

    def convert(self, value: str) -> int:
        """The number."""
        return int(value)

    def to_string(self, value: int) -> str:
        """Its digits."""
        return str(value)


register_url_convertor("app_name", AppName())
register_url_convertor("entry_id", EntryId())


def route(path: str, endpoint: Callable[..., object], method: str) -> Route:
    """A route whose ``{app}`` and ``{id}`` match nothing but names of apps and numbers."""
    checked = path.replace("{app}", "{app:app_name}").replace("{id}", "{id:entry_id}")
    return Route(checked, endpoint, methods=[method])
