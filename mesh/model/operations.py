"""The table of operations of the REST API, one class for each section of ``docs/cli.md``.

``mesh.model.operation`` says what a row is.  A class of ``CLIENT`` gives the clients of
``mesh.client`` its calls; those of ``mesh.model.foreign_operations`` are for programs of others.
``mesh.api`` has a handler for each row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from mesh.model.access import Permission
from mesh.model.answers import (
    BackupAnswer,
    DeployAnswer,
    NodeAnswer,
    PlanAnswer,
    RestoreAnswer,
    RowsAnswer,
    StatusAnswer,
    StoryAnswer,
    TextAnswer,
)
from mesh.model.foreign_operations import OriginalOperations, ScimOperations, SimulationOperations
from mesh.model.operation import (
    ANY_USER,
    APP_TEXT,
    About,
    Body,
    Field,
    Operation,
    Public,
    Query,
    operation,
    operations_of,
)
from mesh.model.values import JsonMapping, JsonObject

_VIEW, _MANAGE = Permission.APPS_VIEW, Permission.APPS_MANAGE
_READ, _WRITE = Permission.DATA_READ, Permission.DATA_WRITE
_MONITOR, _NODES, _ADMIN = Permission.MONITOR, Permission.NODES_MANAGE, Permission.ADMIN
#: Copying states, or running events again, may take long; seconds.
_STATES_S: Final = 600.0
#: Old channels are removed, or events published, before the answer.
_CHANGE_S: Final = 60.0
_TEXT: Final[JsonObject] = {"type": "string"}

SiddhiText = Annotated[str, APP_TEXT]
Begin = Annotated[str, Query("from")]
Limit = Annotated[int, Query(high=1000)]
Seconds = Annotated[float, Query(high=31 * 86_400)]


class AppOperations:
    """Apps."""

    @operation("POST", "/siddhi-apps", _MANAGE, about=About.TEXT)
    def create(
        self, text: SiddhiText, *, name: str = "", begin: Begin = "earliest"
    ) -> DeployAnswer:
        """Deploy a new app: 201, 200 if the same plan is deployed, 409 for another one."""

    @operation("PUT", "/siddhi-apps", _MANAGE, about=About.TEXT, limit_s=_CHANGE_S)
    def deploy(
        self,
        text: SiddhiText,
        *,
        name: str = "",
        begin: Begin = "earliest",
        replace: bool = False,
        reset: Sequence[str] = (),
    ) -> DeployAnswer:
        """Deploy an app, or change the one of its name: 201, 200, 409 if that loses something.

        A running app continues with the new text.  ``reset`` names groups whose states may be lost;
        with ``replace`` the old app is removed first.  A new one begins at ``begin``: ``earliest``,
        ``latest``, a sequence, or a time.
        """

    @operation("POST", "/siddhi-apps/plan", _MANAGE, about=About.TEXT)
    def plan(self, text: SiddhiText, *, name: str = "", reset: Sequence[str] = ()) -> PlanAnswer:
        """The plan of a text on the cluster and its changes, without a deploy."""

    # A manager measures each group.
    @operation("POST", "/siddhi-apps/what-if", _MANAGE, about=About.TEXT, limit_s=270.0)
    def what_if(
        self,
        text: SiddhiText,
        *,
        name: str = "",
        at_rate: Sequence[str],
        keys: Annotated[int, Query(high=10**9)] = 1000,
        cores: Annotated[int, Query(high=1024)] = 0,
    ) -> JsonObject:
        """The needs of a text at a rate, measured."""

    # The body has the text with its events, so the handler looks for the app.
    @operation("POST", "/siddhi-apps/preview", _MANAGE, about=About.HANDLER, limit_s=120.0)
    def preview(
        self,
        text: Annotated[str, Field()],
        *,
        name: Annotated[str, Field()] = "",
        events: Annotated[str, Field()] = "",
        streams: Annotated[Sequence[str], Field("from")] = (),
        last: Annotated[int, Field()] = 1000,
        since: Annotated[str, Field()] = "",
        until: Annotated[str, Field()] = "",
        against: Annotated[str, Field()] = "",
        keep: Annotated[bool, Field()] = False,
    ) -> JsonObject:
        """The outputs of a text on events, without a deploy: nothing is published or stored.

        ``events`` are lines as in a file of ``mesh test``.  ``streams`` are read in the cluster:
        STREAM of the app of this name, or STREAM=APP.OTHER; ``last`` events of each, between
        ``since`` and ``until``.  ``against`` is a running app whose outputs are compared; ``keep``
        adds the YAML of a test.
        """

    # Workers open one source or sink after the other.
    @operation("POST", "/siddhi-apps/check", _MANAGE, about=About.TEXT, limit_s=210.0)
    def check(self, text: SiddhiText, *, name: str = "") -> list[JsonObject]:
        """Open each source and sink of a text where it would run, and read a sample."""

    @operation("GET", "/siddhi-apps", _VIEW, about=About.HANDLER)
    def apps(
        self,
        *,
        details: Annotated[bool, Query(absent=False)] = True,
        is_active: Annotated[bool | None, Query("isActive")] = None,
    ) -> list[StatusAnswer]:
        """Names of apps, of those that run or don't; states with ``details``."""

    @operation("GET", "/siddhi-apps/{app}", _VIEW)
    def app(self, app: str) -> TextAnswer:
        """The text of an app, and the streams that clients publish or read."""

    @operation("PUT", "/siddhi-apps/{app}", _MANAGE)
    def switch(self, app: str, *, active: bool | None = None) -> StatusAnswer:
        """Pause an app or resume it; without ``active`` the other of the two."""

    @operation("DELETE", "/siddhi-apps/{app}", _MANAGE)
    def undeploy(self, app: str) -> JsonObject:
        """Remove an app with its channels and its state."""

    @operation("GET", "/siddhi-apps/{app}/status", _VIEW)
    def status(
        self,
        app: str,
        *,
        wait: Literal["running"] | None = None,
        timeout_s: Annotated[float | None, Query("timeout", high=300, absent=30.0)] = None,
    ) -> StatusAnswer:
        """The state of an app and its instances, at once, or when it runs or the time is over."""

    @operation("GET", "/siddhi-apps/{app}/streams", _VIEW)
    def streams(self, app: str) -> list[JsonObject]:
        """The streams of an app on the wire: attributes, kind, subject, and stored messages."""

    @operation("GET", "/endpoints", _VIEW, about=About.HANDLER)
    def endpoints(
        self, *, failing: Annotated[bool, Query(absent=False)] = False
    ) -> list[JsonObject]:
        """Sources and sinks of all apps with workers, addresses, states; those that fail alone."""

    @operation("GET", "/siddhi-apps/{app}/story", _VIEW)
    def story(self, app: str) -> list[StoryAnswer]:
        """The journal of an app with actors and causes, also after it was undeployed."""

    @operation("GET", "/siddhi-apps/{app}/verification", _VIEW)
    def verify(self, app: str) -> JsonObject:
        """Faults and risks of an app, from what NATS stores of it now."""

    @operation("GET", "/siddhi-apps/{app}/guarantees", _VIEW)
    def guarantees(self, app: str) -> JsonObject:
        """The guarantees of an app through failures, by channel, state, source and sink."""

    @operation("GET", "/siddhi-apps/{app}/elements", _VIEW)
    def elements(self, app: str) -> JsonObject:
        """Definitions and queries of an app with their text, the edges between them, groups."""

    @operation("GET", "/siddhi-apps/{app}/plan", _VIEW)
    def groups(self, app: str, *, output: Literal["json", "svg", "dot"] = "json") -> Any:
        """The division of an app into groups, as values or as a picture."""

    @operation("POST", "/siddhi-apps/{app}/scale", _MANAGE)
    def scale(
        self, app: str, group: str, parallel: Annotated[int, Query(low=0, high=99_999)]
    ) -> StatusAnswer:
        """Run a group in another number of instances; 422 if it can't have that number."""

    @operation("GET", "/siddhi-apps/statistics", _MONITOR, about=About.HANDLER)
    def statistics(self) -> list[JsonObject]:
        """Status, age, events, errors and lag of each app since its instances were placed."""


