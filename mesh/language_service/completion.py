"""Completion: what may be written at a place.

The parser says which words and which kinds of names may follow; the analysis of the text, the
catalogue of functions and the specs of connectors fill in the names.

The parser reads the statement up to the place with a cursor that records what it looks for after
the last token, and stops where it would refuse the end of the text.

Completion inside of annotations: keys, values, nested annotations.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NoReturn

from mesh.errors import MeshError
from mesh.functions.catalogue import EXTENSIONS, ExtensionRole
from mesh.language.cursor import Cursor
from mesh.language.parser import read_with
from mesh.language.print_expressions import print_name
from mesh.language.tokens import TokenKind
from mesh.language_service.annotations import (
    AGGREGATION,
    APP,
    LISTS,
    PARTITION,
    QUERY,
    STREAM,
    TABLE,
    kind_of,
    kinds_at,
    options_at,
    spec_at,
    type_key,
    types_at,
    values_of,
)
from mesh.language_service.hover import ALL_STREAM_FUNCTIONS, ALL_WINDOWS, EXPRESSIONS, forms
from mesh.language_service.proposals import Completion, Proposal, ProposalKind
from mesh.language_service.statements import (
    READ_AFTER,
    defined_attributes,
    inputs_of,
    key_before,
    open_annotations,
    statement_at,
)
from mesh.plan.bound import SourceKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mesh.functions.catalogue import Signature
    from mesh.language.tokens import Token
    from mesh.language_service.document import Document
    from mesh.language_service.proposals import ClusterStream
    from mesh.language_service.statements import OpenAnnotation, Piece, Statement
    from mesh.model.types import Attribute
    from mesh.plan.bind.names import AppNames


_INTO_INNER: Final = re.compile(r"\binto\s+#\s*(\w+)", re.IGNORECASE)
_STARTS: Final = ("define", "from", "partition")
_STREAM_NAMES: Final = ("the name of a stream",)
_TABLE_NAMES: Final = ("the name of a table",)
#: Words that the parser looks for to explain a mistake only.
_ONLY_HINTS: Final = frozenset(("distinct", "overwrite"))
#: Where a name may be, these are looked for to explain a mistake, too.
_NO_NAMES: Final = frozenset(("from", "into"))
_INTO_TABLES: Final = frozenset((SourceKind.TABLE, SourceKind.WINDOW, SourceKind.STREAM))

#: Precedes a statement, so that queries may follow.
_BEFORE: Final = "define stream S (a int); "
_IN_PARTITION: Final = "partition with (a of S) begin "
_APP: Final = re.compile(r"@\s*app\s*:", re.IGNORECASE)


class _End(Exception):
    """The parser needs more than the text has."""


@dataclass(slots=True)
class Expected:
    """Words, names and symbols that may follow a text."""

    #: Keywords, in the order in which the parser looks for them.
    words: dict[str, None] = field(default_factory=dict)
    #: Kinds of names, in the words of the parser's messages: ``the name of a stream``.
    names: dict[str, None] = field(default_factory=dict)
    symbols: dict[str, None] = field(default_factory=dict)


class _RecordingCursor(Cursor):
    """A cursor that records what is looked for at the end of the text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.expected = Expected()

    def _is_next(self, ahead: int) -> bool:
        return self.at + ahead == len(self.tokens) - 1

    def sees(self, symbol: str, ahead: int = 0) -> bool:
        """Whether the token is this symbol."""
        if self._is_next(ahead):
            self.expected.symbols[symbol] = None
        return super().sees(symbol, ahead)

    def sees_word(self, *words: str, ahead: int = 0) -> bool:
        """Whether the token is one of these keywords."""
        if self._is_next(ahead):
            self.expected.words.update(dict.fromkeys(words))
        return super().sees_word(*words, ahead=ahead)

    def sees_name(self, ahead: int = 0) -> bool:
        """Whether the token may be a name; after the text one may follow."""
        return super().sees_name(ahead) or (ahead > 0 and self._is_next(ahead))

    def expect_name(self, what: str) -> str:
        """Consume a name, which must be next."""
        if self.is_at_end:
            self.expected.names[what] = None
            raise _End
        return super().expect_name(what)

    def take(self) -> Token:
        """Consume the next token."""
        if self.peek().kind is TokenKind.END:
            raise _End
        return super().take()

    def fail(self, *expected: str, words: Sequence[str] = (), hint: str | None = None) -> NoReturn:
        """Refuse the next token; at the end of the text, stop."""
        if self.is_at_end:
            raise _End
        super().fail(*expected, words=words, hint=hint)


