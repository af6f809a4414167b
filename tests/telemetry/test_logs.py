"""Lines of the log: no secret is in them."""

from __future__ import annotations

import logging

from mesh.model import secrets
from mesh.telemetry.logs import JsonFormatter, TextFormatter, fields
from tests.support.secret_apps import VALUE


def test_values_that_a_process_has_seen_are_masked_in_its_logs() -> None:
    secrets.remember([VALUE, "ab"])
    record = logging.makeLogRecord({"msg": f"login with {VALUE}", "name": "x", "levelname": "INFO"})
    record.__dict__ |= fields(error=f"refused {VALUE}", about="ab")
    for formatter in (TextFormatter(), JsonFormatter()):
        line = formatter.format(record)
        assert VALUE not in line
        assert line.count(secrets.MASK) == 2
        assert "ab" in line