class BackupOperations:
    """Backups."""

    @operation("POST", "/siddhi-apps/{app}/backup", _MANAGE, limit_s=_STATES_S)
    def backup(self, app: str) -> BackupAnswer:
        """Back an app up: 201."""

    @operation("GET", "/siddhi-apps/{app}/revisions", _VIEW)
    def backups(self, app: str) -> list[BackupAnswer]:
        """The backups of an app, oldest first, also when it is undeployed."""

    @operation("POST", "/siddhi-apps/{app}/restore", _MANAGE, limit_s=_STATES_S)
    def restore(
        self,
        app: str,
        *,
        revision: str | None = None,
        before: str | None = None,
        other: Annotated[str | None, Query("as")] = None,
        replay: bool = True,
    ) -> RestoreAnswer:
        """Put the state of a backup back, the newest by default; 410 if messages are gone.

        ``before`` is a time; ``other`` starts a new app of that name.
        """

    @operation("DELETE", "/siddhi-apps/{app}/revisions", _MANAGE, limit_s=_CHANGE_S)
    def delete_backups(self, app: str) -> JsonObject:
        """Delete all backups of an app."""

    @operation("DELETE", "/siddhi-apps/{app}/revisions/{revision}", _MANAGE, limit_s=_CHANGE_S)
    def delete_backup(self, app: str, revision: str) -> JsonObject:
        """Delete one backup."""


