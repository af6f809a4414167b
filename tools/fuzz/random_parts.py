"""Random pieces of SiddhiQL over two streams of one shape: expressions, selections, windows.

All texts are drawn from a ``random.Random``, so a seed gives the same app again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

#: The attributes of every stream that is fed; ``ts`` is a time near that of the event.
ATTRIBUTES: Final = "k string, a int, b long, f float, d double, o bool, ts long"
NUMBERS: Final = ("a", "b", "f", "d")
KEYS: Final = ("k", "a")
TIMES: Final = ("100 milliseconds", "200 milliseconds", "1 sec", "250 milliseconds")
_CONSTANTS: Final = ("0", "1", "2", "3", "5L", "1.5f", "2.5", "0.0", "-1")
_COMPARISONS: Final = ("==", "!=", "<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True)
class Parts:
    """Draws pieces; ``prefixes`` precede attributes (``e1.``), one of them for each."""

    random: Random
    prefixes: tuple[str, ...] = ("",)

    def of(self, *prefixes: str) -> Parts:
        """The same source with other prefixes."""
        return Parts(self.random, prefixes)

    def one(self, *texts: str) -> str:
        """A choice of ``texts``."""
        return self.random.choice(texts)

    def chance(self, share: float) -> bool:
        """True in that share of draws."""
        return self.random.random() < share

    def attribute(self, *names: str) -> str:
        """A choice of the attributes ``names``, with a prefix."""
        return self.one(*self.prefixes) + self.one(*names)

    def number(self, depth: int = 2) -> str:
        """A numeric expression."""
        if depth <= 0 or self.chance(0.5):
            return self.attribute(*NUMBERS) if self.chance(0.8) else self.one(*_CONSTANTS)
        match self.random.randrange(9):
            case 0 | 1 | 2 | 3:
                operator = self.one("+", "-", "*", "/", "%")
                return f"({self.number(depth - 1)} {operator} {self.number(depth - 1)})"
            case 4:
                name = self.attribute(*NUMBERS)
                return f"ifThenElse({self.condition(depth - 1)}, {name}, {name})"
            case 5:
                kind = self.one("int", "long", "float", "double")
                return f"convert({self.number(depth - 1)}, '{kind}')"
            case 6:
                name = self.one(*NUMBERS)
                columns = ", ".join(p + name for p in (*self.prefixes, self.prefixes[0]))
                return f"coalesce({columns})"
            case 7:
                name = self.attribute(*NUMBERS)
                return f"{self.one('maximum', 'minimum')}({name}, {name}, {name})"
            case _:
                constant = {"a": "7", "b": "7L", "f": "7.5f", "d": "7.5"}
                name = self.one(*NUMBERS)
                return f"default({self.one(*self.prefixes)}{name}, {constant[name]})"

    def condition(self, depth: int = 2) -> str:
        """An expression that is true or false."""
        match self.random.randrange(10 if depth > 0 else 5):
            case 0 | 1 | 2:
                return f"{self.number(depth - 1)} {self.one(*_COMPARISONS)} {self.number(0)}"
            case 3:
                return f"{self.attribute('k')} {self.one('==', '!=')} '{self.one(*'xyz')}'"
            case 4:
                return self.attribute("o")
            case 5:
                return f"{self.attribute('k', 'a', 'd', 'o')} is null"
            case 6:
                return f"not ({self.condition(depth - 1)})"
            case _:
                operator = self.one("and", "or")
                return f"({self.condition(depth - 1)} {operator} {self.condition(depth - 1)})"

    def filter(self, share: float = 0.4) -> str:
        """``[..]`` or nothing."""
        return f"[{self.condition(1)}]" if self.chance(share) else ""

    # The select clause of a query

    def plain(self) -> str:
        """``select`` of attributes and expressions."""
        count = self.random.randint(1, 3)
        columns = [f"{self.number()} as n{i}" for i in range(count)]
        if self.chance(0.7):
            columns.insert(0, f"{self.attribute('k')} as key")
        if self.chance(0.2):
            columns.append(f"{self.condition()} as is")
        return "select " + ", ".join(columns)

    def aggregate(self) -> str:
        """A call of an aggregator."""
        match self.random.randrange(12):
            case 0 | 1 | 2:
                return f"sum({self.attribute(*NUMBERS)})"
            case 3:
                return f"avg({self.attribute(*NUMBERS)})"
            case 4 | 5:
                return "count()"
            case 6:
                return f"{self.one('min', 'max')}({self.attribute(*NUMBERS)})"
            case 7:
                return f"stdDev({self.attribute(*NUMBERS)})"
            case 8:
                return f"distinctCount({self.attribute('k', 'a', 'b')})"
            case 9:
                return f"{self.one('minForever', 'maxForever')}({self.attribute(*NUMBERS)})"
            case 10:
                return f"convert({self.one('and', 'or')}({self.attribute('o')}), 'int')"
            case _:
                return f"sum({self.number(1)}) + count()"

    def aggregates(self) -> str:
        """``select`` with aggregators, and the clauses that may follow it."""
        count = self.random.randint(1, 3)
        columns = [f"{self.aggregate()} as n{i}" for i in range(count)]
        keys = [self.attribute("k"), self.attribute("k", "a")] if self.chance(0.6) else []
        if keys or self.chance(0.5):
            columns.insert(0, f"{keys[0] if keys else self.attribute('k')} as key")
        text = "select " + ", ".join(columns)
        if keys:
            text += " group by " + ", ".join(dict.fromkeys(keys[: self.random.randint(1, 2)]))
        if self.chance(0.2):
            text += f" having n0 {self.one(*_COMPARISONS)} {self.one('1', '2', '3')}"
        return text + self.ending()

    def ending(self, share: float = 0.15) -> str:
        """``order by``, ``limit`` and ``offset``, each or none."""
        text = ""
        if self.chance(share):
            text += f" order by n0 {self.one('asc', 'desc')}"
        if self.chance(share):
            text += f" limit {self.one('1', '2')}"
        if self.chance(share / 2):
            text += f" offset {self.one('0', '1')}"
        return text

    def selection(self) -> str:
        """Any ``select``."""
        if self.chance(0.6):
            return self.aggregates()
        return self.plain() + self.ending(0.05)

    # The other clauses of a query

    def window(self, kinds: Sequence[str] = ()) -> str:
        """A window: the text after ``#window.``."""
        time = self.one(*TIMES)
        count = self.one("1", "2", "3", "4")
        kind = self.one(*(kinds or WINDOWS))
        match kind:
            case "length" | "lengthBatch":
                return f"{kind}({count})"
            case "time" | "timeBatch":
                return f"{kind}({time})"
            case "timeLength":
                return f"timeLength({time}, {count})"
            case "externalTime":
                return f"externalTime(ts, {time})"
            case "externalTimeBatch":
                return f"externalTimeBatch(ts, {time})"
            case "sort":
                return f"sort({count}, {self.one('a', 'b', 'd', 'k')}, '{self.one('asc', 'desc')}')"
            case "frequent":
                return f"frequent({count}, k)"
            case "session":
                return f"session({time}{self.one('', ', k')})"
            case "cron":
                return "cron('*/1 * * * * ?')"
            case _:
                return "batch()"

    def rate(self, share: float = 1.0) -> str:
        """``output .. every ..`` or nothing."""
        if not self.chance(share):
            return ""
        kind = self.one("", "all ", "first ", "last ")
        match self.random.randrange(3):
            case 0:
                return f"output {kind}every {self.one('1', '2', '3', '4')} events "
            case 1:
                return f"output {kind}every {self.one('100 milliseconds', '1 sec')} "
            case _:
                return f"output snapshot every {self.one('100 milliseconds', '1 sec')} "

    def events(self, rate: str = "") -> str:
        """The kind of events to insert; after a snapshot only one kind is valid."""
        if rate.startswith("output snapshot"):
            return self.one("", "all events ")
        return self.one("", "", "", "current events ", "expired events ", "all events ")


#: Without ``delay``: under a simulated clock the engine's never ends.
WINDOWS: Final = (
    "length",
    "lengthBatch",
    "time",
    "timeBatch",
    "timeLength",
    "externalTime",
    "externalTimeBatch",
    "sort",
    "frequent",
    "session",
    "batch",
)
#: Windows that both keep events and expire them one by one.
SLIDING: Final = ("length", "time", "timeLength", "externalTime", "sort")
