"""Source ``email``: messages of a folder of an IMAP server, in the order of their UIDs.

A folder gives each new message a larger UID, as long as its UIDVALIDITY is the same.  The position
has both, and the UIDs of the last batch: what is done to those messages follows their storing, and
is done by the next start if the host has ended before.
"""

from __future__ import annotations

import contextlib
import email
import email.policy
import imaplib
import ssl
from email.message import EmailMessage
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mesh.connect.contract import Batch, UnavailableError
from mesh.connect.mail import criteria_of, objection, quoted
from mesh.errors import MeshError
from mesh.receiver.access import check_egress
from mesh.receiver.outcomes import reason_of
from mesh.receiver.tls import client_context
from mesh.receiver.types.schedule import Schedule
from mesh.receiver.types.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mesh.connect.contract import Context

T = TypeVar("T")

_CALL_S: Final = 30.0
#: Messages of a batch, and bytes after which it ends.
_TOGETHER: Final = 50
_BYTES: Final = 4 << 20
#: Bytes of a message with its attachments; larger ones are refused.
_MESSAGE_MAX: Final = 32 << 20
_FLAGS: Final = {"SEEN": r"\Seen", "FLAGGED": r"\Flagged", "ANSWERED": r"\Answered"}
_DELETED: Final = r"(\Deleted)"


class EmailSource:
    """See ``mesh.connect.contract.Source``."""

    def __init__(self) -> None:
        self._client: imaplib.IMAP4 | None = None

    async def open(self, context: Context, position: Mapping[str, Any] | None) -> None:
        """Continue after the stored message; the first look connects."""
        options = self._options = context.options
        reason = objection(options)
        if reason:
            raise MeshError("MESH-C131", f"source email can't be opened: {reason}")
        self._host, self._port = str(options["host"]), int(options["port"])
        check_egress(context.access, self._host, self._port)
        self._tls = client_context(options) or ssl.create_default_context()
        self._action = str(options.get("action.after.processed") or "NONE").upper()
        self._criteria = criteria_of(options.get("search.term"))
        self._subtype = str(options["content.type"]).partition("/")[2].lower()
        self._schedule = Schedule(int(options["polling.interval"]), None)
        stored = position or {}
        self._validity: int | None = stored.get("uidvalidity")
        self._last = int(stored.get("uid") or 0)
        #: UIDs of messages whose action may not be done.
        self._undone: list[int] = list(stored.get("last") or ())

    async def check(self, context: Context) -> None:
        """Log in, and look at the folder."""
        await self.open(context, None)
        try:
            await self._call(self._connected)
        finally:
            await self.close()

    async def read(self) -> Batch | None:
        """The next messages; waits for the next look if there are none."""
        if self._schedule.is_due:
            batch = await self._call(self._look)
            if batch is not None:
                return batch
            await self.close()
            self._schedule.end_look()
        await self._schedule.rest()
        return None

    async def committed(self, position: Mapping[str, Any]) -> None:
        """Do what is to be done to the messages of the batch."""
        await self._call(self._finish)

    async def close(self) -> None:
        """Log out."""
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(OSError, imaplib.IMAP4.error):
                await in_thread(client.logout)

    async def _call(self, call: Callable[[], T]) -> T:
        try:
            return await in_thread(call)
        except (imaplib.IMAP4.error, OSError) as error:
            raise UnavailableError(f"{self._host}: {reason_of(error)}") from error

    def _connected(self) -> imaplib.IMAP4:
        """A connection with the folder selected."""
        if self._client is not None:
            return self._client
        options = self._options
        client: imaplib.IMAP4
        if options.get("ssl.enable"):
            client = imaplib.IMAP4_SSL(
                self._host, self._port, ssl_context=self._tls, timeout=_CALL_S
            )
        else:
            client = imaplib.IMAP4(self._host, self._port, timeout=_CALL_S)
        # Before anything can fail, so that it is closed.
        self._client = client
        if not options.get("ssl.enable") and "STARTTLS" in client.capabilities:
            client.starttls(self._tls)
        client.login(str(options["username"]), str(options["password"]))
        _, found = client.capability()
        self._can = set(b" ".join(found).decode("ascii", "replace").upper().split())
        is_left_alone = self._action == "NONE"
        _done(client.select(quoted(str(options["folder"])), readonly=is_left_alone))
        _, validities = client.response("UIDVALIDITY")
        validity = int(validities[0]) if validities and validities[0] else 0
        if self._validity not in (None, validity):
            raise UnavailableError(
                f"folder {options['folder']} has new numbers (UIDVALIDITY {validity}): undeploy and"
                " deploy the app to read it from its beginning"
            )
        self._validity = validity
        return client

    def _look(self) -> Batch | None:
        client = self._connected()
        self._finish()
        found = _done(
            client.uid("SEARCH", f"UID {self._last + 1}:* {self._criteria}".rstrip())
        )[0]  # fmt: skip
        # A range that ends with * has the last message, whatever its UID.
        uids = sorted(uid for uid in map(int, (found or b"").split()) if uid > self._last)
        payloads: list[bytes] = []
        properties: list[dict[str, str | bytes]] = []
        refused: dict[int, str] = {}
        taken: list[int] = []
        size = 0
        for uid in uids[:_TOGETHER]:
            self._last = uid
            message = self._fetched(client, uid)
            if message is None:
                continue
            payload, reason = b"", None
            own: dict[str, str] = {}
            if isinstance(message, str):
                reason = message
            else:
                payload, own, reason = read_message(message, self._subtype)
            if reason:
                refused[len(payloads)] = reason
            payloads.append(payload)
            properties.append({**own, "uid": str(uid)})
            taken.append(uid)
            size += len(payload)
            if size >= _BYTES:
                break
        if not taken:
            return None
        self._undone = taken
        position = {"uidvalidity": self._validity, "uid": self._last, "last": taken}
        names = [f"{self._validity}-{uid}" for uid in taken]
        return Batch(payloads, position, properties, names, refused)

    def _fetched(self, client: imaplib.IMAP4, uid: int) -> bytes | str | None:
        """A message; the reason if it is too large; None if it is gone."""
        size = _fetch(client, uid, "(RFC822.SIZE)")
        if size is None:
            return None
        number = size.rpartition(b"RFC822.SIZE ")[2].partition(b")")[0].split()[0]
        if int(number) > _MESSAGE_MAX:
            return f"the message has {int(number)} bytes, and {_MESSAGE_MAX} are the most"
        # It leaves the flags alone.
        return _fetch(client, uid, "(BODY.PEEK[])")

    def _finish(self) -> None:
        """The action on the messages of the last batch, which are stored."""
        uids, self._undone = self._undone, []
        if not uids or self._action == "NONE":
            return
        client = self._connected()
        of = ",".join(map(str, uids))
        try:
            if self._action in _FLAGS:
                _done(client.uid("STORE", of, "+FLAGS.SILENT", f"({_FLAGS[self._action]})"))
            elif self._action == "MOVE" and "MOVE" in self._can:
                _done(client.uid("MOVE", of, quoted(str(self._options["folder.to.move"]))))
            else:
                if self._action == "MOVE":
                    _done(client.uid("COPY", of, quoted(str(self._options["folder.to.move"]))))
                _done(client.uid("STORE", of, "+FLAGS.SILENT", _DELETED))
                # Without UIDPLUS, what others have marked goes as well.
                _done(client.uid("EXPUNGE", of) if "UIDPLUS" in self._can else client.expunge())
        except (imaplib.IMAP4.error, OSError):
            self._undone = uids
            raise


