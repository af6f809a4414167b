"""Plans are made within limits, once for a text."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from mesh.api.routes import status_of
from mesh.connect.spec import Guarantee
from mesh.errors import MeshError
from mesh.manager import planning
from mesh.manager.manager import running
from mesh.manager.planning import Planner
from mesh.model.access import ALL, ROLES, Grant, Identity, current
from mesh.plan.build import plan
from mesh.settings import (
    FunctionSettings,
    ManagerSettings,
    NatsSettings,
    ReceiverSettings,
    Settings,
)
from tests.support.planned import TEXT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.model.app import AppSpec


class Recorder:
    """Computes in this process, and counts."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def call(self, limit_s: float, function: Callable[..., Any], *arguments: Any) -> Any:
        self.calls.append(function.__name__)
        return function(*arguments)


async def test_a_plan_is_made_once_for_a_text_and_its_views() -> None:
    recorder = Recorder()
    planner = Planner(Settings(), recorder)
    spec, again = await asyncio.gather(planner.plan(TEXT), planner.plan(TEXT))
    assert spec is again
    assert spec == plan(TEXT).spec
    for form in ("json", "svg", "dot", "elements") * 2:
        await planner.view(spec, form)
    assert recorder.calls == ["plan_text"] + ["view_of"] * 4
    group = replace(spec.groups[0], parallel=2)
    await planner.view(replace(spec, groups=(group,)), "json")
    assert len(recorder.calls) == 6


async def test_a_text_without_an_annotation_is_not_parsed_for_it() -> None:
    recorder = Recorder()
    planner = Planner(Settings(), recorder)
    spec = await planner.plan(TEXT)
    assert await planner.warnings(spec) == ()
    assert await planner.demanded(spec) is None
    assert await planner.history_sources(spec) == ()
    assert recorder.calls == ["plan_text"]

    text = TEXT.replace("define", "@source(type='history', path='p.csv', time='a') define", 1)
    spec = await planner.plan(f"@App:Guarantee('exactly-once') {text}")
    assert await planner.demanded(spec) is Guarantee.EXACTLY_ONCE
    assert [one.path for one in await planner.history_sources(spec)] == ["p.csv"]
    text = TEXT.replace("from", "@source(type='inMemory', topic='t') define stream T (a int); from")
    spec = await planner.plan(text)
    assert len(await planner.warnings(spec)) == 1


@pytest.mark.parametrize(
    ("grants", "may"),
    [
        (None, True),
        ((Grant(ALL),), True),
        ((Grant(ALL, "A*"),), True),
        ((Grant(ROLES["developer"]),), False),
        ((Grant(ROLES["developer"]), Grant(ALL, "B")), False),
    ],
)
async def test_functions_take_a_permission_of_their_own(
    grants: tuple[Grant, ...] | None, may: bool
) -> None:
    settings = Settings(functions=FunctionSettings(python=True))
    text = TEXT.replace("from", "define function f[python] return int { return 1 }; from")

    token = current.set(Identity("eve", grants) if grants is not None else None)
    try:
        planner = Planner(settings, Recorder())
        plain = await planner.plan(TEXT)
        assert plain.name == "A"
        forked = await planner.fork(plain, None, "A2", {}, sinks=False)
        assert (await planner.renamed(plain, "A2")).name == forked.name == "A2"
        with_function = plan(text).spec
        # Each way of a text into the cluster.
        ways: tuple[Callable[[], Awaitable[AppSpec]], ...] = (
            lambda: planner.plan(text),
            lambda: planner.fork(plain, text, "A2", {}, sinks=False),
            lambda: planner.fork(with_function, None, "A2", {}, sinks=False),
            lambda: planner.renamed(with_function, "A2"),
        )
        for way in ways:
            if may:
                assert "function" in (await way()).text
                continue
            with pytest.raises(MeshError, match="A403") as error:
                await way()
            assert "apps.python" in error.value.message
    finally:
        current.reset(token)


