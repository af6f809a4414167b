"""Provisioning of users and groups by an identity provider: SCIM 2.0 (RFC 7643, RFC 7644).

A provisioned user signs in at the identity provider, never with a password here: passwords are
neither accepted nor kept.  The names of its groups, and its roles, are mapped to grants as the
claim of roles is (``oidc.roles``).  ``active: false`` and DELETE end its sessions and tokens.

scim2-models checks and changes resources.
"""

from __future__ import annotations

import asyncio
import functools
import operator
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import orjson
from starlette.responses import Response

from mesh.api.account_service import AccountService
from mesh.api.routing import serves
from mesh.errors import MeshError
from mesh.http.request_body import read_body
from mesh.jetstream.directory import GROUP, NAMES, USER, identity_name
from mesh.model.foreign_operations import ScimOperations

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from mesh.api.auth import Access
    from mesh.model.values import JsonMapping, JsonObject

    Handler = Callable[[Any, Request], Awaitable[Response]]

BODY_BYTES_MAX: Final = 500_000
COUNT_MAX: Final = 1000
_BASE: Final = "/scim/v2"
_MEDIA: Final = "application/scim+json"
_ENDPOINTS: Final = {USER: "Users", GROUP: "Groups"}
#: Parts of a value that don't select it.
_SHOWN: Final = ("$ref", "display")


class ScimJson(Response):
    """JSON of SCIM."""

    media_type = _MEDIA

    def render(self, content: Any) -> bytes:
        """As JSON; nothing for None."""
        return b"" if content is None else orjson.dumps(content)


def _answers_errors(handler: Handler) -> Handler:
    """Have errors of a handler answered as SCIM has them."""

    @functools.wraps(handler)
    async def checked(routes: Any, request: Request, **_values: Any) -> Response:
        try:
            from pydantic import ValidationError
            from scim2_models import Error, SCIMException
        except ImportError as error:
            raise MeshError(
                "MESH-A422",
                "provisioning needs the package scim2-models",
                hint="pip install 'nats-event-mesh[scim]'",
            ) from error
        try:
            return await handler(routes, request)
        except ValidationError as error:
            (first, *_) = Error.from_validation_errors(error)
            return ScimJson(first.model_dump(), first.status or 400)
        except SCIMException as error:
            return ScimJson(error.to_error().model_dump(), error.status)
        except MeshError as error:
            if not error.code.startswith("MESH-A4"):
                raise
            status = int(error.code[6:])
            detail = f"{error.message} [{error.code}]"
            return ScimJson(Error(status=status, detail=detail).model_dump(), status)

    return checked


