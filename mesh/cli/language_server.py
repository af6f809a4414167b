"""The language server: LSP's messages around ``mesh.language_service``.

A version of a document is analysed once, by one thread, after a pause of typing or when a request
needs it.  Completion doesn't wait: it takes the names of the last analysed version.
"""

from __future__ import annotations

import asyncio
import gc
import io
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcContentModified, JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument

import mesh
from mesh.client.checking import typed
from mesh.errors import MeshError, Position
from mesh.language.substitution import substitute, variables_for
from mesh.language_service.completion import complete
from mesh.language_service.document import NOT_RUN_YET, Document
from mesh.language_service.hover import hover
from mesh.language_service.navigation import definition, fixes, references, renamable, rename
from mesh.language_service.outline import PartKind, inferred_types, lenses, outline
from mesh.language_service.proposals import ProposalKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mesh.language_service.outline import OutlinePart
    from mesh.language_service.proposals import ClusterStream


#: Pause of typing after which errors are shown.
PAUSE_S: Final = 0.15
#: Age after which the streams of the cluster are read again.
_STREAMS_S: Final = 30.0
#: Time between two looks at the rates of an app whose text is open.
RATES_S: Final = 10.0

COMPLETION_KINDS: Final[Mapping[ProposalKind, lsp.CompletionItemKind]] = {
    ProposalKind.KEYWORD: lsp.CompletionItemKind.Keyword,
    ProposalKind.STREAM: lsp.CompletionItemKind.Struct,
    ProposalKind.ATTRIBUTE: lsp.CompletionItemKind.Field,
    ProposalKind.FUNCTION: lsp.CompletionItemKind.Function,
    ProposalKind.WINDOW: lsp.CompletionItemKind.Function,
    ProposalKind.ANNOTATION: lsp.CompletionItemKind.Module,
    ProposalKind.OPTION: lsp.CompletionItemKind.Property,
    ProposalKind.VALUE: lsp.CompletionItemKind.Value,
    ProposalKind.TYPE: lsp.CompletionItemKind.TypeParameter,
}
SYMBOL_KINDS: Final[Mapping[PartKind, lsp.SymbolKind]] = {
    PartKind.STREAM: lsp.SymbolKind.Struct,
    PartKind.TABLE: lsp.SymbolKind.Array,
    PartKind.WINDOW: lsp.SymbolKind.Array,
    PartKind.TRIGGER: lsp.SymbolKind.Event,
    PartKind.FUNCTION: lsp.SymbolKind.Function,
    PartKind.AGGREGATION: lsp.SymbolKind.Class,
    PartKind.QUERY: lsp.SymbolKind.Method,
    PartKind.PARTITION: lsp.SymbolKind.Namespace,
    PartKind.ATTRIBUTE: lsp.SymbolKind.Field,
}


class _Text(TextDocument):
    """A text with the lines of LSP: those of pygls also end at U+2028, form feeds and others."""

    _cut: tuple[str, tuple[str, ...]] = "", ()

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines, with their ends; cut once a version.

        The last one has no end, and may be empty: pygls would take a place in it for one in the
        line before.
        """
        if self._cut[0] is not self.source:
            lines = tuple(io.StringIO(self.source, newline=""))
            is_ended = not lines or lines[-1].endswith(("\r", "\n"))
            self._cut = self.source, (*lines, "") if is_ended else lines
        return self._cut[1]


@dataclass(slots=True, eq=False)
class _Opened:
    """A document of the editor in its present version."""

    document: Document
    version: int
    #: The last version that was analysed.
    analysed: Document | None = None
    #: Of the present version, once it is needed.
    analysis: asyncio.Task[Document] | None = None
    pause: asyncio.Task[None] | None = None


@dataclass(slots=True, eq=False)
class _Rates:
    """The rates of the groups of a document's app, read while it is open."""

    app: str
    groups: tuple[str, ...]
    task: asyncio.Task[None] | None = None
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Cluster:
    """The streams of the cluster, read in the background."""

    read: Callable[[], list[ClusterStream]]
    streams: list[ClusterStream] = field(default_factory=list)
    task: asyncio.Task[None] | None = None
    read_at_s: float = float("-inf")


