"""Features that not every supported nats-server has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from nats.aio.client import Client

INGEST_SINCE: Final = (2, 14)


def skip_without_ingest(client: Client) -> None:
    """Skip the test on a server without ingest batches, where all rows go in atomic batches."""
    version = client.connected_server_version
    if (version.major, version.minor) < INGEST_SINCE:
        client._transport.close()  # type: ignore[union-attr]
        pytest.skip("nats-server has no ingest batches before 2.14")
