"""Migration of an app: its edits in order, and the plan of the result.

The edits of annotations have a file of their own.  Siddhi 3 is put into the words of Siddhi 5:

    @Plan:name('A')                         @App:name('A')
    @Import('in:1.0.0') define stream S ..  @source(type='inMemory', topic='in:1.0.0', ..)
    @Export('out:1.0.0') define stream T .. @sink(type='inMemory', topic='out:1.0.0', ..)
    @From(eventtable='rdbms', ..)           @store(type='rdbms', ..)
    insert overwrite T on ..                update or insert into T on ..

A stream id of CEP is known to all execution plans of a server, and so is a topic to all apps of a
mesh: a plan that imports what another one exports still gets its events.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from mesh.connect import registry
from mesh.connect.spec import Kind
from mesh.connect.spec import Role as Connector
from mesh.errors import MeshError, all_errors
from mesh.language.hints import STREAM_ID, signs
from mesh.language.naming import named
from mesh.language.print_expressions import print_string
from mesh.language.substitution import VARIABLE, substitute
from mesh.language.tokens import TokenKind, tokenize
from mesh.language.written import annotations_of, nested
from mesh.migrate.annotations import rewrite_annotations
from mesh.migrate.draft import Definitions, Draft, Migrated, MigrationState, Note, NoteKind
from mesh.model import names
from mesh.model.types import AttributeType
from mesh.plan.build import plan
from mesh.plan.connectors import with_types
from mesh.plan.dist import DEFAULT_GROUP

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from mesh.language.tokens import Token
    from mesh.language.written import WrittenAnnotation, WrittenElement


#: Values of variables that have none, for the plan alone: most are addresses, or numbers.
_VALUES: Final = ("1", "http://localhost:1024/x")
#: Of a variable that is a whole option, by a part of the connector's or store's type; and those of
#: options that are no addresses, by a part of their name.
_ADDRESSES: Final = {
    "mqtt": "tcp://h:1883", "rabbitmq": "amqp://h:5672", "tcp": "tcp://h:9892/x",
    "websocket": "ws://h:1024/x", "grpc": "grpc://h:1024/a.B/c", "nats": "nats://h:4222",
    "redis": "redis://h:6379", "rdbms": "jdbc:mysql://h:3306/x", "cdc": "jdbc:mysql://h:3306/x",
    "file": "/x", "fileeventlistener": "/x",
}  # fmt: skip
_OPTIONS: Final = (
    ("address", "a@h.example"), ("uri", ""), ("url", ""), ("nodes", "h:6379"),
    ("servers", "h:9092"),
)  # fmt: skip

#: Notes about functions that give other values here; docs/siddhiql.md has the reasons.
_CLOCK: Final = "gives the query's clock, the time of its events: a replay has the same value"
_PLACE: Final = "is computed from the event's place: a replay has the same value"
_COPY: Final = "returns a changed copy, and leaves its argument as it is"
#: By name, with its namespace.
_NOTES: Final = {
    "currentTimeMillis": _CLOCK, "time:currentTimestamp": _CLOCK, "time:currentTime": _CLOCK,
    "time:currentDate": _CLOCK, "time:utcTimestamp": _CLOCK, "UUID": _PLACE, "math:rand": _PLACE,
    "map:put": _COPY, "map:putAll": _COPY, "map:remove": _COPY, "list:add": _COPY,
    "list:remove": _COPY, "json:setElement": _COPY,
}  # fmt: skip

#: Option of a store whose rows are in the database alone, and the error that it is a way out of.
_KEPT: Final = "kept='false'"
_TABLE: Final = re.compile(r'table "([^"]+)" is used in groups')
#: Groups that have to be one instance, in hints and messages.
_UNSHARED: Final = re.compile(r"Set parallel='1' for group \"([^\"]+)\"")
_PARALLELISMS: Final = re.compile(r'group "([^"]+)" is given two parallelisms')
#: The hint of what is refused in playback alone.
_OUT_OF_PLAYBACK: Final = "Leave @App:playback out"
#: A table, window, aggregation or stream that two groups use together.
_TOGETHER: Final = re.compile(
    r'(\w+ "[^"]+") (?:is used in groups|read in group) "([^"]+)" and (?:written there and in )?'
    r'"([^"]+)"'
)
#: Attempts: one refusal hides others.
_WAYS_MAX: Final = 8
#: A window of the last events, by an expression.
_COUNTED: Final = re.compile(
    r"""#window\.expression\s*\(\s*['"]\s*(count\(\)\s*(<=?)\s*([1-9][0-9]{0,8}))\s*['"]\s*\)"""
)
#: A window of a span of an attribute, by an expression, without the time itself or with it.
_SPANNED: Final = re.compile(
    r"""#window\.expression\s*\(\s*(['"])\s*(last\.(\w+)\s*-\s*first\.\3\s*(<=?)\s*"""
    r"""([1-9][0-9]{0,14})[lL]?)\s*\1\s*\)"""
)
#: The name of a stream that a subject can have.
_PLAIN: Final = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)
#: Functions that give a value of the server's surroundings, by what names it.
_SURROUNDINGS: Final = {
    "getenvironmentproperty": "the environment", "getsystemproperty": "Java's properties",
    "getuserdefinedproperty": "the file of properties", "getyamlproperty": "deployment.yaml",
}  # fmt: skip
#: Types of attributes.
_TYPES: Final = tuple(AttributeType)
#: Words with which queries and partitions begin.
_ELEMENTS: Final = ("from", "partition")
#: The rest of the line after a statement.
_LINE: Final = re.compile(r"[ \t]*(?:--[^\r\n]*)?(?:\r\n|\r|\n)?")

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