def expected_after(statement: str, *, in_partition: bool = False) -> Expected:
    """The continuations of ``statement``, the first part of one.

    Args:
        statement: its text, not empty.
        in_partition: whether it is inside of a partition.
    """
    # Annotations of the app precede everything else.
    before = "" if _APP.search(statement) else _BEFORE + (_IN_PARTITION if in_partition else "")
    cursor = _RecordingCursor(before + statement)
    try:
        read_with(cursor)
    except _End:
        pass
    except MeshError:
        return Expected()
    return cursor.expected


def complete(
    document: Document,
    line: int,
    column: int,
    cluster: Sequence[ClusterStream] = (),
    previous: Document | None = None,
) -> Completion:
    """Proposals for a place.

    Args:
        document: the text.
        line: from 1.
        column: from 1, in characters.
        cluster: streams of the connected cluster.
        previous: an earlier version of the text whose analysis is there already; its names are
            proposed then, so that an answer need not wait for the analysis of this one.
    """
    offset = document.places.offset(line, column)
    previous = previous or document
    statement = statement_at(document, offset)
    if statement.is_in_comment:
        return Completion(offset, ())
    names = previous.readable.names if previous.readable is not None else None
    open_ = open_annotations(statement.tokens)
    if open_:
        return complete_annotation(statement, open_, offset, cluster)
    start = offset
    tokens = list(statement.tokens)
    if tokens and tokens[-1].kind is TokenKind.NAME and tokens[-1].end == offset:
        start = tokens.pop().start
    elif tokens and tokens[-1].is_text:
        return Completion(offset, ())
    return _in_statement(_At(document, statement, tokens, start, names, cluster))


@dataclass(frozen=True, slots=True)
class _At:
    """A place outside of annotations."""

    document: Document
    statement: Statement
    #: Before the word that is completed.
    tokens: list[Piece]
    start: int
    names: AppNames | None
    cluster: Sequence[ClusterStream]

    def last(self, count: int) -> list[str]:
        """The last words before the place, in lower case."""
        return [one.word for one in self.tokens[-count:]]


def _in_statement(at: _At) -> Completion:
    tokens, text = at.tokens, at.document.text
    if tokens and tokens[-1].text == "@":
        return Completion(at.start, tuple(_annotations_before_statement(at)))
    if at.last(3) == ["@", "app", ":"]:
        named = (
            Proposal(one.label.partition(":")[2], one.kind, one.detail, one.doc)
            for one in annotation_proposals(APP)
        )
        return Completion(at.start, tuple(named))
    if at.last(2) == ["#", "window"] or at.last(3) == ["#", "window", "."]:
        return Completion(at.start, tuple(_calls(ALL_WINDOWS, ProposalKind.WINDOW)))
    if at.last(1) == ["#"]:
        return Completion(at.start, tuple(_after_hash(at)))
    start = at.start
    if len(tokens) > 1 and tokens[-1].text == ":" and tokens[-2].kind is TokenKind.NAME:
        # ``str:le``: names of functions have their namespace.
        namespace = tokens[-2]
        start = namespace.start
        if len(tokens) > 2 and tokens[-3].text in ("#", "."):
            table = ALL_STREAM_FUNCTIONS if tokens[-3].text == "#" else ALL_WINDOWS
            kind = ProposalKind.FUNCTION if tokens[-3].text == "#" else ProposalKind.WINDOW
        else:
            table, kind = EXPRESSIONS, ProposalKind.FUNCTION
        prefix = f"{namespace.text}:"
        matches = [one for one in _calls(table, kind) if one.label.startswith(prefix)]
        return Completion(start, tuple(matches))
    if tokens and tokens[-1].text == "." and len(tokens) > 1:
        return Completion(at.start, tuple(_after_dot(at)))
    before = text[at.statement.start : at.start]
    expected = expected_after(before, in_partition=at.statement.in_partition)
    proposals: list[Proposal] = []
    for what in expected.names:
        proposals += _named(at, what)
    if at.last(3)[:2] == ["define", "window"] or _is_window_definition(tokens):
        is_open = not expected.words and not expected.names and "#" in expected.symbols
        proposals += _calls(ALL_WINDOWS, ProposalKind.WINDOW) if is_open else []
    without = _ONLY_HINTS | _NO_NAMES if expected.names else _ONLY_HINTS
    words = [str(word) for word in expected.words if word not in without]
    if "end" in words:
        words.remove("end")
    if not before.strip():
        words = ["from", "end"] if at.statement.in_partition else list(_STARTS)
    if "is" in words:
        words += ["and", "or"]
    is_type = "double" in words
    kind = ProposalKind.TYPE if is_type else ProposalKind.KEYWORD
    proposals += [Proposal(word, kind) for word in words]
    unique = {(one.label, one.kind): one for one in proposals}
    return Completion(at.start, tuple(unique.values()))


