"""Values of the language service as those of LSP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lsprotocol import types as lsp

from mesh.errors import Position
from mesh.language_service.document import NOT_RUN_YET
from mesh.language_service.outline import PartKind
from mesh.language_service.proposals import ProposalKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mesh.errors import MeshError
    from mesh.language_service.document import Document

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
