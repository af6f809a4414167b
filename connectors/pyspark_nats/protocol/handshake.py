"""Handshake of a new connection, and the meaning of a server's ``-ERR``.  No I/O here."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark_nats.errors import ConnectorError, RefusedError
from pyspark_nats.protocol import credentials as who
from pyspark_nats.protocol.transport import DisconnectedError
from pyspark_nats.version import VERSION

if TYPE_CHECKING:
    from pyspark_nats.json_types import JsonObject
    from pyspark_nats.protocol.credentials import Credentials
    from pyspark_nats.protocol.servers import ServerAddress
    from pyspark_nats.protocol.tls import Tls

_DENIED = re.compile(r'permissions violation for (publish|subscription)[^"]*"([^"]*)"', re.I)
#: Prefixes of errors that retries can't solve, and their remedies.
_LASTING = {
    "authorization violation": "",
    "user authentication expired": "The credentials are past their time: get newer ones.",
    "user authentication revoked": "The credentials were revoked: get others.",
    "account authentication expired": "The account's JWT is past its time.",
    "secure connection - tls required": 'Give servers as "tls://host:4222".',
    "maximum control line exceeded": "Use shorter subjects, or raise max_control_line.",
    "maximum payload violation": "Raise max_payload of the server, or send less in a message.",
}


def wants_tls(server: ServerAddress, info: JsonObject, tls: Tls) -> bool:
    """Whether to start TLS after the server's first line.

    Raises:
        RefusedError: TLS is required and the server has none.
    """
    is_there = bool(info.get("tls_required") or info.get("tls_available"))
    if (server.is_tls or tls.is_demanded) and not is_there:
        raise RefusedError(
            f"{server} offers no TLS",
            hint='For a server without TLS, give "nats://" and no option of TLS.',
        )
    return bool(info.get("tls_required")) or server.is_tls or tls.is_demanded


def connect_line(client_name: str, credentials: Credentials, info: JsonObject) -> bytes:
    """The ``CONNECT`` that answers the server's first line.

    Raises:
        RefusedError: the server accepts no nkeys, and we have nothing else.
    """
    fields: JsonObject = {
        "verbose": False, "pedantic": False, "lang": "python", "version": VERSION,
        "protocol": 1, "headers": True, "no_responders": True, "name": client_name,
    }  # fmt: skip
    stated = {
        "user": credentials.user,
        "pass": credentials.password,
        "auth_token": credentials.token,
        "jwt": credentials.jwt,
    }
    if credentials.seed:
        nonce = str(info.get("nonce", ""))
        if not credentials.jwt:
            if not nonce:
                raise RefusedError(
                    "the server takes no nkeys",
                    hint='Leave out option "nkeySeed", or name the key among the server\'s users.',
                )
            stated["nkey"] = who.public_key(credentials.seed)
        stated["sig"] = who.signature(credentials.seed, nonce)
    fields.update({name: value for name, value in stated.items() if value})
    return b"CONNECT " + json.dumps(fields).encode() + b"\r\n"


def meaning(text: str, server: ServerAddress, credentials: Credentials) -> Exception:
    """The exception for an ``-ERR`` that ends a connection.

    Args:
        text: the error, without quotes.
        server: the sender.
        credentials: ours.

    Returns:
        RefusedError if a retry is useless, otherwise DisconnectedError.
    """
    hint = next((hint for key, hint in _LASTING.items() if text.lower().startswith(key)), None)
    if hint is None:
        return DisconnectedError(text)
    return RefusedError(
        f"NATS refused the connection: {text}",
        detail=f"{server}; {_described(credentials)}.",
        hint=hint or _AUTHORIZATION_HINT,
    )


_AUTHORIZATION_HINT = (
    'Check "user" and "password", "token", "nkeySeed" or "credentials", whichever the server wants.'
)


def _described(credentials: Credentials) -> str:
    """The credentials without their secrets, for an error text."""
    if credentials.jwt:
        said = who.claims(credentials.jwt)
        expires = said.get("exp")
        until = (
            f", which expires at {datetime.fromtimestamp(expires, UTC).isoformat()}"
            if isinstance(expires, int)
            else ""
        )
        return f"we gave the JWT of user {said.get('name') or said.get('sub')}{until}"
    if credentials.seed:
        return f"we gave the nkey {who.public_key(credentials.seed)}"
    if credentials.user:
        return f'we gave user "{credentials.user}"'
    return "we gave a token" if credentials.token else "we gave no credentials"


def denial(text: str, inbox: str) -> ConnectorError | None:
    """The exception for a permissions violation; None if it does not affect this connection.

    Args:
        text: the server's error.
        inbox: prefix of the subjects of our answers.

    Returns:
        RefusedError for a subject that we publish to, or wait on for answers.  None for any other,
        such as a stream's subject, which is subscribed only for notification.
    """
    match = _DENIED.match(text)
    if match is None:
        return None
    is_publish, subject = match[1].lower() == "publish", match[2]
    if is_publish:
        return RefusedError(
            f'we may not publish to "{subject}"',
            detail=f"The server says: {text}.",
            hint="Streams are read and written by the JetStream API: the user needs its subjects.",
        )
    if not subject.startswith(inbox):
        return None
    return RefusedError(
        f'we may not subscribe to "{subject}"',
        detail=f"The server says: {text}.",
        hint='Answers come there: set "inboxPrefix" to a prefix that the user may subscribe to.',
    )
