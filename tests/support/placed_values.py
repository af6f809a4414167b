"""Options with places for values of events."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from email import policy
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa

from mesh.connect.places import OptionPlace, pairs_of
from mesh.mapping.sinks import filler
from pyspark_nats.arrow import arrow

if TYPE_CHECKING:
    from collections.abc import Callable

HOSTILE: Final = (
    "", " ", ".", "..", "...", "a.b", "A.Ein.by.k.0.x", "a b", "a\nb", "a\r\nb: c", "a\0b", "\t",
    "../x", "a/../../x", "/etc/passwd", "a/b", "//h", ".mesh-0123", "%2e%2e%2f", "a%2Fb", "\\..\\x",
    "*", ">", "+", "#", "$JS.API.STREAM.DELETE.x", "$SYS", "_INBOX.x", "__consumer_offsets",
    "a','Authorization:Basic ZXZpbA==", "A','Nats-Rollup:all", "'", "''", "a:b", "a,b", "a;b",
    "x@example.org,y@example.org", "x@example.org, y@example.org", "a@b", "x@y>, <z@w",
    '"', '"a" <x@y>', "a<b>", "team:a@b,c@d;", "?a=b", "&a=b", "a=b&c=d", "#x", "@evil:80/",
    "evil.example/", "u:p@evil", "\\evil", "http://evil/", "ä", "\N{FULLWIDTH SOLIDUS}", "{{n}}",
    "null", "true", "1", "-1", "x" * 300, "Host", "content-length", "NATS-Rollup", "Cookie",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A place: templates, the part of a filled text that no value changes, and good values."""

    shape: Callable[[str], Any]
    good: tuple[str, ...]
    #: Templates with ``{{k}}``.
    parts: tuple[str, ...]
    #: Values that are refused as the whole option.
    bad_as_whole: tuple[str, ...] = ()
    #: What stays of a value in the filled text, in the first template.
    value: Callable[[str], str] | None = None
    bad: tuple[str, ...] = field(default=())


def of_url(text: str) -> Any:
    found = urlsplit(text)
    segments = [unquote(one) in ("", ".", "..") for one in found.path.split("/")]
    names = [name for name, _ in parse_qsl(found.query, keep_blank_values=True)]
    return found.scheme, found.netloc, segments, names, found.fragment != ""


def of_addresses(text: str) -> Any:
    header: Any = policy.default.header_factory("To", text)
    return len(header.addresses), [g.display_name for g in header.groups if g.display_name]


def of_path(text: str) -> Any:
    return posixpath.dirname(text) == posixpath.dirname(posixpath.normpath(text)), text.count("/")


ROWS: Final[dict[OptionPlace, Row]] = {
    OptionPlace.TEXT: Row(lambda _: None, HOSTILE, ("a{{k}}",)),
    OptionPlace.LINE: Row(
        lambda text: len(text.splitlines()), ("a b", "ä, \"b\" <c>:;'"), ("a{{k}}b",),
        ("a\nb", "a\r\nb: c", "a\0b"),
    ),
    OptionPlace.METHOD: Row(str.isalpha, ("GET", "put"), ("{{k}}X",), ("a b", "G\r\n", "GET /x")),
    OptionPlace.NAME: Row(
        lambda text: (text.isascii() and text.isprintable(), set(text) & set(" ,/"), text[0]),
        ("a-1.b_c:d",), ("a{{k}}", "aa{{k}}-x"), ("a b", "__consumer_offsets", "a/b", "a,b", "ä"),
    ),
    OptionPlace.SUBJECT: Row(
        lambda text: (text.count("."), set(text) & set("*> \n\r\t\0"), "" in text.split(".")),
        ("a", "ä", "a-b", "a/b"), ("mesh.T{{k}}.Ein", "out.{{k}}", "a.{{k}}.c"),
        ("a.*", "a.>", "$JS.API.STREAM.DELETE.x", "_INBOX.x", "a b"),
        bad=("a.b", "*", ">", "A.Ein.by.k.0.x", "a b"),
    ),
    OptionPlace.ROUTING_KEY: Row(
        lambda text: (text.count("."), "#" in text or "*" in text, "" in text.split(".")),
        ("a", "a b"), ("n{{k}}.x", "n.{{k}}", "n.{{k}}.x"), ("*", "a.#"),
        bad=("a.b", "#", "*"),
    ),
    OptionPlace.TOPIC: Row(
        lambda text: (text.count("/"), "#" in text or "+" in text, "" in text.split("/")),
        ("a", "a.b", "$a"), ("n{{k}}/x", "n/{{k}}", "n/{{k}}/x"), ("+", "a/#", "$SYS/x"),
        bad=("a/b", "#", "+"),
    ),
    OptionPlace.PATH: Row(
        of_path, ("a", "a b", ".a", "a.b", "ä,;:'\""),
        ("/out/{{k}}/x.csv", "/out/{{k}}", "/out/a-{{k}}.csv", "t/{{k}}/"),
        ("../x", "a/../../x", "..", "a\0b"), bad=("..", "../x", "a/b", "/etc/passwd"),
    ),
    OptionPlace.PATHS: Row(
        lambda text: (text.count(","), of_path(text)), ("a", "a b"),
        ("/out/{{k}}", "/a,/out/{{k}}/x"), ("/a,/b", "a/../../x"), bad=("..", "../x", "a,b"),
    ),
    OptionPlace.ADDRESSES: Row(
        of_addresses, ("a", "a.b+c", "ä"), ("{{k}}@example.org", "a@x, b{{k}}@example.org"),
        ("x@y,z@w", "x@y, z@w", "team:a@b,c@d;", "x@y>, <z@w"),
        bad=("x@example.org,y", "a@b", "a;b", "a\nb"),
    ),
    OptionPlace.HEADERS: Row(
        lambda text: [name for name, _ in pairs_of(text)],
        ("ann", "a, b", "it's", "a','Authorization:Basic ZXZpbA==", "a:b"),
        ("'X-User:{{k}}'", "'A:b','X:{{k}}','C:d'", "X:{{k}},Y:1", "'Authorization:Bearer {{k}}'"),
        ("'A:b\r\nC:d'", "'Nats-Rollup:all'", "a:b,authorization:c", "'Host:x'", "'Cookie:x'"),
        value=lambda text: pairs_of(text)[0][1], bad=("a\nb", "a\r\nb: c", "a\0b"),
    ),
    OptionPlace.URL: Row(
        of_url, ("a", "a/b", "a b", "?a=b", "&x=y", "ä", "#x", "a%2Fb"),
        ("http://h/a/{{k}}/x?q=1", "http://h/{{k}}", "http://h/x?q={{k}}&r=1", "http://h/x?q={{k}}",
         "http://h/x-{{k}}"),
        value=lambda text: unquote(urlsplit(text).path.split("/")[2]), bad=("", "..", "."),
    ),
}  # fmt: skip


def filled(place: OptionPlace, template: str, *values: str) -> list[str]:
    fill = filler("o", place, template)
    assert fill is not None
    columns = {"k": pa.array(values, pa.string()), "n": pa.array([1] * len(values))}
    return fill(arrow.record_batch(columns))
