"""Subject templates: ``events.{deviceID}.{site}``, filled with the columns of each row.

A value replaces its braces within one token.  So it must not be empty, and must hold no dots,
wildcards or white space, which would change the number of tokens.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_nats.arrow import kernels
from pyspark_nats.encode import iso_texts
from pyspark_nats.errors import OptionError, SchemaError
from pyspark_nats.options import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_nats.arrow import Array

_PART = re.compile(r"\{([^{}]*)\}|([^{}]+)|([{}])")
#: Forbidden in a value: RE2, on text.
_NOT_IN_A_TOKEN = r"[\s\x00-\x1f\x7f.*>]|^$"
#: Forbidden in a subject to publish to.
_NOT_A_SUBJECT = r"[\s\x00-\x1f\x7f]|^\.|\.\.|\.$|^$|(^|\.)[*>](\.|$)"

#: Spark's names of the types that a template may use.
_TOKENS = frozenset(("string", "tinyint", "smallint", "int", "bigint", "boolean", "date"))


@dataclass(frozen=True, slots=True)
class Template:
    """A subject that contains columns; it pickles."""

    text: str
    #: Texts and columns in turn, a text first and last; empty texts where there is none.
    texts: tuple[str, ...]
    columns: tuple[str, ...]

    def __call__(self, rows: pa.RecordBatch) -> Array:
        """The subject of each row.

        Args:
            rows: n rows with the template's columns.

        Returns:
            Length n, string, no nulls.

        Raises:
            SchemaError: a value is null, or can't be in a token of a subject.
        """
        if not self.columns:
            return pa.repeat(self.text, rows.num_rows)
        pieces: list[Array] = [pa.scalar(self.texts[0])]
        for name, text in zip(self.columns, self.texts[1:], strict=True):
            pieces += [_tokens(name, rows.column(name)), pa.scalar(text)]
        return kernels.binary_join_element_wise(*pieces, pa.scalar(""))


def template(text: str) -> Template:
    """Read option ``subject``.

    Raises:
        OptionError: unbalanced or empty braces; not a valid subject for any values of the columns.
    """
    texts, columns = [""], list[str]()
    for column, literal, brace in _PART.findall(text):
        if brace or not (column or literal):
            raise OptionError(
                f'option "subject" is "{text}", with braces that hold no column',
                hint='Write "events.{deviceID}" for a column "deviceID".',
            )
        if literal:
            texts[-1] += literal
        else:
            columns.append(column)
            texts.append("")
    check_subject("x".join(texts) if columns else text, f'option "subject" is "{text}"')
    return Template(text, tuple(texts), tuple(columns))


def check_subject(subject: str, said: str) -> None:
    """OptionError, starting with ``said``, unless a message can be published to ``subject``."""
    if subject and re.search(_NOT_A_SUBJECT, subject):
        raise OptionError(
            f"{said}, which is no subject to publish to",
            hint="It has tokens between dots, without white space and wildcards.",
        )


def check_columns(subject: Template, types: Mapping[str, str]) -> None:
    """Check that a template's columns exist and have text that can be a token.

    Args:
        subject: the template.
        types: Spark's names of the types of all columns, by column.

    Raises:
        SchemaError: naming the nearest column that exists.
    """
    for name in subject.columns:
        if name not in types:
            raise SchemaError(
                f'column "{name}" of the subject "{subject.text}" is missing',
                hint=nearest(name, tuple(types)),
            )
        if types[name] not in _TOKENS and not types[name].startswith("string collate"):
            raise SchemaError(
                f'column "{name}" of the subject "{subject.text}" is of type {types[name]}',
                detail="A subject is made of strings, whole numbers, booleans and dates.",
                hint=f"Make a string without dots of it, for example with date_format({name}, "
                "'yyyyMMdd-HHmm')."
                if types[name].startswith("timestamp")
                else "Cast it to a string without dots.",
            )


def check_subjects(subjects: Array) -> None:
    """SchemaError unless a message can be published to each of ``subjects``, no nulls."""
    unique = kernels.unique(subjects)
    wrong = kernels.match_substring_regex(unique, _NOT_A_SUBJECT)
    if kernels.any(wrong).as_py():
        value = unique.filter(wrong)[0].as_py()
        raise SchemaError(
            f"subject {value!r} is none to publish to",
            hint="It has tokens between dots, without white space and wildcards.",
        )


def _tokens(name: str, column: Array) -> Array:
    """The text of each value of ``column``; each distinct value is checked once."""
    if column.null_count:
        raise SchemaError(
            f'column "{name}" is null in a row, and is part of its subject',
            hint="Filter such rows, or use coalesce().",
        )
    encoded = column.dictionary_encode()
    values = encoded.dictionary
    texts = iso_texts(values) if pa.types.is_temporal(values.type) else values.cast(pa.string())
    wrong = kernels.match_substring_regex(texts, _NOT_IN_A_TOKEN)
    if kernels.any(wrong).as_py():
        value = texts.filter(wrong)[0].as_py()
        raise SchemaError(
            f'column "{name}" is {value!r} in a row, which can\'t be part of a subject',
            detail="A token has no dots, wildcards or white space, and is not empty.",
            hint=f"Replace them, for example with translate({name}, '. *>', '____').",
        )
    return texts.take(encoded.indices)