class MeshServer(LanguageServer):
    """The server of one editor."""

    def __init__(
        self,
        variables: Mapping[str, str],
        streams: Callable[[], list[ClusterStream]],
        rates: Callable[[str, Sequence[str]], Mapping[str, float]],
    ) -> None:
        super().__init__("mesh", mesh.__version__)
        self._read_rates = rates
        self._rates: dict[str, _Rates] = {}
        self._variables = variables
        self._cluster = _Cluster(streams)
        self._opened: dict[str, _Opened] = {}
        self.analyst = ThreadPoolExecutor(1, "analysis")
        self.turn = asyncio.Lock()

    # Documents

    def put(self, uri: str, text: str, version: int) -> None:
        """Take a new version of a document, and show its errors after a pause."""
        before = self._opened.get(uri)
        document = Document(text, PurePosixPath(unquote(urlsplit(uri).path)).stem, self._fill)
        opened = _Opened(document, version, before.analysed if before is not None else None)
        self._opened[uri] = opened
        if before is not None and before.pause is not None:
            before.pause.cancel()
        opened.pause = asyncio.create_task(self._show_errors(uri, opened))

    def forget(self, uri: str) -> None:
        """Forget a document that was closed, with its errors."""
        opened = self._opened.pop(uri, None)
        self._end_rates(uri)
        if opened is not None and opened.pause is not None:
            opened.pause.cancel()
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, []))

    def present(self, uri: str) -> _Opened:
        """The present version of a document.

        Raises:
            JsonRpcInvalidParams: it is not open.
        """
        opened = self._opened.get(uri)
        if opened is None:
            raise JsonRpcInvalidParams(f"{uri} is not open")
        return opened

    async def analysed(self, uri: str) -> Document:
        """The present version of a document, after its analysis."""
        return await self._analysed(self.present(uri))

    async def _analysed(self, opened: _Opened) -> Document:
        if opened.analysis is None:
            opened.analysis = asyncio.create_task(self._analyse(opened))
            # An answer may have been given up by then.
            opened.analysis.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(opened.analysis)

    async def _analyse(self, opened: _Opened) -> Document:
        document = opened.document
        async with self.turn:
            # Versions that were typed over meanwhile would only delay the last one.
            if opened not in self._opened.values():
                raise JsonRpcContentModified
            await asyncio.get_running_loop().run_in_executor(self.analyst, document.analyse)
        opened.analysed = document
        return document

    async def _show_errors(self, uri: str, opened: _Opened) -> None:
        await asyncio.sleep(PAUSE_S)
        document = await self._analysed(opened)
        diagnostics = diagnostics_of(uri, document, lambda position: self.range(uri, position))
        self.text_document_publish_diagnostics(
            lsp.PublishDiagnosticsParams(uri, diagnostics, version=opened.version)
        )

    def _fill(self, text: str) -> str:
        return typed(substitute(text, variables_for(text, self._variables)))

    # Places: LSP counts from 0, in units of UTF-16 unless the editor agrees to others

    def place(self, uri: str, position: lsp.Position) -> tuple[int, int]:
        """Line and column of a position."""
        text = self.workspace.get_text_document(uri)
        location = text.position_codec.position_from_client_units(text.lines, position)
        return location.line + 1, location.character + 1

    def range(self, uri: str, position: Position) -> lsp.Range:
        """The range of a position of a document."""
        start = lsp.Position(position.line - 1, position.column - 1)
        end = lsp.Position(position.line - 1, position.column - 1 + position.length)
        text = self.workspace.get_text_document(uri)
        return text.position_codec.range_to_client_units(text.lines, lsp.Range(start, end))

    # The cluster

    def streams(self) -> Sequence[ClusterStream]:
        """The streams that were read last; they are read again if that was long ago."""
        cluster = self._cluster
        now_s = asyncio.get_running_loop().time()
        if cluster.task is None and now_s - cluster.read_at_s > _STREAMS_S:
            cluster.task = asyncio.create_task(self._read_streams())
        return cluster.streams

    async def _read_streams(self) -> None:
        cluster = self._cluster
        cluster.streams = await asyncio.to_thread(cluster.read)
        cluster.read_at_s = asyncio.get_running_loop().time()
        cluster.task = None

    def rates(self, uri: str, document: Document) -> Mapping[str, float]:
        """The rates of a document's groups that were read last; they are read while it is open."""
        app_plan = document.plan
        if app_plan is None:
            return {}
        groups = tuple(group.name for group in app_plan.spec.groups)
        followed = self._rates.get(uri)
        if followed is None or (followed.app, followed.groups) != (app_plan.spec.name, groups):
            self._end_rates(uri)
            followed = self._rates[uri] = _Rates(app_plan.spec.name, groups)
            followed.task = asyncio.create_task(self._follow_rates(followed))
        return followed.values

    async def _follow_rates(self, followed: _Rates) -> None:
        while True:
            values = await asyncio.to_thread(self._read_rates, followed.app, followed.groups)
            if values != followed.values:
                followed.values = values
                workspace = self.client_capabilities.workspace
                lens = workspace.code_lens if workspace is not None else None
                if lens is not None and lens.refresh_support:
                    await self.workspace_code_lens_refresh_async(None)
            await asyncio.sleep(RATES_S)

    def _end_rates(self, uri: str) -> None:
        followed = self._rates.pop(uri, None)
        if followed is not None and followed.task is not None:
            followed.task.cancel()


