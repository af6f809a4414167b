"""Users and groups that an identity provider has provisioned (SCIM), as the directory keeps them.

A resource is the JSON object of SCIM.  A user of the provider is called ``oidc:`` and its userName,
which is compared without case: two spellings are one person, also when that person is disabled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mesh.model.values import JsonMapping

USER: Final = "User"
GROUP: Final = "Group"
#: By kind, the attribute with the name.
NAMES: Final = {USER: "userName", GROUP: "displayName"}


@dataclass(frozen=True, slots=True)
class Provisioned:
    """A user of the provider."""

    name: str
    active: bool
    #: Names of the groups, and values of the roles.
    roles: tuple[str, ...]


def identity_name(user_name: str) -> str:
    """The name of a user of the provider."""
    return f"oidc:{user_name}"


def provisioned(
    resources: Mapping[tuple[str, str], Mapping[str, object]],
) -> dict[str, Provisioned]:
    """The users of these resources by folded name.

    Args:
        resources: by kind and id; fields of another form are left out.
    """
    groups: dict[str, list[str]] = {}
    for (kind, _), values in resources.items():
        if kind == GROUP:
            for member in _objects(values.get("members")):
                groups.setdefault(str(member.get("value")), []).append(str(values["displayName"]))
    users = {}
    for (kind, id_), values in resources.items():
        if kind == USER:
            roles = [str(one.get("value")) for one in _objects(values.get("roles"))]
            name = identity_name(str(values["userName"]))
            # Without the attribute a user is active, as one is after POST of its name alone.
            active = values.get("active", True) is not False
            users[name.casefold()] = Provisioned(name, active, (*groups.get(id_, ()), *roles))
    return users


def _objects(value: object) -> Iterable[JsonMapping]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
