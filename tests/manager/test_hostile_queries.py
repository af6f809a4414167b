"""On-demand queries of any form, through NATS and the real processes of a manager and a worker."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import orjson
import pytest

from mesh.errors import MeshError
from mesh.model import names
from mesh.settings import QuerySettings
from tests.support.queries import PER_DAY, TOTALS, asking

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

pytestmark = [pytest.mark.nats, pytest.mark.timeout(240)]

DEEP: Final = "MESH-L105"
NUMBER: Final = "MESH-L103"
WITHIN: Final = "MESH-L226"
#: A query of aggregation ``Totals``.
TOTAL: Final = "from Totals within {} per 'seconds' select item, total"
#: Text of a query, and the code of its refusal; empty for one that has an answer.
QUERIES: Final = (
    ("\0", "MESH-L101"),
    ("\u202efrom Prices", "MESH-L101"),
    ("from Prices" + ";" * 50_000, "MESH-L104"),
    ("from Prices /* ", ""),
    ("/**/" * 20_000 + "from Prices", ""),
    ("from Prices on item == 'abc", "MESH-L102"),
    ("from " + "P" * 99_000, "MESH-L217"),
    ("from " + "P" * 900_000, "MESH-A400"),
    # Nesting.
    ("from Prices on " + "(" * 20_000 + "true" + ")" * 20_000, ""),
    ("from Prices on " + "not " * 20_000 + "true", DEEP),
    ("from Prices on " + " and ".join(["n>1"] * 12_000), DEEP),
    ("from Prices select " + "+".join(["n"] * 30_000) + " as m", DEEP),
    ("from Prices select " + "ifThenElse(true," * 3000 + "1" + ",2)" * 3000 + " as m", DEEP),
    # Numbers.
    ("from Prices on n == " + "9" * 5000, NUMBER),
    ("from Prices on price == 1e999", NUMBER),
    ("from Prices select item limit 9223372036854775807", NUMBER),
    ("from Prices select item limit -1", "MESH-L211"),
    ("from Prices select item limit 2147483647 offset 2147483647", ""),
    ("from Prices select n / 0 as a, n % 0 as b, 0.0 / 0.0 as c, price / 0.0 as d", ""),
    ("from Prices select n * 9223372036854775807L as a, math:power(10.0, 400.0) as b", ""),
    ("from Prices select time:dateFormat(9223372036854775807L, 'yyyy') as a", "MESH-O110"),
    # Expressions that take long, or much memory.
    ("from Prices on regex:matches('(a+)+$', '" + "a" * 5000 + "b')", ""),
    ("from Prices on regex:matches('(a{1000}){1000}', item)", ""),
    ("from Prices on regex:matches('(', item)", "MESH-O110"),
    ("from Prices select str:repeat('a', 2000000000) as r", "MESH-O110"),
    ("from Prices select " + ", ".join(f"item as a{n}" for n in range(1000)), ""),
    ("from Prices select count() as c group by " + ", ".join(["item"] * 1000), ""),
    ("from Prices select item order by " + ", ".join(["item"] * 1000), ""),
    # Times.
    (TOTAL.format("'0001-01-01 00:00:00', '9999-12-31 23:59:59'"), ""),
    (TOTAL.format("-9223372036854775808L, 9223372036854775807L"), ""),
    (TOTAL.format("10L, 1L"), "MESH-O110"),
    (TOTAL.format("'9999-99-99 **:**:**'"), "MESH-O110"),
    (TOTAL.format("'1970-01-01 00:00:00 +99:99', '1980-01-01 00:00:00 -99:99'"), "MESH-O110"),
    (TOTAL.format("'" + "9" * 90_000 + "'"), WITHIN),
    (TOTAL.format("'****-**-** **:**:**'"), WITHIN),
    (TOTAL.format("0.0 / 0.0, 1L"), WITHIN),
    ("from Totals within 0L, 1L per '" + "x" * 90_000 + "' select item", WITHIN),
)
ENVELOPES: Final = (
    b"",
    b" " * 1000,
    b"\xff\xfe",
    b"{" * 100_000,
    b'{"query":' + b"[" * 100_000,
    b'{"query":"from Prices","min_position":{"mesh-Shop-Orders":99999999999999999999}}',
    b'{"query":"from Prices","min_position":{"mesh-Shop-Orders":-1}}',
    b'{"query":"from Prices","min_position":[1]}',
    b'{"query":"from Prices","min_position":{"\\u0000":1}}',
    b'{"query":"from Prices","id":"a b"}',
    b'{"query":"from Prices","id":"' + b"x" * 900_000 + b'"}',
    b'{"query":"\\ud800"}',
    b'{"query":NaN}',
    b'{"' + b"k" * 900_000 + b'":1}',
)


@pytest.mark.thorough
async def test_each_is_answered_and_the_next_one_as_if_it_had_not_been(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with asking(
        nats_server, tmp_path, QuerySettings(timeout_s=60.0), is_real=True, text=TOTALS
    ) as at:
        at.shop.order(("pen", 1.5, 1), ("ink", 9.0, 2))
        at.shop.store()
        good = PER_DAY + "item, total order by item"

        async def asked(data: bytes) -> Any:
            answer = await at.client.request(names.query_subject("Shop"), data, timeout=120)
            return orjson.loads(answer.data)

        # Both processes start, which may take longer than a query.
        for _ in range(5):
            with contextlib.suppress(MeshError):
                await at.rows(good)
        wrong = []
        cases = [(text.encode(), code) for text, code in QUERIES]
        for data, code in [*cases, *((data, "MESH-A400") for data in ENVELOPES)]:
            found = await asked(data)
            rows = await at.rows(good)
            if found.get("code", "") != code or rows != [["ink", 2], ["pen", 1]]:
                wrong.append((data[:100], code, str(found)[:300], rows))
        assert wrong == []