class TimeOperations:
    """Forks, comparisons and lineage."""

    # The paths may be of any app, so a permission for some apps is not enough.
    @operation("POST", "/siddhi-apps/backfill", _MANAGE, limit_s=None)
    def backfill(
        self,
        text: SiddhiText,
        *,
        name: str = "",
        stream: Sequence[str],
        path: Sequence[str],
        time: Sequence[str] = (),
        until: Sequence[str] = (),
    ) -> JsonObject:
        """Deploy a new app that begins with the states of its past; 201 when that has been run.

        The lists have a value for each stream; one time or until is that of all streams.
        """

    @operation("POST", "/siddhi-apps/{app}/fork", _MANAGE, limit_s=_STATES_S)
    def fork(
        self,
        app: str,
        other: Annotated[str, Query("as", expected="the name of the fork")],
        text: Annotated[str | None, APP_TEXT] = None,
        *,
        name: str = "",
        begin: Begin = "start",
        until: str | None = None,
        sinks: bool = False,
    ) -> JsonObject:
        """Fork an app: another one over its input from a place in the past, 201.

        Its text is that of the body, or without one that of the app.
        """

    @operation("POST", "/siddhi-apps/{app}/promote", _MANAGE, limit_s=_STATES_S)
    def promote(self, app: str, *, replaces: str | None = None) -> JsonObject:
        """Give the app of a fork the fork's text, and remove the fork."""

    @operation("GET", "/siddhi-apps/{app}/compare/{other}", _READ, limit_s=_STATES_S)
    def compare(
        self,
        app: str,
        other: str,
        *,
        stream: Sequence[str] = (),
        key: Sequence[str] = (),
        ignore: Sequence[str] = (),
    ) -> JsonObject:
        """The differences of the outputs of two apps: counts, and the first one.

        ``key``: attributes that identify a row; ``ignore``: attributes that may differ.
        """

    @operation("GET", "/siddhi-apps/{app}/why/{stream}/{sequence}", _READ, limit_s=_STATES_S)
    def why(
        self, app: str, stream: str, sequence: int, *, index: Annotated[int, Query()] = 0
    ) -> JsonObject:
        """The inputs of an event of a message, back to the app's input."""


class QueryOperations:
    """On-demand queries."""

    @operation("POST", "/stores/query", _READ, about=About.HANDLER)
    def query(
        self,
        app: Annotated[str, Field("appName")],
        query: Annotated[str, Field()],
        *,
        min_position: Annotated[Mapping[str, int] | None, Field()] = None,
        partial: Annotated[bool, Field()] = False,
        details: Annotated[bool, Field()] = True,
        id: Annotated[str | None, Field()] = None,
    ) -> RowsAnswer:
        """Read or change a table, read a named window or an aggregation of a running app.

        ``min_position``: by JetStream stream, the sequence that the answer has to include.  With
        ``partial`` an answer may lack parts, which it names.  ``id`` makes a change that is sent
        again count once.
        """


