"""On-demand queries, as any manager answers them: plan, ask the owners of the parts, answer.

    client ──▶ manager ──plan──▶ mesh._ask.{worker} ──▶ stored state ──▶ rows ──▶ JSON

A part that can't answer makes the answer an error, or with ``partial`` one that names the part.

On-demand changes of tables: a message in the log of the table's group, and its outcome.

    client ──▶ manager ──publish──▶ JetStream stream of an input ──▶ instance ──▶ stored state
                  └──────────────── question with the id ◀── outcome ────────────────┘

The message has its place among the events that the group reads, and is replayed with them.  An
answer is given once the state that includes the message is stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import anyio.to_thread
import orjson
from anyio import CapacityLimiter
from nats.js.errors import APIError, NoStreamResponseError

from mesh.errors import MeshError, error_of, not_supported
from mesh.functions.script_switch import OF_MANAGERS
from mesh.http.bounds import Bound
from mesh.jetstream.connection import UNREACHABLE, unreachable
from mesh.model import codec, names
from mesh.model.question import Answer, Question, from_message, is_inbox, query_of
from mesh.processes.bounded_process import BoundedProcess
from mesh.processes.signals import end
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from mesh.clock import Clock
    from mesh.jetstream.watch import ClusterView
    from mesh.manager.desired_state import DesiredState
    from mesh.manager.query_parts import QueryPlan
    from mesh.model.app import GroupSpec
    from mesh.model.cluster import AppRecord, Assignment
    from mesh.model.values import JsonObject
    from mesh.processes.bounded_process import Process
    from mesh.settings import Settings


log = logging.getLogger(__name__)

#: Longest text of a query, characters.
TEXT_MAX: Final = 100_000
#: Interval of asking a part again that can't answer yet, seconds.
LOOK_S: Final = 0.2
_PARTS: Final = "mesh.manager.query_parts"
#: Part of the time left that a worker may use.
_WORKERS_SHARE: Final = 0.9
#: Codes of a part that can't answer now.
_AWAY: Final = ("MESH-A503", "MESH-A504")

#: Header by which JetStream drops a message that it has stored already.
_ID_HEADER: Final = "Nats-Msg-Id"


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """The answer to an on-demand query."""

    #: A JSON list of rows, each a list.
    records: bytes
    #: Name and type of each column.
    columns: tuple[tuple[str, str], ...]
    #: By JetStream stream: the last sequence that the answer includes.
    positions: Mapping[str, int]
    #: Instances whose part is missing.
    missing: tuple[str, ...] = ()
    #: The number of rows that a change has added, changed or removed; None for a query that reads.
    changed: int | None = None

    def to_values(self, *, details: bool) -> JsonObject:
        """The answer as JSON values, in the form of the system before this one, and more."""
        values: JsonObject = {"records": orjson.Fragment(self.records)}
        if details:
            values["details"] = [{"name": n, "dataType": t.upper()} for n, t in self.columns]
        if self.changed is not None:
            values["changed"] = self.changed
        values["positions"] = dict(self.positions)
        if self.missing:
            values["missing"] = list(self.missing)
        return values


class Queries:
    """Answers on-demand queries, of the API and of NATS clients."""

    def __init__(
        self,
        client: Client,
        view: ClusterView,
        desired: DesiredState,
        settings: Settings,
        clock: Clock,
        process: Process | None = None,
    ) -> None:
        """Answer no NATS clients yet; ``process`` computes, tests give one of their own."""
        self._client, self._view, self._desired = client, view, desired
        self.limits, self._clock = settings.queries, clock
        self._bound = Bound(self.limits.waiting_max, "queries wait for their answers")
        self._turn = asyncio.Lock()
        self._limiter = CapacityLimiter(1)
        self._process = process or BoundedProcess(_PARTS, _exceeded, OF_MANAGERS)
        self._subscriptions: list[Subscription] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(
        self,
        app: str,
        query: str,
        *,
        at_least: Mapping[str, int] | None = None,
        partial: bool = False,
        may_change: bool = False,
        id_: str = "",
    ) -> QueryAnswer:
        """The answer to an on-demand query.

        Args:
            app: name of the app.
            query: SiddhiQL.
            at_least: by JetStream stream, the sequence that the answer has to include; the call
                waits until it does.
            partial: answer also if a part is missing.
            may_change: whether the query may change a table.
            id_: of a change; one that is repeated with its id is made once.

        Raises:
            MeshError: MESH-A404 without such an app; MESH-L*, MESH-P900, MESH-O110 for the query;
                MESH-A400 and MESH-A413 for its limits; MESH-A429; MESH-A503 if a part can't
                answer now, MESH-A504 if it does not reach ``at_least`` in time; MESH-A403 for a
                change without the permission, MESH-O111 for one that the table refuses.
        """
        if not query.strip() or len(query) > TEXT_MAX:
            raise MeshError("MESH-A400", f"a query has 1 to {TEXT_MAX} characters")
        with self._bound.turn():
            record = self._desired.get(app).value
            deadline_s = self._clock.monotonic_s() + self.limits.timeout_s
            groups = tuple((group.name, group.text) for group in record.spec.groups)
            plan: QueryPlan = await self._compute(
                deadline_s, "plan_query", record.spec.text, groups, query
            )
            if plan.changes and not may_change:
                raise MeshError(
                    "MESH-A403",
                    "the query changes a table",
                    detail="It needs the permission manage, or a request to mesh.{app}._change.",
                )
            if plan.group is None:
                return QueryAnswer(b"[]", plan.columns, {})
            group = record.spec.group(plan.group)
            assert group is not None, "planned of the same record"
            parts = [
                (instance, number)
                for index, instance in enumerate(group.instances, start=1)
                for number in group.partitions_of(index)
            ]
            if plan.is_anywhere:
                placed = self._placed(record)
                parts = [part for part in parts if part[0] in placed][:1] or parts[:1]
            is_divided = len(parts) > 1
            number = None if at_least else plan.part_of(group)
            if number is not None:
                parts = [part for part in parts if part[1] == number]
                # The part's answer is the whole one.
                is_divided = is_divided and plan.is_grouped
            if plan.changes:
                return await self._change(record, group, query, id_ or uuid4().hex, deadline_s)
            answers, missing = await self._gather(
                record, parts, query, at_least or {}, deadline_s,
                is_divided=is_divided, waits=not partial,
            )  # fmt: skip
            if missing and not partial:
                raise _missing(missing, self.limits.timeout_s)
            if answers and answers[0].is_json:
                records = answers[0].data
            else:
                data = [one.data for one in answers]
                divided = (record.spec.text, query) if is_divided else None
                records = await self._records(deadline_s, data, divided)
            positions = {s: n for one in answers for s, n in one.positions.items()}
            return QueryAnswer(records, plan.columns, positions, tuple(missing))

    async def _records(
        self, deadline_s: float, data: Sequence[bytes], divided: tuple[str, str] | None
    ) -> bytes:
        """The rows of Arrow streams as JSON; of several parts with the app and the query."""
        if divided is None:
            records: bytes = await self._compute(deadline_s, "records_of", data)
        else:
            rows_max = self.limits.rows_max
            records = await self._compute(deadline_s, "merged_records", *divided, data, rows_max)
        return records

    async def check_aggregation(self, app: str, aggregation: str) -> None:
        """Check that an app has an aggregation; MESH-A404."""
        deadline_s = self._clock.monotonic_s() + self.limits.timeout_s
        text = self._desired.get(app).value.spec.text
        with self._bound.turn():
            await self._compute(deadline_s, "check_aggregation", text, aggregation)

    async def _compute(self, deadline_s: float, function: str, *arguments: object) -> Any:
        """The result of a function of ``query_parts``."""
        async with self._turn:
            return await anyio.to_thread.run_sync(
                self._process.call,
                deadline_s - self._clock.monotonic_s(),
                f"{_PARTS}:{function}",
                *arguments,
                limiter=self._limiter,
                abandon_on_cancel=True,
            )

    async def _gather(
        self,
        record: AppRecord,
        parts: Sequence[tuple[str, int]],
        query: str,
        at_least: Mapping[str, int],
        deadline_s: float,
        *,
        is_divided: bool,
        waits: bool,
    ) -> tuple[list[Answer], dict[str, MeshError]]:
        """The answer of each part, and why others are missing, by instance.

        ``parts``: instances and their virtual partitions.  ``is_divided``: whether there are more
        parts, so that answers are merged.  ``waits``: for a part that starts.
        """

        async def ready(instance: str, number: int) -> Answer:
            while True:
                assignment = self._placed(record).get(instance)
                try:
                    return await self._part(
                        assignment, number, query, at_least, deadline_s, is_divided
                    )
                except MeshError as error:
                    left_s = deadline_s - self._clock.monotonic_s()
                    if error.code != "MESH-A503" or not waits or left_s < LOOK_S:
                        raise
                # An app that has just started can't answer yet.
                await asyncio.sleep(LOOK_S)

        answers = await asyncio.gather(
            *(ready(instance, number) for instance, number in parts), return_exceptions=True
        )
        part_answers: list[Answer] = []
        missing: dict[str, MeshError] = {}
        for (instance, _), one in zip(parts, answers, strict=True):
            if isinstance(one, MeshError) and one.code in _AWAY:
                missing[instance] = one
            elif isinstance(one, BaseException):
                raise one
            else:
                part_answers.append(one)
        return part_answers, missing

    def _placed(self, record: AppRecord) -> dict[str, Assignment]:
        """The present assignments of an app, by instance."""
        return {
            a.value.instance: a.value
            for a in self._view.snapshot().assignments
            if a.value.app_incarnation == record.incarnation and not a.value.stop
        }

    async def _change(
        self, record: AppRecord, group: GroupSpec, query: str, id_: str, deadline_s: float
    ) -> QueryAnswer:
        """Change a table; the answer once the state that includes the change is stored."""
        instance = group.instances[0]
        if len(group.instances) > 1 or len(group.partitions_of(1)) > 1:
            raise not_supported(f'changes of tables in the parts of group "{group.name}"')
        if instance not in self._placed(record):
            away = MeshError("MESH-A503", "it is not placed on a worker now")
            raise _missing({instance: away}, 0.0)
        left_s = deadline_s - self._clock.monotonic_s()
        js_stream, sequence = await publish(self._client, group, query, id_, left_s)
        assignment = self._placed(record).get(instance)
        reached = {js_stream: sequence}
        try:
            answer = await self._part(assignment, 0, query, reached, deadline_s, change=id_)
        except MeshError as error:
            if error.code not in _AWAY:
                raise
            raise MeshError(
                "MESH-A504",
                f"change {id_} is stored, and {instance} has not made it yet",
                detail=f"It is message {sequence} of {js_stream}. {error.message}.",
                hint=f'Send it again with "id": "{id_}" for its outcome: it is made once.',
            ) from error
        outcome = orjson.loads(answer.data)
        if "error" in outcome:
            raise error_of(outcome["error"])
        return QueryAnswer(b"[]", (), answer.positions, changed=outcome["changed"])

    async def _part(
        self,
        assignment: Assignment | None,
        number: int,
        query: str,
        at_least: Mapping[str, int],
        deadline_s: float,
        is_divided: bool = False,
        change: str = "",
    ) -> Answer:
        """The answer of one virtual partition of an instance."""
        if assignment is None:
            raise MeshError("MESH-A503", "it is not placed on a worker now")
        left_s = deadline_s - self._clock.monotonic_s()
        # The worker's refusal, if any, has to arrive in time.
        limit_s = _WORKERS_SHARE * left_s
        question = Question(
            assignment.app, query, assignment.instance, assignment.epoch, number, limit_s,
            at_least, is_divided, change, not is_divided,
        )  # fmt: skip
        subject = names.question_subject(assignment.worker)
        try:
            async with asyncio.timeout(left_s):
                return await self._exchange(subject, codec.encode(question))
        except TimeoutError as error:
            raise MeshError(
                "MESH-A503", f"worker {assignment.worker} does not answer in time"
            ) from error
        except UNREACHABLE as error:
            raise unreachable(error) from error

    async def _exchange(self, subject: str, data: bytes) -> Answer:
        """Send a question and receive all messages of its reply."""
        inbox = self._client.new_inbox()
        replies = await self._client.subscribe(inbox)
        try:
            await self._client.publish(subject, data, reply=inbox)
            parts: list[bytes] = []
            size = 0
            while True:
                message = await replies.next_msg(timeout=None)
                if message.headers and message.headers.get("Status") == "503":
                    raise MeshError("MESH-A503", f"no worker listens to {subject}")
                head, part = from_message(message.data)
                if head.error is not None:
                    raise error_of(head.error)
                parts.append(part)
                size += len(part)
                if size > self.limits.bytes_max:
                    raise _exceeded(f"The answer has more than {self.limits.bytes_max} bytes.")
                if len(parts) == head.count:
                    return Answer(b"".join(parts), head.positions, head.is_json)
        finally:
            with contextlib.suppress(*UNREACHABLE):
                await replies.unsubscribe()

    # --- clients of NATS

    async def start(self) -> None:
        """Answer queries that clients of NATS send, as one of all managers."""
        for subject in (names.query_subject("*"), names.table_change_subject("*")):
            self._subscriptions.append(
                await self._client.subscribe(subject, queue="mesh-managers", cb=self._receive)
            )

    async def stop(self) -> None:
        """Answer no more, and end the process."""
        for subscription in self._subscriptions:
            with contextlib.suppress(*UNREACHABLE):
                await subscription.unsubscribe()
        await end(list(self._tasks))
        await asyncio.to_thread(self._process.stop)

    async def _receive(self, message: Msg) -> None:
        if not is_inbox(message.reply):
            log.debug("query without an inbox", extra=fields(subject=message.subject))
            return
        task = asyncio.create_task(self._reply(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reply(self, message: Msg) -> None:
        app, kind = message.subject.split(".")[1:]
        try:
            request = query_of(message.data)
            answer = await self.ask(
                app,
                request.query,
                at_least=request.at_least,
                partial=request.partial,
                may_change=kind == names.CHANGE,
                id_=request.id,
            )
            data = orjson.dumps(answer.to_values(details=request.details))
            if len(data) > self._client.max_payload:
                raise _exceeded(f"A message has at most {self._client.max_payload} bytes.")
        except MeshError as error:
            data = orjson.dumps(error.to_dict())
        except Exception:
            log.exception("query failed", extra=fields(app=app))
            data = orjson.dumps(MeshError("MESH-A500", "internal error").to_dict())
        with contextlib.suppress(*UNREACHABLE):
            await self._client.publish(message.reply, data)


def _missing(missing: Mapping[str, MeshError], waited_s: float) -> MeshError:
    first = next(iter(missing.values()))
    waited = f" It was asked for {waited_s:g} s (queries.timeout_s)." if waited_s else ""
    return MeshError(
        first.code,
        f"{', '.join(missing)} can't answer now",
        detail=f"{first.message}.{waited}",
        hint="Ask again in a moment, or for a partial answer.",
    )


def _exceeded(detail: str) -> MeshError:
    return MeshError(
        "MESH-A413",
        "the query can't be answered within its limits",
        detail=detail,
        hint="Ask for less with 'on' or 'limit'.  queries.timeout_s sets the time.",
    )


def log_of(group: GroupSpec) -> str:
    """The JetStream stream that takes the changes of a group's tables.

    Raises:
        MeshError: MESH-P900, the group reads streams of others only.
    """
    for one in group.inputs:
        if not one.channel.foreign and not one.channel.is_keyed:
            return one.channel.js_stream()
    raise not_supported(
        f'on-demand changes of tables of group "{group.name}", which has no stream of the mesh '
        "with all events",
        hint="Send an event to a stream of which a query changes the table.",
    )


async def publish(
    client: Client, group: GroupSpec, query: str, id_: str, limit_s: float
) -> tuple[str, int]:
    """Append a change to the log of a group; the JetStream stream and the message's sequence.

    A change whose id is in the log already is not appended again.

    Raises:
        MeshError: MESH-A503, the stream is not there or does not answer in time.
    """
    js_stream = log_of(group)
    subject = names.change_subject(js_stream, group.name)
    data = orjson.dumps({"id": id_, "query": query})
    try:
        async with asyncio.timeout(limit_s):
            stored = await client.jetstream().publish(
                subject, data, timeout=limit_s, stream=js_stream, headers={_ID_HEADER: id_}
            )
    except (TimeoutError, NoStreamResponseError, APIError) as error:
        raise MeshError(
            "MESH-A503",
            f"JetStream stream {js_stream} does not take the change",
            detail=f"{error!r}.",
            hint=f'Send it again with "id": "{id_}": it is made once.',
        ) from error
    except UNREACHABLE as error:
        raise unreachable(error) from error
    return js_stream, stored.seq
