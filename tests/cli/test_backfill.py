"""``mesh backfill`` against a manager, without workers."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from typer.testing import CliRunner

from mesh.cli import backfill
from mesh.cli.backfill import inputs_of
from mesh.cli.commands import app
from mesh.errors import MeshError
from mesh.jetstream.connection import close, connect
from mesh.model.history import HistoryInput
from mesh.settings import NatsSettings
from tests.support.history import CHAIN, events, parquet
from tests.support.manager_api import manager_api

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]


@pytest.mark.slow
def test_an_app_is_deployed_after_its_history(nats_server: NatsServer, alone: Path) -> None:
    (alone / "late.siddhi").write_text(CHAIN.format(name="Late", source=""))
    parquet(alone / "history" / "old", events(20))

    with manager_api(nats_server, alone) as url:

        def mesh(*arguments: str, fails: bool = False) -> str:
            known = {"MESH_SERVER": url, "MESH_USER": "ada", "MESH_PASSWORD": "pw"}
            result = CliRunner().invoke(app, [*arguments], env={**known, "COLUMNS": "200"})
            assert (result.exit_code != 0) == fails, result.output
            return result.stdout if not fails else result.output + result.stderr

        asked = ("backfill", "late.siddhi", "Readings", "--timeout", "0", "--time")
        assert "MESH-C160" in mesh(
            "backfill", "late.siddhi", "Totals", "old", "--time", "at", fails=True
        )
        done = orjson.loads(mesh(*asked, "at", "old", "--output", "json"))
        assert (done["app"], done["rows"], done["later"]) == ("Late", 20, 0)
        assert done["groups"] == ["clean", "recent", "last"]
        assert done["cuts"] == {"mesh-Late-Readings": 0}
        assert "Late" in mesh("apps")
        assert "MESH-A409" in mesh(*asked, "at", "old", fails=True)
        # The same by the options of deploy.
        again = ("deploy", "late.siddhi", "--timeout", "0", "--time", "at", "--backfill")
        assert "MESH-A409" in mesh(*again, "Readings=old", fails=True)
        (alone / "later.siddhi").write_text(CHAIN.format(name="Later", source=""))
        said = mesh("deploy", "later.siddhi", *again[2:], "Readings=old")
        assert "has seen 20 rows of Readings" in said
        assert "mesh-Later-Readings is read on after 0" in said
        # And from a stream, with its messages' times.
        asyncio.run(published(nats_server, events(20)))
        (alone / "last.siddhi").write_text(CHAIN.format(name="Last", source=""))
        said = mesh(
            "deploy", "last.siddhi", "--timeout", "0", "--backfill", "Readings=nats:OLD#old.good"
        )
        assert "has seen 20 rows of Readings" in said
        assert "1 events could not be read" in said


async def published(server: NatsServer, rows: list[dict[str, Any]]) -> None:
    """An old stream with events, one message that can't be read, and one of another subject."""
    client = await connect(NatsSettings(url=server.url), "test")
    js = client.jetstream()
    await js.add_stream(name="OLD", subjects=["old.*"])
    for row in rows:
        await js.publish("old.good", orjson.dumps({k: row[k] for k in ("device", "watt")}))
    await js.publish("old.good", b"none")
    await js.publish("old.other", b"none")
    await close(client)


#: The past is in the text.
NAMED = "@source(type='history', path='old', time='at')\n"