def migrate_app(text: str, name: str, types: Mapping[str, str] | None = None) -> Migrated:
    """An app in the present language, as it can be deployed, with notes about each difference.

    Args:
        text: an app of Siddhi 3, 4 or 5.
        name: of the app, if the text has none: that of its file.
        types: types of references, by name.

    Returns:
        The text, with the author's layout and comments; errors if it still can't be deployed.
    """
    version = "3" if next(signs(text), None) is not None else "4, 5"
    original, notes = text, []
    app_name = _declared_name(text) or name
    subject = names.subject(names.app_token(app_name), "{}")
    if version == "3":
        draft = Draft(text)
        rewrite_siddhi3(draft, subject)
        text, notes = draft.result, draft.notes
    draft = Draft(text)
    rewrite_annotations(draft, subject, types)
    _note_calls(draft)
    _rewrite_windows(draft)
    _rewrite_surroundings(draft)
    _rewrite_names(draft)
    text, notes = draft.result, [*notes, *draft.notes]
    draft = Draft(text)
    _move_definitions(draft)
    text, notes = draft.result, [*notes, *draft.notes]
    if not _declared_name(text):
        notes.append(Note(NoteKind.DIFFERS, 0, f'the app has no name, and is called "{name}"'))
    errors, missing = _planned(with_types(text, types or {}), app_name)
    if errors:
        found = _with_ways_out(
            text, errors, lambda one: _planned(with_types(one, types or {}), app_name)[0]
        )
        if found is not None:
            (text, more), errors = found, ()
            notes = [*notes, *more]
    if missing:
        listed = ", ".join(missing)
        notes.append(
            Note(NoteKind.DIFFERS, 0, f"values of {listed} are given at the deploy: --var")
        )
    state = MigrationState.AS_IS if text == original else MigrationState.CHANGED
    return Migrated(
        app_name,
        version,
        text,
        MigrationState.REFUSED if errors else state,
        tuple(sorted(notes, key=lambda one: (one.line, one.kind))),
        errors,
    )


def _with_ways_out(
    text: str,
    errors: tuple[MeshError, ...],
    planned: Callable[[str], tuple[MeshError, ...]],
) -> tuple[str, list[Note]] | None:
    """The text with the changes of groups that make it deployable, if some do, and their notes."""
    notes: list[Note] = []
    for _ in range(_WAYS_MAX):
        draft = Draft(text)
        _share_tables(draft, errors)
        _merge_groups(draft, errors)
        _unshare_groups(draft, errors)
        _leave_playback(draft, errors)
        if not draft.edits:
            return None
        text, notes = draft.result, [*notes, *draft.notes]
        errors = planned(text)
        if not errors:
            return text, notes
    return None


