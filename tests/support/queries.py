"""On-demand queries over the stored state of an app: a manager's and a worker's part, over NATS."""

from __future__ import annotations

import importlib
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from mesh.clock import SystemClock
from mesh.errors import MeshError
from mesh.jetstream.connection import close, connect
from mesh.manager.desired_state import DesiredState
from mesh.manager.queries import Queries
from mesh.settings import FunctionSettings, NatsSettings, QuerySettings, Settings
from mesh.worker.questions import Questions
from tests.support.stored_states import APP, Records, StoredShop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from nats.aio.client import Client

    from mesh.jetstream.server import NatsServer

TOTALS = APP.replace(
    "from Orders select item, price",
    "@dist(execGroup='default') define aggregation Totals from Orders select item, "
    "sum(n) as total group by item aggregate every sec...day;\nfrom Orders select item, price",
)
PER_DAY = "from Totals within '1970-01-01 **:**:**' per 'days' select "


@dataclass
class Inline:
    """Computes in this process; ``calls`` are the functions; older workers answer with Arrow."""

    is_older: bool = False
    calls: list[str] = field(default_factory=list)

    def call(self, limit_s: float, function: Callable[..., Any] | str, *arguments: Any) -> Any:
        assert isinstance(function, str)
        module, _, name = function.partition(":")
        self.calls.append(name)
        if self.is_older:
            arguments = (replace(arguments[0], may_be_json=False),)
        return getattr(importlib.import_module(module), name)(*arguments)

    def stop(self) -> None:
        """Nothing runs."""


@dataclass
class Scene:
    shop: StoredShop
    records: Records
    client: Client
    queries: Queries
    questions: Questions

    async def refused(self, query: str, **more: Any) -> MeshError:
        with pytest.raises(MeshError) as error:
            await self.queries.ask("Shop", query, **more)
        return error.value

    def limit(self, timeout_s: float) -> None:
        """Change the time of queries: a short one where one is to pass, else a long one."""
        self.queries.limits = replace(self.queries.limits, timeout_s=timeout_s)

    async def rows(self, query: str, **more: Any) -> Any:
        return orjson.loads((await self.queries.ask("Shop", query, **more)).records)


@asynccontextmanager
async def asking(
    nats: NatsServer,
    directory: Path,
    limits: QuerySettings | None = None,
    *,
    is_real: bool = False,
    text: str = APP,
    manager: Inline | None = None,
    worker: Inline | None = None,
) -> AsyncIterator[Scene]:
    settings = Settings(
        nats=NatsSettings(url=nats.url),
        queries=limits or QuerySettings(),
        functions=FunctionSettings(python=True),
    )
    shop = StoredShop(directory, text=text)
    client = await connect(settings.nats, "test")
    records = Records(shop, (shop.assignment,))
    view: Any = records
    clock = SystemClock()
    desired = DesiredState(client, view, clock)
    queries = Queries(
        client, view, desired, settings, clock, None if is_real else manager or Inline()
    )
    questions = Questions(
        client, "w1", settings, clock, lambda: directory, lambda app: shop.spec.text,
        None if is_real else worker or Inline(),
    )  # fmt: skip
    questions.began(shop.assignment, shop.group)
    await questions.start()
    await queries.start()
    try:
        yield Scene(shop, records, client, queries, questions)
    finally:
        await queries.stop()
        await questions.stop()
        await close(client)