def _is_window_definition(tokens: Sequence[Piece]) -> bool:
    words = [piece.word for piece in tokens]
    return "define" in words and words[words.index("define") + 1 :][:1] == ["window"]


def _annotations_before_statement(at: _At) -> list[Proposal]:
    words = [piece.word for piece in at.statement.whole]
    is_first = at.statement.start == 0
    places = [STREAM, TABLE, AGGREGATION, QUERY, PARTITION]
    if "define" in words:
        places = words[words.index("define") + 1 :][:1] or places
    elif "from" in words:
        places = [QUERY]
    elif "partition" in words:
        places = [PARTITION]
    if at.statement.in_partition:
        places = [QUERY]
    if is_first:
        places = [APP, *places]
    proposals = [one for place in places for one in annotation_proposals(place)]
    return list({one.label: one for one in proposals}.values())


def _after_hash(at: _At) -> list[Proposal]:
    before = at.tokens[-2].word if len(at.tokens) > 1 else ""
    inner = [] if at.names is None else _inner_streams(at)
    if before in READ_AFTER or before == "into":
        return inner
    window = Proposal("window.", ProposalKind.KEYWORD, "window", "A window over the stream.")
    return [window, *_calls(ALL_STREAM_FUNCTIONS, ProposalKind.FUNCTION)]


def _inner_streams(at: _At) -> list[Proposal]:
    names = dict.fromkeys(_INTO_INNER.findall(at.document.text))
    return [Proposal(name, ProposalKind.STREAM, "inner stream") for name in names]


def _after_dot(at: _At) -> list[Proposal]:
    source = at.tokens[-2]
    if source.text == "]":
        source = next((p for p in reversed(at.tokens[:-2]) if p.kind is TokenKind.NAME), source)
    name = str(source.token.value)
    for prefix, id_ in inputs_of(at.statement):
        if prefix == name:
            return _attributes(at, id_)
    return _attributes(at, name)


def _named(at: _At, what: str) -> list[Proposal]:
    """Proposals for a kind of name, in the words of the parser."""
    if at.last(2)[:1] == ["define"]:
        return _of_cluster(at) if at.last(1) == ["stream"] else []
    if what in _STREAM_NAMES:
        if at.last(1) == ["into"]:
            return _definitions(at, _INTO_TABLES)
        return _definitions(at, None)
    if what in _TABLE_NAMES:
        return _definitions(at, frozenset((SourceKind.TABLE,)))
    if what == "the name of a window":
        return _calls(ALL_WINDOWS, ProposalKind.WINDOW)
    if what == "the name of a stream function":
        return _calls(ALL_STREAM_FUNCTIONS, ProposalKind.FUNCTION)
    if what == "a language":
        runs = [one.name for one in EXTENSIONS[ExtensionRole.SCRIPT].values() if one.runs]
        return [Proposal(name, ProposalKind.VALUE, "language") for name in runs]
    if what == "an attribute of the table":
        return [Proposal(f"{t.label}.", t.kind, t.detail) for t in _named(at, _TABLE_NAMES[0])]
    if what in ("an attribute", "an expression"):
        return _expression(at, has_functions=what == "an expression")
    return []


