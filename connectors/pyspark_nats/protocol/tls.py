"""TLS to NATS: certificates passed as text, and readable errors for invalid ones.

The module ``ssl`` is imported when TLS is used, and its context is created once for each value.
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

#: OpenSSL's numbers of certificate errors.
_EXPIRED, _NOT_YET = 10, 9
_WRONG_NAME = frozenset({62, 64})


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS options as PEM texts, empty where an option was not given."""

    #: Authorities for the server's certificate, instead of the system's.
    ca: str = field(default="", repr=False)
    cert: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    #: Whether the handshake precedes the server's first line.
    is_first: bool = False

    @property
    def is_demanded(self) -> bool:
        """Whether a connection without TLS is forbidden."""
        return bool(self.ca or self.cert or self.is_first)


#: TLS if the server requires it, with the system's authorities.
DEFAULT: Final = Tls()


def check(tls: Tls, labels: tuple[str, str, str]) -> None:
    """Validate the certificates and the key, so that errors show before a task runs.

    Args:
        tls: the options.
        labels: names of the options, and the files, of ``ca``, ``cert`` and ``key`` in errors.

    Raises:
        OptionError: one is malformed, or the key does not belong to the certificate.
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
    """The context of connections with ``tls``; loading the system's authorities takes a while."""
    import ssl

    ssl_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ssl_context.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.ca:
        ssl_context.load_verify_locations(cadata=tls.ca)
    else:
        ssl_context.load_default_certs()
    if tls.cert:
        _load_pair(ssl_context, tls)
    return ssl_context


def _load_pair(ssl_context: ssl.SSLContext, tls: Tls) -> None:
    with _file(tls.cert) as cert, _file(tls.key) as key:
        # Without a password OpenSSL would prompt for one on the terminal.
        ssl_context.load_cert_chain(cert, key, password="")


@contextlib.contextmanager
def _file(text: str) -> Iterator[str]:
    """A file that only this user can read: OpenSSL accepts certificates only from files."""
    handle, path = tempfile.mkstemp(prefix="pyspark_nats-")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        yield path
    finally:
        os.unlink(path)


def refusal(error: OSError, server: str) -> RefusedError | None:
    """The permanent error that caused a failed TLS connection; None if it may be temporary.

    Args:
        error: of the handshake, or of the first bytes after it: a server that requires a
            certificate reports this only then.
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
