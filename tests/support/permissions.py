"""The accounts of docs/operations.md, for a server of the tests."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

USERS: Final = ("manager", "worker", "till", "board", "audit", "desk")
#: By user.
PASSWORDS: Final = {user: f"of-{user}" for user in USERS}
#: The app that the page exports streams of.
SHOP: Final = """@App:name('Shop') define stream Orders (item string, price double);
from Orders[price > 100.0] select item, price insert into DearOrders;"""


def write_accounts(path: Path) -> list[str]:
    """Write the page's ``accounts.conf``; returns the server's arguments for it."""
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    start = page.index("    accounts {")
    text = textwrap.dedent(page[start : page.index("\n\n- ", start)])
    for user, password in PASSWORDS.items():
        variable = f"${user.upper()}_PASSWORD"
        assert variable in text
        text = text.replace(variable, password)
    path.write_text(text)
    return ["-c", str(path)]