def collect_rarely() -> None:
    """Let Python look for cycles of objects less often: trees have none, and many objects.

    An analysis takes half the time then.
    """
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


def serve(
    variables: Mapping[str, str],
    streams: Callable[[], list[ClusterStream]],
    rates: Callable[[str, Sequence[str]], Mapping[str, float]],
) -> None:
    """Serve an editor over standard input and output, until it ends."""
    server = make_server(variables, streams, rates)
    collect_rarely()
    server.start_io()


def make_server(
    variables: Mapping[str, str],
    streams: Callable[[], list[ClusterStream]],
    rates: Callable[[str, Sequence[str]], Mapping[str, float]],
) -> MeshServer:
    """A server with all features."""
    server = MeshServer(variables, streams, rates)
    _add_documents(server)
    _add_completion(server)
    _add_changes(server)
    _add_names(server)
    _add_whole_text(server)
    return server


def _add_documents(server: MeshServer) -> None:
    @server.feature(lsp.INITIALIZE)
    def initialize(_: lsp.InitializeParams) -> None:
        # pygls makes the workspace itself, and its documents with the lines of Python.
        workspace = server.workspace
        factory = partial(_Text, position_codec=workspace.position_codec)
        workspace._create_text_document = factory  # type: ignore[method-assign]

    @server.feature(lsp.INITIALIZED)
    async def initialized(_: lsp.InitializedParams) -> None:
        server.streams()

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    async def did_open(params: lsp.DidOpenTextDocumentParams) -> None:
        document = params.text_document
        server.put(document.uri, document.text, document.version)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    async def did_change(params: lsp.DidChangeTextDocumentParams) -> None:
        uri = params.text_document.uri
        # pygls has applied the changes.
        text = server.workspace.get_text_document(uri).source
        server.put(uri, text, params.text_document.version)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    async def did_close(params: lsp.DidCloseTextDocumentParams) -> None:
        server.forget(params.text_document.uri)


