"""Every subject family with every role's credential, against a real server."""

from __future__ import annotations

import asyncio
import inspect
import re
from typing import TYPE_CHECKING, Any, Final

import nats
import pytest

from mesh.jetstream import server
from mesh.model import names
from mesh.model.nats_roles import INTERNAL, PRIVATE
from tests.support.permissions import PASSWORDS, USERS, inbox_of, write_accounts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats

M, W, R, C, P, A = "manager", "worker", "receiver", "operator", "publisher", "reader"
N: Final = "connector"
TILL, BOARD, DESK = "till", "board", "desk"
API: Final = "$JS.API"
#: Families of subjects that are no events, where ``mesh.model.names`` makes them.
INTERNAL_NAME: Final = re.compile(r"\{ROOT\}\.(_\w+)")
#: No user may publish to it.
END: Final = "the.end"

#: Who may publish to a subject.
PUBLISH: Final[dict[str, set[str]]] = {
    # events
    "mesh.Shop.Orders": {M, W, R, N, C, P, TILL},
    "mesh.Shop.DearOrders": {M, W, R, N, C, P},
    "mesh.Other.Orders": {M, W, R, N, C, P},
    "mesh.Shop.Orders.by.item.3": {M, W, R, N},
    "mesh.Shop._query": {M, W, R, C, A, DESK},
    "mesh.Other._query": {M, W, R, C, A},
    "mesh.Shop._change": {M, W, R, C},
    # records of the mesh
    "mesh._marker.mesh-Shop-Orders.p": {M, W, R, N},
    "mesh._errors.Shop": {M, W, R, N},
    "mesh._journal.Shop": {M, W, R},
    "mesh._ask.w1": {M, W, R},
    "mesh._topic.prices": {M, W, R, N},
    "mesh._audit.api": {M},
    # buckets
    "$KV.mesh_control.lease": {M},
    "$KV.mesh_control.assignment.Shop-g-1": {M},
    "$KV.mesh_control.form.Shop.g": {M},
    "$KV.mesh_control.standby.Shop-g-1": {M},
    "$KV.mesh_control.node.manager.m1": {M},
    "$KV.mesh_control.node.worker.w1": {M, W, R},
    "$KV.mesh_apps.app.Shop": {M},
    "$KV.mesh_apps.node.w1": {M},
    "$KV.mesh_backups.backup.Shop.r1": {M},
    "$KV.mesh_status.instance.Shop-g-1": {M, W, R},
    "$KV.mesh_snapshots.i.g.1": {M, W, R},
    "$O.mesh_state.C.x": {M, W, R},
    "$KV.mesh_users.user.ada": {M},
    "$KV.mesh_secrets.secret.db": {M},
    "$KV.mesh_sessions.x": {M},
    "$KV.mesh_simulations.feed.x": {M},
    # the JetStream API
    f"{API}.STREAM.NAMES": {M, W, R, N, C},
    f"{API}.STREAM.INFO.mesh-Shop-Orders": {M, W, R, N, C},
    f"{API}.STREAM.CREATE.mesh-Shop-Orders": {M, W},
    f"{API}.STREAM.CREATE.mesh-topics-": {M, W, R, N},
    f"{API}.STREAM.UPDATE.mesh-Shop-Orders": {M},
    f"{API}.STREAM.DELETE.mesh-warmup-1-S": {M, W},
    f"{API}.STREAM.DELETE.KV_mesh_apps": {M},
    f"{API}.STREAM.DELETE.KV_mesh_control": {M},
    f"{API}.STREAM.DELETE.OBJ_mesh_state": {M},
    f"{API}.STREAM.DELETE.mesh_journal": {M},
    f"{API}.STREAM.DELETE.mesh_audit": {M},
    f"{API}.STREAM.DELETE.mesh_history": {M},
    f"{API}.STREAM.PURGE.mesh-Shop-Orders": {M, W, R, N},
    f"{API}.STREAM.PURGE.OBJ_mesh_state": {M, W, R},
    f"{API}.STREAM.PURGE.KV_mesh_apps": {M},
    f"{API}.STREAM.PURGE.mesh_audit": {M},
    f"{API}.STREAM.SNAPSHOT.KV_mesh_apps": {M},
    f"{API}.STREAM.MSG.GET.mesh-Shop-Orders": {M, W, R, N, C},
    f"{API}.STREAM.MSG.GET.KV_mesh_users": {M},
    f"{API}.STREAM.MSG.GET.KV_mesh_sessions": {M},
    f"{API}.STREAM.PURGE.KV_mesh_sessions": {M},
    f"{API}.STREAM.MSG.GET.KV_mesh_simulations": {M},
    f"{API}.STREAM.DELETE.KV_mesh_simulations": {M},
    f"{API}.CONSUMER.CREATE.KV_mesh_sessions.c.x": {M},
    f"{API}.DIRECT.GET.mesh-Shop-DearOrders": {M, W, R, N, C},
    f"{API}.DIRECT.GET.KV_mesh_apps.$KV.mesh_apps.app.Shop": {M, W, R, C},
    f"{API}.DIRECT.GET.KV_mesh_users": {M},
    f"{API}.DIRECT.GET.KV_mesh_users.$KV.mesh_users.user.ada": {M},
    f"{API}.CONSUMER.CREATE.mesh-Shop-Orders": {M, W, R, N, C},
    f"{API}.CONSUMER.CREATE.mesh-Shop-Orders.c.mesh.Shop.Orders": {M, W, R, N, C},
    f"{API}.CONSUMER.CREATE.KV_mesh_users": {M},
    f"{API}.CONSUMER.CREATE.KV_mesh_users.c.x": {M},
    f"{API}.CONSUMER.CREATE.mesh_audit.c.x": {M},
    f"{API}.CONSUMER.CREATE.mesh_history.c.x": {M},
    "mesh._history.60": {M},
    f"{API}.CONSUMER.MSG.NEXT.mesh-Shop-Orders.c": {M, W, R, N, C},
    f"{API}.CONSUMER.MSG.NEXT.KV_mesh_users.c": {M},
    f"{API}.CONSUMER.INFO.mesh-Shop-Orders.c": {M, W, R, N, C},
    f"{API}.CONSUMER.DELETE.mesh-Shop-Orders.c": {M, W, R, N, C},
    f"{API}.CONSUMER.DELETE.KV_mesh_users.c": {M},
    f"{API}.CONSUMER.DURABLE.CREATE.mesh-Shop-Orders.c": {M},
    f"{API}.CONSUMER.LIST.mesh-Shop-Orders": {M},
    f"{API}.CONSUMER.PAUSE.mesh-Shop-Orders.c": {M},
    f"{API}.STREAM.LIST": {M},
    f"{API}.STREAM.MSG.DELETE.mesh-Shop-Orders": {M},
    f"{API}.STREAM.RESTORE.mesh-Shop-Orders": {M},
    f"{API}.STREAM.LEADER.STEPDOWN.mesh-Shop-Orders": {M},
    f"{API}.STREAM.PEER.REMOVE.mesh-Shop-Orders": {M},
    # Values of secrets are encrypted, and workers use them.
    f"{API}.STREAM.MSG.GET.KV_mesh_secrets": {M, W, R, N, C},
    f"{API}.DIRECT.GET.KV_mesh_secrets": {M, W, R, C},
    f"{API}.DIRECT.GET.KV_mesh_secrets.$KV.mesh_secrets.db": {M, W, R, C, N},
    f"{API}.CONSUMER.CREATE.KV_mesh_secrets.c.x": {M, W, R, C},
    f"{API}.STREAM.INFO.KV_mesh_secrets": {M, W, R, C, N},
    f"{API}.STREAM.INFO.KV_mesh_control": {M, W, R, C},
    f"{API}.CONSUMER.CREATE.KV_mesh_apps": {M, W, R, C},
    f"{API}.CONSUMER.CREATE.mesh_journal.c.x": {M, W, R, C},
    f"{API}.DIRECT.GET.mesh_journal": {M, W, R, C},
    f"{API}.STREAM.PURGE.KV_mesh_secrets": {M},
    f"{API}.STREAM.DELETE.KV_mesh_users": {M},
    f"{API}.INFO": set(),
    "$JS.FC.mesh-Shop-Orders.c.x": {M, W, R, N, C},
    "$JS.ACK.mesh-Shop-Orders.c.1.1.1.1.1": set(),
    f"{API}.META.LEADER.STEPDOWN": set(),
    "$JS.east.API.STREAM.INFO.mesh-Shop-Orders": {M},
    "$JS.east.API.STREAM.DELETE.mesh-Shop-Orders": set(),
    f"{API}.ACCOUNT.PURGE.x": set(),
    "MESH.API.DIRECT.GET.mesh-Shop-DearOrders": {BOARD},
    "MESH.API.STREAM.INFO.mesh-Shop-DearOrders": {BOARD},
    "MESH.API.DIRECT.GET.KV_mesh_apps": set(),
    # answers
    "_INBOX.manager.x": {M, W, R, N},
    "_INBOX.worker.x": {M, W, N},
    "_INBOX.operator.x": {M, C},
    "_INBOX.connector.x": {M, W, R, N},
    "_INBOX.other.x": {M},
    "_R_.x": {M},
    "_DATACENTER.x": set(),
    "$SYS.REQ.SERVER.PING": set(),
    "anything": set(),
}
#: Who may subscribe to a subject.
SUBSCRIBE: Final[dict[str, set[str]]] = {
    "mesh.Shop.Orders": {W, C, A},
    "mesh.Shop.DearOrders": {W, C, A, BOARD},
    "mesh.Shop.DearOrders.by.item.*": {W, C, A, BOARD},
    "mesh.Shop._query": {M, C, A},
    "mesh.Shop._change": {M, C, A},
    "mesh._ask.w1": {W, R, C},
    "mesh._topic.prices": {W, C},
    "mesh._audit.api": set(),
    "mesh.>": {C},
    "$KV.mesh_control.>": set(),
    "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.*": {M},
    "_INBOX.manager.>": {M, P, A, TILL, BOARD, DESK},
    "_INBOX.worker.>": {W, P, A, TILL, BOARD, DESK},
    "_DATACENTER.x": {M},
    "$SYS.>": set(),
    ">": set(),
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    directory = tmp_path_factory.mktemp("roles")
    made = server.start(directory / "nats", arguments=write_accounts(directory / "accounts.conf"))
    yield made
    made.stop()


def test_the_matrix_has_every_bucket_stream_and_internal_family() -> None:
    """A bucket or a family of subjects that is added later has to be added to the matrix, too."""
    values = {name: value for name, value in vars(names).items() if isinstance(value, str)}
    buckets = [value for name, value in values.items() if name.endswith("_BUCKET")]
    streams = [value for name, value in values.items() if name.endswith("_STREAM")]
    assert len(buckets) >= 8
    for bucket in buckets:
        assert any(f".{bucket}." in f".{one}." for one in PUBLISH), bucket
    for stream in streams:
        assert any(one.endswith(f".{stream}") for one in PUBLISH), stream
    families = {f"{names.ROOT}.{one}.>" for one in INTERNAL_NAME.findall(inspect.getsource(names))}
    assert families == {*INTERNAL, f"{names.AUDIT_SUBJECT}.>", names.history_subject(">")}
    for family in families:
        assert any(one.startswith(family.removesuffix(">")) for one in PUBLISH), family
    for private in PRIVATE:
        assert any(f".{private}" in one and who == {M} for one, who in PUBLISH.items()), private


@pytest.mark.parametrize("name", list(USERS))
async def test_each_role_may_what_the_matrix_says_and_nothing_else(
    guarded: NatsServer, name: str
) -> None:
    refused: set[tuple[str, str]] = set()

    async def note(error: Exception) -> None:
        found = re.search(r'permissions violation for (\w+) to "([^"]+)"', str(error), re.I)
        assert found is not None, error
        # The client gives the server's words in small letters.
        refused.add((found[1].lower(), found[2].lower()))
        if found[2].lower() == END:
            ended.set()

    ended = asyncio.Event()

    options: dict[str, Any] = {"user": name, "password": PASSWORDS[name], "error_cb": note}
    client = await nats.connect(guarded.url, inbox_prefix=inbox_of(name), **options)
    # The server answers in order, so a refusal is here before the answer to a flush.
    for subject in PUBLISH:
        await client.publish(subject, b"{}")
        await client.flush()
    for subject in SUBSCRIBE:
        await client.subscribe(subject)
        await client.flush()
    # The client may tell of a refusal after the answer, and tells of all in order.
    await client.publish(END, b"")
    async with asyncio.timeout(20):
        await ended.wait()
    await client.close()
    assert {s for s in PUBLISH if ("publish", s.lower()) not in refused} == {
        s for s, may in PUBLISH.items() if name in may
    }
    assert {s for s in SUBSCRIBE if ("subscription", s.lower()) not in refused} == {
        s for s, may in SUBSCRIBE.items() if name in may
    }


async def test_a_client_can_not_have_an_answer_stored_on_a_subject_of_the_mesh(
    guarded: NatsServer,
) -> None:
    """The server answers to whatever subject a publisher names, unless accounts are between."""

    connections = [
        await nats.connect(
            guarded.url, user=name, password=PASSWORDS[name], inbox_prefix=inbox_of(name)
        )
        for name in (M, TILL, BOARD)
    ]
    manager, till, board = connections
    js = manager.jetstream()
    bucket = await js.create_key_value(bucket=names.CONTROL_BUCKET)
    for stream in ("Orders", "DearOrders"):
        subject = names.subject("Shop", stream)
        name = names.js_stream("Shop", stream)
        await js.add_stream(name=name, subjects=[subject], allow_direct=True)
    await till.publish("mesh.Shop.Orders", b"{}", reply="$KV.mesh_control.lease")
    call = "MESH.API.STREAM.INFO.mesh-Shop-DearOrders"
    await board.publish(call, b"", reply="$KV.mesh_control.lease")
    for one in (till, board):
        await one.flush()
    # A later request of the same connection is answered, so the earlier ones are, too.
    await till.jetstream().publish("mesh.Shop.Orders", b"{}")
    await board.request(call, b"", timeout=20)
    assert (await bucket.status()).values == 0
    info = await js.stream_info("mesh-Shop-Orders")
    assert info.state.messages == 2
    for one in connections:
        await one.close()
