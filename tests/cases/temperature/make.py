"""Record the reference engine's output of the demo's app for the year of weather.

    python tests/cases/temperature/make.py PATH/TO/run_oracle.py

``run_oracle.py`` runs cases through Siddhi 5.1.7; see its own README. It runs the year twice: with
the event times as its clock (playback), and live under a simulated clock.  Both must give the same
rows in the same order.  They differ in the times of expired events: in playback that of the next
event, live that of the expiry.  The live ones are kept.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from mesh.model.types import Attribute, AttributeType, StreamSchema
from mesh.testing import weather
from tools import expectations

HERE = Path(__file__).resolve().parent
APP = HERE.parents[2] / "examples" / "temperature.siddhi"


def main(oracle: Path) -> None:
    """Write the Parquet files and ``made.json`` beside this file."""
    year = weather.load()
    rows = list(zip(year.time_ms.tolist(), weather_rows(year), strict=True))
    playback, live = [], []
    for time_ms, row in rows:
        event = {"stream": weather.STREAM.name, "data": row, "ts": time_ms}
        playback.append(event)
        live += [{"advance_to": time_ms}, event]
    common = {"app": APP.read_text(), "outputs": list(expectations.STREAMS), "queries": []}
    cases = [
        {"name": "playback", "mode": "playback", "inputs": playback, **common},
        {"name": "live", "mode": "virtual", "start_ts": rows[0][0], "inputs": live, **common},
    ]
    answers = ask(oracle, cases)
    made: dict[str, Any] = {
        "source": "Siddhi 5.1.7, playback and live under a simulated clock",
        "input_rows": len(rows),
        "streams": {},
    }
    for stream in expectations.STREAMS:
        table = as_table(answers["live"], stream, rows[0][0])
        other = as_table(answers["playback"], stream, rows[0][0])
        assert table.drop_columns([expectations.TIME]) == other.drop_columns([expectations.TIME])
        expectations.save(HERE, stream, table)
        values = table.drop_columns([expectations.TIME]).to_pylist()
        made["streams"][stream] = {"rows": len(values), "sha256": expectations.digest(values)}
    (HERE / "made.json").write_text(json.dumps(made, indent=2) + "\n")


def weather_rows(year: weather.Weather) -> list[list[Any]]:
    """The values of each event."""
    return [list(row.values()) for row in year.rows.to_pylist()]


def ask(oracle: Path, cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Run cases through the reference engine; the answers by name."""
    with tempfile.TemporaryDirectory() as directory:
        asked, answered = Path(directory) / "cases.jsonl", Path(directory) / "answers.jsonl"
        asked.write_text("".join(json.dumps(case) + "\n" for case in cases))
        command = [sys.executable, str(oracle), str(asked), str(answered), "--timeout-ms", "600000"]
        subprocess.run(command, check=True)
        answers = [json.loads(text) for text in answered.read_text().splitlines()]
    for answer in answers:
        assert answer["status"] == "ok", answer.get("errors") or answer["status"]
    return {answer["name"]: answer for answer in answers}


def as_table(answer: dict[str, Any], stream: str, base_ms: int) -> pa.Table:
    """One stream's events, with times counted from ``base_ms``."""
    attributes = [Attribute(name, AttributeType(kind)) for name, kind in answer["schemas"][stream]]
    time = Attribute(expectations.TIME, AttributeType.LONG)
    schema = StreamSchema("", (time, *attributes)).arrow
    events = [[event["ts"] - base_ms, *event["data"]] for event in answer["streams"][stream]]
    columns = zip(*events, strict=True)
    arrays = [
        pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