def _add_completion(server: MeshServer) -> None:
    @server.feature(
        lsp.TEXT_DOCUMENT_COMPLETION,
        lsp.CompletionOptions(trigger_characters=["@", "#", ".", ":", "'", "{", "[", "(", " "]),
    )
    async def completion(params: lsp.CompletionParams) -> lsp.CompletionList:
        uri = params.text_document.uri
        opened = server.present(uri)
        if opened.analysed is None:
            await server.analysed(uri)
        line, column = server.place(uri, params.position)
        streams = server.streams()
        result = complete(opened.document, line, column, streams, opened.analysed)
        start = opened.document.places.of(result.start, result.start)
        length = column - start.column if start.line == line else 0
        replaced = server.range(uri, Position(start.line, start.column, length))
        items = [
            lsp.CompletionItem(
                label=one.label,
                kind=COMPLETION_KINDS[one.kind],
                detail=one.detail or None,
                documentation=markdown(one.doc) if one.doc else None,
                # In the order of the proposals: names of the text before functions.
                sort_text=f"{number:04}",
                text_edit=lsp.TextEdit(replaced, one.insert or one.label),
            )
            for number, one in enumerate(result.proposals)
        ]
        return lsp.CompletionList(is_incomplete=False, items=items)


def _add_changes(server: MeshServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_FORMATTING)
    async def formatting(params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit] | None:
        text = server.workspace.get_text_document(params.text_document.uri)
        document = server.present(params.text_document.uri).document
        new_text = await asyncio.to_thread(lambda: document.formatted)
        if new_text is None:
            # The errors are shown already.
            return None
        whole = lsp.Range(lsp.Position(0, 0), lsp.Position(len(text.lines), 0))
        return [] if new_text == text.source else [lsp.TextEdit(whole, new_text)]

    @server.feature(
        lsp.TEXT_DOCUMENT_CODE_ACTION,
        lsp.CodeActionOptions(code_action_kinds=[lsp.CodeActionKind.QuickFix]),
    )
    async def code_actions(params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        uri = params.text_document.uri
        document = await server.analysed(uri)
        first, last = params.range.start.line + 1, params.range.end.line + 1
        return [
            lsp.CodeAction(
                title=fix.title,
                kind=lsp.CodeActionKind.QuickFix,
                is_preferred=True,
                diagnostics=[
                    one
                    for one in params.context.diagnostics
                    if one.code == fix.error.code
                    and fix.error.position is not None
                    and one.range.start.line == fix.error.position.line - 1
                ],
                edit=lsp.WorkspaceEdit(
                    changes={
                        uri: [lsp.TextEdit(server.range(uri, fix.edit.position), fix.edit.text)]
                    }
                ),
            )
            for fix in fixes(document, first, last)
        ]


def _add_names(server: MeshServer) -> None:
    async def target_of(params: Any) -> tuple[str, Document, int, int]:
        uri = params.text_document.uri
        document = await server.analysed(uri)
        return uri, document, *server.place(uri, params.position)

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    async def hovered(params: lsp.HoverParams) -> lsp.Hover | None:
        uri, document, line, column = await target_of(params)
        info = hover(document, line, column)
        if info is None:
            return None
        return lsp.Hover(markdown(info.markdown), server.range(uri, info.position))

    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    async def defined(params: lsp.DefinitionParams) -> lsp.Location | None:
        uri, document, line, column = await target_of(params)
        position = definition(document, line, column)
        return lsp.Location(uri, server.range(uri, position)) if position is not None else None

    @server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    async def used(params: lsp.ReferenceParams) -> list[lsp.Location]:
        uri, document, line, column = await target_of(params)
        positions = references(document, line, column)
        if not params.context.include_declaration:
            declaration = definition(document, line, column)
            positions = [one for one in positions if one != declaration]
        return [lsp.Location(uri, server.range(uri, one)) for one in positions]

    @server.feature(lsp.TEXT_DOCUMENT_PREPARE_RENAME)
    async def can_rename(params: lsp.PrepareRenameParams) -> lsp.Range | None:
        uri, document, line, column = await target_of(params)
        position = renamable(document, line, column)
        return server.range(uri, position) if position is not None else None

    @server.feature(lsp.TEXT_DOCUMENT_RENAME, lsp.RenameOptions(prepare_provider=True))
    async def renamed(params: lsp.RenameParams) -> lsp.WorkspaceEdit | None:
        uri, document, line, column = await target_of(params)
        try:
            edits = rename(document, line, column, params.new_name)
        except MeshError as error:
            text = " ".join(filter(None, (error.message, error.detail, error.hint)))
            server.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Error, text))
            return None
        text_edits = [lsp.TextEdit(server.range(uri, one.position), one.text) for one in edits]
        return lsp.WorkspaceEdit(changes={uri: text_edits})


