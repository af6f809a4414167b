"""Deployed apps and their channels, as a login of NATS may read them, and errors about their names.

A client with an account of its own may read events alone; it knows no app.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import nats.errors
from nats.js.errors import NotFoundError

from mesh.errors import MeshError

if TYPE_CHECKING:
    from nats.aio.client import Client

    from mesh.model.app import AppSpec

#: Most apps, those that were removed among them, that an error lists: each is asked for.
_LISTED_MAX: Final = 20


async def spec_of(client: Client, app: str) -> AppSpec:
    """The plan of an app.

    Raises:
        NotFoundError: it is not deployed.
        nats.errors.Error: NATS does not tell, as to a login that may read events alone.
    """
    from mesh.model import codec, names
    from mesh.model.cluster import AppRecord

    bucket = await client.jetstream().key_value(names.APPS_BUCKET)
    return codec.decode(AppRecord, (await bucket.get(names.app_key(app))).value or b"").spec


async def holders(client: Client, app: str, stream: str) -> list[tuple[str, str]]:
    """(JetStream stream, subject) of the channels that hold all events of a stream, each once.

    That is the plain channel of an app that was removed while its events are stored, and for a
    login that may read events alone.

    Raises:
        MeshError: MESH-A404, the app is not deployed; MESH-N111, it is, and no channel holds the
            stream.
    """
    from mesh.model import names

    plain = names.js_stream(app, stream), names.subject(app, stream)
    try:
        spec = await spec_of(client, app)
    except NotFoundError as error:
        if await _is_stored(client, plain[0]):
            return [plain]
        raise await not_deployed(client, app) from error
    except nats.errors.Error:
        return [plain]
    channel = spec.whole_channel(stream)
    if channel is None:
        raise no_channel(spec, stream)
    return [(channel.js_stream(p), channel.subject(p)) for p in range(channel.partitions)]


async def not_deployed(client: Client, app: str) -> MeshError:
    """The error of an app that is not deployed, with the nearest name of one that is: MESH-A404."""
    from mesh.plan.diagnostics import nearest, shortened

    hint: str | None = None
    detail: str | None = None
    with contextlib.suppress(nats.errors.Error):
        apps = await _recorded_apps(client)
        if len(apps) <= _LISTED_MAX:
            apps = [one for one in apps if await _is_recorded(client, one)]
            detail = f"Deployed are: {shortened(apps) or 'none'}."
        while (hint := nearest(app, apps)) is not None:
            near = next(one for one in apps if f'"{one}"' in hint)
            if await _is_recorded(client, near):
                break
            apps.remove(near)
    return MeshError(
        "MESH-A404",
        f'app "{app}" is not deployed',
        detail=detail,
        hint=hint or "'mesh apps' lists those that are.",
    )


def no_channel(spec: AppSpec, stream: str) -> MeshError:
    """The error of a stream that is not on the wire, with the nearest name of one: MESH-N111."""
    from mesh.plan.diagnostics import nearest, shortened

    app = spec.name
    channels = sorted({channel.stream.name for channel in spec.channels})
    return MeshError(
        "MESH-N111",
        f'no channel of app "{app}" holds "{stream}"',
        detail="It is not defined, or it does not leave its execution group. "
        f"Channels: {shortened(channels)}.",
        hint=nearest(stream, channels) or f"'mesh streams {app}' lists the channels.",
    )


async def why_refused(client: Client, app: str, stream: str) -> MeshError | None:
    """The error about a name for which no channel takes events; None if the names are right.

    It is None as well if NATS does not tell.
    """
    try:
        spec = await spec_of(client, app)
    except NotFoundError:
        return await not_deployed(client, app)
    except nats.errors.Error:
        return None
    return no_channel(spec, stream) if spec.whole_channel(stream) is None else None


async def _is_stored(client: Client, js_stream: str) -> bool:
    try:
        await client.jetstream().stream_info(js_stream)
    except NotFoundError:
        return False
    return True


async def _recorded_apps(client: Client) -> list[str]:
    """The apps with a record, those that were removed among them."""
    from mesh.jetstream import kv
    from mesh.model import names

    start = kv.subject(names.APPS_BUCKET, names.app_key(""))
    bucket = f"KV_{names.APPS_BUCKET}"
    subjects = await kv.subjects_of(client.jetstream(), bucket, f"{start}*")
    return sorted(one.removeprefix(start) for one in subjects)


async def _is_recorded(client: Client, app: str) -> bool:
    from mesh.jetstream import kv
    from mesh.model import names

    _, record = await kv.last(client.jetstream(), names.APPS_BUCKET, names.app_key(app))
    return bool(record)
