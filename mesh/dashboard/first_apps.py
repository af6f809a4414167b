"""Apps of the cookbook for a first run: their texts, generated events, and a change to try."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mesh.files import shipped
from mesh.model.values import JsonMapping, JsonObject

#: Pause between two generated events, milliseconds.
PAUSE_MS: Final = 500
FOLDER: Final = "examples/cookbook"

#: Of a stream: a rule for the values of each attribute, as a simulation has them.
Rules = JsonMapping


@dataclass(frozen=True, slots=True)
class FirstApp:
    """An app of the cookbook."""

    #: Name of its file, without the ending.
    file: str
    app: str
    #: Its purpose, as people read it.
    title: str
    #: By input stream, the rules of its attributes.
    inputs: Mapping[str, Rules]
    #: A change to try, and its effect: each first text is replaced by the second.
    change: tuple[tuple[str, str], ...]
    effect: str
    #: Group whose state the change gives up.
    reset: str

    @property
    def path(self) -> str:
        """Its text, relative to the checkout."""
        return f"{FOLDER}/{self.file}.siddhi"

    @property
    def feed(self) -> str:
        """The name of its simulation."""
        return f"first-{self.app}"

    def changed(self, text: str) -> str:
        """A text with the change."""
        for before, after in self.change:
            text = text.replace(before, after)
        return text

    def simulation(self) -> JsonObject:
        """The simulation that generates its events without end."""
        # The times of the events stay those of the clock.
        step_ms = PAUSE_MS * len(self.inputs)
        return {
            "properties": {"simulationName": self.feed, "timeInterval": str(PAUSE_MS)},
            "sources": [
                {
                    "siddhiAppName": self.app,
                    "streamName": stream,
                    "simulationType": "RANDOM_DATA_SIMULATION",
                    "timestampInterval": str(step_ms),
                    "attributeConfiguration": list(rules.values()),
                }
                for stream, rules in self.inputs.items()
            ],
        }


def _one_of(*values: object) -> JsonObject:
    return {"type": "CUSTOM_DATA_BASED", "list": list(values)}


def _between(least: float, most: float) -> JsonObject:
    bounds = {"min": least, "max": most, "precision": 1}
    return {"type": "PRIMITIVE_BASED", "primitiveType": "DOUBLE", **bounds}


_ITEMS: Final = _one_of("lamp", "rug", "vase", "desk", "chair")
FIRST_APPS: Final = (
    FirstApp(
        "alert_once",
        "AlertOnce",
        "One alert when a sensor becomes too hot",
        {"Readings": {"sensor": _one_of("boiler", "oven"), "temperature": _between(60, 95)}},
        (("80.0", "70.0"),),
        "Alerts are given from 70 degrees on, and not from 80.",
        "crossing",
    ),
    FirstApp(
        "deduplicate",
        "Deduplicate",
        "Drop what is sent again",
        {
            "Orders": {
                "id": _one_of(*(f"o-{number}" for number in range(1, 31))),
                "item": _ITEMS,
                "price": _between(10, 300),
            }
        },
        (("10 min", "10 sec"),),
        "An order passes again after ten seconds, so more of them pass.",
        "once",
    ),
    FirstApp(
        "rate_limit",
        "RateLimit",
        "A limit for each customer",
        {"Requests": {"customer": _one_of("ada", "bob", "eve"), "path": _one_of("/a", "/b")}},
        (("inMinute <= 3", "inMinute <= 30"), ("inMinute > 3", "inMinute > 30")),
        "Thirty requests a minute are accepted, and not three.",
        "limit",
    ),
    FirstApp(
        "enrich",
        "Enrich",
        "Add what a table knows",
        {
            "Changes": {
                "id": _one_of("c-1", "c-2", "c-3"),
                "name": _one_of("Ada", "Bob", "Eve"),
                "tier": _one_of("gold", "silver"),
            },
            "Orders": {
                "id": _one_of("o-1", "o-2", "o-3", "o-4"),
                "customer": _one_of("c-1", "c-2", "c-3", "c-4"),
                "amount": _between(10, 300),
            },
        },
        (("left outer join", "join"),),
        "Orders of a customer who is not known leave no row; those of c-4 are missing.",
        "default",
    ),
    FirstApp(
        "top",
        "TopItems",
        "The largest few of each minute",
        {"Sales": {"item": _ITEMS, "amount": _between(5, 500)}},
        (("1 min", "10 sec"), ("limit 3", "limit 1")),
        "Every ten seconds the first one, and not every minute the first three.",
        "default",
    ),
)


def first_app(app: str) -> FirstApp | None:
    """The app of the cookbook with a name; None for another one."""
    return next((one for one in FIRST_APPS if one.app == app), None)


def text_of(one: FirstApp) -> str:
    """Its text; MESH-U151 where the examples are not installed."""
    return shipped.path_of(one.path).read_text("utf-8")
