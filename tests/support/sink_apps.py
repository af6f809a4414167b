"""Apps with sinks, and endpoints that answer as they are told."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.support.connectors import Endpoint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

APP = """@App:name('Out')
define stream S (k string, n int);
{}
define stream T (k string, n int);
from S select k, n insert into T;
"""
SINK = "@sink(type='http', publisher.url='{}', @map(type='json'))"


@asynccontextmanager
async def endpoints(count: int = 1) -> AsyncIterator[list[Endpoint]]:
    """So many endpoints."""
    ends = [Endpoint() for _ in range(count)]
    for end in ends:
        await end.open()
    try:
        yield ends
    finally:
        for end in ends:
            await end.close()


def events(first: int, last: int) -> list[dict[str, Any]]:
    return [{"k": f"k{n % 7}", "n": n} for n in range(first, last)]


def numbers(end: Endpoint) -> list[int]:
    return [body["event"]["n"] for body in end.bodies]


SPREAD = (
    "@sink(type='http', @map(type='json'), @distribution(strategy='{}', {}"
    "@destination(publisher.url='{}'), @destination(publisher.url='{}')))"
)