def _named_by(errors: Sequence[MeshError], pattern: re.Pattern[str]) -> set[str]:
    texts = (f"{error.message}\n{error.hint or ''}" for error in errors)
    return {match[1] for text in texts if (match := pattern.search(text)) is not None}


def _share_tables(draft: Draft, errors: Sequence[MeshError]) -> None:
    """Let the rows of tables stay in the database, where each group reads and writes them."""
    shared = _named_by([one for one in errors if _KEPT in (one.hint or "")], _TABLE)
    definitions = Definitions.of(draft.text)
    for annotation in draft.annotations():
        opened, (_, defined) = annotation.opened, definitions.after(annotation.stop)
        if annotation.name.lower() == "store" and opened is not None and defined in shared:
            why = f'rows of table "{defined}" stay in the database, which several groups use'
            draft.change(opened, opened, f"{_KEPT}, ", why)


def _merge_groups(draft: Draft, errors: Sequence[MeshError]) -> None:
    """Make one group of two that use a table, a window, an aggregation or a stream together."""
    for error in errors:
        match = _TOGETHER.search(error.message)
        if match is None or _KEPT in (error.hint or ""):
            continue
        what, first, second = match.groups()
        into, other = (second, first) if second == DEFAULT_GROUP else (first, second)
        for annotation in _dists(draft, {into, other}):
            group, parallel = annotation.element("execgroup"), annotation.element("parallel")
            if group is not None and group.text == other:
                why = f'group "{other}" is a part of "{into}", which uses {what} too'
                draft.set_text(group, into, why)
            _set_single(draft, parallel, f'group "{into}" is one instance, as it uses {what}')
        return


def _unshare_groups(draft: Draft, errors: Sequence[MeshError]) -> None:
    """Give one instance to groups whose queries can't be divided."""
    for annotation in _dists(
        draft, _named_by(errors, _UNSHARED) | _named_by(errors, _PARALLELISMS)
    ):
        group = annotation.get("execgroup") or DEFAULT_GROUP
        why = (
            f'group "{group}" is one instance: its queries can\'t be divided outside of a partition'
        )
        _set_single(draft, annotation.element("parallel"), why)


def _leave_playback(draft: Draft, errors: Sequence[MeshError]) -> None:
    """Leave ``@App:playback`` out where an app has what is refused in it, as a trigger by time."""
    if any((error.hint or "").startswith(_OUT_OF_PLAYBACK) for error in errors):
        for annotation in draft.annotations():
            if annotation.name.lower() == "app:playback":
                why = "@App:playback is left out for a trigger: windows go by the time of events"
                draft.comment_out(annotation, why)


def _dists(draft: Draft, groups: Collection[str]) -> list[WrittenAnnotation]:
    """The ``@dist`` of groups."""
    dists = [one for one in draft.annotations() if one.name.lower() == "dist"]
    return [one for one in dists if (one.get("execgroup") or DEFAULT_GROUP) in groups]


def _set_single(draft: Draft, parallel: WrittenElement | None, why: str) -> None:
    if parallel is not None and parallel.text != "1":
        draft.set_text(parallel, "1", why)


def _note_calls(draft: Draft) -> None:
    """Add a note about each call of a function whose values differ."""
    tokens = tokenize(draft.text).tokens
    for at, token in enumerate(tokens[:-1]):
        if token.kind is not TokenKind.NAME or tokens[at + 1].text != "(":
            continue
        has_namespace = at > 1 and tokens[at - 1].text == ":"
        name = f"{tokens[at - 2].text}:{token.text}" if has_namespace else token.text
        if name in _NOTES:
            draft.note(NoteKind.DIFFERS, token.start, f"{name}() {_NOTES[name]}")


def _rewrite_windows(draft: Draft) -> None:
    """Write windows of a number of events as such: the last 5 are those with ``count() <= 5``."""
    for match in _COUNTED.finditer(draft.text):
        size = int(match[3]) - (match[2] == "<")
        why = f"the events with {match[1]} are those of length({size})"
        draft.change(match.start(), match.end(), f"#window.length({size})", why)
    for match in _SPANNED.finditer(draft.text):
        window = f"externalTime({match[3]}, {int(match[5]) + (match[4] == '<=')})"
        why = f"the events with {match[2]} are those of {window}"
        draft.change(match.start(), match.end(), f"#window.{window}", why)