def _done(answer: tuple[str, Sequence[Any]]) -> Sequence[Any]:
    """The data of an answer; an error of the protocol if the server refuses the command."""
    status, found = answer
    if status != "OK":
        raise imaplib.IMAP4.error(b" ".join(one for one in found if one).decode(errors="replace"))
    return found


def _fetch(client: imaplib.IMAP4, uid: int, what: str) -> bytes | None:
    """The literal of an answer, or its line if it has none; None for a message that is gone."""
    for one in _done(client.uid("FETCH", str(uid), what)):
        if isinstance(one, tuple):
            return bytes(one[1])
        if one:
            return bytes(one)
    return None


def read_message(octets: bytes, subtype: str) -> tuple[bytes, dict[str, str], str | None]:
    """The text of a message, its headers by lower-case name, and the reason if it has no text.

    Args:
        octets: the message.
        subtype: ``plain`` or ``html``.
    """
    headers: dict[str, str] = {}
    # The library has errors of many kinds for messages of strangers.
    try:
        message = email.message_from_bytes(octets, policy=email.policy.default)
        assert isinstance(message, EmailMessage)
        for name, value in message.items():
            text = str(value).encode(errors="replace").decode()
            headers.setdefault(name.lower(), text)
        body = message.get_body(preferencelist=(subtype,))
        if body is None:
            return octets, headers, f"the message has no part text/{subtype}"
        found = body.get_payload(decode=True)
        assert isinstance(found, bytes)
        charset = body.get_content_charset("us-ascii")
        # Many send UTF-8 without saying so.
        text = found.decode("utf-8" if charset == "us-ascii" else charset)
        return text.replace("\r\n", "\n").removesuffix("\n").encode(), headers, None
    except Exception as error:
        return octets, headers, f"the message can't be read: {type(error).__name__}: {error}"
