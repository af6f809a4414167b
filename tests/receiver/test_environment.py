"""What a host has beside its connectors."""

from __future__ import annotations

import asyncio

import pytest

from mesh.errors import MeshError
from mesh.receiver.environment import no_secrets


def test_a_process_without_secrets_says_so() -> None:
    with pytest.raises(MeshError, match="C142"):
        asyncio.run(no_secrets({"db"}))
