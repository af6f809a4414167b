"""Source ``email`` with a real IMAP server."""

from __future__ import annotations

import asyncio
import imaplib
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from mesh.connect.contract import NodeAccess
from mesh.connect.web import criteria_of
from mesh.errors import MeshError
from mesh.plan.build import plan
from mesh.receiver.types import email_source
from mesh.receiver.types.email_source import answers_of, read_message
from mesh.testing.connectors import ConnectorScenario, conform, staged

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.testing.connectors import Stage
    from tests.support.dovecot import Mailboxes

APP = """@App:name('{app}')
@source(type='email', username='USER', password='secret', host='127.0.0.1', port='PORT',
        ssl.enable='TLS', tls.ca='CA', polling.interval='20 ms'MORE,
        @map(type='json', @attributes(n='n', subject='trp:subject')))
define stream S (n int, subject string);
from S select n insert into T;
"""


PARTS = b"""MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=b

--b
Content-Type: application/pdf
Content-Disposition: attachment

x
--b
Content-Type: text/plain
Content-Transfer-Encoding: base64

eA==
--b--
"""


def mail(subject: str, text: str, kind: str = "text/plain") -> bytes:
    head = f"From: ann@example.org\r\nSubject: {subject}\r\nContent-Type: {kind}\r\n"
    return f"{head}\r\n{text}\r\n".encode()


def app(dovecot: Mailboxes, user: str, more: str = "", name: str = "Mails") -> str:
    text = APP.replace("USER", user).replace("PORT", str(dovecot.port)).replace("{app}", name)
    text = text.replace("TLS", "false").replace("CA", str(dovecot.authority))
    return text.replace("MORE", more)


def access(dovecot: Mailboxes) -> NodeAccess:
    ports = dovecot.port, dovecot.secure_port
    return NodeAccess(
        (str(dovecot.directory),), egress=tuple(f"127.0.0.1:{port}" for port in ports)
    )


async def read(stage: Stage, *numbers: int) -> None:
    async def stored() -> bool:
        return [row["n"] for row in await stage.events("S")] == list(numbers)

    await stage.until(f"{numbers}", stored)


@pytest.mark.nats
async def test_messages_are_read_once_in_order_and_left_alone(
    nats_server: NatsServer, dovecot: Mailboxes
) -> None:
    def put(*numbers: int) -> None:
        dovecot.put("left", *(mail(f"of {n}", f'{{"n":{n}}}') for n in numbers))

    await asyncio.to_thread(put, 1, 2)
    async with staged(nats_server.url, app(dovecot, "left"), access(dovecot)) as stage:
        first = stage.start("receiver-S")
        await read(stage, 1, 2)
        await asyncio.to_thread(put, 3)
        await read(stage, 1, 2, 3)
        await first.stop()
        await asyncio.to_thread(put, 4)
        stage.start("receiver-S", epoch=2)
        await read(stage, 1, 2, 3, 4)
        assert [row["subject"] for row in await stage.events("S")] == [
            f"of {n}" for n in range(1, 5)
        ]
        flags = await asyncio.to_thread(dovecot.flags, "left")
        assert flags == ["UID 1 FLAGS (", "UID 2 FLAGS (", "UID 3 FLAGS (", "UID 4 FLAGS ("]


@pytest.mark.nats
@pytest.mark.parametrize(
    ("action", "inbox", "moved"),
    [("SEEN", ["(\\Seen"] * 3, []), ("DELETE", [], []), ("MOVE", [], ["("] * 3)],
)
async def test_an_action_follows_the_storing(
    nats_server: NatsServer, dovecot: Mailboxes, action: str, inbox: list[str], moved: list[str]
) -> None:
    user = f"acts-{action.lower()}"
    mails = mail("a", '{"n":1}'), mail("b", "no JSON"), mail("c", "no JSON")
    await asyncio.to_thread(dovecot.put, user, *mails)
    await asyncio.to_thread(dovecot.flags, user, "Done")
    more = f", action.after.processed='{action}', folder.to.move='Done'"
    async with staged(nats_server.url, app(dovecot, user, more), access(dovecot)) as stage:
        stage.start("receiver-S")
        await read(stage, 1)

        async def acted() -> bool:
            found = [
                [line.partition("FLAGS ")[2] for line in await asyncio.to_thread(flags)]
                for flags in (partial(dovecot.flags, user), partial(dovecot.flags, user, "Done"))
            ]
            return found == [inbox, moved]

        await stage.until("the action", acted)
        assert len(await stage.errors()) == 2