class EventOperations:
    """Failed and simulated events."""

    @operation("GET", "/siddhi-apps/{app}/errors", _READ)
    def errors(self, app: str, *, limit: Limit = 100) -> list[JsonObject]:
        """The last events of an app that could not be read or failed, oldest first."""

    @operation("GET", "/error-handler", _VIEW, about=About.HANDLER)
    def failed_counts(self) -> list[JsonObject]:
        """The number of failed events of each app."""

    @operation("GET", "/error-handler/{app}", _READ)
    def failed(
        self,
        app: str,
        *,
        limit: Limit = 100,
        before: Annotated[int | None, Query(high=2**63)] = None,
    ) -> list[JsonObject]:
        """The last failed events of an app, oldest first; ``before`` an id continues a list."""

    @operation("GET", "/error-handler/{app}/{id}", _READ)
    def failed_one(self, app: str, id: int) -> JsonObject:
        """One failed event."""

    @operation("POST", "/error-handler/{app}/replay", _WRITE, limit_s=_CHANGE_S)
    def replay(
        self,
        app: str,
        *,
        ids: Annotated[Sequence[int] | None, Field()] = None,
        all: Annotated[bool | None, Field()] = None,
        id: Annotated[int | None, Field()] = None,
        event: Annotated[JsonMapping | None, Field()] = None,
        payload: Annotated[str | None, Field()] = None,
        to: Annotated[Literal["connector", "stream"] | None, Field()] = None,
    ) -> JsonObject:
        """Send failed events again: ``ids``, all, or one as it should have been.

        A replayed event is published to its stream, for all readers.  What a source or sink has
        refused goes to that alone, unless ``to`` is ``stream``.
        """

    @operation("DELETE", "/error-handler/{app}/{id}", _WRITE)
    def discard(self, app: str, id: int) -> JsonObject:
        """Discard one failed event."""

    @operation("DELETE", "/error-handler/{app}", _WRITE, limit_s=_CHANGE_S)
    def discard_many(
        self,
        app: str,
        *,
        all: Annotated[
            bool | None, Query(expected="true, unless olderThan says how old they must be")
        ] = None,
        older_than_s: Annotated[float | None, Query("olderThan", high=1e9)] = None,
    ) -> JsonObject:
        """Discard all failed events of an app, or those that are older, in seconds."""

    @operation("POST", "/simulation/single", _WRITE, about=About.HANDLER)
    def simulate(
        self,
        app: Annotated[str, Field("siddhiAppName")],
        stream: Annotated[str, Field("streamName")],
        data: Annotated[Sequence[Any] | JsonMapping, Field(schema={"type": "array"})],
        *,
        timestamp: Annotated[int | None, Field()] = None,
    ) -> JsonObject:
        """Publish an event, its values by position or by attribute."""


class ClusterOperations:
    """The cluster."""

    @operation("GET", "/nodes", _MONITOR)
    def nodes(self) -> list[NodeAnswer]:
        """Managers and workers."""

    @operation("POST", "/nodes/{node}/{order}", _NODES)
    def order_node(self, node: str, order: str) -> NodeAnswer:
        """Order a worker to ``cordon``, ``uncordon`` or ``drain``."""

    @operation("GET", "/overview", _MONITOR)
    def overview(self) -> JsonObject:
        """Problems, apps and nodes, the worst first, with the present rates of apps."""

    @operation("GET", "/history", _MONITOR)
    def history(
        self,
        *,
        app: str | None = None,
        group: str | None = None,
        node: str | None = None,
        seconds: Seconds = 3600.0,
        step: Seconds = 1.0,
    ) -> JsonObject:
        """The history of an app, a group of it, or a node: means of steps."""

    @operation("GET", "/metrics", _MONITOR)
    def metrics(self) -> Any:
        """Metrics in the text format of Prometheus: of this manager, of the cluster if it leads."""

    @operation("GET", "/health", Public.OPEN, also=("/health/live",))
    def health(self) -> JsonObject:
        """Whether the process answers and can reach NATS again, without a user: 200 or 503."""

    @operation("GET", "/health/ready", Public.OPEN)
    def ready(self) -> JsonObject:
        """Whether this manager can serve, without a user: 200, or 503 with the reasons."""

    @operation("GET", "/openapi.json", ANY_USER)
    def openapi(self) -> JsonObject:
        """The REST API, as an OpenAPI document."""


