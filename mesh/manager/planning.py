"""Plans of apps for a manager: computed in a process of its own, one after the other, and kept."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

from mesh.connect.references import types_of
from mesh.errors import MeshError
from mesh.functions.scripts import not_allowed
from mesh.http.bounds import Bound
from mesh.language.naming import named
from mesh.language.parser import parse, parse_app
from mesh.model import codec, names
from mesh.model.access import Permission, current, lacking, require
from mesh.model.values import JsonObject
from mesh.plan import history_source
from mesh.plan.app_elements import elements
from mesh.plan.bind import bind
from mesh.plan.build import AppPlan, plan
from mesh.plan.changes import changes_between
from mesh.plan.connectors import needs_types, with_types
from mesh.plan.edits import Edit, edit_app, obstacles
from mesh.plan.explain import changes_to_values, to_values
from mesh.plan.fork import StateFit, fork_app, promoted_text, promotion_states, state_fit
from mesh.plan.groups import app_name, as_scaled
from mesh.plan.guarantees import demanded_guarantee
from mesh.plan.history import fed_groups
from mesh.plan.notes import warnings_of
from mesh.plan.picture import drawing_of, to_dot, to_svg
from mesh.plan.reads import may_read_by_connectors, reads_of, with_reads
from mesh.plan.rename import renamed
from mesh.processes.bounded_process import BoundedProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from mesh.connect.spec import Guarantee
    from mesh.migrate import Migrated
    from mesh.model.app import AppSpec
    from mesh.model.history import HistoryInput
    from mesh.settings import Settings

T = TypeVar("T")

#: Results that are kept, and calls that wait at most.
CACHE_MAX: Final = 32
WAITING_MAX: Final = 16


def _exceeded(detail: str) -> MeshError:
    return MeshError(
        "MESH-A413",
        "the app can't be planned within its limits",
        detail=detail,
        hint="Divide the app: one inserts into a stream, another reads it.  "
        "manager.plan_timeout_s sets the time.",
    )


#: Of this Python process, so that it is started once.
_PROCESS: Final = BoundedProcess(__name__, _exceeded)


#: Values of a plan; of the changes, None for a new app; of the refusal, None without one.
Previewed = tuple[JsonObject, JsonObject | None, JsonObject | None]


class PlanningProcess(Protocol):
    """A ``BoundedProcess``."""

    def call(self, limit_s: float, function: Callable[..., T], *arguments: object) -> T:
        """The result of a function, computed elsewhere."""
        ...


class Planner:
    """Calls of the planner that a manager needs; each raises MESH-A413 for what takes too long.

    ``process`` computes; tests give one of their own.
    """

    def __init__(self, settings: Settings, process: PlanningProcess = _PROCESS) -> None:
        self._partitions = settings.channels.partitions
        self._has_python = settings.functions.python
        self._limit_s = settings.manager.plan_timeout_s
        self._refs_file = settings.receiver.refs_file
        self._process = process
        self._turn = asyncio.Lock()
        self._waiting = Bound(WAITING_MAX, "requests wait for the planner")
        self._cache: OrderedDict[object, Any] = OrderedDict()
        self._limiter = CapacityLimiter(1)

    async def plan(self, text: str) -> AppSpec:
        """The plan of a text; MESH-L*, MESH-P*.

        Raises:
            MeshError: MESH-S131 for functions in Python where they are not run, MESH-A403 for those
                of a user without the permission, and for sources that read what the user may not.
        """
        text = self._typed(text)
        identity, app = current.get(), None
        if identity is not None and not identity.may(Permission.APPS_PYTHON, None):
            app = await self.name(text)
        with self._functions_of(app) as has_python:
            key = f"plan {has_python}", _digest(text.encode())
            spec = await self._run(key, plan_text, text, self._partitions, has_python)
        return await self._permitted(spec)

    def _typed(self, text: str) -> str:
        """A text with the types of its references, as this manager's file has them.

        Raises:
            MeshError: MESH-C131 for a file that can't be read.
        """
        return with_types(text, types_of(self._refs_file)) if needs_types(text) else text

    async def _permitted(self, spec: AppSpec, origin_app: str = "") -> AppSpec:
        """A plan with the streams that it reads, and that the user of the request may read.

        Every text that becomes an app passes here.

        Args:
            spec: the plan.
            origin_app: the app that the request is about, whose streams a fork reads.

        Raises:
            MeshError: MESH-A403 for a stream of another app, or of the mesh's records.
        """
        if may_read_by_connectors(spec):
            key = "reads", _digest(codec.encode(spec))
            reads = await self._run(key, reads_of, spec)
        else:
            reads = reads_of(spec)
        for stream in dict.fromkeys(stream for streams in reads.values() for stream in streams):
            app = names.app_of_js_stream(stream)
            if app is None or app != origin_app:
                require(Permission.DATA_READ if app else Permission.ADMIN, app)
        return with_reads(spec, reads)

    @contextmanager
    def _functions_of(self, app: str | None) -> Iterator[bool]:
        """Whether an app may have functions in Python, by the setting and by the user's grants.

        A refusal because the permission is missing is MESH-A403.
        """
        identity = current.get()
        may = identity is None or identity.may(Permission.APPS_PYTHON, app)
        try:
            yield self._has_python and may
        except MeshError as error:
            if error.code != "MESH-S131" or may or not self._has_python or identity is None:
                raise
            raise lacking(identity.user, Permission.APPS_PYTHON, app) from error

    async def name(self, text: str) -> str:
        """The name of the app of a text; MESH-L*."""
        return await self._run(("name", _digest(text.encode())), name_of_text, text)

    async def warnings(self, spec: AppSpec) -> tuple[str, ...]:
        """Parts of an app that run to no effect, a sentence each."""
        if not any(_may_have(spec, word) for word in ("source", "sink", "store")):
            return ()
        return await self._run(("warnings", _digest(spec.text.encode())), warnings_of, spec)

    async def demanded(self, spec: AppSpec) -> Guarantee | None:
        """The guarantee that an app demands; None without one."""
        if not _may_have(spec, "guarantee"):
            return None
        key = "demanded", _digest(spec.text.encode())
        return await self._run(key, demanded_guarantee, spec.text)

    async def view(self, spec: AppSpec, form: str) -> Any:
        """A plan as ``json`` values, ``elements``, picture (``svg``, ``dot``) or ``drawing``."""
        return await self._run((form, _digest(codec.encode(spec))), view_of, spec, form)

    async def is_same(self, before: AppSpec, text: AppSpec, scaled: Mapping[str, int]) -> bool:
        """Whether another text changes nothing of an app with these numbers of instances."""
        return await self._run(None, is_unchanged, before, text, dict(scaled))

    async def edit(
        self,
        before: AppSpec,
        text: AppSpec,
        scaled: Mapping[str, int],
        number: int,
        reset: Collection[str],
    ) -> tuple[AppSpec, Edit]:
        """The plan with the numbers of instances of ``before``, and ``edit_app`` of it."""
        reset = tuple(reset)
        return await self._run(None, edit_of, before, text, dict(scaled), number, reset)

    async def preview(
        self,
        before: AppSpec | None,
        text: AppSpec,
        scaled: Mapping[str, int],
        reset: Collection[str],
    ) -> Previewed:
        """The plan of a text, its changes to ``before``, and the error that would refuse them."""
        return await self._run(None, preview_of, before, text, dict(scaled), tuple(reset))

    async def renamed(self, spec: AppSpec, other: str) -> AppSpec:
        """The plan under another name; see ``mesh.plan.rename``, and ``plan``."""
        with self._functions_of(other) as has_python:
            new_spec = await self._run(None, renamed_of, spec, other, has_python)
        return await self._permitted(new_spec)

    async def restored(self, spec: AppSpec) -> AppSpec:
        """The plan of a backup, for a restore under its own name; see ``plan`` for refusals."""
        with self._functions_of(spec.name) as has_python:
            await self._run(None, check_functions, spec.text, has_python)
        return await self._permitted(spec)

    async def fork(
        self, of: AppSpec, text: str | None, other: str, scaled: Mapping[str, int], *, sinks: bool
    ) -> AppSpec:
        """The plan of a fork that takes no state; see ``mesh.plan.fork``, and ``plan``."""
        text = self._typed(text) if text is not None else None
        with self._functions_of(other) as has_python:
            fork_spec = await self._run(
                None, fork_of, of, text, other, dict(scaled), sinks, has_python
            )
        return await self._permitted(fork_spec, origin_app=of.name)

    async def fork_with_state(
        self,
        of: AppSpec,
        was: AppSpec,
        text: str | None,
        other: str,
        scaled: Mapping[str, int],
        number: int,
        *,
        sinks: bool,
    ) -> StateFit:
        """The plan of a fork with the state that the app had when its plan was ``was``."""
        text = self._typed(text) if text is not None else None
        fit = await self._run(None, fork_fit_of, of, was, text, other, dict(scaled), number, sinks)
        if fit.spec is None:
            return fit
        return replace(fit, spec=await self._permitted(fit.spec, origin_app=of.name))

    async def history(self, spec: AppSpec, streams: Sequence[str]) -> tuple[str, ...]:
        """The groups that history of streams runs through; see ``mesh.plan.history``."""
        return await self._run(None, fed_groups, spec, tuple(streams))

    async def history_sources(self, spec: AppSpec) -> tuple[HistoryInput, ...]:
        """The past events that a text names; see ``mesh.plan.history_source``."""
        if not _may_have(spec, history_source.TYPE):
            return ()
        key = "history", _digest(spec.text.encode())
        return await self._run(key, history_source.history_inputs, spec.text)

    async def promotion(self, of: AppSpec, text: str) -> tuple[str, list[str], list[str]]:
        """The text of a fork under its app's name; see ``promotion_states`` for the rest."""
        return await self._run(None, promotion_of, of, self._typed(text), self._partitions)

    async def migrated(self, text: str, name: str) -> Migrated:
        """An app of Siddhi 3, 4 or 5 in the present language; see ``mesh.migrate``."""
        return await self._run(None, migrated_of, text, name)

    async def _run(
        self,
        key: tuple[str, bytes] | None,
        function: Callable[..., T],
        *arguments: object,
    ) -> T:
        """The result of a function; it is kept, unless ``key`` is None."""
        if key not in self._cache:
            with self._waiting.turn():
                # An earlier request for the same may have computed it by then.
                async with self._turn:
                    if key not in self._cache:
                        return await self._computed(key, function, *arguments)
        self._cache.move_to_end(key)
        value: T = self._cache[key]
        return value

    async def _computed(self, key: object, function: Callable[..., T], *arguments: object) -> T:
        value = await anyio.to_thread.run_sync(
            self._process.call,
            self._limit_s,
            function,
            *arguments,
            limiter=self._limiter,
            abandon_on_cancel=True,
        )
        if key is not None:
            self._cache[key] = value
            while len(self._cache) > CACHE_MAX:
                self._cache.popitem(last=False)
        return value


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _may_have(spec: AppSpec, word: str) -> bool:
    """Whether a text may have an annotation with a word; most have none, and are not parsed."""
    return word in spec.text.lower()


