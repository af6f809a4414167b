"""Sink ``email``: a message for each payload; ``Message-ID`` is made of the record's key."""

from __future__ import annotations

import contextlib
import email.utils
import hashlib
import mimetypes
import ssl
from email.message import EmailMessage
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mesh.connect.contract import UnavailableError
from mesh.connect.extras import library
from mesh.errors import MeshError
from mesh.receiver.access import check_egress, path_of, words
from mesh.receiver.tls import client_context

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.connect.contract import Access, Context, Record

_CALL_S: Final = 20.0
#: Bytes of one attachment.
_ATTACHED_MAX: Final = 20 << 20


def message_of(options: Mapping[str, Any], record: Record, access: Access) -> EmailMessage:
    """The email of a record.

    Raises:
        ValueError: a header holds a line break or no address, or the payload is no text.
        MeshError: MESH-C132 for an attachment that is not open to connectors.
        OSError: an attachment can't be read.
    """
    own = {**options, **record.options}
    found = EmailMessage()
    found["From"] = str(own["address"])
    for header, option in (("To", "to"), ("Cc", "cc"), ("Subject", "subject")):
        if own.get(option):
            found[header] = str(own[option])
    digest = hashlib.blake2b(record.key.encode(), digest_size=16).hexdigest()
    domain = str(own["address"]).rpartition("@")[2].strip("> ") or "mesh"
    found["Message-ID"] = f"<{digest}@{domain}>"
    found["Date"] = email.utils.formatdate(usegmt=True)
    subtype = str(own.get("content.type") or "text/plain").rpartition("/")[2]
    found.set_content(record.payload.decode(), subtype=subtype)
    for name in words(own.get("attachments")):
        path = Path(path_of(access, name))
        if path.stat().st_size > _ATTACHED_MAX:
            raise ValueError(f"{path.name} is larger than {_ATTACHED_MAX} bytes")
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        main, _, sub = kind.partition("/")
        found.add_attachment(path.read_bytes(), maintype=main, subtype=sub, filename=path.name)
    return found


class EmailSink:
    """See ``mesh.connect.contract.Sink``."""

    state: Mapping[str, Any] | None = None

    def __init__(self) -> None:
        self._server: Any = None

    async def open(self, context: Context, state: Mapping[str, Any] | None) -> None:
        """Check the library; the first message connects."""
        library("aiosmtplib", "email")
        self._context = context
        check_egress(context.access, str(context.options["host"]), int(context.options["port"]))

    async def check(self, context: Context) -> None:
        """Log in."""
        smtp = library("aiosmtplib", "email")
        await self.open(context, None)
        try:
            await self._connected()
        except (smtp.SMTPException, OSError, TimeoutError) as error:
            raise UnavailableError(str(error) or type(error).__name__) from error
        finally:
            await self.close()

    async def _connected(self) -> Any:
        smtp = library("aiosmtplib", "email")
        if self._server is not None and self._server.is_connected:
            return self._server
        options = self._context.options
        secure = client_context(options) or ssl.create_default_context()
        is_tls = bool(options.get("ssl.enable"))
        server = smtp.SMTP(
            hostname=options["host"],
            port=int(options.get("port") or 465),
            use_tls=is_tls,
            start_tls=False if is_tls else None,
            tls_context=secure,
            timeout=_CALL_S,
        )
        await server.connect()
        self._server = server
        if options.get("auth"):
            user = options.get("username") or options["address"]
            await server.login(user, options.get("password") or "")
        return server

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        """Send the messages one by one."""
        smtp = library("aiosmtplib", "email")
        options, outcomes = self._context.options, dict[int, str | None]()
        for at, record in enumerate(records):
            try:
                message = message_of(options, record, self._context.access)
            except (ValueError, MeshError, OSError) as error:
                outcomes[at] = f"{error}"
                continue
            own = {**options, **record.options}
            to = [a for key in ("to", "cc", "bcc") for a in words(own.get(key))]
            try:
                server = await self._connected()
                await server.send_message(message, recipients=to)
                outcomes[at] = None
            except (smtp.SMTPRecipientsRefused, smtp.SMTPResponseException) as error:
                reason = _refusal(error)
                if reason is None:
                    await self.close()
                    raise UnavailableError(str(error), outcomes=outcomes) from error
                outcomes[at] = reason
            except (smtp.SMTPException, OSError, TimeoutError) as error:
                await self.close()
                reason = str(error) or type(error).__name__
                raise UnavailableError(reason, outcomes=outcomes) from error
        return [outcomes[at] for at in range(len(records))]

    async def close(self) -> None:
        """Disconnect."""
        server, self._server = self._server, None
        if server is not None:
            smtp = library("aiosmtplib", "email")
            with contextlib.suppress(smtp.SMTPException, OSError, TimeoutError):
                await server.quit()
            server.close()


def _refusal(error: Any) -> str | None:
    """The reason of a refusal that lasts (5xx); None for one that may end, and for the login's."""
    several = getattr(error, "recipients", None)
    answers = several if isinstance(several, list) else [error]
    codes = [int(getattr(one, "code", 0) or 0) for one in answers]
    # 530 and 535: the login, which the operator corrects.
    if all(500 <= code < 600 and code not in (530, 534, 535) for code in codes):
        return "; ".join(f"{one.code} {one.message}" for one in answers)
    return None
