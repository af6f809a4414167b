"""Provisioning by SCIM: a certified client's checks, and the end of a user that is deactivated."""

from __future__ import annotations

import contextlib
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio
import httpx
import httpx2
import pytest

from mesh.api.auth import Access
from mesh.api.routes import make_app
from mesh.api.users import Users, hash_of
from mesh.clock import SystemClock
from mesh.jetstream.connection import close, connect
from mesh.jetstream.directory import Directory, DirectoryUser
from mesh.jetstream.sessions import UserSessions
from mesh.model.access import ALL, ROLES, Grant, Identity
from mesh.model.sign_in import SignedIn
from mesh.settings import NatsSettings
from tests.support.api import TEXT, FakeService
from tests.support.manager_api import manager_api

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats

ADMIN: Final = ("ada", "pw")


@contextlib.contextmanager
def provisioner(nats_server: NatsServer, directory: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The URL of a manager, and the headers of an identity provider's requests."""
    with manager_api(nats_server, directory) as url:
        wanted = {"name": "scim", "may": ["admin"]}
        made = httpx.post(f"{url}/tokens", json=wanted, auth=ADMIN).json()
        yield url, {"Authorization": f"Bearer {made['token']}"}


@pytest.mark.extended
def test_the_tester_of_scim_passes(nats_server: NatsServer, tmp_path: Path) -> None:
    # Their models take seconds to build, which every collection of the tests would wait for.
    from scim2_client.engines.httpx2 import SyncSCIMClient
    from scim2_tester import Status, check_server

    with (
        provisioner(nats_server, tmp_path) as (url, headers),
        httpx2.Client(base_url=f"{url}/scim/v2", headers=headers) as client,
    ):
        results = check_server(SyncSCIMClient(client))
    failed = [one for one in results if one.status in (Status.ERROR, Status.CRITICAL)]
    assert not failed, "\n".join(f"{one.title}: {one.reason} {one.data!r}" for one in failed)
    assert len(results) > 50


@asynccontextmanager
async def cluster(nats_server: NatsServer) -> AsyncIterator[tuple[httpx.AsyncClient, Access]]:
    """The API with a directory, sessions, and a provider whose tokens are names of users."""

    async def bearer(token: str) -> Identity:
        return Identity(f"oidc:{token}", (), "oidc")

    client = await connect(NatsSettings(nats_server.url), "test")
    js = client.jetstream()
    directory = Directory(js)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(directory.follow)
            await directory.ready()
            await directory.put_user(DirectoryUser("ada", hash_of("ada", "pw"), (Grant(ALL),)))
            users = Users(None, directory, roles={"SHOP": (Grant(ROLES["developer"], "Shop*"),)})
            sessions = UserSessions(js, SystemClock())
            access = Access(users, bearer=bearer, sessions=sessions)
            transport = httpx.ASGITransport(
                make_app(FakeService({"Shop": TEXT}).as_manager, access)
            )
            async with httpx.AsyncClient(transport=transport, base_url="http://api") as api:
                yield api, access
            tasks.cancel_scope.cancel()
    finally:
        await close(client)


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def _make(api: httpx.AsyncClient, kind: str, **values: Any) -> str:
    schema = f"urn:ietf:params:scim:schemas:core:2.0:{kind}"
    sent = {"schemas": [schema], **values}
    made = await api.post(f"/scim/v2/{kind}s", json=sent, auth=ADMIN)
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


async def _set_active(api: httpx.AsyncClient, id_: str, active: bool) -> None:
    change = {
        "schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"],
        "Operations": [{"op": "replace", "path": "active", "value": active}],
    }
    done = await api.patch(f"/scim/v2/Users/{id_}", json=change, auth=ADMIN)
    assert done.status_code == 200, done.text


