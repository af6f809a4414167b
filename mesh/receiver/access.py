"""Permissions of connectors on this node, and words of their options."""

from __future__ import annotations

from mesh.connect.access import check_egress, check_listen, check_url, first_root, path_of
from mesh.model.addresses import split_list

__all__ = ["check_egress", "check_listen", "check_url", "first_root", "path_of", "words"]


def words(text: str | None) -> list[str]:
    """Words of a comma-separated list."""
    return list(split_list(text or ""))