def _of_cluster(at: _At) -> list[Proposal]:
    """Definitions of the streams that the cluster has."""
    return [
        Proposal(
            one.name,
            ProposalKind.STREAM,
            f"of app {one.app}",
            f"({one.attributes})",
            f"{print_name(one.name)} ({one.attributes})",
        )
        for one in at.cluster
    ]


def _expression(at: _At, *, has_functions: bool) -> list[Proposal]:
    inputs = inputs_of(at.statement)
    proposals = [one for _, id_ in inputs for one in _attributes(at, id_)]
    if len(inputs) > 1:
        proposals += [
            Proposal(f"{prefix}.", ProposalKind.STREAM, "event" if prefix != id_ else "stream")
            for prefix, id_ in inputs
        ]
    words = at.tokens
    if any(piece.word in ("having", "by") for piece in words):
        proposals += [Proposal(name, ProposalKind.ATTRIBUTE, "output") for name in _outputs(words)]
    if not has_functions:
        return proposals
    scripts = at.names.vocabulary.scripts if at.names is not None else ()
    proposals += [Proposal(name, ProposalKind.FUNCTION, "function of the app") for name in scripts]
    return [*proposals, *_calls(EXPRESSIONS, ProposalKind.FUNCTION)]


def _outputs(tokens: Sequence[Piece]) -> list[str]:
    return [
        str(after.token.value)
        for before, after in pairwise(tokens)
        if before.word == "as" and after.kind is TokenKind.NAME
    ]


def _calls(table: Mapping[str, Signature], kind: ProposalKind) -> list[Proposal]:
    return [
        Proposal(name, kind, forms(one)[0], one.doc, f"{name}(")
        for name, one in table.items()
        if one.runs
    ]


def _definitions(at: _At, kinds: Iterable[SourceKind] | None) -> list[Proposal]:
    if at.names is None:
        return []
    names = at.names
    tables = (names.streams, names.windows, names.tables, names.aggregations)
    return [
        Proposal(
            name if name.startswith("!") else print_name(name),
            ProposalKind.STREAM,
            str(one.kind),
            _shown(one.schema.attributes) if one.schema is not None else "",
        )
        for table in tables
        for name, one in table.items()
        if kinds is None or one.kind in kinds
    ]


def _shown(attributes: Iterable[Attribute]) -> str:
    return f"({', '.join(f'{one.name} {one.type}' for one in attributes)})"


def _attributes(at: _At, id_: str) -> list[Proposal]:
    definition = at.names.find(id_) if at.names is not None else None
    schema = definition.schema if definition is not None else None
    return [
        Proposal(
            print_name(one.name), ProposalKind.ATTRIBUTE, str(one.type), f"Attribute of {id_}."
        )
        for one in (schema.attributes if schema is not None else ())
    ]