@pytest.mark.slow
async def test_a_user_has_the_grants_of_its_groups_until_it_is_deactivated(
    nats_server: NatsServer,
) -> None:
    async with cluster(nats_server) as (api, access):
        id_ = await _make(api, "User", userName="eve", password="hunter2")
        await _make(api, "Group", displayName="SHOP", members=[{"value": id_}])
        shop = "/siddhi-apps/Shop"
        # The provider's tokens may spell the name in another way.
        for name in ("eve", "Eve"):
            assert (await api.get(shop, headers=_bearer(name))).status_code == 200
            assert (await api.get("/nodes", headers=_bearer(name))).status_code == 403
        wanted = {"name": "deploys", "may": ["developer"]}
        made = await api.post("/tokens", json=wanted, headers=_bearer("Eve"))
        assert made.status_code == 201
        token = made.json()["token"]
        assert (await api.get(shop, headers=_bearer(token))).status_code == 200
        by = SignedIn("oidc:EVE", (), 3600.0)
        assert access.sessions is not None
        await access.sessions.begin(by.user, how="oidc", by=by)
        await _set_active(api, id_, active=False)
        assert await access.sessions.listed() == []
        for gone in (token, "eve", "EVE"):
            assert (await api.get(shop, headers=_bearer(gone))).status_code == 401
        assert (await api.get("/me", auth=("oidc:eve", "hunter2"))).status_code == 401
        await _set_active(api, id_, active=True)
        assert (await api.get(shop, headers=_bearer("eve"))).status_code == 200
        # What was revoked stays so.
        assert (await api.get(shop, headers=_bearer(token))).status_code == 401


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("operation", "left"),
    [
        ({"op": "Remove", "path": "members", "value": [{"value": "{1}"}]}, "02"),
        ({"op": "remove", "path": "members", "value": [{"value": "{0}"}, {"value": "{2}"}]}, "1"),
        ({"op": "remove", "path": "members", "value": [{"value": "{0}", "display": "x"}]}, "12"),
        ({"op": "remove", "path": "members", "value": {"value": "{0}"}}, "12"),
        ({"op": "remove", "path": "members", "value": ["{0}"]}, "12"),
        ({"op": "remove", "value": {"members": [{"value": "{2}"}]}}, "01"),
        ({"op": "remove", "path": 'members[value eq "{1}"]'}, "02"),
        ({"op": "remove", "path": "members", "value": [{"value": 'a" or value pr'}]}, "012"),
        ({"op": "remove", "path": "members", "value": []}, "012"),
        ({"op": "remove", "path": "members", "value": None}, ""),
        ({"op": "remove", "path": "members"}, ""),
    ],
)
async def test_members_are_removed_by_value(
    nats_server: NatsServer, operation: dict[str, Any], left: str
) -> None:
    async with cluster(nats_server) as (api, _):
        ids = [await _make(api, "User", userName=f"user{n}") for n in range(3)]
        members = [{"value": id_} for id_ in ids]
        group = await _make(api, "Group", displayName="SHOP", members=members)
        text = json.dumps(operation)
        for number, id_ in enumerate(ids):
            text = text.replace(f"{{{number}}}", id_)
        change = {
            "schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"],
            "Operations": [json.loads(text)],
        }
        done = await api.patch(f"/scim/v2/Groups/{group}", json=change, auth=ADMIN)
        assert done.status_code == 200, done.text
        found = (await api.get(f"/scim/v2/Groups/{group}", auth=ADMIN)).json()
        kept = [one["value"] for one in found.get("members", ())]
        assert kept == [ids[int(number)] for number in left]


async def test_a_user_that_is_removed_or_unknown_is_refused_where_all_have_to_be_provisioned(
    nats_server: NatsServer,
) -> None:
    async with cluster(nats_server) as (api, access):
        assert access.users is not None
        id_ = await _make(api, "User", userName="eve", roles=[{"value": "SHOP"}])
        access.users.is_provisioned_only = True
        shop = "/siddhi-apps/Shop"
        assert (await api.get(shop, headers=_bearer("eve"))).status_code == 200
        assert (await api.get("/me", headers=_bearer("bob"))).status_code == 401
        done = await api.delete(f"/scim/v2/Users/{id_}", auth=ADMIN)
        assert done.status_code == 204
        assert (await api.get(shop, headers=_bearer("eve"))).status_code == 401


@pytest.mark.slow
async def test_names_are_unique_passwords_are_not_kept_and_administrators_alone_provision(
    nats_server: NatsServer,
) -> None:
    async with cluster(nats_server) as (api, access):
        id_ = await _make(api, "User", userName="eve", password="hunter2")
        assert access.users is not None
        assert access.users.directory is not None
        assert "hunter2" not in str(access.users.directory.resources)
        sent = {"schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "userName": "EVE"}
        again = await api.post("/scim/v2/Users", json=sent, auth=ADMIN)
        assert (again.status_code, again.json()["scimType"]) == (409, "uniqueness")
        wrong = await api.get("/scim/v2/Users?filter=userName+like+1", auth=ADMIN)
        assert (wrong.status_code, wrong.json()["scimType"]) == (400, "invalidFilter")
        for body in (b"[]", b"{", b"\xff", b'{"schemas": 5}'):
            bad = await api.post("/scim/v2/Users", content=body, auth=ADMIN)
            assert bad.status_code == 400
            assert bad.headers["content-type"].startswith("application/scim+json")
        one = f"/scim/v2/Users/{id_}"
        assert (await api.get(one, headers=_bearer("eve"))).status_code == 403
        assert (await api.get(one)).status_code == 401
        found = await api.get('/scim/v2/Users?filter=userName eq "Eve"', auth=ADMIN)
        assert found.json()["totalResults"] == 1