@pytest.mark.thorough
def test_a_text_names_its_past_which_a_new_app_reads_and_an_edit_does_not(
    nats_server: NatsServer, alone: Path
) -> None:
    text = CHAIN.format(name="Late", source=NAMED)
    (alone / "late.siddhi").write_text(text)
    (alone / "next.siddhi").write_text(
        text.replace("watt >= 0.0", "watt >= 1.0").replace("'old'", "'gone'")
    )
    (alone / "lost.siddhi").write_text(text.replace("'Late'", "'Lost'").replace("old", "gone"))
    parquet(alone / "history" / "old", events(20))
    with manager_api(nats_server, alone) as url:

        def deployed(*arguments: str, fails: bool = False) -> str:
            known = {"MESH_SERVER": url, "MESH_USER": "ada", "MESH_PASSWORD": "pw"}
            given = ["deploy", *arguments, "--timeout", "0"]
            result = CliRunner().invoke(app, given, env={**known, "COLUMNS": "200"})
            assert (result.exit_code != 0) == fails, result.output
            return result.stdout if not fails else result.output + result.stderr

        assert "MESH-C161" in deployed("lost.siddhi", fails=True)
        assert "two histories" in deployed(
            "late.siddhi", "--backfill", "Readings=old", "--time", "at", fails=True
        )
        assert "not at sequence 3" in deployed("late.siddhi", "--from", "3", fails=True)
        assert 'app "Late" has seen 20 rows of Readings' in deployed("late.siddhi")
        assert "the same text" in deployed("late.siddhi")
        assert "group clean is restarted" in deployed("next.siddhi")
        # A wrong history is refused before the app is removed.
        (alone / "next.siddhi").write_text(text.replace("'old'", "'gone'"))
        assert "MESH-C161" in deployed("next.siddhi", "--replace", fails=True)
        done = orjson.loads(deployed("late.siddhi", "--replace", "--output", "json"))
        assert (done["replaced"], done["past"]["rows"]) == (True, 20)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("backfill", "a.siddhi", "S"), "each stream has a path"),
        (("backfill", "a.siddhi", "S", "old"), "stream S has none"),
        (("backfill", "a.siddhi", "S", "old", "--time", "T=at"), 'stream "T" has no past'),
        (
            ("backfill", "a.siddhi", "S", "x", "T", "y", "--time", "at", "--until", "7"),
            "STREAM=SEQ",
        ),
        (("deploy", "a.siddhi", "--backfill", "old", "--time", "at"), "STREAM=PATH"),
        (("deploy", "a.siddhi", "--backfill", "S=x", "--time", "at", "--replace"), "one new app"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(arguments: tuple[str, ...], why: str) -> None:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert why in result.output


def test_several_streams_have_columns_and_ends_of_their_own() -> None:
    found = inputs_of([("S", "x"), ("T", "y#t")], ["at", "T=paid_at"], ["S=7"])
    assert found == [HistoryInput("S", "x", "at", "7"), HistoryInput("T", "y#t", "paid_at")]
    # Messages have times of their own.
    found = inputs_of([("S", "x"), ("T", "nats:OLD")], ["S=at"], [])
    assert found == [HistoryInput("S", "x", "at"), HistoryInput("T", "nats:OLD", "")]


class _Ending:
    """A cluster whose manager ends twice in the middle of a history."""

    begun = 0

    def __init__(self, _at: object) -> None:
        return

    def __enter__(self) -> _Ending:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def backfill(self, _text: str, **which: list[str]) -> dict[str, object]:
        assert which["until"] == [""]
        type(self).begun += 1
        # The state is asked for until this call has an answer.
        _SHOWN.clear()
        assert _SHOWN.wait(30)
        if self.begun <= 2:
            raise MeshError("MESH-U112", "manager can't be reached")
        return {"app": "Late", "rows": 20}

    def status(self, _name: str) -> dict[str, object]:
        _SHOWN.set()
        return {"reason": "its history is run: Readings, 7 rows"}

    def is_up(self) -> bool:
        return True


_SHOWN = threading.Event()


def test_a_history_whose_manager_ends_starts_again_with_the_next_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(backfill, "CommandClient", _Ending)
    monkeypatch.setattr(backfill, "_TELL_S", 0.01)
    client: Any = _Ending(None)
    text = CHAIN.format(name="Late", source="")
    done = backfill.backfill_and_wait(
        client, client, text, [HistoryInput("Readings", "x", "at")], 0
    )
    assert (done["rows"], _Ending.begun) == (20, 3)
    assert capsys.readouterr().err.count("its manager has ended") == 2


def test_a_manager_that_was_never_there_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Away(_Ending):
        def backfill(self, _text: str, **which: list[str]) -> dict[str, object]:
            raise MeshError("MESH-U112", "manager can't be reached")

    monkeypatch.setattr(backfill, "CommandClient", Away)
    client: Any = Away(None)
    text = CHAIN.format(name="Late", source="")
    with pytest.raises(MeshError, match="can't be reached"):
        backfill.backfill_and_wait(client, client, text, [HistoryInput("Readings", "x", "at")], 0)
