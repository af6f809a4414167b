"""The part of the table of operations for clients that others wrote.

Programs of WSO2's servers, simulations of its editor, and identity providers; the shapes of their
requests are given, so ``mesh.client`` has no calls for them.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from mesh.model.access import Permission
from mesh.model.operation import ANY_USER, About, Body, Public, Query, operation
from mesh.model.values import JsonObject

_VIEW, _MANAGE = Permission.APPS_VIEW, Permission.APPS_MANAGE
_READ, _WRITE = Permission.DATA_READ, Permission.DATA_WRITE
_MONITOR, _ADMIN = Permission.MONITOR, Permission.ADMIN
_TEXT: Final[JsonObject] = {"type": "string"}
_OBJECT: Final[JsonObject] = {"type": "object"}

Limit = Annotated[int, Query(high=1000)]
_ELEMENTS: Final = tuple(f"/siddhi-apps/{one}" for one in ("tables", "windows", "aggregations"))


class OriginalOperations:
    """Routes of WSO2."""

    @operation("GET", "/siddhi-apps/count", _VIEW, about=About.HANDLER)
    def count(self) -> int:
        """The number of apps."""

    @operation("GET", "/siddhi-apps/{app}/isExists", _VIEW)
    def exists(self, app: str) -> bool:
        """Whether an app is deployed."""

    @operation(
        "GET", "/siddhi-apps/sources", _VIEW, also=("/siddhi-apps/sinks",), about=About.HANDLER
    )
    def sources(self) -> list[JsonObject]:
        """Sources or sinks of all apps."""

    @operation("GET", "/siddhi-apps/queries", _VIEW, also=_ELEMENTS, about=About.HANDLER)
    def all_elements(self) -> list[JsonObject]:
        """Queries, tables, windows or aggregations of all apps."""

    @operation("GET", "/siddhi-apps/ha/is-active-node", _MONITOR)
    def is_active_node(self) -> bool:
        """Whether this manager leads."""

    @operation("PUT", "/siddhi-apps/statistics", _MANAGE)
    def set_all_statistics(self) -> JsonObject:
        """Switch the metrics of all apps: ``{"statsEnable": true}``, or a level."""

    @operation("PUT", "/siddhi-apps/{app}/statistics", _MANAGE)
    def set_statistics(self, app: str) -> JsonObject:
        """Switch the metrics of an app: ``{"statsEnable": true}``, or a level."""

    @operation("DELETE", "/siddhi-apps/revisions", _MANAGE)
    def delete_revisions(self) -> JsonObject:
        """Delete the backups of all apps that are deployed."""

    @operation("POST", "/stores/initAgg", _READ, about=About.HANDLER)
    def init_aggregation(self) -> JsonObject:
        """Success for an aggregation that exists; its values are always there."""

    @operation("GET", "/error-handler/error-entries/count", _READ, about=About.HANDLER)
    def entries_count(self, *, app: Annotated[str, Query("siddhiApp")] = "") -> JsonObject:
        """The number of failed events of an app, or of all."""

    @operation("GET", "/error-handler/error-entries", _READ, about=About.HANDLER)
    def entries(
        self,
        *,
        app: Annotated[str, Query("siddhiApp")] = "",
        limit: Limit = 100,
        offset: Limit = 0,
        descriptive: bool = False,
    ) -> list[JsonObject]:
        """The last failed events of an app, oldest first."""

    @operation("POST", "/error-handler/error-entries", _WRITE, about=About.HANDLER)
    def replay_entries(self) -> JsonObject:
        """Send the events of entries again, to all readers of their streams."""

    @operation("DELETE", "/error-handler/error-entries", _WRITE, about=About.HANDLER)
    def discard_entries(
        self,
        *,
        app: Annotated[str, Query("siddhiApp")] = "",
        days: Annotated[float | None, Query("retentionDays", high=36_500)] = None,
    ) -> JsonObject:
        """Delete the entries of an app, or those that are older than some days."""

    @operation("GET", "/error-handler/error-entries/{id}", _READ, about=About.HANDLER)
    def entry(self, id: int, *, app: Annotated[str, Query("siddhiApp")] = "") -> JsonObject:
        """One failed event with all its fields."""

    @operation("DELETE", "/error-handler/error-entries/{id}", _WRITE, about=About.HANDLER)
    def discard_entry(self, id: int, *, app: Annotated[str, Query("siddhiApp")] = "") -> JsonObject:
        """Delete one failed event."""

    @operation("GET", "/managers", _MONITOR)
    def managers(self) -> list[JsonObject]:
        """The managers, with the leader."""

    @operation("GET", "/managers/isActive", _MONITOR)
    def is_active(self) -> JsonObject:
        """Whether this manager leads; 404 if not, for load balancers."""

    @operation("GET", "/managers/siddhi-apps", _VIEW, about=About.HANDLER)
    def parents(self) -> list[JsonObject]:
        """Apps with their groups, and how many instances of each run."""

    @operation("GET", "/managers/siddhi-apps/{app}", _VIEW)
    def children(self, app: str) -> list[JsonObject]:
        """The instances of an app, with the worker of each and the age of its heartbeat."""

    @operation("GET", "/managers/siddhi-apps-execution/{app}", _VIEW)
    def execution(self, app: str) -> JsonObject:
        """The text of an app; with ``Accept: text/plain`` as text."""

    @operation("GET", "/managers/kafkaDetails/{app}", _VIEW)
    def subjects(self, app: str) -> list[JsonObject]:
        """Subjects that each instance of an app reads and writes, in the place of topics."""

    @operation("GET", "/managers/roles", ANY_USER)
    def has_role(self, *, suffix: Annotated[str, Query("permissionSuffix")] = "") -> bool:
        """Whether the user has a permission for every app: ``.viewer`` is that of MON.viewer."""

    @operation("GET", "/resourceClusterWorkers", _MONITOR)
    def workers_count(self, *, details: bool = False) -> Any:
        """The number of workers; with ``details`` also of those that are ready."""

    @operation("GET", "/resourceClusterWorkers/clusteredWorkerNodeDetails", _MONITOR)
    def workers(self) -> list[JsonObject]:
        """The workers by name, with labels, address and presence."""

    @operation("GET", "/statistics", _MONITOR)
    def load(self) -> JsonObject:
        """The load of this manager's machine, and its part in the cluster."""

    @operation("GET", "/system-details", _MONITOR)
    def system_details(self) -> JsonObject:
        """Versions and the operating system of this manager."""

    @operation("POST", "/login/{product}", Public.SIGN_IN)
    def login(
        self,
        product: str,
        form: Annotated[
            str,
            Body(
                media_type="application/x-www-form-urlencoded",
                schema={
                    "type": "object",
                    "required": ["grantType"],
                    "properties": dict.fromkeys(("grantType", "username", "password"), _TEXT),
                },
            ),
        ],
    ) -> JsonObject:
        """Sign in for a token that ends soon, or renew one."""

    @operation("POST", "/logout/{product}", ANY_USER)
    def logout(self, product: str) -> JsonObject:
        """End the login whose token the request has, at every manager."""

    @operation("GET", "/permissions/app/{product}", _ADMIN)
    def permissions(self, product: str) -> list[JsonObject]:
        """The permissions of a product, like MON, with their ids."""

    @operation("GET", "/permissions/{permission}/roles", _ADMIN)
    def roles_of(self, permission: str) -> list[JsonObject]:
        """The roles that have a permission for every app."""

    @operation("GET", "/permissions/auth/{permission}/{role}", _ADMIN)
    def role_has(self, permission: str, role: str) -> JsonObject:
        """Whether a role has a permission for every app."""