def plan_text(text: str, partitions: int, has_python: bool) -> AppSpec:
    """The plan of a text; MESH-S131 for one with functions, if ``has_python`` is false."""
    planned = plan(text, partitions=partitions)
    if planned.bound.scripts and not has_python:
        raise not_allowed(planned.bound.scripts[0])
    return planned.spec


def name_of_text(text: str) -> str:
    """The name of the app of a text."""
    return app_name(parse_app(named(text)))


def migrated_of(text: str, name: str) -> Migrated:
    """See ``Planner.migrated``."""
    # Few managers are asked for it.
    from mesh.migrate import migrate_app

    return migrate_app(text, name)


def view_of(spec: AppSpec, form: str) -> object:
    """See ``Planner.view``."""
    match form:
        case "json":
            return to_values(AppPlan(bind(parse(spec.text)), spec))
        case "elements":
            return elements(spec)
        case "svg":
            return to_svg(spec)
        case "drawing":
            return drawing_of(spec)
        case _:
            return to_dot(spec)


def is_unchanged(before: AppSpec, text: AppSpec, scaled: Mapping[str, int]) -> bool:
    """See ``Planner.is_same``."""
    spec = as_scaled(text, scaled)
    return before.fingerprint == spec.fingerprint or changes_between(before, spec).is_same


