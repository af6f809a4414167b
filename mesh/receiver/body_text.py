"""Bodies of HTTP in another character set than UTF-8, by their ``Content-Type``."""

from __future__ import annotations

import codecs
import re
from email.message import Message
from typing import Final

_UTF8: Final = ("utf-8", "ascii")
#: Python's codecs that are no character sets of texts on the web.
_REFUSED: Final = frozenset(
    {"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7"}
)
_TEXT: Final = re.compile(r"text/|application/(?:[\w.-]+\+)?(?:json|xml|x-www-form-urlencoded)\b")
#: The character set that an XML document names; it holds no longer.
_DECLARED: Final = re.compile(r"^(<\?xml\b[^>]*?)\s+encoding\s*=\s*(?:\"[^\"]*\"|'[^']*')")


def in_utf8(body: bytes, content_type: str) -> bytes:
    """A body of text in UTF-8; one of another kind, or without a character set, as it is.

    Raises:
        ValueError: the character set is unknown, or the body is not in it; it names the set.
    """
    if not _TEXT.match(content_type.strip().lower()):
        return body
    message = Message()
    message["content-type"] = content_type
    charset = message.get_content_charset()
    if charset is None:
        return body
    try:
        name = codecs.lookup(charset).name
        if name in _UTF8:
            return body
        if name.replace("_", "-") in _REFUSED:
            raise LookupError
        text = body.decode(name)
    except UnicodeDecodeError as error:
        raise ValueError(
            f'the body is not in charset "{charset}", at byte {error.start}'
        ) from error
    except LookupError as error:
        raise ValueError(f'the body has charset "{charset}", which is not read') from error
    return _DECLARED.sub(r"\1", text.removeprefix("\ufeff")).encode()