_EVENT: Final[JsonObject] = {
    "type": "object",
    "required": ["siddhiAppName", "streamName", "data"],
    "properties": {
        "siddhiAppName": _TEXT, "streamName": _TEXT, "data": {"type": "array"},
        "timestamp": {"type": "integer"},
    },
}  # fmt: skip
_FEED: Final[JsonObject] = {
    "type": "object",
    "required": ["properties", "sources"],
    "properties": {"properties": _OBJECT, "sources": {"type": "array", "items": _OBJECT}},
}
_FILE: Final = Body(
    media_type="multipart/form-data",
    schema={
        "type": "object",
        "required": ["file"],
        "properties": {"file": {"type": "string", "format": "binary"}},
    },
)


class SimulationOperations:
    """Simulations."""

    @operation("POST", "/simulation/feed", _WRITE, about=About.HANDLER)
    def feed(
        self,
        values: Annotated[Any, Body(schema={"anyOf": [{"type": "array", "items": _EVENT}, _FEED]})],
    ) -> JsonObject:
        """Publish a list of events in order; or store a simulation: 201, 409 for a taken name."""

    @operation("GET", "/simulation/feed", _VIEW, about=About.HANDLER)
    def feeds(self) -> JsonObject:
        """The simulations that can run, and the others with the reason."""

    @operation("GET", "/simulation/feed/{feed}", _VIEW, about=About.HANDLER)
    def feed_of(self, feed: str) -> JsonObject:
        """The configuration of a simulation."""

    @operation("PUT", "/simulation/feed/{feed}", _WRITE, about=About.HANDLER)
    def update_feed(self, feed: str, values: Annotated[Any, Body(schema=_FEED)]) -> JsonObject:
        """Replace a simulation, also under another name; it stops."""

    @operation("POST", "/simulation/feed/{feed}", _WRITE, about=About.HANDLER)
    def operate_feed(
        self,
        feed: str,
        *,
        action: Annotated[
            str,
            Query(
                absent="",
                expected="one of run, pause, resume, stop",
                schema={"enum": ["run", "pause", "resume", "stop"]},
            ),
        ],
    ) -> JsonObject:
        """Run, pause, resume or stop a simulation: 403 and 409 where its state does not fit."""

    @operation("DELETE", "/simulation/feed/{feed}", _WRITE, about=About.HANDLER)
    def delete_feed(self, feed: str) -> JsonObject:
        """Delete a simulation; it stops."""

    @operation("GET", "/simulation/feed/{feed}/status", _VIEW, about=About.HANDLER)
    def feed_status(self, feed: str) -> JsonObject:
        """``RUN``, ``PAUSE`` or ``STOP``, with the number of its events."""

    @operation("GET", "/simulation/files", _VIEW)
    def files(self) -> list[str]:
        """The names of CSV files."""

    @operation("POST", "/simulation/files", _WRITE)
    def upload(self, body: Annotated[bytes, _FILE]) -> JsonObject:
        """Store a file: ``curl -F 'file=@a.csv'``."""

    @operation("PUT", "/simulation/files/{file}", _WRITE)
    def replace_file(self, file: str, body: Annotated[bytes, _FILE]) -> JsonObject:
        """Replace the content of a file."""

    @operation("DELETE", "/simulation/files/{file}", _WRITE)
    def delete_file(self, file: str) -> JsonObject:
        """Delete a file."""


