"""Avro schemas of a registry, which the host asks for before a source or sink begins."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import orjson

from mesh.connect.contract import UnavailableError
from mesh.plan.connectors import make_mapper
from mesh.receiver.access import check_url

if TYPE_CHECKING:
    from mesh.connect.contract import NodeAccess
    from mesh.receiver.opened import Opened

_CALL_S: Final = 10.0


async def with_schema(opened: Opened, access: NodeAccess) -> Opened:
    """A source or sink whose mapper has the schema that its options name in a registry.

    Raises:
        UnavailableError: the registry doesn't answer, or doesn't have the schema.
        MeshError: MESH-C132 for a registry to which no connector may connect.
        ValueError: the schema is invalid.
    """
    mapping = opened.connector.map
    by_name = {name.lower(): value for name, value in mapping.options.items()}
    url = by_name.get("schema.registry")
    if not url:
        return opened
    check_url(access, url, 443 if url.startswith("https") else 80)
    text = await _schema(f"{url.rstrip('/')}/schemas/ids/{by_name['schema.id'].strip()}")
    options = {**mapping.options, "schema.def": text}
    connector = replace(opened.connector, map=replace(mapping, options=options))
    return replace(opened, connector=connector, mapper=make_mapper(connector, opened.stream))


async def _schema(url: str) -> str:
    # Few hosts need it for this.
    import httpx

    from mesh.http.web_answers import ask

    try:
        # The environment of the worker is not the app's.
        async with httpx.AsyncClient(timeout=_CALL_S, trust_env=False) as client:
            answer = await ask(client, "GET", url)
        answer.response.raise_for_status()
        schema = orjson.loads(answer.content)["schema"]
    except httpx.HTTPStatusError as error:
        code = error.response.status_code
        raise UnavailableError(f"the schema registry answered {code}") from None
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        reason = type(error).__name__
        raise UnavailableError(f"the schema registry gave no schema: {reason}") from None
    return str(schema)
