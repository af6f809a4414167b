"""Manifests of snapshots as they are stored: epoch, pieces, and the manifest of the state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from mesh.errors import MeshError

if TYPE_CHECKING:
    from mesh.model.values import JsonObject


def stored_manifest(key: str, data: bytes | None) -> JsonObject:
    """The values of a stored manifest: ``epoch``, ``objects``, ``manifest``.

    Raises:
        MeshError: MESH-S112, it is none: another client has written it, or a later version.
    """
    try:
        content = orjson.loads(data or b"")
        kinds = {"epoch": int, "objects": dict, "manifest": dict}
        missing = [name for name, kind in kinds.items() if not isinstance(content[name], kind)]
        reason = f"{missing[0]} has another type" if missing else ""
    except (ValueError, KeyError, TypeError, IndexError) as error:
        reason = f"{type(error).__name__}: {error}"
    if not reason:
        values: JsonObject = content
        return values
    raise MeshError(
        "MESH-S112",
        f'the snapshot manifest "{key}" can\'t be read',
        detail=f"It is a key of the bucket mesh_snapshots. {reason}.",
        hint="Restore a backup: 'mesh backups APP', 'mesh restore APP'; or undeploy and deploy the "
        "app, which begins without a state.",
    )
