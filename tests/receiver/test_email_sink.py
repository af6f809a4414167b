"""Emails to an SMTP server: repeats, addresses, refusals, attachments."""

from __future__ import annotations

import email
from email import policy
from typing import TYPE_CHECKING, Any

import pytest
from aiosmtpd.controller import Controller

from mesh.connect.contract import NodeAccess, Record
from mesh.errors import MeshError
from mesh.jetstream.server import free_port
from mesh.receiver.types.email_sink import message_of, recipients_of
from tests.support.connectors import staged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

APP = """@App:name('{app}')
define stream S (k string, n int);
SINK define stream T (k string, n int);
from S select k, n insert into T;
"""


class Mailbox:
    """Handler of an SMTP server: keeps messages, and refuses and fails as it is told."""

    def __init__(self) -> None:
        self.found: list[Any] = []
        self.answers: list[str] = []
        #: Recipients that it does not know.
        self.refused: set[str] = set()

    async def handle_RCPT(
        self, server: Any, session: Any, envelope: Any, address: str, options: list[str]
    ) -> str:
        """Of aiosmtpd."""
        if address in self.refused:
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        """Of aiosmtpd."""
        if self.answers:
            return self.answers.pop(0)
        message = email.message_from_bytes(envelope.content, policy=policy.default)
        self.found.append((envelope.rcpt_tos, message))
        return "250 OK"


@pytest.fixture
def mailbox() -> Iterator[tuple[Mailbox, int]]:
    """A mailbox, and the port of its server."""
    handler = Mailbox()
    controller = Controller(handler, hostname="127.0.0.1", port=free_port())
    controller.start()
    yield handler, controller.port
    controller.stop()


@pytest.mark.nats
async def test_a_message_is_sent_again_after_a_failure_and_recorded_after_a_refusal(
    nats_server: NatsServer, mailbox: tuple[Mailbox, int]
) -> None:
    handler, port = mailbox
    sink = (
        f"@sink(type='email', host='127.0.0.1', port='{port}', ssl.enable='false', auth='false',"
        " username='mesh@example.org', to='{{k}}@example.org', bcc='all@example.org',"
        " subject='n is {{n}}', @map(type='text', @payload('k={{k}} n={{n}}')))"
    )

    text = APP.replace("SINK", sink).replace("{app}", "Mail")
    async with staged(nats_server, text) as stage:
        handler.answers += ["451 later", "552 too large"]
        await stage.publish("T", {"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "c\n", "n": 3})
        stage.start("sink-T")

        async def recorded() -> bool:
            return len(await stage.errors()) == 2

        await stage.until("two refusals", recorded)
        refused = {entry["reason"].split()[0] for entry in await stage.errors()}
        assert "552" in refused
        await stage.until("one message", lambda: handler.found)
    ((to, message),) = handler.found
    assert to == ["b@example.org", "all@example.org"]
    assert message["Subject"] == "n is 2"
    assert "bcc" not in message
    assert message.get_content().strip() == "k=b n=2"
    assert message["Message-ID"].endswith("@example.org>")


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ('"Lee, Ann" <ann@example.org>', ["ann@example.org"]),
        ("a@x.org, Bo Lee <bo@x.org>,c@x.org", ["a@x.org", "bo@x.org", "c@x.org"]),
        ("John Q. Public <j@x.org>, ", ["j@x.org"]),
        ("Jürgen <j@x.org>; a@x.org", None),
        ("team: a@x.org, b@x.org;", ["a@x.org", "b@x.org"]),
        *((bad, None) for bad in (
            "", " ", "null", "nobody", "a@", "@b", "a@b c@d", "<a@b", "a@b\nBcc: c@d.org",
            "a@b\r\nRCPT TO: c@d", "undisclosed:;", "a b@c.org", "Müller, Ann <a@b.org>",
        )),
    ],
)  # fmt: skip
def test_addresses_are_read_by_the_rules_of_mail(text: str, addresses: list[str] | None) -> None:
    options = {"address": "mesh@example.org", "to": text, "subject": "s"}
    if addresses is None:
        with pytest.raises(ValueError, match='option "to"'):
            recipients_of(options)
        return
    assert recipients_of(options) == addresses
    found = message_of(options, Record("k", b"text"), NodeAccess())
    assert [one.addr_spec for one in found["To"].addresses] == addresses


@pytest.mark.nats
async def test_a_recipient_that_a_server_refuses_and_a_text_that_is_none_cost_no_other_mail(
    nats_server: NatsServer, mailbox: tuple[Mailbox, int]
) -> None:
    handler, port = mailbox
    handler.refused |= {"no@example.org", "b1@example.org", "b2@example.org"}
    sink = (
        f"@sink(type='email', host='127.0.0.1', port='{port}', ssl.enable='false', auth='false',"
        " address='Mesh <mesh@example.org>', to='{{k}}', cc='', subject='{{n}}',"
        " bcc='b{{n}}@example.org', @map(type='text'))"
    )
    text = APP.replace("SINK", sink).replace("{app}", "Cost")
    good = "a@example.org"
    async with staged(nats_server, text) as stage:
        ks = (good, "no@example.org", good, "", good, f"{good}, {good}")
        await stage.publish("T", *({"k": k, "n": n} for n, k in enumerate(ks)))
        stage.start("sink-T")

        async def refused() -> bool:
            return len(await stage.errors()) == 4

        await stage.until("four entries", refused)
        await stage.until("the last one", lambda: len(handler.found) == 3)
        reasons = [entry["reason"] for entry in await stage.errors()]
    # An empty address, and two of one event, are refused before anything is sent.
    assert reasons[0] == 'option "to" is empty'
    assert "is not one address" in reasons[1]
    assert reasons[2].startswith("550")
    assert reasons[3].startswith("sent, but not to b2@example.org: 550")
    assert [message["Subject"] for _, message in handler.found] == ["0", "2", "4"]


def test_attachments_are_below_open_directories_only(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("inside")
    options = {"address": "a@b", "to": "c@d", "subject": "s", "attachments": f"{tmp_path}/a.txt"}
    record = Record("app/S/1/7.0", b"text")
    message = message_of(options, record, NodeAccess((str(tmp_path),)))
    assert [part.get_filename() for part in message.iter_attachments()] == ["a.txt"]
    with pytest.raises(MeshError, match="not open"):
        message_of(options, record, NodeAccess())
    again = message_of(options, record, NodeAccess((str(tmp_path),)))
    assert again["Message-ID"] == message["Message-ID"]