@pytest.mark.nats
async def test_a_mailbox_is_read_over_tls(nats_server: NatsServer, dovecot: Mailboxes) -> None:
    await asyncio.to_thread(dovecot.put, "tls", mail("a", '{"n":1}'))
    text = app(dovecot, "tls").replace("='false'", "='true'")
    text = text.replace(f"'{dovecot.port}'", f"'{dovecot.secure_port}'")
    async with staged(nats_server.url, text, access(dovecot)) as stage:
        stage.start("receiver-S")
        await read(stage, 1)
    # Without the authority the server is a stranger.
    text = text.replace(f"tls.ca='{dovecot.authority}', ", "").replace("Mails", "Strangers")
    async with staged(nats_server.url, text, access(dovecot)) as stage:
        stage.start("receiver-S")

        def said() -> bool:
            return any("CERTIFICATE_VERIFY_FAILED" in (r.error or "") for r in stage.reports)

        await stage.until("the reason", said)


@pytest.mark.nats
async def test_only_what_the_term_finds_is_read(
    nats_server: NatsServer, dovecot: Mailboxes
) -> None:
    await asyncio.to_thread(
        dovecot.put,
        "finds",
        mail("Stock", '{"n":1}'),
        mail("Other", "x"),
        mail("stocks", '{"n":3}'),
    )
    more = ", search.term='subject:stock , from:ann@'"
    async with staged(nats_server.url, app(dovecot, "finds", more), access(dovecot)) as stage:
        stage.start("receiver-S")
        await read(stage, 1, 3)
        assert await stage.errors() == []


@pytest.mark.slow
@pytest.mark.nats
async def test_a_large_header_holds_up_no_other_message(
    nats_server: NatsServer, dovecot: Mailboxes
) -> None:
    large = "x\r\n " * 800_000
    mails = mail(large, "no JSON"), mail(large, '{"n":1}'), mail("b", '{"n":2}')
    await asyncio.to_thread(dovecot.put, "large", *mails)
    async with staged(nats_server.url, app(dovecot, "large"), access(dovecot)) as stage:
        stage.start("receiver-S")
        await read(stage, 2)
        refused = await stage.errors()
        assert [one["data_bytes"] for one in refused] == [7, 7]
        assert not any("options" in one for one in refused)


@pytest.mark.nats
async def test_new_numbers_of_a_folder_stop_the_source(
    nats_server: NatsServer, dovecot: Mailboxes
) -> None:
    await asyncio.to_thread(dovecot.put, "renumbers", mail("a", '{"n":1}'))
    text = app(dovecot, "renumbers")
    async with staged(nats_server.url, text, access(dovecot)) as stage:
        first = stage.start("receiver-S")
        await read(stage, 1)
        await first.stop()

        await asyncio.to_thread(dovecot.replace, "renumbers", mail("a", '{"n":1}'))
        stage.start("receiver-S", epoch=2)

        def said() -> bool:
            return any("has new numbers" in (r.error or "") for r in stage.reports)

        await stage.until("the reason", said)
        assert [row["n"] for row in await stage.events("S")] == [1]


