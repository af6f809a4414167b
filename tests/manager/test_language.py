"""Answers for the editor of the pages: the same as of the language service, within bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

from mesh.errors import MeshError
from mesh.language.layout import canonical
from mesh.language_service.completion import complete
from mesh.language_service.document import Document
from mesh.language_service.hover import hover
from mesh.language_service.outline import lenses
from mesh.manager.language import TEXT_LENGTH_MAX, LanguageDesk, Question, answer_of
from tests.support.dashboard import site
from tests.support.forms import send
from tests.support.load import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from mesh.jetstream.server import NatsServer

TEXT = "define stream S (a int, b string);\nfrom S select a, bb insert into T;\nfrom S[a"
QUERY = "from Sold select item insert into Kept;"
_TO = "/deploy/language"


@pytest.mark.slow
@pytest.mark.nats
async def test_an_editor_gets_the_answers_of_the_service(nats_server: NatsServer) -> None:
    document = Document(TEXT, "Shop")
    async with (
        site(nats_server) as at,
        httpx.AsyncClient(base_url=at.url, timeout=60) as client,
    ):

        async def ask(
            asked: str, line: int = 1, column: int = 1, text: str = TEXT, to: str = ""
        ) -> Any:
            values = {"asked": asked, "text": text, "line": line, "column": column, "app": "Shop"}
            values["new_name"] = to
            return await send(client, "/deploy", _TO, **values)

        errors = (await ask("errors")).json()
        assert [one["code"] for one in errors] == [one.code for one in document.problems]
        assert errors[0]["position"] == {"line": 2, "column": 18, "length": 2}
        (fix,) = errors[0]["fixes"]
        assert fix["title"] == "Replace with b"
        assert fix["edits"] == [{"line": 2, "column": 18, "length": 2, "text": "b"}]
        found = (await ask("completion", 3, 9)).json()
        wanted = complete(document, 3, 9)
        assert [one["label"] for one in found["proposals"]] == [p.label for p in wanted.proposals]
        shown = (await ask("hover", 1, 18)).json()
        there = hover(document, 1, 18)
        assert there is not None
        assert (shown["code"], shown["doc"]) == (there.code, there.doc)
        assert (await ask("hover", 1, 1)).json() is None
        await _whole_texts(ask)
        await at.service.deploy("@App:name('Other') define stream Sold (item string); " + QUERY)

        async def proposes_streams() -> bool:
            # What the pages know may be a second old.
            streams = (await ask("completion", 1, 15, "define stream ")).json()["proposals"]
            inserts = [one["insert"] for one in streams]
            return inserts == ["Sold (item string)", "Kept (item string)"]

        await until(proposes_streams)
        source = "@source(type='nats', stream='"
        shown = (await ask("completion", 1, len(source) + 1, source)).json()["proposals"]
        assert [one["label"] for one in shown] == ["mesh-Other-Sold", "mesh-Other-Kept"]
        assert (await ask("passwords")).status_code == 400
        assert (await ask("errors", text="x" * (TEXT_LENGTH_MAX + 1))).status_code == 413
        without = await client.post(_TO, data={"asked": "errors", "text": TEXT})
        assert without.status_code == 403


async def _whole_texts(ask: Callable[..., Any]) -> None:
    """Formatting, definitions, names and notes are those of ``mesh lsp``."""
    correct = TEXT.replace("bb", "b").partition("\nfrom S[a")[0]
    formatted = (await ask("format", text=correct)).json()["text"]
    assert formatted == canonical(correct)
    assert (await ask("format")).json() is None
    place = {"line": 1, "column": 25, "length": 1}
    assert (await ask("definition", 2, 18, correct)).json() == place
    assert (await ask("definition", 2, 1, correct)).json() is None
    assert (await ask("name", 1, 25, correct)).json() == {"name": "b", "position": place}
    assert (await ask("name", 2, 1, correct)).json() is None
    edits = (await ask("rename", 1, 25, correct, "c")).json()
    assert [(one["line"], one["text"]) for one in edits] == [(1, "c"), (2, "c as b")]
    refused = await ask("rename", 1, 25, correct, "a")
    assert refused.status_code == 400
    assert refused.json()["code"] == "MESH-U184"
    notes = (await ask("notes", text=correct)).json()
    assert [(one["line"], one["text"]) for one in notes["types"]] == [(2, ": int"), (2, ": string")]
    assert [one["text"] for one in notes["lenses"]] == [
        one.text for one in lenses(Document(correct))
    ]


async def test_a_text_that_takes_too_long_is_refused_and_others_have_answers() -> None:
    class Slow:
        """The process, as far as the desk knows it, with a limit that is always exceeded."""

        def call(self, limit_s: float, function: Callable[..., Any] | str, *given: Any) -> Any:
            assert function is answer_of
            assert limit_s <= 5
            raise MeshError("MESH-A413", "the text can't be analysed within its limits")

        def stop(self) -> None: ...

    desk = LanguageDesk(process=Slow())
    question = Question("errors", TEXT, "A")
    with pytest.raises(MeshError) as refused:
        await desk.answer(question)
    assert refused.value.code == "MESH-A413"
    # Its own process is bounded, and answers.
    assert len(await LanguageDesk().answer(question)) == 2
