"""Sink ``email``: a message for each payload; ``Message-ID`` is made of the record's key."""

from __future__ import annotations

import contextlib
import email.utils
import hashlib
import mimetypes
import re
import ssl
from email import errors, policy
from email.message import EmailMessage
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mesh.connect.access import check_egress, path_of, words
from mesh.connect.contract import FailedRecordsError, Options, UnavailableError, library
from mesh.receiver.outcomes import described, reason_of
from mesh.receiver.tls import client_context

if TYPE_CHECKING:
    from collections.abc import Sequence
    from email.headerregistry import Address

    from mesh.connect.contract import Context, NodeAccess, Record
    from mesh.model.values import JsonMapping

_CALL_S: Final = 20.0
_TOO_LARGE: Final = 552
#: Answers that the operator ends: 530 and 535 are of the login.
_OF_LOGIN: Final = (530, 534, 535)
#: Local part and domain, without what the commands of SMTP or headers give another meaning.
_ADDRESS: Final = re.compile(r'(?:[^\s@"<>(),:;\\[\]]+|"(?:[^"\\\r\n]|\\.)+")@[^\s@<>(),;\\]+')
#: Bytes of one attachment.
_ATTACHED_MAX: Final = 20 << 20
#: Forms that mail programs write, and an address that a server may know.
_ACCEPTED: Final = (errors.ObsoleteHeaderDefect, errors.NonASCIILocalPartDefect)


def addresses_of(text: object, option: str) -> list[Address]:
    """The addresses of an option's value, as RFC 5322 writes a list of them.

    Raises:
        ValueError: one of them is no address, or the list has another form.
    """
    wrong = ValueError(f'option "{option}" is no list of addresses: {str(text)[:80]!r}')
    try:
        header = policy.default.header_factory("To", str(text or "").strip())
        addresses, defects = list(header.addresses), header.defects
    # The library's parser fails at some texts.
    except Exception as error:
        raise wrong from error
    if not addresses or not all(_ADDRESS.fullmatch(one.addr_spec) for one in addresses):
        raise wrong
    if not all(isinstance(one, _ACCEPTED) for one in defects):
        raise wrong
    return addresses


def recipients_of(options: Options) -> list[str]:
    """Addresses of all that get an email.  Raises ``ValueError`` for none."""
    options_of = ("to", "cc", "bcc")
    recipients = [one.addr_spec for option in options_of if options.get(option)
             for one in addresses_of(options[option], option)]  # fmt: skip
    if not options.get("to"):
        raise ValueError('option "to" is empty')
    return list(dict.fromkeys(recipients))


def _sender(options: Options) -> str:
    """The address of the sender: the user's, if none is given."""
    return str(options.get("address") or options.get("username") or "")


def message_of(options: Options, record: Record, access: NodeAccess) -> EmailMessage:
    """The email of a record.

    Raises:
        ValueError: a header holds a line break or no address, or the payload is no text.
        MeshError: MESH-C132 for an attachment that is not open to connectors.
        OSError: an attachment can't be read.
    """
    values = {**options, **record.options}
    message = EmailMessage()
    message["From"] = addresses_of(_sender(values), "address")
    for header, option in (("To", "to"), ("Cc", "cc")):
        if values.get(option):
            message[header] = addresses_of(values[option], option)
    if values.get("subject"):
        message["Subject"] = str(values["subject"])
    digest = hashlib.blake2b(record.key.encode(), digest_size=16).hexdigest()
    domain = _sender(values).rpartition("@")[2].strip("> ") or "mesh"
    message["Message-ID"] = f"<{digest}@{domain}>"
    message["Date"] = email.utils.formatdate(usegmt=True)
    subtype = str(values.get("content.type") or "text/plain").rpartition("/")[2]
    message.set_content(record.payload.decode(), subtype=subtype)
    for name in words(values.get("attachments")):
        path = Path(path_of(access, name))
        if path.stat().st_size > _ATTACHED_MAX:
            raise ValueError(f"{path.name} is larger than {_ATTACHED_MAX} bytes")
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        main, _, sub = kind.partition("/")
        message.add_attachment(path.read_bytes(), maintype=main, subtype=sub, filename=path.name)
    return message


class EmailSink:
    """See ``mesh.connect.contract.Sink``."""

    state: JsonMapping | None = None

    def __init__(self) -> None:
        self._server: Any = None

    async def open(self, context: Context, state: JsonMapping | None) -> None:
        """Check the library; the first message connects."""
        library("aiosmtplib", "email")
        self._context = context
        addresses_of(_sender(context.options), "address")
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
            user = options.get("username") or _sender(options)
            await server.login(user, options.get("password") or "")
        return server

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        """Send the messages one by one."""
        smtp = library("aiosmtplib", "email")
        options, outcomes = self._context.options, dict[int, str | None]()
        for at, record in enumerate(records):
            try:
                message = message_of(options, record, self._context.access)
                to = recipients_of({**options, **record.options})
            # Another attempt would make the same of the event.
            except Exception as error:
                outcomes[at] = reason_of(error)
                continue
            try:
                server = await self._connected()
                outcomes[at] = await self._sent(server, message, to)
            except _answers(smtp) as error:
                reason = _refusal(error)
                if reason is None:
                    await self.close()
                    raise UnavailableError(str(error), outcomes=outcomes) from error
                outcomes[at] = reason
            except (smtp.SMTPException, OSError, TimeoutError) as error:
                await self.close()
                raise UnavailableError(reason_of(error), outcomes=outcomes) from error
            except Exception as error:
                await self.close()
                raise FailedRecordsError(described(error), outcomes) from error
        return [outcomes[at] for at in range(len(records))]

    async def _sent(self, server: Any, message: EmailMessage, to: Sequence[str]) -> str | None:
        """Send a message; None, or the reason why no recipient or only some get it."""
        sender = addresses_of(_sender(self._context.options), "address")[0].addr_spec
        refused, _ = await server.send_message(message, sender=sender, recipients=list(to))
        said = [f"{name}: {code} {text}" for name, (code, text) in refused.items()]
        return f"sent, but not to {'; '.join(said)}" if said else None

    async def close(self) -> None:
        """Disconnect."""
        server, self._server = self._server, None
        if server is not None:
            smtp = library("aiosmtplib", "email")
            with contextlib.suppress(smtp.SMTPException, OSError, TimeoutError):
                await server.quit()
            server.close()


def _answers(smtp: Any) -> tuple[type[Exception], ...]:
    """Errors that a message has caused; others are of the login and of the server."""
    return (
        smtp.SMTPRecipientsRefused, smtp.SMTPRecipientRefused, smtp.SMTPSenderRefused,
        smtp.SMTPDataError, smtp.SMTPNotSupported,
    )  # fmt: skip


def _refusal(error: Any) -> str | None:
    """The reason of a refusal that lasts (5xx); None for one that may end, and for the login's."""
    several = getattr(error, "recipients", None)
    answers = several if isinstance(several, list) else [error]
    if not hasattr(answers[0], "code"):
        return str(error)
    codes = [int(one.code or 0) for one in answers]
    # The sender is the same in all messages; 552 is the size of this one.
    if hasattr(error, "sender") and codes != [_TOO_LARGE]:
        return None
    if all(500 <= code < 600 and code not in _OF_LOGIN for code in codes):
        return "; ".join(f"{one.code} {one.message}" for one in answers)
    return None