class AccountOperations:
    """Users, tokens and secrets."""

    @operation("GET", "/me", ANY_USER)
    def me(self) -> JsonObject:
        """The user of the request, with its grants."""

    @operation("GET", "/users", _ADMIN)
    def users(self) -> list[JsonObject]:
        """Users of the directory, by name, without their hashes."""

    @operation("POST", "/users", _ADMIN)
    def put_user(
        self,
        name: Annotated[str, Field()],
        *,
        password: Annotated[str | None, Field()] = None,
        may: Annotated[Sequence[str] | None, Field()] = None,
        apps: Annotated[str | None, Field()] = None,
        active: Annotated[bool | None, Field()] = None,
    ) -> JsonObject:
        """Make a user (201), or give it another password or other grants, or disable it."""

    @operation("DELETE", "/users/{user}", _ADMIN)
    def delete_user(self, user: str) -> JsonObject:
        """Remove a user with its tokens and sessions."""

    @operation("DELETE", "/users/{user}/sessions", _ADMIN)
    def end_sessions(self, user: str) -> JsonObject:
        """Sign a user out everywhere."""

    @operation("GET", "/tokens", ANY_USER)
    def tokens(self) -> list[JsonObject]:
        """One's own tokens, without what makes them valid; all with the permission ``admin``."""

    @operation("POST", "/tokens", ANY_USER)
    def make_token(
        self,
        name: Annotated[str, Field()],
        *,
        days: Annotated[int | None, Field()] = None,
        may: Annotated[Sequence[str] | None, Field()] = None,
        apps: Annotated[str | None, Field()] = None,
    ) -> JsonObject:
        """Make a token of one's own, with no more than one's own rights; it is shown once."""

    @operation("DELETE", "/tokens/{token}", ANY_USER)
    def delete_token(self, token: str) -> JsonObject:
        """Revoke a token of one's own; any with the permission ``admin``."""

    @operation("GET", "/secrets", _ADMIN)
    def secrets(self) -> list[JsonObject]:
        """The names of secrets, and the patterns of the apps that may use them."""

    @operation("PUT", "/secrets/{secret}", _ADMIN)
    def put_secret(
        self,
        secret: str,
        value: Annotated[str, Body(media_type="text/plain", schema=_TEXT)],
        *,
        apps: str = "",
    ) -> JsonObject:
        """Store the value of a secret, for every app or for patterns with commas between."""

    @operation("DELETE", "/secrets/{secret}", _ADMIN)
    def delete_secret(self, secret: str) -> JsonObject:
        """Delete a secret; instances that run keep its value until they start again."""

    @operation("GET", "/audit", _ADMIN)
    def audit(
        self,
        *,
        limit: Limit = 100,
        user: str = "",
        app: str = "",
        method: str = "",
        result: str = "",
        q: str = "",
    ) -> list[JsonObject]:
        """The last entries of the audit that fit: user, request, source and result."""

    @operation("GET", "/.well-known/oauth-protected-resource", Public.OPEN)
    def provider(self) -> JsonObject:
        """The identity provider whose tokens are accepted, and the client of ``mesh login``."""


#: Sections of the documents, in their order.
CLIENT: Final = (
    AppOperations,
    BackupOperations,
    TimeOperations,
    QueryOperations,
    EventOperations,
    ClusterOperations,
    AccountOperations,
)
SECTIONS: Final = (*CLIENT, OriginalOperations, SimulationOperations, ScimOperations)
OPERATIONS: Final[tuple[Operation[..., Any], ...]] = tuple(operations_of(*SECTIONS))


def section_title(section: type) -> str:
    """The title of a class of the table in documents."""
    return (section.__doc__ or "").rstrip(".")
