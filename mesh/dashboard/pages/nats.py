"""NATS: servers, the use of JetStream's limits, streams and their consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.dashboard.guard import identity_of
from mesh.dashboard.responses import PageView, paged
from mesh.errors import MeshError
from mesh.manager.nats_state import CLOSE, NatsState, consumers_of, nats_state
from mesh.model.access import Permission, sees

if TYPE_CHECKING:
    from starlette.requests import Request

    from mesh.dashboard.board import Board

ROWS: Final = 100
#: Age at which NATS is asked again, seconds: all streams are listed.
STATE_S: Final = 5.0
CONSUMERS_S: Final = 1.0


async def show(board: Board, request: Request) -> PageView:
    """The servers and streams."""
    seen, state = await board.see(), await _state(board, request)
    text = request.query_params.get("q", "")[:200]
    chosen = [one for one in state.streams if text.lower() in one.name.lower()]
    shown, footer = paged(chosen, request.query_params, ROWS)
    values = {"seen": seen, "state": state, "streams": shown, "text": text, "close": CLOSE}
    return PageView("nats.html", {**values, **footer})


async def one(board: Board, request: Request) -> PageView:
    """One stream with its consumers."""
    seen, state = await board.see(), await _state(board, request)
    name = request.path_params["js_stream"]
    stream = next((one for one in state.streams if one.name == name), None)
    if stream is None:
        # Nor does the answer tell a user of some apps whether it is there.
        raise MeshError("MESH-A404", f'JetStream stream "{name}" is not there')
    consumers = await board.cached(
        ("consumers", name), CONSUMERS_S, lambda: consumers_of(board.service.client, name)
    )
    values = {"seen": seen, "one": stream, "consumers": consumers, "close": CLOSE}
    return PageView("nats_stream.html", values)


async def _state(board: Board, request: Request) -> NatsState:
    """NATS as the user may see it; it is asked for all users at once."""
    state: NatsState = await board.cached("nats", STATE_S, lambda: nats_state(board.service.client))
    sees_all = identity_of(request).may(Permission.APPS_VIEW, None)
    return state.of(lambda app: sees(Permission.APPS_VIEW, app), sees_all)
