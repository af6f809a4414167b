"""``mesh lsp`` as a process, spoken with by the client of pygls: a recorded session."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from lsprotocol import converters
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcContentModified, JsonRpcInvalidParams
from pygls.lsp.client import LanguageClient

from mesh.cli.language_server import make_server
from mesh.language_service.outline import lenses
from tests.support import paths
from tests.support.load import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path


RECORDED = paths.CASES / "language_service" / "session.json"
URI = "file:///apps/Shop.siddhi"
#: The emoji are two units of UTF-16 each, and one character.
TEXT = """define stream Orders (item string, price double, qty int);
@info(name='dear') @dist(execGroup='dear', parallel='2')
from Orders[item == '🍏🍐' and price > 10.0] select item, price * qty as total insert into Dear;
from Dear select totl insert into Out;
"""
_TYPED = "\nfrom Dear[to"


class _Session:
    """A client with one open document, and what the server answered."""

    def __init__(self, client: LanguageClient) -> None:
        self.client = client
        self.diagnostics: asyncio.Queue[Any] = asyncio.Queue()
        self.recorded: list[dict[str, Any]] = []
        self._converter = converters.get_converter()

        def published(given: lsp.PublishDiagnosticsParams) -> None:
            self.diagnostics.put_nowait(given)

        client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(published)

    def record(self, what: str, answer: Any) -> Any:
        self.recorded.append({"asked": what, "answer": self._converter.unstructure(answer)})
        return answer

    async def next_errors(self) -> Any:
        return await asyncio.wait_for(self.diagnostics.get(), 60)

    async def errors(self, what: str) -> None:
        self.record(what, await self.next_errors())

    def at(self, part: str, text: str = TEXT) -> dict[str, Any]:
        """The document, and the position after ``part`` in units of UTF-16."""
        before = text[: text.index(part) + len(part)]
        line = before.count("\n")
        column = len(before.rpartition("\n")[2].encode("utf-16-le")) // 2
        document = lsp.TextDocumentIdentifier(URI)
        return {"text_document": document, "position": lsp.Position(line, column)}


async def _play(session: _Session) -> None:
    client, at = session.client, session.at
    document = lsp.TextDocumentIdentifier(URI)
    item = lsp.TextDocumentItem(URI, "siddhiql", 1, TEXT)
    client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
    await session.errors("errors after opening")

    ask: list[tuple[str, Callable[[Any], Awaitable[Any]], Any]] = [
        ("hover of an attribute", client.text_document_hover_async,
         lsp.HoverParams(**at("' and pri"))),
        ("hover of an operator", client.text_document_hover_async,
         lsp.HoverParams(**at("price *"))),
        ("definition of a stream", client.text_document_definition_async,
         lsp.DefinitionParams(**at("from Dear"))),
        ("references of an attribute", client.text_document_references_async,
         lsp.ReferenceParams(lsp.ReferenceContext(include_declaration=True), **at("Orders (it"))),
        ("place of a rename", client.text_document_prepare_rename_async,
         lsp.PrepareRenameParams(**at("define stream Or"))),
        ("rename", client.text_document_rename_async,
         lsp.RenameParams(new_name="Sales", **at("define stream Or"))),
        ("symbols", client.text_document_document_symbol_async, lsp.DocumentSymbolParams(document)),
        ("types", client.text_document_inlay_hint_async,
         lsp.InlayHintParams(document, lsp.Range(lsp.Position(0, 0), lsp.Position(9, 0)))),
        ("fixes", client.text_document_code_action_async,
         lsp.CodeActionParams(document, lsp.Range(lsp.Position(3, 0), lsp.Position(3, 9)),
                              lsp.CodeActionContext([]))),
        ("formatting", client.text_document_formatting_async,
         lsp.DocumentFormattingParams(document, lsp.FormattingOptions(4, True))),
    ]  # fmt: skip
    for what, call, given in ask:
        session.record(what, await call(given))

    # The fix is made, as an editor would.
    wrong = TEXT.index("totl")
    line, column = TEXT[:wrong].count("\n"), len(TEXT[:wrong].rpartition("\n")[2])
    fixed = lsp.TextDocumentContentChangePartial(
        lsp.Range(lsp.Position(line, column), lsp.Position(line, column + 4)), "total"
    )
    _change(client, 2, fixed)
    await session.errors("errors after the fix")
    lenses = await client.text_document_code_lens_async(lsp.CodeLensParams(document))
    session.record("lenses", lenses)

    end = lsp.Position(TEXT.count("\n"), 0)
    _change(client, 3, lsp.TextDocumentContentChangePartial(lsp.Range(end, end), _TYPED))
    text = TEXT.replace("totl", "total") + _TYPED
    found = await client.text_document_completion_async(lsp.CompletionParams(**at(_TYPED, text)))
    assert isinstance(found, lsp.CompletionList)
    fitting = [one for one in found.items if one.label.startswith("to")]
    session.record("completion while typing", fitting)
    await session.errors("errors while typing")

    client.text_document_did_close(lsp.DidCloseTextDocumentParams(document))
    await session.errors("errors after closing")


def _change(client: LanguageClient, version: int, change: Any) -> None:
    identifier = lsp.VersionedTextDocumentIdentifier(version, URI)
    client.text_document_did_change(lsp.DidChangeTextDocumentParams(identifier, [change]))


@asynccontextmanager
async def _started(directory: Path) -> AsyncIterator[_Session]:
    """A server without the context of a cluster, and its client."""
    client = LanguageClient("tests", "1")
    session = _Session(client)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MESH_")}
    environment["XDG_CONFIG_HOME"] = str(directory)
    await client.start_io(sys.executable, "-m", "mesh.cli", "lsp", env=environment)
    try:
        started = await client.initialize_async(
            lsp.InitializeParams(capabilities=lsp.ClientCapabilities(), process_id=None)
        )
        session.record("capabilities", started.capabilities)
        client.initialized(lsp.InitializedParams())
        yield session
    finally:
        await client.shutdown_async(None)
        client.exit(None)
        await client.stop()  # type: ignore[no-untyped-call]  # of pygls


async def test_an_answer_about_a_version_that_was_typed_over_is_given_up() -> None:
    server = make_server({}, list, lambda *_: {})
    try:
        # Another text is analysed meanwhile.
        async with server.turn:
            server.put(URI, TEXT, 1)
            first = asyncio.create_task(server.analysed(URI))
            await asyncio.sleep(0)
            server.put(URI, TEXT.replace("totl", "total"), 2)
            second = asyncio.create_task(server.analysed(URI))
            await asyncio.sleep(0)
        with pytest.raises(JsonRpcContentModified):
            await first
        document = await second
        assert not document.problems
        assert server.present(URI).analysed is document
    finally:
        pause = server.present(URI).pause
        assert pause is not None
        pause.cancel()
        server.analyst.shutdown()


@pytest.mark.slow
async def test_lines_end_where_those_of_the_protocol_end(tmp_path: Path) -> None:
    document = lsp.TextDocumentIdentifier(URI)
    text = "define stream S (a int);\r-- \u2028 \x0c \x85 \x1e\r\nfrom S select b insert into T;\n"
    async with _started(tmp_path) as session:
        client = session.client
        item = lsp.TextDocumentItem(URI, "siddhiql", 1, text)
        client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        place = lsp.Range(lsp.Position(2, 14), lsp.Position(2, 15))
        (found,) = (await session.next_errors()).diagnostics
        assert found.range == place
        _change(client, 2, lsp.TextDocumentContentChangePartial(place, "a"))
        assert not (await session.next_errors()).diagnostics
        at = lsp.HoverParams(document, lsp.Position(2, 14))
        shown = await client.text_document_hover_async(at)
        assert shown is not None
        assert shown.range == place


@pytest.mark.slow
async def test_a_document_that_is_not_open_has_no_answer(tmp_path: Path) -> None:
    async with _started(tmp_path) as session:
        with pytest.raises(JsonRpcInvalidParams, match=f"{URI} is not open"):
            await session.client.text_document_hover_async(
                lsp.HoverParams(lsp.TextDocumentIdentifier(URI), lsp.Position(0, 0))
            )


@pytest.mark.slow
async def test_a_client_has_every_feature(tmp_path: Path, rewrite: bool) -> None:
    async with _started(tmp_path) as session:
        await _play(session)
    recorded = json.dumps(session.recorded, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    if rewrite:
        RECORDED.write_text(recorded, encoding="utf-8")
    assert recorded == RECORDED.read_text(encoding="utf-8")


@pytest.mark.slow
async def test_an_empty_last_line_is_a_line(tmp_path: Path) -> None:
    document = lsp.TextDocumentIdentifier(URI)
    text = "define stream S (a int);\n"
    async with _started(tmp_path) as session:
        client = session.client
        item = lsp.TextDocumentItem(URI, "siddhiql", 1, text)
        client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        await session.next_errors()
        end = lsp.Position(1, 0)
        found = await client.text_document_completion_async(lsp.CompletionParams(document, end))
        assert isinstance(found, lsp.CompletionList)
        assert found.items
        for one in found.items:
            assert isinstance(one.text_edit, lsp.TextEdit)
            assert one.text_edit.range == lsp.Range(end, end)
        # Words that are typed there are in the text, also in one that had nothing.
        _change(client, 2, lsp.TextDocumentContentChangePartial(lsp.Range(end, end), "from S"))
        assert (await session.next_errors()).diagnostics
        _change(client, 3, lsp.TextDocumentContentChangeWholeDocument(""))
        await session.next_errors()
        start = lsp.Position(0, 0)
        _change(
            client,
            4,
            lsp.TextDocumentContentChangePartial(
                lsp.Range(start, start), text + text.replace("int", "long")
            ),
        )
        # The error has the place of the first definition.
        (error,) = (await session.next_errors()).diagnostics
        assert error.related_information is not None
        (first,) = error.related_information
        assert first.location.range.start == lsp.Position(0, 14)
        assert first.message == "First it is defined in line 1."


async def test_a_lens_has_the_rate_of_an_app_that_runs() -> None:
    asked: list[tuple[str, tuple[str, ...]]] = []

    def rates(app: str, groups: Sequence[str]) -> dict[str, float]:
        asked.append((app, tuple(groups)))
        return {"dear": 1250.0}

    server = make_server({}, list, rates)
    server.protocol.client_capabilities = lsp.ClientCapabilities()
    try:
        server.put(URI, TEXT.replace("totl", "total"), 1)
        document = await server.analysed(URI)
        assert server.rates(URI, document) == {}

        async def is_known() -> bool:
            return bool(server.rates(URI, document))

        await until(is_known)
        first, second = lenses(document, server.rates(URI, document))
        assert first.text.endswith(" | no state | 1,250.0 events/s in")
        assert second.text.endswith(" | no state")
        assert asked == [("Shop", ("dear", "default"))]
    finally:
        pause, task = server.present(URI).pause, server._rates[URI].task
        assert pause is not None
        assert task is not None
        pause.cancel()
        server._end_rates(URI)
        await asyncio.wait([task])
        assert task.cancelled()
        server.analyst.shutdown()