def edit_of(
    before: AppSpec, text: AppSpec, scaled: Mapping[str, int], number: int, reset: Collection[str]
) -> tuple[AppSpec, Edit]:
    """See ``Planner.edit``."""
    spec = as_scaled(text, scaled)
    return spec, edit_app(before, spec, number, reset)


def fork_of(
    of: AppSpec, text: str | None, other: str, scaled: Mapping[str, int], sinks: bool, python: bool
) -> AppSpec:
    """See ``Planner.fork``; MESH-S131 for a text with functions, if ``python`` is false."""
    check_functions(of.text if text is None else text, python)
    return fork_app(of, text, other, copies=False, sinks=sinks, scaled=scaled)


def renamed_of(spec: AppSpec, other: str, python: bool) -> AppSpec:
    """See ``Planner.renamed``; MESH-S131 for a text with functions, if ``python`` is false."""
    check_functions(spec.text, python)
    return renamed(spec, other)


def check_functions(text: str, has_python: bool) -> None:
    """Refuse a text with functions, if ``has_python`` is false; MESH-S131."""
    scripts = () if has_python else bind(parse(text)).scripts
    if scripts:
        raise not_allowed(scripts[0])


def fork_fit_of(
    of: AppSpec,
    was: AppSpec,
    text: str | None,
    other: str,
    scaled: Mapping[str, int],
    number: int,
    sinks: bool,
) -> StateFit:
    """See ``Planner.fork_with_state``."""
    try:
        base = fork_app(was, None, other, copies=True, sinks=sinks, scaled=scaled)
    except MeshError as error:
        return StateFit(None, reason=error.message)
    fork = fork_app(of, text, other, copies=True, sinks=sinks, scaled=scaled)
    return state_fit(was, base, fork, number)


def promotion_of(of: AppSpec, text: str, partitions: int) -> tuple[str, list[str], list[str]]:
    """See ``Planner.promotion``."""
    named = promoted_text(text, of.name)
    return named, *promotion_states(of, plan(named, partitions=partitions).spec)


def preview_of(
    before: AppSpec | None, text: AppSpec, scaled: Mapping[str, int], reset: Collection[str]
) -> Previewed:
    """See ``Planner.preview``."""
    spec = as_scaled(text, scaled)
    values = to_values(AppPlan(bind(parse(spec.text)), spec))
    if before is None:
        return values, None, None
    diff = changes_between(before, spec, reset=reset)
    changes = changes_to_values(diff, tuple(obstacles(before, spec, diff)))
    try:
        if reset or not diff.is_same:
            edit_app(before, spec, 1, reset)
    except MeshError as error:
        return values, changes, error.to_dict()
    return values, changes, None
