"""A server with the accounts of ``mesh nats-config``, with passwords for the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.jetstream.accounts import NatsUser, accounts
from mesh.model.nats_roles import ClientGrant, NatsRole, StreamGrant, inbox

if TYPE_CHECKING:
    from pathlib import Path

#: The app that clients have streams of.
SHOP: Final = """@App:name('Shop') define stream Orders (item string, price double);
from Orders[price > 100.0] select item, price insert into DearOrders;"""
_READS: Final = (StreamGrant("Shop", "DearOrders"),)
#: By name: a role of the mesh, or what a client has.
USERS: Final[dict[str, NatsRole | ClientGrant]] = {
    **{role: role for role in NatsRole},
    "till": ClientGrant(publish=(StreamGrant("Shop", "Orders"),)),
    "board": ClientGrant(read=_READS),
    "desk": ClientGrant(query=("Shop",)),
    "publisher": ClientGrant(publish=(StreamGrant("*", "*"),)),
    "reader": ClientGrant(read=(StreamGrant("*", "*"),), query=("*",)),
}
#: By user.
PASSWORDS: Final = {user: f"of-{user}" for user in USERS}


def write_accounts(path: Path, *, with_everybody: bool = False) -> list[str]:
    """Write ``accounts.conf``; returns the server's arguments for it.

    ``with_everybody``: who comes without a login may do all in the account of the mesh.
    """
    users = [NatsUser(name, of, password=PASSWORDS[name]) for name, of in USERS.items()]
    text = accounts(users)
    if with_everybody:
        text = text.replace("users: [", "users: [ { user: everybody, password: of-everybody }", 1)
        text += "no_auth_user: everybody\n"
    path.write_text(text)
    return ["-c", str(path)]


def inbox_of(name: str) -> str:
    """The prefix of a user's inboxes."""
    of = USERS[name]
    return inbox(of) if isinstance(of, NatsRole) else "_INBOX"
