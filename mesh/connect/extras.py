"""Client libraries, which are imported when they are used and may be absent."""

from __future__ import annotations

import importlib
from typing import Any

from mesh.errors import MeshError


def library(module: str, extra: str) -> Any:
    """The module of a client library.

    Args:
        module: its name, such as ``confluent_kafka``.
        extra: the extra of this project that installs it.

    Raises:
        MeshError: MESH-C134 if it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MeshError(
            "MESH-C134",
            f'the library "{module}" is not installed here',
            detail=f"{error}.",
            hint=f"Run: pip install 'nats-event-mesh[{extra}]'",
        ) from error