@pytest.mark.slow
@pytest.mark.nats
async def test_a_folder_is_read_exactly_once(
    nats_server: NatsServer, dovecot: Mailboxes, tmp_path: Path
) -> None:
    async def send(stage: Stage) -> None:
        name = stage.spec.name
        await asyncio.to_thread(
            dovecot.put, f"exact-{name}", mail("a", '{"n":1}'), mail("b", "x"), mail("c", '{"n":3}')
        )

    async def stored(stage: Stage) -> Any:
        left = await asyncio.to_thread(dovecot.flags, f"exact-{stage.spec.name}")
        rows = [row["n"] for row in await stage.events("S")]
        return rows, len(await stage.errors()), left

    more = ", action.after.processed='DELETE'"
    text = app(dovecot, "exact-{app}", more, name="{app}")
    use = ConnectorScenario(
        text, "receiver-S", send, stored,
        lambda found: len(found[0]) + found[1] >= 3 and not found[2],
        lambda _: access(dovecot),
    )  # fmt: skip
    moments = await conform(nats_server.url, use, tmp_path)
    steps = {"read", "publish", "store a position", "committed"}
    assert {f"{when} {step}" for when in ("before", "after") for step in steps} <= set(moments)


@pytest.mark.parametrize(
    ("octets", "kind", "text", "reason"),
    [
        (mail("a", "ab\r\nc"), "plain", b"ab\nc", None),
        (mail("a", "<b>", "text/html"), "html", b"<b>", None),
        (mail("a", "<b>", "text/html"), "plain", None, "no part text/plain"),
        (mail("a", "x", "text/plain; charset=no-such"), "plain", None, "can't be read"),
        (b"Content-Type: text/plain; charset=latin-1\n\n\xfc\n", "plain", "ü".encode(), None),
        (
            PARTS,
            "plain",
            b"x",
            None,
        ),
        (b"\n\xff", "plain", None, "can't be read"),
        (b"\n\xc3\xbc", "plain", "ü".encode(), None),
    ],
)
def test_the_text_of_a_message_is_the_payload(
    octets: bytes, kind: str, text: bytes | None, reason: str | None
) -> None:
    payload, _, found = read_message(octets, kind)
    if reason is None:
        assert (payload, found) == (text, None)
    else:
        assert reason in str(found)
        assert payload == octets


def test_headers_are_properties_and_the_first_of_a_name_counts() -> None:
    octets = b"Subject: =?utf-8?q?=C3=BC?=\nX-A: 1\nX-A: 2\n\nx"
    assert read_message(octets, "plain")[1] == {"subject": "ü", "x-a": "1"}


