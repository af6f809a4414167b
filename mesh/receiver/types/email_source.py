"""Source ``email``: messages of a folder of an IMAP server, in the order of their UIDs.

A folder gives each new message a larger UID, as long as its UIDVALIDITY is the same.  The position
has both, and the UIDs of the last batch: what is done to those messages follows their storing, and
is done by the next start if the host has ended before.
"""

from __future__ import annotations

import codecs
import contextlib
import email.policy
import imaplib
import re
import ssl
from email.feedparser import BytesFeedParser
from email.headerregistry import HeaderRegistry
from email.message import EmailMessage
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mesh.connect.access import check_egress
from mesh.connect.contract import Batch, UnavailableError
from mesh.connect.web import criteria_of, objection, quoted
from mesh.errors import MeshError
from mesh.model.error_entry import readable
from mesh.receiver.outcomes import reason_of
from mesh.receiver.tls import client_context
from mesh.receiver.types.schedule import Schedule
from mesh.receiver.types.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mesh.connect.contract import Context
    from mesh.model.values import JsonMapping

T = TypeVar("T")

_CALL_S: Final = 30.0
#: Messages of a batch, and bytes after which it ends.
_TOGETHER: Final = 50
_BYTES: Final = 4 << 20
#: Bytes of a message with its attachments; larger ones are refused.
_MESSAGE_MAX: Final = 32 << 20
#: UIDs that one search looks at: its answer is a line, of which the library takes a million bytes.
_SPAN: Final = 100_000
#: Parts of a message, and parts of each other: the library is slow with many.
_PARTS_MAX: Final = 250
_DEPTH_MAX: Final = 20
_HEADERS_MAX: Final = 10_000
#: The sum of squares of the lengths of headers that are analysed, and of this for each: it takes
#: seconds at most.  The others are as they are written.
_ANALYSED_MAX: Final = 200_000_000
_ANALYSIS: Final = 20_000
#: Codecs of Python that are no charset of a message; some take hours.
_NO_CHARSETS: Final = frozenset({"idna", "punycode", "raw-unicode-escape", "unicode-escape"})
_BEGINNING: Final = re.compile(rb"\d+ \(")
_QUOTED: Final = re.compile(rb'BODY\[\] "((?:[^"\\]|\\.)*)"')
_FLAGS: Final = {"SEEN": r"\Seen", "FLAGGED": r"\Flagged", "ANSWERED": r"\Answered"}
_DELETED: Final = r"(\Deleted)"


class EmailSource:
    """See ``mesh.connect.contract.Source``."""

    def __init__(self) -> None:
        self._client: imaplib.IMAP4 | None = None

    async def open(self, context: Context, position: JsonMapping | None) -> None:
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
        #: UIDs of messages that this source has marked as deleted.
        self._marked: set[int] = set()

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

    async def committed(self, position: JsonMapping) -> None:
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
        _, capabilities = client.capability()
        self._can = set(b" ".join(capabilities).decode("ascii", "replace").upper().split())
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
        _, nexts = client.response("UIDNEXT")
        self._next = int(nexts[0]) if nexts and nexts[0] else 0
        return client

    def _next_uids(self, client: imaplib.IMAP4) -> list[int]:
        """UIDs of the next messages, in order; perhaps not of all."""
        first = self._last + 1
        while True:
            last = first + _SPAN - 1
            is_last = last >= self._next
            of = f"UID {first}:{'*' if is_last else last}"
            reply = b" ".join(
                one for one in _done(client.uid("SEARCH", f"{of} {self._criteria}".rstrip())) if one
            )
            # A range that ends with * has the last message, whatever its UID.
            uids = sorted(uid for uid in map(int, reply.split()) if uid > self._last)
            if uids or is_last:
                return uids
            first = last + 1

    def _look(self) -> Batch | None:
        client = self._connected()
        self._finish()
        payloads: list[bytes] = []
        properties: list[dict[str, str | bytes]] = []
        refused: dict[int, str] = {}
        taken: list[int] = []
        size = 0
        for uid in self._next_uids(client)[:_TOGETHER]:
            self._last = uid
            message = self._fetched(client, uid)
            if message is None:
                continue
            payload, reason = b"", None
            headers: dict[str, str] = {}
            if isinstance(message, str):
                reason = message
            else:
                payload, headers, reason = read_message(message, self._subtype)
            if reason:
                refused[len(payloads)] = reason
            payloads.append(payload)
            properties.append({**headers, "uid": str(uid)})
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
        answer = _done(client.uid("FETCH", str(uid), "(RFC822.SIZE)"))
        size = next(
            (
                int(match[1])
                for text, _ in answers_of(answer, uid)
                if (match := re.search(rb"RFC822\.SIZE (\d+)", text))
            ),
            None,
        )
        if size is None:
            return None
        if size > _MESSAGE_MAX:
            return f"the message has {size} bytes, and {_MESSAGE_MAX} are the most"
        # It leaves the flags alone.
        answer = _done(client.uid("FETCH", str(uid), "(BODY.PEEK[])"))
        for text, literal in answers_of(answer, uid):
            if literal is not None:
                return literal
            if short := _QUOTED.search(text):
                return re.sub(rb"\\(.)", rb"\1", short[1], flags=re.DOTALL)
        return None

    def _finish(self) -> None:
        """The action on the messages of the last batch, which are stored."""
        if not self._undone or self._action == "NONE":
            return
        client = self._connected()
        of = ",".join(map(str, self._undone))
        if self._action in _FLAGS:
            _done(client.uid("STORE", of, "+FLAGS.SILENT", f"({_FLAGS[self._action]})"))
        elif self._action == "MOVE" and "MOVE" in self._can:
            _done(client.uid("MOVE", of, quoted(str(self._options["folder.to.move"]))))
        else:
            if self._action == "MOVE":
                _done(client.uid("COPY", of, quoted(str(self._options["folder.to.move"]))))
            _done(client.uid("STORE", of, "+FLAGS.SILENT", _DELETED))
            self._marked.update(self._undone)
            if "UIDPLUS" in self._can:
                _done(client.uid("EXPUNGE", of))
            elif not self._marked_by_others(client):
                _done(client.expunge())
        self._undone = []

    def _marked_by_others(self, client: imaplib.IMAP4) -> bool:
        """Whether others have marked messages as deleted, which would go as well."""
        marked = b" ".join(one for one in _done(client.uid("SEARCH", "DELETED")) if one)
        return not set(map(int, marked.split())) <= self._marked


