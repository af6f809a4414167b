"""Templates to HTML: whole pages, and the parts of a page that change while it is open.

A part is a block whose name begins with ``live_``, inside an element with the same id.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import mesh
from mesh.dashboard import shown
from mesh.dashboard.shown import WORDS, badge_kind
from mesh.errors import text_lines
from mesh.model.names import app_of_token
from mesh.model.values import JsonMapping

if TYPE_CHECKING:
    pass

HERE: Final = Path(__file__).parent
LIVE: Final = "live_"


@dataclass(frozen=True, slots=True)
class PageView:
    """The content of a page: its template and the values for it."""

    template: str
    values: JsonMapping = field(default_factory=dict)
    #: HTTP status.
    status: int = 200


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": shown.number,
        "rate": shown.rate,
        "size": shown.size,
        "duration": shown.duration,
        "clock": partial(shown.time_element, has_date=False),
        "moment": partial(shown.time_element, has_date=True),
        "payload": shown.payload,
        "lines": text_lines,
        "badge": badge_kind,
        "own_name": app_of_token,
    }
    environment.globals |= {"version": mesh.__version__, "words": WORDS}
    environment.globals["ui"] = environment.get_template("macros.html").module
    return environment


_ENVIRONMENT: Final = _environment()


def page_of(view: PageView, common: JsonMapping) -> str:
    """A whole page; ``common`` are the values of the frame around it."""
    template = _ENVIRONMENT.get_template(view.template)
    # The address of a page that answers a form shows something else: it is not kept up to date.
    is_live = common["is_get"] and any(name.startswith(LIVE) for name in template.blocks)
    return template.render({**common, **view.values, "is_live": is_live})


def parts_of(view: PageView, common: JsonMapping) -> dict[str, str]:
    """The parts that change, by id."""
    template = _ENVIRONMENT.get_template(view.template)
    context = template.new_context({**common, **view.values})
    return {
        name: "".join(render(context))
        for name, render in template.blocks.items()
        if name.startswith(LIVE)
    }