HOSTILE = {
    "headers": b"X-A: v\r\n" * 20_000 + b"\r\nx",
    "parts of a disposition": b"Content-Disposition: " + b";" * 50_000 + b"\r\n\r\nx",
    "parts": b"Content-Type: multipart/mixed; boundary=b\r\n\r\n" + b"--b\r\n\r\nx\r\n" * 50_000,
    "depth": b"".join(
        b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (n, n) for n in range(600)
    ),
    "punycode": b"Content-Type: text/plain; charset=Punycode\r\n\r\n" + b"a" * 99 + b"-b",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_message_that_takes_too_long_is_refused(name: str) -> None:
    started = time.thread_time()
    payload, _, reason = read_message(HOSTILE[name], "plain")
    assert reason is not None
    assert payload == HOSTILE[name]
    # Each took 1 to 60 seconds; the machine may be slow.
    assert time.thread_time() - started < 1


@pytest.mark.parametrize("header", ["To: " + '"' * 20_000, "Message-ID: " + "<" * 9000])
def test_a_header_that_can_not_be_analysed_is_as_it_is_written(header: str) -> None:
    started = time.thread_time()
    payload, headers, reason = read_message(
        f"Subject: =?utf-8?q?=C3=BC?=\n{header}\n\nx".encode(), "plain"
    )
    assert (payload, reason) == (b"x", None)
    name, _, value = header.partition(": ")
    assert headers == {"subject": "ü", name.lower(): value}
    assert time.thread_time() - started < 1


def test_answers_about_other_messages_are_left_out() -> None:
    data = [
        b"3 (UID 9 FLAGS (\\Seen) RFC822.SIZE 5)",
        (b"4 (FLAGS (\\Seen) BODY[] {3}", b"UID"),
        b" UID 10)",
        b"4 (UID 10 FLAGS ())",
        (b"5 (UID 11 BODY[] {1}", b"z"),
        b")",
    ]
    assert answers_of(data, 10) == [
        (b"4 (FLAGS (\\Seen) BODY[] {3} UID 10)", b"UID"),
        (b"4 (UID 10 FLAGS ())", None),
    ]
    assert answers_of([None], 1) == answers_of(data, 1) == []


@pytest.mark.nats
async def test_a_large_folder_is_searched_in_parts(
    nats_server: NatsServer, dovecot: Mailboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(email_source, "_SPAN", 2)

    def begin() -> None:
        dovecot.put("parts", *(mail("a", f'{{"n":{n}}}') for n in range(1, 10)))
        with dovecot.client("parts") as client:
            client.uid("STORE", "1:5,7", "+FLAGS", "(\\Deleted)")
            client.expunge()

    await asyncio.to_thread(begin)
    async with staged(nats_server.url, app(dovecot, "parts"), access(dovecot)) as stage:
        stage.start("receiver-S")
        await read(stage, 6, 8, 9)
        await asyncio.to_thread(dovecot.put, "parts", mail("a", '{"n":10}'))
        await read(stage, 6, 8, 9, 10)


@pytest.mark.nats
@pytest.mark.parametrize("action", ["DELETE", "MOVE', folder.to.move='Done"])
async def test_a_server_without_uidplus_removes_no_message_of_others(
    nats_server: NatsServer, dovecot: Mailboxes, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    capability = imaplib.IMAP4.capability

    def old(client: imaplib.IMAP4) -> Any:
        status, (words, *_) = capability(client)
        return status, [words.replace(b"UIDPLUS", b"").replace(b" MOVE", b"")]

    monkeypatch.setattr(imaplib.IMAP4, "capability", old)
    user = f"shared-{action[:4]}"

    await asyncio.to_thread(dovecot.put, user, *(mail("a", f'{{"n":{n}}}') for n in (1, 2)))
    await asyncio.to_thread(dovecot.flags, user, "Done")
    more = f", search.term='subject:a', action.after.processed='{action}'"
    async with staged(nats_server.url, app(dovecot, user, more), access(dovecot)) as stage:
        stage.start("receiver-S")
        await read(stage, 1, 2)

        async def both_removed() -> bool:
            return await asyncio.to_thread(dovecot.flags, user) == []

        await stage.until("that both are removed", both_removed)

        def mark() -> None:
            # Somebody decides about a message, and may decide otherwise.
            with dovecot.client(user) as client:
                client.append("INBOX", r"(\Deleted)", "", mail("z", "of others"))

        await asyncio.to_thread(mark)
        await asyncio.to_thread(dovecot.put, user, mail("a", '{"n":3}'))

        async def all_marked() -> bool:
            found = await asyncio.to_thread(dovecot.flags, user)
            return len(found) == 2 and all("Deleted" in one for one in found)

        await read(stage, 1, 2, 3)
        await stage.until("that both are marked", all_marked)


def test_a_search_term_has_headers_and_texts() -> None:
    assert criteria_of("subject:DAS , from:a@") == 'SUBJECT "DAS" FROM "a@"'
    assert criteria_of("'to:a\"b'") == 'TO "a\\\\"b"'.replace("\\\\", "\\")
    assert criteria_of(None) == ""


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (", store='pop3'", "POP3 has no place"),
        (", search.term='body:x'", "instead of one of"),
        (", search.term='subject:ü'", "takes ASCII"),
        (", action.after.processed='MOVE'", "needs folder.to.move"),
    ],
)
def test_what_can_not_be_asked_is_refused_where_it_is_planned(more: str, reason: str) -> None:
    text = APP.replace("USER", "u").replace("PORT", "1").replace("{app}", "A")
    text = text.replace("TLS", "true").replace("tls.ca='CA', ", "")
    with pytest.raises(MeshError, match=reason):
        plan(text.replace("MORE", more))
