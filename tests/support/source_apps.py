"""Apps with a source and a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

APP = """@App:name('Doors')
{}
define stream S (k string, n int);
{}
define stream T (k string, n int);
from S select k, n insert into T;
"""


def file_app(directory: Path, source: str = "", sink: str = "") -> str:
    one = f"@source(type='file', file.uri='{directory}/in.csv', "
    one += f"file.polling.interval='10'{source}, @map(type='csv'))"
    other = f"@sink(type='file', file.uri='{directory}/out.csv'{sink}, @map(type='csv'))"
    return APP.format(one, other)