@pytest.mark.parametrize(
    ("stream", "may"),
    [
        ("ORDERS", True),
        ("mesh-Shop-Orders", True),
        ("mesh-Shop-Orders-by-item-3", True),
        ("mesh-Bank-Orders", False),
        ("mesh-Bank-Orders-by-item-3", False),
        ("mesh-Bank-errors-", False),
        ("mesh-topics-", False),
        ("mesh_journal", False),
        ("KV_mesh_secrets", False),
        ("OBJ_mesh_state", False),
    ],
)
def test_an_app_reads_other_apps_only_if_its_author_may(stream: str, may: bool) -> None:
    source = f"@source(type='nats', stream='{stream}', @map(type='json')) define"
    text = TEXT.replace("define", source)

    async def scene() -> None:
        planner = Planner(Settings(), Recorder())
        # Kept from a user who may: another one's request is decided anew.
        assert (await planner.plan(text)).name == "A"
        limited = Grant(ROLES["developer"], "Shop*"), Grant(ROLES["developer"], "A")
        token = current.set(Identity("eve", limited))
        try:
            if may:
                assert (await planner.plan(text)).name == "A"
                return
            with pytest.raises(MeshError, match="A403"):
                await planner.plan(text)
        finally:
            current.reset(token)

    asyncio.run(scene())


@pytest.mark.parametrize("has_python", [True, False])
def test_an_app_with_functions_is_refused_where_none_are_run(has_python: bool) -> None:
    settings = Settings(functions=FunctionSettings(python=has_python))
    text = TEXT.replace("from", "define function f[python] return int { return 1 }; from")

    async def scene() -> None:
        assert (await Planner(settings, Recorder()).plan(TEXT)).name == "A"
        planned = Planner(settings, Recorder()).plan(text)
        if has_python:
            assert (await planned).text == text
            return
        with pytest.raises(MeshError, match="MESH-S131") as error:
            await planned
        assert status_of(error.value) == 403

    asyncio.run(scene())


async def test_only_so_many_requests_wait_for_the_planner() -> None:
    planner = Planner(Settings(), Recorder())
    texts = [TEXT.replace("> 1", f"> {n}") for n in range(planning.WAITING_MAX + 3)]
    done = await asyncio.gather(*map(planner.plan, texts), return_exceptions=True)
    refused = [one for one in done if isinstance(one, MeshError)]
    assert [one.code for one in refused] == ["MESH-A429"] * 3
    assert (await planner.plan(texts[-1])).name == "A"


async def test_a_manager_plans_within_the_limit(nats_server: NatsServer) -> None:
    """Every request that plans is refused when there is no time for it; others are answered."""

    settings = Settings(nats=NatsSettings(url=nats_server.url), manager=ManagerSettings(id="m1"))
    hasty = replace(settings, manager=ManagerSettings(id="m2", plan_timeout_s=0.0))
    async with running(settings) as (_, one), running(hasty) as (manager, other):
        await one.deploy(TEXT)
        while other.record("A") is None:
            await manager.view.changed(manager.view.version, 5.0)
        for call in (
            other.deploy(TEXT.replace("'A'", "'B'")),
            other.update(TEXT.replace("a > 1", "a > 2")),
            other.plan_view("A", "json"),
            other.plan_view("A", "elements"),
            other.name_of(TEXT),
        ):
            with pytest.raises(MeshError, match="MESH-A413"):
                await call
        assert (await other.status("A")).app == "A"
        streams = await manager.client.jetstream().streams_info()
        assert not [one for one in streams if str(one.config.name).startswith("mesh-B-")]


async def test_a_type_is_taken_from_the_managers_references(tmp_path: Path) -> None:
    path = tmp_path / "refs.yaml"
    path.write_text("orders:\n  type: inMemory\n")
    text = TEXT.replace("define", "@source(ref='orders', topic='t') define", 1)
    settings = Settings(receiver=ReceiverSettings(refs_file=str(path)))
    spec = await Planner(settings, Recorder()).plan(text)
    assert "@source(type='inMemory', ref='orders'" in spec.text
    assert [one for group in spec.groups for one in group.connectors] == ["source inMemory"]
    with pytest.raises(MeshError, match='reference "orders" has none here'):
        await Planner(Settings(), Recorder()).plan(text)
