"""TLS to NATS: certificates carried as text, and readable errors for invalid ones.

The module ``ssl`` is imported when TLS is used, and its context is made once for a value.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark_nats.errors import OptionError, RefusedError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

#: OpenSSL's numbers of what may be wrong with a certificate.
_EXPIRED, _NOT_YET = 10, 9
_WRONG_NAME = frozenset({62, 64})


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS options as PEM texts, empty where an option was not given."""

    #: The authorities that a server's certificate may come from, instead of the system's.
    ca: str = field(default="", repr=False)
    cert: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    #: Whether the handshake comes before the server's first line.
    is_first: bool = False

    @property
    def is_demanded(self) -> bool:
        """Whether a connection without TLS is out of the question."""
        return bool(self.ca or self.cert or self.is_first)


#: Whatever the server asks for, with the system's authorities.
DEFAULT: Final = Tls()


def check(tls: Tls, labels: tuple[str, str, str]) -> None:
    """Try the certificates and the key, so that what is wrong shows before a task runs.

    Args:
        tls: what to try.
        labels: name the options, and the files, of ``ca``, ``cert`` and ``key`` in errors.

    Raises:
        OptionError: one is malformed, or the key is not that of the certificate.
    """
    import ssl

    ca, cert, key = labels
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls.ca:
        try:
            bare.load_verify_locations(cadata=tls.ca)
        except (ssl.SSLError, ValueError) as error:
            raise OptionError(f"{ca} holds no certificate in PEM form") from error
    if not tls.cert:
        return
    try:
        _load_pair(bare, tls)
    except ssl.SSLError as error:
        reason = str(error.reason or error)
        if reason == "KEY_VALUES_MISMATCH":
            raise OptionError(f"{key} is not the key of the certificate") from error
        detail = f"OpenSSL says {reason}."
        if "-----BEGIN CERTIFICATE-----" not in tls.cert:
            raise OptionError(f"{cert} holds no certificate in PEM form") from error
        hint = "A key with a passphrase can't be used." if "ENCRYPTED" in tls.key else ""
        raise OptionError(f"{key} can't be loaded", detail=detail, hint=hint) from error


@functools.lru_cache(maxsize=16)
def context(tls: Tls) -> ssl.SSLContext:
    """The context of connections with ``tls``; finding the system's authorities takes a while."""
    import ssl

    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.ca:
        made.load_verify_locations(cadata=tls.ca)
    else:
        made.load_default_certs()
    if tls.cert:
        _load_pair(made, tls)
    return made


def _load_pair(made: ssl.SSLContext, tls: Tls) -> None:
    with _file(tls.cert) as cert, _file(tls.key) as key:
        # Without a password OpenSSL would ask for one on the terminal.
        made.load_cert_chain(cert, key, password="")


@contextlib.contextmanager
def _file(text: str) -> Iterator[str]:
    """A file that only we can read, for OpenSSL, which takes certificates from files alone."""
    handle, path = tempfile.mkstemp(prefix="pyspark_nats-")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        yield path
    finally:
        os.unlink(path)


def refusal(error: OSError, server: str) -> RefusedError | None:
    """The permanent error behind a failed TLS connection; None if it may be temporary.

    Args:
        error: of the handshake, or of the first bytes after it: a server that wants a certificate
            says so only then.
        server: names the server.
    """
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        code, said = error.verify_code, error.verify_message
        if code in _WRONG_NAME:
            hint = 'Name the server in "servers" as its certificate names it.'
        elif code in (_EXPIRED, _NOT_YET):
            hint = "The server needs a certificate that is valid now."
        else:
            hint = 'Give the authority that issued it as option "tlsCa".'
        return RefusedError(
            f"the certificate of {server} is not trusted", detail=f"{said}.", hint=hint
        )
    if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError):
        return None
    reason = error.reason or ""
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
        return RefusedError(
            f"{server} does not start with TLS",
            hint='Leave out option "tlsFirst", unless the server has "handshake_first".',
        )
    if "ALERT" in reason:
        return RefusedError(
            f"{server} refused the TLS handshake",
            detail=f"It says {reason}.",
            hint='It may want another client certificate: options "tlsCert" and "tlsKey".',
        )
    return None