_RESOURCE: Final = Body(media_type="application/scim+json", schema=_OBJECT)
_GROUPS, _ONE = "/scim/v2/Groups", ("/scim/v2/Groups/{resource}",)


class ScimOperations:
    """Provisioning by SCIM 2.0."""

    @operation("GET", "/scim/v2/ServiceProviderConfig", _ADMIN)
    def config(self) -> Any:
        """The parts of SCIM that are supported."""

    @operation("GET", "/scim/v2/ResourceTypes", _ADMIN, also=("/scim/v2/ResourceTypes/{kind}",))
    def resource_types(self) -> Any:
        """The kinds of resources, or one."""

    @operation("GET", "/scim/v2/Schemas", _ADMIN, also=("/scim/v2/Schemas/{urn}",))
    def schemas(self) -> Any:
        """The schemas of the resources, or one."""

    @operation("GET", "/scim/v2/Users", _ADMIN, also=(_GROUPS,))
    def resources(
        self,
        *,
        filter: str = "",
        start_index: Annotated[str, Query("startIndex")] = "",
        count: str = "",
        sort_by: Annotated[str, Query("sortBy")] = "",
        attributes: str = "",
    ) -> Any:
        """Resources that a filter of the URL accepts."""

    @operation(
        "POST",
        "/scim/v2/.search",
        _ADMIN,
        also=("/scim/v2/Users/.search", "/scim/v2/Groups/.search"),
    )
    def search(self, body: Annotated[Any, _RESOURCE]) -> Any:
        """Resources that a filter of the body accepts."""

    @operation("POST", "/scim/v2/Users", _ADMIN, also=(_GROUPS,))
    def provision(self, body: Annotated[Any, _RESOURCE]) -> Any:
        """Provision a resource."""

    @operation("GET", "/scim/v2/Users/{resource}", _ADMIN, also=_ONE)
    def resource(self) -> Any:
        """One resource."""

    @operation("PUT", "/scim/v2/Users/{resource}", _ADMIN, also=_ONE)
    def replace_resource(self, body: Annotated[Any, _RESOURCE]) -> Any:
        """Replace a resource."""

    @operation("PATCH", "/scim/v2/Users/{resource}", _ADMIN, also=_ONE)
    def change_resource(self, body: Annotated[Any, _RESOURCE]) -> Any:
        """Change parts of a resource."""

    @operation("DELETE", "/scim/v2/Users/{resource}", _ADMIN, also=_ONE)
    def delete_resource(self) -> Any:
        """Remove a resource; a user loses sessions and tokens."""

    @operation("GET", "/scim/v2/{unknown}", _ADMIN)
    def unknown(self) -> Any:
        """The answer for other endpoints."""