def _rewrite_names(draft: Draft) -> None:
    """Give streams names that subjects can have: ``Sensor Stream`` in backquotes has a blank."""
    tokens = tokenize(draft.text).tokens
    quoted = [one for one in tokens if one.kind is TokenKind.QUOTED]
    taken = {str(one.value or one.text) for one in tokens}
    plain: dict[str, str] = {}
    for name in dict.fromkeys(str(one.value) for one in quoted):
        if _PLAIN.match(name) is None:
            stem = re.sub(r"\W+", "_", name, flags=re.ASCII)
            stem = f"_{stem}" if stem[:1].isdigit() else stem
            numbers = ("", *range(2, len(taken) + 3))
            plain[name] = next(f"{stem}{n}" for n in numbers if f"{stem}{n}" not in taken)
            taken.add(plain[name])
    attributes = {
        str(one.value)
        for one, after in pairwise(tokens)
        if one.kind is TokenKind.QUOTED and after.text.lower() in _TYPES
    }
    for token in quoted:
        name = str(token.value)
        if name in plain and name not in attributes and _is_stream(draft.text, name):
            why = f'stream "{name}" is {plain[name]}, a part of a subject'
            draft.change(token.start, token.start + len(token.text), plain[name], why)


def _is_stream(text: str, name: str) -> bool:
    """Whether a quoted name is one of a stream: defined, or inserted into."""
    return re.search(rf"(?i)\b(stream|window|trigger|into)\s+`{re.escape(name)}`", text) is not None


def _rewrite_surroundings(draft: Draft) -> None:
    """Write ``env:getEnvironmentProperty('HOME')`` and its like as variables: ``'${HOME}'``."""
    tokens = tokenize(draft.text).tokens
    for at, token in enumerate(tokens[:-5]):
        what = tokens[at + 2].text.lower()
        if [token.text, tokens[at + 1].text, tokens[at + 3].text] != ["env", ":", "("]:
            continue
        texts, end = _constants(tokens, at + 4)
        if what not in _SURROUNDINGS or end is None or not texts:
            continue
        key, *others = texts
        kind = others.pop(0).lower() if what == "getyamlproperty" and others else "string"
        name = re.sub(r"\W", "_", key)
        default = f":{others[0]}" if others else ""
        if set(default) & set("}\r\n'\""):
            continue
        variable = f"${{{name}{default}}}"
        written = f"'{variable}'" if kind == "string" else variable
        why = f'"{key}" of {_SURROUNDINGS[what]} is the variable {name}: --var, or the environment'
        draft.change(token.start, end.start + 1, written, why)


def _constants(tokens: Sequence[Token], at: int) -> tuple[list[str], Token | None]:
    """The arguments from a token on, if all are texts, and the bracket that closes them."""
    texts: list[str] = []
    while at + 1 < len(tokens) and tokens[at].kind is TokenKind.STRING:
        texts.append(str(tokens[at].value))
        if tokens[at + 1].text == ")":
            return texts, tokens[at + 1]
        at += 2
    return texts, None


def _move_definitions(draft: Draft) -> None:
    """Move definitions that follow the first query before it, each with its comments.

    The engine refuses a definition after a query.
    """
    statements = list(_statements(draft.text))
    first = next((one for one in statements if one[0] in _ELEMENTS), None)
    late = [
        one for one in statements if one[0] == "define" and first is not None and one[1] > first[1]
    ]
    if first is None or not late:
        return
    moved = "".join(_ended(draft.text[start:stop]) for _, start, stop in late)
    offsets = [
        one.start
        for one in draft.annotations()
        if first[1] <= one.start < first[2] and not one.name.lower().startswith("app:")
    ]
    word = next(t.start for t in _words(draft.text) if t.start >= first[1])
    at = min([word, *offsets])
    draft.change(at, at, moved, "definitions precede the first query")
    draft.edits += [(start, stop, "") for _, start, stop in late]


def _ended(text: str) -> str:
    text = text.strip()
    return f"{text}{'' if text.endswith(';') else ';'}\n"


def _words(text: str) -> Iterator[Token]:
    """The words with which queries and partitions begin."""
    for token in tokenize(text).tokens:
        if token.kind is TokenKind.NAME and token.text.lower() in _ELEMENTS:
            yield token


