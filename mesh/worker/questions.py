"""A worker's side of on-demand queries: questions of managers, answered by another process.

The agent receives a question, and a bounded process computes the answer from the state that the
instance has stored.  The agent's own part is a fraction of a millisecond and bounded, so no
question can hold up its heartbeats; the session is not involved at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

import anyio.to_thread
from anyio import CapacityLimiter

from mesh.errors import MeshError
from mesh.functions import script_switch
from mesh.http.bounds import Bound
from mesh.jetstream.connection import UNREACHABLE
from mesh.model import codec, names
from mesh.model.app import Strategy
from mesh.model.question import AnswerTask, Question, ReplyHead, is_inbox, to_messages
from mesh.processes.bounded_process import BoundedProcess
from mesh.processes.signals import end
from mesh.telemetry.logs import fields
from mesh.worker import store_secrets

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from mesh.clock import Clock
    from mesh.model.app import GroupSpec
    from mesh.model.cluster import Assignment
    from mesh.model.question import Answer
    from mesh.processes.bounded_process import Process
    from mesh.settings import Settings

log = logging.getLogger(__name__)

#: Interval of looking whether a state has reached the position that a question requires, seconds.
_LOOK_S: Final = 0.2
_ANSWERING: Final = "mesh.worker.answering"


class Questions:
    """Receives questions about the instances of one worker, and replies."""

    def __init__(
        self,
        client: Client,
        worker: str,
        settings: Settings,
        clock: Clock,
        instances: Callable[[], Path | None],
        app_text: Callable[[str], str | None],
        process: Process | None = None,
    ) -> None:
        """Answer nothing yet.

        Args:
            client: the connection to NATS.
            worker: this worker's name.
            settings: limits.
            clock: measures waits.
            instances: the directory of the session's instances; None while it starts.
            app_text: the text of an app; None if it is not deployed.
            process: computes the answers; tests give one of their own.
        """
        self._client, self._worker = client, worker
        self._settings, self._clock = settings, clock
        self._instances, self._app_text = instances, app_text
        self._running: dict[str, tuple[Assignment, GroupSpec]] = {}
        self._bound = Bound(settings.queries.waiting_max, "questions wait for an answer")
        self._turn = asyncio.Lock()
        self._limiter = CapacityLimiter(1)
        environment = {
            **script_switch.switch(settings.functions.python),
            **store_secrets.variables(settings),
        }
        self._process = process or BoundedProcess(_ANSWERING, _exceeded, environment)
        self._subscription: Subscription | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Receive questions from now on."""
        subject = names.question_subject(self._worker)
        self._subscription = await self._client.subscribe(subject, cb=self._receive)

    async def stop(self) -> None:
        """Receive no more, and end the process."""
        if self._subscription is not None:
            with contextlib.suppress(*UNREACHABLE):
                await self._subscription.unsubscribe()
        await end(list(self._tasks))
        await asyncio.to_thread(self._process.stop)

    def began(self, assignment: Assignment, group: GroupSpec) -> None:
        """Answer questions about an instance."""
        self._running[assignment.instance] = assignment, group

    def ended(self, assignment: Assignment) -> None:
        """Answer no more questions about an instance in this epoch."""
        entry = self._running.get(assignment.instance)
        if entry is not None and entry[0].epoch <= assignment.epoch:
            del self._running[assignment.instance]

    async def _receive(self, message: Msg) -> None:
        if not is_inbox(message.reply):
            return
        task = asyncio.create_task(self._reply(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reply(self, message: Msg) -> None:
        data, reply = b"", ReplyHead()
        try:
            with self._bound.turn():
                answer = await self._answer(codec.decode(Question, message.data))
            data, reply = answer.data, ReplyHead(positions=answer.positions, is_json=answer.is_json)
        except MeshError as error:
            reply = ReplyHead(error=error.to_dict())
        # A manager that got no answer would wait.
        except Exception:
            log.exception("question failed")
            reply = ReplyHead(error=MeshError("MESH-A500", "internal error").to_dict())
        with contextlib.suppress(*UNREACHABLE):
            for part in to_messages(reply, data, self._client.max_payload):
                await self._client.publish(message.reply, part)

    async def _answer(self, question: Question) -> Answer:
        """The answer as soon as the state is at the position that is required."""
        deadline_s = self._clock.monotonic_s() + min(
            question.limit_s, self._settings.queries.timeout_s
        )
        while True:
            task = self._task(question)
            async with self._turn:
                left_s = deadline_s - self._clock.monotonic_s()
                answer: Answer | None = await anyio.to_thread.run_sync(
                    self._process.call,
                    left_s,
                    f"{_ANSWERING}:answer_task",
                    task,
                    limiter=self._limiter,
                    abandon_on_cancel=True,
                )
            if answer is not None:
                return answer
            if self._clock.monotonic_s() + _LOOK_S >= deadline_s:
                raise MeshError(
                    "MESH-A504",
                    f"{question.instance} has not reached the position that was asked for",
                    detail="Its state is stored once a second while events arrive.",
                    hint="Ask again, or without a position.",
                )
            await asyncio.sleep(_LOOK_S)

    def _task(self, question: Question) -> AnswerTask:
        """The question with what the process needs; MESH-A503 if the instance is not here."""
        assignment, group = self._running.get(question.instance, (None, None))
        directory, text = self._instances(), self._app_text(question.app)
        is_here = assignment is not None and assignment.epoch == question.epoch
        if assignment is None or group is None or not is_here or directory is None or text is None:
            raise MeshError(
                "MESH-A503",
                f"{question.instance} does not run on worker {self._worker} now",
                hint="Ask again in a moment.",
            )
        limits = self._settings.queries
        return AnswerTask(
            str(directory),
            question.instance,
            question.epoch,
            question.partition,
            text,
            group.text,
            tuple(dict.fromkeys(channel.stream.name for channel in group.outputs)),
            _streams(group, question.partition),
            question.query,
            question.at_least,
            limits.rows_max,
            limits.bytes_max,
            question.is_divided,
            question.change,
            _producer(assignment, group, question.partition),
            keys_of(group),
            question.may_be_json,
        )


def _producer(assignment: Assignment, group: GroupSpec, partition: int) -> str:
    """The name of a part in markers: see ``Executor.producer``."""
    name = names.producer(assignment.app_incarnation, group.name, group.edit, str(partition))
    return f"{group.app}/{name}"


def keys_of(group: GroupSpec) -> dict[str, tuple[tuple[str, ...], int]]:
    """By stream that a group reads by key: the key's attributes, and the number of partitions."""
    return {
        one.channel.stream.name: (tuple(one.channel.key), one.channel.partitions)
        for one in group.inputs
        if one.strategy is Strategy.BY_KEY and not one.channel.computed
    }


def _streams(group: GroupSpec, partition: int) -> tuple[str, ...]:
    """The JetStream streams that a part of a group reads."""
    return tuple(
        one.channel.js_stream(partition if one.strategy is Strategy.BY_KEY else 0)
        for one in group.inputs
    )


def _exceeded(detail: str) -> MeshError:
    log.warning("a question broke its limits", extra=fields(why=detail))
    return MeshError(
        "MESH-A413",
        "the query can't be answered within its limits",
        detail=detail,
        hint="Ask for less with 'on' or 'limit'.  queries.timeout_s sets the time.",
    )
