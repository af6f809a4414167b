"""Script of a case: its calls of the executors, recorded once and answered by another engine.

A case is run on the operators themselves first; its calls of the executors are its script. Another
engine executes the script, and the run is repeated with that engine's results in the executors'
place. So steps, clocks, errors and the form of the answer are the same for both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.operators.base import State
from mesh.operators.executor import CallRun, Executor, OutputRun
from mesh.testing.conformance import direct
from mesh.testing.conformance.cases import TimeMode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from mesh.operators.base import Longs
    from mesh.plan.bound import BoundApp, BoundOnDemandQuery
    from mesh.testing.conformance.cases import ConformanceCase

_MARK: Final = "#mark"


@dataclass(frozen=True, slots=True)
class StepCall:
    """One call of ``Executor.step``: time passes to ``now_ms``, then a chunk arrives, if any."""

    now_ms: int
    stream: str | None = None
    time_ms: Longs | None = None
    rows: pa.RecordBatch | None = None


@dataclass(frozen=True, slots=True)
class AskCall:
    """One call of ``Executor.ask``, at ``now_ms``, with the text of its on-demand query."""

    now_ms: int
    text: str


@dataclass(frozen=True, slots=True)
class Fresh:
    """The executor ends, and the app starts without state."""


@dataclass(frozen=True, slots=True)
class SaveState:
    """The state is stored under ``mark``."""

    mark: int


@dataclass(frozen=True, slots=True)
class Taken:
    """The executor ends, and the app continues from the state stored under ``mark``."""

    mark: int


Step = StepCall | AskCall
Command = Step | Fresh | SaveState | Taken


@dataclass(slots=True)
class StepResult:
    """The result of one ``Step``: output and calls, or an answer, or the error in its place."""

    outputs: list[OutputRun] = field(default_factory=list)
    calls: list[CallRun] = field(default_factory=list)
    answer: pa.RecordBatch | None = None
    refusal: MeshError | None = None


@dataclass(frozen=True, slots=True)
class Leg:
    """A part of a script that one runtime does: from one state to another.

    ``origin``: the number of the leg that ended with the state it starts from; None: from nothing.
    ``steps``: each with its number among all steps of the script.
    """

    origin: int | None
    steps: tuple[tuple[int, Step], ...]


class Recording(direct.DirectRun):
    """A run that records its ``commands`` as the script."""

    def __init__(self, case: ConformanceCase, app: BoundApp) -> None:
        super().__init__(case, app)
        self.commands: list[Command] = []

    def _create(self) -> None:
        playback = self.case.mode is TimeMode.PLAYBACK
        self.commands.append(Fresh())
        self._executor = self._recorder = _Recorder(
            self.commands, self.app, list(self.streams), list(self.queries), playback=playback
        )
        if self.case.mode is TimeMode.VIRTUAL:
            self._pass(self.now_ms)

    def _ask(self, text: str) -> None:
        self._recorder.text = text
        super()._ask(text)


class Replaying(direct.DirectRun):
    """A run with results of another engine, by the number of each step."""

    def __init__(
        self, case: ConformanceCase, app: BoundApp, results: Mapping[int, StepResult]
    ) -> None:
        super().__init__(case, app)
        self._player = _Player(results)

    def _create(self) -> None:
        self._executor = self._player
        if self.case.mode is TimeMode.VIRTUAL:
            self._pass(self.now_ms)


class _Recorder(Executor):
    """Records its calls, and answers them."""

    def __init__(
        self,
        commands: list[Command],
        app: BoundApp,
        outputs: Sequence[str],
        callbacks: Sequence[str],
        *,
        playback: bool,
    ) -> None:
        super().__init__(app, outputs, callbacks, playback=playback)
        self._commands = commands
        #: Of the next question.
        self.text = ""

    def step(
        self,
        now_ms: int,
        stream: str | None = None,
        time_ms: Longs | None = None,
        rows: pa.RecordBatch | None = None,
    ) -> list[OutputRun]:
        self._commands.append(StepCall(now_ms, stream, time_ms, rows))
        return super().step(now_ms, stream, time_ms, rows)

    def ask(self, query: BoundOnDemandQuery, now_ms: int) -> pa.RecordBatch:
        self._commands.append(AskCall(now_ms, self.text))
        return super().ask(query, now_ms)

    def snapshot(self) -> State:
        mark = len(self._commands)
        self._commands.append(SaveState(mark))
        state = super().snapshot()
        return State(state.pieces, {**state.scalars, _MARK: mark})

    def restore(self, state: State) -> None:
        mark = state.scalars[_MARK]
        assert isinstance(mark, int)
        self._commands.append(Taken(mark))
        super().restore(state)


class _Player(Executor):
    """Answers with the results of another engine; it has no operators."""

    def __init__(self, results: Mapping[int, StepResult]) -> None:
        self._results = results
        self._at = -1

    def step(
        self,
        now_ms: int,
        stream: str | None = None,
        time_ms: Longs | None = None,
        rows: pa.RecordBatch | None = None,
    ) -> list[OutputRun]:
        self._at += 1
        return self._results.get(self._at, StepResult()).outputs

    def take_calls(self) -> list[CallRun]:
        return self._results.get(self._at, StepResult()).calls

    def ask(self, query: BoundOnDemandQuery, now_ms: int) -> pa.RecordBatch:
        self._at += 1
        result = self._results.get(self._at, StepResult())
        if result.refusal is not None:
            raise result.refusal
        if result.answer is None:
            raise RuntimeError("the other engine has not answered an on-demand query")
        return result.answer

    def snapshot(self) -> State:
        return State()

    def restore(self, state: State) -> None:
        """Continue with the results of the other engine from that state."""


def legs(commands: Sequence[Command], *, halved: bool) -> list[Leg]:
    """The legs of a script, each from the end of an earlier one.

    ``halved``: the executor is stopped after half of the input, and another continues from its
    state.
    """
    middle = sum(isinstance(command, Step) for command in commands) // 2
    all_legs: list[Leg] = []
    #: By mark, the leg that ended there.
    ended: dict[int, int] = {}
    origin: int | None = None
    steps: list[tuple[int, Step]] = []
    number = 0

    def end() -> int:
        all_legs.append(Leg(origin, tuple(steps)))
        steps.clear()
        return len(all_legs) - 1

    for command in commands:
        match command:
            case Fresh():
                if steps:
                    end()
                origin = None
            case SaveState(mark):
                origin = ended[mark] = end()
            case Taken(mark):
                if steps:
                    end()
                origin = ended[mark]
            case StepCall() | AskCall():
                if halved and number == middle and steps:
                    origin = end()
                steps.append((number, command))
                number += 1
    if steps:
        end()
    return all_legs