def _done(answer: tuple[str, Sequence[Any]]) -> Sequence[Any]:
    """The data of an answer; an error of the protocol if the server refuses the command."""
    status, data = answer
    if status != "OK":
        raise imaplib.IMAP4.error(b" ".join(one for one in data if one).decode(errors="replace"))
    return data


def answers_of(data: Sequence[object], uid: int) -> list[tuple[bytes, bytes | None]]:
    """The answers to FETCH about one message: each without its literal, and the literal.

    A server may report other messages at any time, as when another program has read one.
    """
    answers: list[tuple[bytes, bytes | None]] = []
    for one in data:
        text, literal = one if isinstance(one, tuple) else (one or b"", None)
        if _BEGINNING.match(text) or not answers:
            answers.append((text, literal))
        else:
            # The text behind a literal.
            before, last_literal = answers[-1]
            answers[-1] = before + text, literal if last_literal is None else last_literal
    return [one for one in answers if re.search(rb"\bUID %d\b" % uid, one[0])]


class _Headers:
    """Analyses headers, as long as that takes little time; others are as they are written."""

    def __init__(self) -> None:
        self._registry = HeaderRegistry()
        self._left = _ANALYSED_MAX

    def __call__(self, name: str, value: str) -> str:
        """See ``email.policy.EmailPolicy.header_factory``."""
        cost = len(value) ** 2 + _ANALYSIS
        if cost > self._left:
            return value
        self._left -= cost
        try:
            return self._registry(name, value)
        # The library has errors of many kinds for messages of strangers.
        except Exception:
            return value


def parsed(octets: bytes) -> EmailMessage:
    """A message; ValueError for one with too many parts, and errors of many kinds for others."""
    parser = None
    part_count = 0

    def part(policy: Any = None) -> EmailMessage:
        nonlocal part_count
        part_count += 1
        # The stack has no public name.
        if part_count > _PARTS_MAX or len(getattr(parser, "_msgstack", ())) > _DEPTH_MAX:
            raise ValueError(f"more than {_PARTS_MAX} parts, or {_DEPTH_MAX} in each other")
        return EmailMessage(policy)

    policy = email.policy.default.clone(header_factory=_Headers())
    parser = BytesFeedParser(part, policy=policy)
    # In pieces: the lines of a whole one would all be held.
    for start in range(0, len(octets), 1 << 16):
        parser.feed(octets[start : start + (1 << 16)])
    message: EmailMessage = parser.close()
    return message


def read_message(octets: bytes, subtype: str) -> tuple[bytes, dict[str, str], str | None]:
    """The text of a message, its headers by lower-case name, and the reason if it has no text.

    Args:
        octets: the message.
        subtype: ``plain`` or ``html``.
    """
    headers: dict[str, str] = {}
    # The library has errors of many kinds for messages of strangers.
    try:
        message = parsed(octets)
        if len(message) > _HEADERS_MAX:
            return octets, headers, f"the message has more than {_HEADERS_MAX} headers"
        # Before headers of strangers have used up the time for them.
        body = message.get_body(preferencelist=(subtype,))
        for name, value in message.items():
            headers.setdefault(name.lower(), readable(str(value)))
        if body is None:
            return octets, headers, f"the message has no part text/{subtype}"
        content = body.get_payload(decode=True)
        assert isinstance(content, bytes)
        charset = codecs.lookup(body.get_content_charset("us-ascii")).name
        if charset.replace("_", "-") in _NO_CHARSETS:
            raise ValueError(f"{charset} is no charset")
        # Many send UTF-8 without saying so.
        text = content.decode("utf-8" if charset == "ascii" else charset)
        return text.replace("\r\n", "\n").removesuffix("\n").encode(), headers, None
    except Exception as error:
        return octets, headers, f"the message can't be read: {type(error).__name__}: {error}"