class ScimRoutes:
    """Handlers of provisioning."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._accounts = AccountService(access)
        self._turn = asyncio.Lock()

    @serves(ScimOperations.config)
    @_answers_errors
    async def config(self, request: Request) -> Response:
        from scim2_models import ServiceProviderConfig

        url = f"{_base(request)}{_BASE}/ServiceProviderConfig"
        yes, no = {"supported": True}, {"supported": False}
        scheme = {
            "type": "oauthbearertoken",
            "name": "API token",
            "description": "A token of 'mesh token add' with the permission admin.",
            "primary": True,
        }
        model = ServiceProviderConfig.model_validate(
            {
                "patch": yes, "changePassword": no, "sort": yes, "etag": no,
                "bulk": {**no, "maxOperations": 0, "maxPayloadSize": 0},
                "filter": {**yes, "maxResults": COUNT_MAX},
                "authenticationSchemes": [scheme],
                "meta": {"resourceType": "ServiceProviderConfig", "location": url},
            }
        )  # fmt: skip
        return ScimJson(model.model_dump())

    @serves(ScimOperations.resource_types)
    @_answers_errors
    async def resource_types(self, request: Request) -> Response:
        from scim2_models import ResourceType

        entries = []
        for kind, model in _models().items():
            one = ResourceType.from_resource(model)
            url = f"{_base(request)}{_BASE}/ResourceTypes/{kind}"
            entries.append({**one.model_dump(), "meta": _meta("ResourceType", url)})
        return _chosen(entries, request.path_params.get("kind"), "resource type")

    @serves(ScimOperations.schemas)
    @_answers_errors
    async def schemas(self, request: Request) -> Response:
        entries = []
        for model in _models().values():
            one = model.to_schema().model_dump()
            url = f"{_base(request)}{_BASE}/Schemas/{one['id']}"
            entries.append({**one, "meta": _meta("Schema", url)})
        return _chosen(entries, request.path_params.get("urn"), "schema")

    @serves(ScimOperations.resources)
    @_answers_errors
    async def query(self, request: Request) -> Response:
        return self._search(request, dict(request.query_params), (_kind(request),))

    @serves(ScimOperations.search)
    @_answers_errors
    async def search(self, request: Request) -> Response:
        path = request.url.path
        kinds = tuple(_ENDPOINTS) if path == f"{_BASE}/.search" else (_kind(request),)
        return self._search(request, await _object(request), kinds)

    @serves(ScimOperations.provision)
    @_answers_errors
    async def create(self, request: Request) -> Response:
        from scim2_models import Context

        kind = _kind(request)
        resource = _models()[kind].model_validate(
            await _object(request), scim_ctx=Context.RESOURCE_CREATION_REQUEST
        )
        async with self._turn:
            resource.id = secrets.token_hex(12)
            await self._store(kind, resource, None)
        shown = self._shown(request, kind, resource.id)
        location = {"Location": shown["meta"]["location"]}
        return ScimJson(shown, 201, headers=location)

    @serves(ScimOperations.resource)
    @_answers_errors
    async def show(self, request: Request) -> Response:
        kind, id_ = _kind(request), request.path_params["resource"]
        self._stored(kind, id_)
        return ScimJson(self._shown(request, kind, id_))

    @serves(ScimOperations.replace_resource)
    @_answers_errors
    async def replace(self, request: Request) -> Response:
        from scim2_models import Context

        kind, id_ = _kind(request), request.path_params["resource"]
        resource = _models()[kind].model_validate(
            await _object(request), scim_ctx=Context.RESOURCE_REPLACEMENT_REQUEST
        )
        async with self._turn:
            existing = self._read(kind, id_)
            resource.replace(existing)
            resource.id = id_
            await self._store(kind, resource, existing)
        return ScimJson(self._shown(request, kind, id_))

    @serves(ScimOperations.change_resource)
    @_answers_errors
    async def change(self, request: Request) -> Response:
        from scim2_models import Context, PatchOp

        kind, id_ = _kind(request), request.path_params["resource"]
        patch_op = PatchOp[_models()[kind]].model_validate(  # type: ignore[misc]  # made of a value
            _with_filters(await _object(request)), scim_ctx=Context.RESOURCE_PATCH_REQUEST
        )
        async with self._turn:
            existing = self._read(kind, id_)
            changed = existing.model_copy(deep=True)
            if patch_op.patch(changed):
                await self._store(kind, changed, existing)
        return ScimJson(self._shown(request, kind, id_))

    @serves(ScimOperations.delete_resource)
    @_answers_errors
    async def delete(self, request: Request) -> Response:
        kind, id_ = _kind(request), request.path_params["resource"]
        async with self._turn:
            existing = self._stored(kind, id_)
            await self._accounts.directory.put_resource(kind, id_, None)
            if kind == USER:
                await self._accounts.end_provisioned(identity_name(existing["userName"]))
        return ScimJson(None, 204)

    @serves(ScimOperations.unknown)
    @_answers_errors
    async def unknown(self, request: Request) -> Response:
        from scim2_models import NotFoundException

        raise NotFoundException(detail="there is no such endpoint")

    def _stored(self, kind: str, id_: str) -> JsonObject:
        from scim2_models import NotFoundException

        resource = self._accounts.directory.resources.get((kind, id_))
        if resource is None:
            raise NotFoundException(detail=f"there is no {kind} {id_[:64]!r}")
        return resource

    def _read(self, kind: str, id_: str) -> Any:
        return _models()[kind].model_validate(self._stored(kind, id_))

    async def _store(self, kind: str, resource: Any, existing: Any) -> None:
        """Write a resource; a user that is not active any more loses sessions and tokens."""
        from scim2_models import UniquenessException

        directory = self._accounts.directory
        values = resource.model_dump()
        name = NAMES[kind]
        taken = {
            str(one[name]).casefold()
            for (other, id_), one in directory.resources.items()
            if other == kind and id_ != resource.id
        }
        if str(values[name]).casefold() in taken:
            raise UniquenessException(detail=f"{name} is taken")
        now = datetime.fromtimestamp(self._access.clock.wall_ms() / 1000, UTC).isoformat()
        before = self._stored(kind, resource.id) if existing is not None else {}
        created = before.get("meta", {}).get("created", now)
        # Groups of a user are those that name it as a member.
        for left_out in ("password", "groups"):
            values.pop(left_out, None)
        values["meta"] = {"resourceType": kind, "created": created, "lastModified": now}
        await directory.put_resource(kind, resource.id, values)
        is_renamed = existing is not None and values[name] != before.get(name)
        if kind == USER and (values.get("active") is False or is_renamed):
            await self._accounts.end_provisioned(identity_name(before.get(name, values[name])))

    def _search(self, request: Request, query: JsonObject, kinds: tuple[str, ...]) -> Response:
        from scim2_models import Context, SearchRequest

        bound: Any = SearchRequest
        served = functools.reduce(operator.or_, (_models()[kind] for kind in kinds))
        search = bound[served].model_validate(query, scim_ctx=Context.SEARCH_REQUEST)
        models = [
            _models()[kind].model_validate(self._full(request, kind, id_))
            for kind, id_ in sorted(self._accounts.directory.resources)
            if kind in kinds
        ]
        if search.filter is not None:
            models = [one for one in models if search.filter.match(one)]
        models = search.sort(models)
        start = (search.start_index or 1) - 1
        count = min(COUNT_MAX, search.count if search.count is not None else COUNT_MAX)
        shown = [
            one.model_dump(scim_ctx=Context.RESOURCE_QUERY_RESPONSE, response_parameters=search)
            for one in models[start : start + count]
        ]
        return ScimJson(_listed(shown, len(models), start + 1))

    def _shown(self, request: Request, kind: str, id_: str) -> JsonObject:
        """A resource, with the attributes that the request asks for."""
        from scim2_models import Context, ResponseParameters

        names = ("attributes", "excludedAttributes")
        query = {name: request.query_params[name] for name in names if name in request.query_params}
        model = _models()[kind]
        selection = ResponseParameters[model].model_validate(query)  # type: ignore[valid-type]  # made of a value
        values: JsonObject = model.model_validate(self._full(request, kind, id_)).model_dump(
            scim_ctx=Context.RESOURCE_QUERY_RESPONSE, response_parameters=selection
        )
        return values

    def _full(self, request: Request, kind: str, id_: str) -> JsonObject:
        """A resource with its location, and a user with its groups."""
        values = self._stored(kind, id_)
        base = f"{_base(request)}{_BASE}"
        meta = {**values.get("meta", {}), "location": f"{base}/{_ENDPOINTS[kind]}/{id_}"}
        full = {**values, "meta": meta}
        if kind == USER:
            groups = [
                {"value": group, "$ref": f"{base}/Groups/{group}", "display": one["displayName"]}
                for (other, group), one in self._accounts.directory.resources.items()
                if other == GROUP
                and any(member.get("value") == id_ for member in one.get("members", ()))
            ]
            if groups:
                full["groups"] = groups
        return full


def _models() -> JsonObject:
    from scim2_models import Group, User

    return {USER: User, GROUP: Group}


def _kind(request: Request) -> str:
    return GROUP if request.url.path.startswith(f"{_BASE}/Groups") else USER


def _base(request: Request) -> str:
    return str(request.base_url).rstrip("/")


def _meta(kind: str, location: str) -> dict[str, str]:
    return {"resourceType": kind, "location": location}


def _listed(resources: list[Any], total: int | None = None, start: int = 1) -> JsonObject:
    return {
        "schemas": ["urn:ietf:params:scim:api:messages:2.0:ListResponse"],
        "totalResults": len(resources) if total is None else total,
        "startIndex": start,
        "itemsPerPage": len(resources),
        "Resources": resources,
    }


def _chosen(entries: list[JsonObject], key: str | None, what: str) -> Response:
    """All values, or the one with an id."""
    from scim2_models import NotFoundException

    if key is None:
        return ScimJson(_listed(entries))
    one = next((one for one in entries if one["id"] == key), None)
    if one is None:
        raise NotFoundException(detail=f"there is no {what} {key!r}")
    return ScimJson(one)


async def _object(request: Request) -> JsonObject:
    from scim2_models import InvalidSyntaxException

    try:
        values = orjson.loads(await read_body(request, BODY_BYTES_MAX))
    except orjson.JSONDecodeError as error:
        raise InvalidSyntaxException(detail="the body is no JSON") from error
    if not isinstance(values, dict):
        raise InvalidSyntaxException(detail="the body is no JSON object")
    return values


def _with_filters(request: JsonMapping) -> JsonObject:
    """A PATCH request in which values of removals are filters; others stay as they are.

    Entra ID and Okta remove by value:

        {"op": "Remove", "path": "members", "value": [{"value": "2819c223"}]}

    RFC 7644 selects by a filter in the path.  Each value becomes an operation with such a filter.
    """
    operations = request.get("Operations")
    if not isinstance(operations, list):
        return dict(request)
    return {**request, "Operations": [one for each in operations for one in _divided(each)]}


def _divided(operation: Any) -> list[Any]:
    if not isinstance(operation, Mapping) or str(operation.get("op")).lower() != "remove":
        return [operation]
    path, value = operation.get("path"), operation.get("value")
    if value is None:
        # One without a value removes by its path alone.
        return [{name: one for name, one in operation.items() if name != "value"}]
    if path is None and isinstance(value, Mapping):
        removals = [_removals(operation, str(name), part) for name, part in value.items()]
        return [one for some in removals for one in some]
    return _removals(operation, path, value)


def _removals(operation: JsonMapping, path: Any, value: Any) -> list[Any]:
    """An operation for each value of an attribute."""
    if not isinstance(path, str) or "[" in path or "." in path.rpartition(":")[2]:
        return [operation]
    values = value if isinstance(value, list) else [value]
    # An empty list selects nothing, as an empty id does.
    filters = [_filter(one) for one in values or [""]]
    if not all(filters):
        return [operation]
    return [{"op": operation["op"], "path": f"{path}[{one}]"} for one in filters]


def _filter(value: Any) -> str:
    """The filter that selects a value; empty if it names nothing."""
    parts = value if isinstance(value, Mapping) else {"value": value}
    terms = [
        f"{name} eq {orjson.dumps(part).decode()}"
        for name, part in parts.items()
        if name not in _SHOWN and isinstance(part, str | bool | int)
    ]
    return " and ".join(terms)