def _add_whole_text(server: MeshServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    async def symbols(params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        uri = params.text_document.uri
        document = await server.analysed(uri)
        return [_symbol(server, uri, part) for part in outline(document)]

    @server.feature(lsp.TEXT_DOCUMENT_INLAY_HINT)
    async def hints(params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
        uri = params.text_document.uri
        document = await server.analysed(uri)
        first, last = params.range.start.line + 1, params.range.end.line + 1
        return [
            lsp.InlayHint(
                server.range(uri, one.position).start, one.text, kind=lsp.InlayHintKind.Type
            )
            for one in inferred_types(document, first, last)
        ]

    @server.feature(lsp.TEXT_DOCUMENT_CODE_LENS)
    async def lens(params: lsp.CodeLensParams) -> list[lsp.CodeLens]:
        uri = params.text_document.uri
        document = await server.analysed(uri)
        return [
            lsp.CodeLens(server.range(uri, one.position), command=lsp.Command(one.text, ""))
            for one in lenses(document, server.rates(uri, document))
        ]


def _symbol(server: MeshServer, uri: str, part: OutlinePart) -> lsp.DocumentSymbol:
    start, end = server.range(uri, part.start).start, server.range(uri, part.end).end
    name = server.range(uri, part.position)
    # The range holds the name.
    last = max((end, name.end), key=lambda at: (at.line, at.character))
    return lsp.DocumentSymbol(
        name=part.name,
        kind=SYMBOL_KINDS[part.kind],
        range=lsp.Range(start, last),
        selection_range=name,
        detail=part.detail or None,
        children=[_symbol(server, uri, one) for one in part.parts],
    )


def markdown(text: str) -> lsp.MarkupContent:
    """A text that the editor renders."""
    return lsp.MarkupContent(lsp.MarkupKind.Markdown, text)


def _related(
    uri: str, error: MeshError, to_range: Callable[[Position], lsp.Range]
) -> list[lsp.DiagnosticRelatedInformation] | None:
    """The place of the other thing that an error is about."""
    if error.related is None:
        return None
    location = lsp.Location(uri, to_range(error.related))
    return [lsp.DiagnosticRelatedInformation(location, error.detail or error.message)]


def diagnostics_of(
    uri: str, document: Document, to_range: Callable[[Position], lsp.Range]
) -> list[lsp.Diagnostic]:
    """The errors and warnings of a document, with detail and hint; its notes in the first line."""
    diagnostics = [
        lsp.Diagnostic(
            range=to_range(error.position or Position(1, 1)),
            message="\n".join(filter(None, (error.message, error.detail, error.hint))),
            severity=lsp.DiagnosticSeverity.Warning
            if error.code == NOT_RUN_YET
            else lsp.DiagnosticSeverity.Error,
            code=error.code,
            source="mesh",
            related_information=_related(uri, error, to_range),
        )
        for error in document.problems
    ]
    diagnostics += [
        lsp.Diagnostic(
            range=to_range(Position(1, 1)),
            message=note,
            severity=lsp.DiagnosticSeverity.Information,
            source="mesh",
        )
        for note in document.notes
    ]
    return diagnostics
