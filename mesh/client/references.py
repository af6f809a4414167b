"""Types of the references of a text, which is checked where the app does not run."""

from __future__ import annotations

from mesh import settings
from mesh.connect.references import types_of
from mesh.plan.typed_references import needs_types, with_types


def typed(text: str) -> str:
    """A text with the types of its references, if this process has their file.

    Raises:
        MeshError: MESH-C131 for a file that can't be read.
    """
    if not needs_types(text):
        return text
    return with_types(text, types_of(settings.load().receiver.refs_file))