def complete_annotation(
    statement: Statement, open_: list[OpenAnnotation], offset: int, cluster: Sequence[ClusterStream]
) -> Completion:
    """Proposals inside of the innermost of ``open_``; ``cluster``: streams that it has."""
    tokens = statement.tokens
    path = [one.name.lower() for one in open_]
    keys = [type_key(path[: depth + 1]) for depth in range(len(path))]
    types = [one.options.get(key) if key else None for one, key in zip(open_, keys, strict=True)]
    last = tokens[-1]
    if last.kind is TokenKind.BROKEN and last.text[:1] in "'\"":
        has_key = len(tokens) > 1 and tokens[-2].text == "="
        key = key_before(tokens, len(tokens) - 2) if has_key else ""
        return _value(statement, path, types, key, last, cluster)
    if last.text == "@" or (len(tokens) > 1 and tokens[-2].text == "@"):
        start = offset if last.text == "@" else last.start
        return Completion(start, tuple(annotation_proposals(path[-1])))
    if last.text == "=":
        key = key_before(tokens, len(tokens) - 1)
        completion = _value(statement, path, types, key, None, cluster)
        quoted = (
            Proposal(f"'{one.label}'", one.kind, one.detail, one.doc)
            for one in completion.proposals
        )
        return Completion(offset, tuple(quoted))
    first = len(tokens)
    while first > 0 and (
        tokens[first - 1].kind is TokenKind.NAME or tokens[first - 1].text in ".-:"
    ):
        first -= 1
    if first == 0 or tokens[first - 1].text not in ("(", ","):
        return Completion(offset, ())
    start = tokens[first].start if first < len(tokens) else offset
    existing = open_[-1].options
    proposals = [
        Proposal(
            option.name,
            ProposalKind.OPTION,
            _detail(option.default, str(option.kind), is_required=option.is_required),
            option.doc,
            f"{option.name}='",
        )
        for option in options_at(path, types)
        if option.name.lower() not in existing
    ]
    key_of_type = keys[-1]
    if key_of_type is not None and key_of_type not in existing:
        doc = "The type, which decides the other options."
        first_one = Proposal(
            key_of_type, ProposalKind.OPTION, "text, required", doc, f"{key_of_type}='"
        )
        proposals.insert(0, first_one)
    if path[-1] == "attributes":
        proposals += [
            Proposal(name, ProposalKind.ATTRIBUTE, kind, insert=f"{name}='")
            for name, kind in defined_attributes(statement.whole)
        ]
    proposals += [
        Proposal(f"@{one.label}", one.kind, one.detail, one.doc)
        for one in annotation_proposals(path[-1])
    ]
    return Completion(start, tuple(proposals))


def _streams_of_cluster(
    path: list[str], types: list[str | None], key: str, cluster: Sequence[ClusterStream]
) -> list[Proposal]:
    """Subjects and streams of the cluster, as values of an option of NATS."""
    if types[-1] != "nats" or path[-1] not in ("source", "sink"):
        return []
    match key.lower():
        case "stream":
            values = [one.js_stream for one in cluster]
        case "destination":
            values = [one.subject for one in cluster]
        case _:
            values = []
    return [
        Proposal(value, ProposalKind.VALUE, f"{one.name} of app {one.app}", one.attributes)
        for value, one in zip(values, cluster, strict=False)
    ]


def _detail(default: str | None, kind: str, *, is_required: bool) -> str:
    parts = [kind]
    if is_required:
        parts.append("required")
    if default:
        parts.append(f"default {default}")
    return ", ".join(parts)


def annotation_proposals(place: str) -> list[Proposal]:
    """The annotations that may be at a place."""
    return [
        Proposal(kind.name, ProposalKind.ANNOTATION, "annotation", kind.doc)
        for kind in kinds_at(place)
    ]


def _value(
    statement: Statement,
    path: list[str],
    types: list[str | None],
    key: str,
    text: Piece | None,
    cluster: Sequence[ClusterStream],
) -> Completion:
    """Proposals for the text of an element; ``text``: the part of it that is there."""
    start = text.start + 1 if text is not None else 0
    written = text.text[1:] if text is not None else ""
    attributes = [
        Proposal(name, ProposalKind.ATTRIBUTE, kind)
        for name, kind in defined_attributes(statement.whole)
    ]
    if "{{" in written and "}}" not in written.rpartition("{{")[2]:
        return Completion(start + written.rfind("{{") + 2, tuple(attributes))
    if key and key.lower() == type_key(path):
        proposals = [
            Proposal(n, ProposalKind.VALUE, "type", doc) for n, doc in types_at(path).items()
        ]
        return Completion(start, tuple(proposals))
    if not key:
        if path[-1] in LISTS:
            return Completion(start, tuple(attributes))
        kind = kind_of(path[-1], "")
        texts = kind.texts if kind is not None else ()
        return Completion(start, tuple(Proposal(one, ProposalKind.VALUE) for one in texts))
    spec = spec_at(path, types)
    options = {option.name.lower(): option for option in options_at(path, types)}
    option = (spec.option(key) if spec is not None else None) or options.get(key.lower())
    if option is None:
        return Completion(start, ())
    if option.is_attribute:
        return Completion(start, tuple(attributes))
    values = [
        Proposal(one, ProposalKind.VALUE, "default" if one == option.default else "", option.doc)
        for one in values_of(option)
    ]
    return Completion(start, (*_streams_of_cluster(path, types, key, cluster), *values))
