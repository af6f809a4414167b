"""Messages of a channel as an ordinary NATS client sees them: their events as JSON values."""

from __future__ import annotations

from typing import Any

import orjson

from mesh.errors import MeshError


def decode(data: bytes, content_type: str) -> list[Any]:
    """The events of one message, each as JSON values; MESH-D110 when it can't be read."""
    kind = content_type.partition(";")[0].strip().lower()
    try:
        if kind == "application/vnd.apache.arrow.stream":
            import pyarrow as pa

            with pa.ipc.open_stream(data) as reader:
                table = reader.read_all()
            # The offsets of a hostile message may point anywhere.
            table.validate(full=True)
            return table.to_pylist()
        if kind in ("application/msgpack", "application/x-msgpack", "application/vnd.msgpack"):
            import msgpack  # type: ignore[import-untyped]  # has no stubs

            value = msgpack.unpackb(data)
            return value if isinstance(value, list) else [value]
        return _decode_json(data)
    except (ValueError, OSError) as error:
        raise MeshError(
            "MESH-D110", "message can't be read", detail=f"{error} ({kind or 'no Content-Type'})."
        ) from error


def _decode_json(data: bytes) -> list[object]:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        # One object per line.
        return [orjson.loads(line) for line in data.splitlines() if line.strip()]
    return value if isinstance(value, list) else [value]