def _statements(text: str) -> Iterator[tuple[str, int, int]]:
    """First word after the annotations, start and end of each statement."""
    start, word, depth, brackets = 0, "", 0, 0
    for token in tokenize(text).tokens:
        lower = token.text.lower() if token.kind is TokenKind.NAME else ""
        if token.kind is TokenKind.SYMBOL and token.text in "()":
            brackets += 1 if token.text == "(" else -1
        elif brackets == 0 and not word and lower in ("define", *_ELEMENTS):
            word = lower
        elif word == "partition" and lower in ("begin", "end"):
            depth += 1 if lower == "begin" else -1
        if depth == 0 and brackets <= 0 and _ends(token):
            stop = token.start + len(token.text)
            match = _LINE.match(text, stop)
            stop = match.end() if match is not None else stop
            if word:
                yield word, start, stop
            start, word = stop, ""


def _ends(token: Token) -> bool:
    return token.kind is TokenKind.END or (token.kind is TokenKind.SYMBOL and token.text == ";")


def _planned(text: str, name: str) -> tuple[tuple[MeshError, ...], list[str]]:
    """Errors of an app's plan, and its variables without a value."""
    missing = list(dict.fromkeys(m[1] for m in VARIABLE.finditer(text) if m[2] is None))
    by_place = _values_by_place(text) if missing else {}
    first: tuple[MeshError, ...] = ()
    for value in _VALUES if missing else ("",):
        try:
            plan(named(substitute(text, dict.fromkeys(missing, value) | by_place), name))
        except MeshError as error:
            first = first or all_errors(error)
        else:
            return (), missing
    return first, missing


def _values_by_place(text: str) -> dict[str, str]:
    """Values of variables that are whole options, by the options that they are."""
    values = {}
    for annotation in annotations_of(text):
        kind = annotation.get("type") or ""
        for one in nested([annotation]):
            for element in one.elements:
                match = VARIABLE.fullmatch(element.text)
                value = _value_of(annotation.name, kind, element.key or "") if match else ""
                if match is not None and match[2] is None and value:
                    values[match[1]] = value
    return values


def _value_of(role: str, kind: str, key: str) -> str:
    """A value that an option can have; empty if it is not known here."""
    spec = registry.find(Connector.SINK if role.lower() == "sink" else Connector.SOURCE, kind)
    option = spec.option(key) if spec is not None else None
    if option is not None and (option.kind is Kind.SWITCH or option.choices):
        return option.choices[0] if option.choices else "false"
    for part, value in _OPTIONS:
        if part in key.lower():
            name = next((one for one in _ADDRESSES if kind.startswith(one)), "")
            return value or _ADDRESSES.get(name, _VALUES[1])
    return ""


def _declared_name(text: str) -> str:
    """The name that a text of any version has; empty without one."""
    for annotation in Draft(text).annotations():
        if annotation.name.lower() in ("app:name", "plan:name") and annotation.elements:
            return annotation.elements[0].text
    return ""


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
    """``insert overwrite T``, ``insert expired-events into``, ``insert into T for all-events``."""
    tokens = tokenize(draft.text).tokens
    inserts = None
    for at, token in enumerate(tokens[:-3]):
        if token.kind is not TokenKind.NAME:
            continue
        after = tokens[at + 1]
        if token.text.lower() == "insert":
            inserts = token
        last = tokens[at + 3]
        if token.text.lower() == "for" and last.text.lower() == "events" and inserts is not None:
            words, stop = f"insert {after.text} events", last.start + len(last.text)
            draft.change(inserts.start, inserts.start + len(inserts.text), words, f"{words} into")
            draft.edits.append((token.start, stop, ""))
            continue
        if token.text.lower() == "insert" and after.text.lower() == "overwrite":
            draft.change(
                token.start,
                after.start + len(after.text),
                "update or insert into",
                "insert overwrite is update or insert into",
            )
        is_kind = token.text.lower() in ("current", "expired", "all")
        is_kind = is_kind and tokens[at - 1].text.lower() != "for"
        if is_kind and after.text == "-" and tokens[at + 2].text.lower() == "events":
            draft.change(after.start, after.start + 1, " ", f"{token.text}-events is two words")
