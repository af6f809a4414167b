"""Annotations and outputs of Siddhi 3 in the words of Siddhi 5.

    @Plan:name('A')                         @App:name('A')
    @Import('in:1.0.0') define stream S ..  @source(type='inMemory', topic='in:1.0.0', ..)
    @Export('out:1.0.0') define stream T .. @sink(type='inMemory', topic='out:1.0.0', ..)
    @From(eventtable='rdbms', ..)           @store(type='rdbms', ..)
    insert overwrite T on ..                update or insert into T on ..

A stream id of CEP is known to all execution plans of a server, and so is a topic to all apps of a
mesh: a plan that imports what another one exports still gets its events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.language.hints import STREAM_ID
from mesh.language.print_expressions import print_string
from mesh.language.tokens import TokenKind, tokenize
from mesh.migrate.draft import Definitions, NoteKind

if TYPE_CHECKING:
    from mesh.language.written import WrittenAnnotation
    from mesh.migrate.draft import Draft

_TOPIC: Final = "@map(type='passThrough')"
#: Options of an event table that a store has, by their names there.
_STORED: Final = {
    "datasource.name": "datasource", "jdbc.url": "jdbc.url", "username": "username",
    "password": "password", "driver.name": "jdbc.driver.name", "table.name": "table.name",
    "field.length": "field.length",
}  # fmt: skip
_CACHE: Final = (
    "the cache of the event table is left out: its rows are in the state of the app as well; rows "
    "that others write are seen with kept='false', or @cache in @store and @PrimaryKey"
)


def rewrite_siddhi3(draft: Draft, subject: str) -> None:
    """Replace what Siddhi 3 writes otherwise.

    Args:
        draft: the text.
        subject: that of a stream, ``{}`` for its name.
    """
    definitions = Definitions.of(draft.text)
    for annotation in draft.annotations():
        name = annotation.name.lower()
        if name.startswith("plan:"):
            _plan(draft, annotation)
        elif name in ("import", "export") and annotation.elements:
            _connect(draft, annotation, subject.format(definitions.after(annotation.stop)[1]))
        elif name == "from" and annotation.element("eventtable") is not None:
            _store(draft, annotation)
        elif name == "indexedby":
            draft.rename(annotation, "Index")
        elif name == "config":
            draft.comment_out(annotation, "@config has no effect: a channel keeps its order")
    _outputs(draft)


def _plan(draft: Draft, annotation: WrittenAnnotation) -> None:
    what = annotation.name.partition(":")[2]
    if what.lower() in ("name", "description", "statistics", "playback"):
        draft.rename(annotation, f"App:{what}")
    else:
        draft.comment_out(annotation, f"@Plan:{what} has no effect here")


def _connect(draft: Draft, annotation: WrittenAnnotation, subject: str) -> None:
    topic = annotation.elements[0].text
    if STREAM_ID.match(topic) is None:
        return
    is_import = annotation.name.lower() == "import"
    connector = "source" if is_import else "sink"
    draft.change(
        annotation.start,
        annotation.stop,
        f"@{connector}(type='inMemory', topic={print_string(topic)}, {_TOPIC})",
        f'@{annotation.name} is a {connector} of the topic "{topic}" of all apps',
    )
    draft.note(
        NoteKind.DIFFERS,
        annotation.start,
        f"an event receiver of CEP is a program that publishes JSON to {subject}"
        if is_import
        else f"an event publisher of CEP is another @sink, or a program that reads {subject}",
    )


def _store(draft: Draft, annotation: WrittenAnnotation) -> None:
    kind = (annotation.get("eventtable") or "").lower()
    options = [f"type={print_string(kind)}"]
    for element in annotation.elements:
        key = (element.key or "").lower()
        if key in _STORED:
            options.append(f"{_STORED[key]}={print_string(element.text)}")
        elif key in ("cache", "cache.size"):
            draft.note(NoteKind.DIFFERS, element.start, _CACHE)
        elif key != "eventtable":
            draft.note(
                NoteKind.ABSENT,
                element.start,
                f"option {element.key} of the event table is left out",
            )
    draft.change(
        annotation.start,
        annotation.stop,
        f"@store({', '.join(options)})",
        f"@{annotation.name}(eventtable='{kind}') is @store(type='{kind}')",
    )


def _outputs(draft: Draft) -> None:
    """``insert overwrite T`` and ``for expired-events``."""
    tokens = tokenize(draft.text).tokens
    for at, token in enumerate(tokens[:-3]):
        if token.kind is not TokenKind.NAME:
            continue
        after = tokens[at + 1]
        if token.text.lower() == "insert" and after.text.lower() == "overwrite":
            draft.change(
                token.start,
                after.start + len(after.text),
                "update or insert into",
                "insert overwrite is update or insert into",
            )
        is_kind = token.text.lower() in ("current", "expired", "all")
        if is_kind and after.text == "-" and tokens[at + 2].text.lower() == "events":
            draft.change(after.start, after.start + 1, " ", f"{token.text}-events is two words")
