"""The API's certificate, read again when its files change: one that is renewed needs no restart."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Final

from mesh.logs import fields

log = logging.getLogger(__name__)

#: Interval of looks at the files, seconds.  Certificates are renewed days before they expire.
LOOK_S: Final = 30.0


async def follow(context: ssl.SSLContext, certificate: Path, key: Path, every_s: float) -> None:
    """Have new connections use what the files contain, without end.

    A pair that does not fit together is one that is being written: the earlier one stays.
    """
    previous = _stamp(certificate, key)
    while True:
        await asyncio.sleep(every_s)
        stamp = _stamp(certificate, key)
        if stamp == previous:
            continue
        try:
            # A context that refuses a key has lost its own.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
            context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            log.warning("the API's certificate was not read again", extra=fields(error=error))
        else:
            log.info("the API has another certificate", extra=fields(path=certificate))
        previous = stamp


def _stamp(*paths: Path) -> tuple[tuple[int, int], ...]:
    """The state of the files; of one that is missing, nothing."""
    stamps = []
    for path in paths:
        try:
            stat = path.stat()
        except OSError:
            continue
        stamps.append((stat.st_mtime_ns, stat.st_ino))
    return tuple(stamps)
