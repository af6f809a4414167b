"""Halt request of a query: it reads up to given sequences and reports its offset then.

The option ``haltPath`` names a file.  Once the file exists, the query reads no further than the
file's sequences, ``{stream: sequence}`` in JSON, and nothing more from other streams.  When nothing
is left to read, and every earlier batch is committed, the query writes its offset to a file next to
it.  The name of that file ends in ``.reached``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_nats.source.ranges import Offset


def ask(halt_path: Path, until: Mapping[str, int] | None = None) -> None:
    """Request the halt of the query with this ``haltPath``.

    Args:
        halt_path: in an existing directory.
        until: the last sequence to read, by stream; other streams halt at once.
    """
    halted_path(halt_path).unlink(missing_ok=True)
    _replace(halt_path, json.dumps(dict(until or {})))


def halted_positions(halt_path: Path) -> dict[str, dict[str, int]] | None:
    """The offset at which the query has halted; None as long as it runs."""
    try:
        positions: dict[str, dict[str, int]] = json.loads(halted_path(halt_path).read_text())
    except FileNotFoundError:
        return None
    return positions


def halted_path(halt_path: Path) -> Path:
    """The file for the offset at which the query has halted."""
    return halt_path.with_name(f"{halt_path.name}.reached")


def is_halt_requested(halt_path: str) -> bool:
    """Whether the query is to halt; False without a path."""
    return bool(halt_path) and Path(halt_path).exists()


def last_sequences(halt_path: str) -> dict[str, int] | None:
    """The last sequences that a halting query may read; None without a request."""
    if not halt_path:
        return None
    try:
        sequences: dict[str, int] = json.loads(Path(halt_path).read_text())
    except FileNotFoundError:
        return None
    return sequences


def tell(halt_path: str, until: Mapping[str, int], start: Offset) -> None:
    """Report that all messages up to ``start`` are processed, unless the request has changed."""
    if last_sequences(halt_path) == until:
        _replace(halted_path(Path(halt_path)), json.dumps({**start}))


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(text)
    temporary.replace(path)
