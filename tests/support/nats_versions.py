"""Features that not every supported nats-server has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.jetstream.channels import ingest_settings

if TYPE_CHECKING:
    from nats.aio.client import Client


def skip_without_ingest(client: Client) -> None:
    """Skip the test on a server without ingest batches, where all rows go in atomic batches."""
    version = client.connected_server_version
    if not ingest_settings(version.major, version.minor):
        client._transport.close()  # type: ignore[union-attr]
        pytest.skip("nats-server has no ingest batches before 2.14")
