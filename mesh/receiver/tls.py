"""TLS of sources and sinks: PEM files, or a PKCS#12 store with its password."""

from __future__ import annotations

import os
import ssl
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.connect.contract import Options


def client_context(options: Options) -> ssl.SSLContext | None:
    """The context of a client; None if no option names TLS.

    Args:
        options: with ``tls.ca``, ``tls.cert``, ``tls.key``, and ``tls.store`` and
            ``tls.truststore`` with their passwords.

    Raises:
        MeshError: MESH-C131 for a file that can't be read, or is no certificate or key.
    """
    names = ("tls.ca", "tls.cert", "tls.store", "tls.truststore")
    if not any(options.get(name) for name in names):
        return None
    with _explained(options):
        context = ssl.create_default_context(cafile=options.get("tls.ca") or None)
        _add_identity(context, options)
        return context


def server_context(options: Options) -> ssl.SSLContext:
    """The context of a server; ``ssl.verify.client`` has clients show a certificate.

    Raises:
        MeshError: MESH-C131 as for a client, and without a certificate.
    """
    if not (options.get("tls.cert") or options.get("tls.store")):
        raise MeshError(
            "MESH-C131",
            "https needs a certificate",
            hint="Give tls.cert and tls.key, or tls.store, in the reference of the source.",
        )
    with _explained(options):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _add_identity(context, options)
        verify = str(options.get("ssl.verify.client") or "").lower()
        if verify:
            context.load_verify_locations(cafile=options.get("tls.ca") or None)
            context.verify_mode = (
                ssl.CERT_REQUIRED if verify == "require" else ssl.CERT_OPTIONAL
            )  # fmt: skip
        return context


class Pems(NamedTuple):
    """Texts of PEM, for clients that take no ``SSLContext``; empty for none."""

    trusted: bytes = b""
    key: bytes = b""
    #: The own certificate, and those that it depends on.
    chain: bytes = b""


def pems_of(options: Options) -> Pems:
    """The texts of the options that ``client_context`` and ``server_context`` read.

    Raises:
        MeshError: MESH-C131 for a file that can't be read.
    """
    with _explained(options):
        ca, store = options.get("tls.truststore"), options.get("tls.store")
        trusted = _read(options.get("tls.ca"))
        trusted += _trusted_of(ca, options.get("tls.truststore.password") or "") if ca else b""
        if store:
            pems = _identity_of(store, options.get("tls.store.password") or "")
            return pems._replace(trusted=trusted + pems.trusted)
        chain = _read(options.get("tls.cert"))
        # A file of both has the key as well.
        return Pems(trusted, _read(options.get("tls.key")) or chain, chain)


def _read(path: str | None) -> bytes:
    return Path(path).read_bytes() if path else b""


@contextmanager
def _explained(options: Options) -> Iterator[None]:
    """Turns the errors of files and keys into MESH-C131, without their content."""
    try:
        yield
    except (OSError, ValueError, TypeError) as error:
        files = [str(v) for k, v in options.items() if k.startswith("tls.") and v
                 and "password" not in k]  # fmt: skip
        raise MeshError(
            "MESH-C131",
            "TLS can't be set up with the files of the options",
            detail=f"{type(error).__name__} with {', '.join(files)}.",
            hint="tls.ca, tls.cert and tls.key are PEM, tls.store is PKCS#12.",
        ) from error


def _add_identity(context: ssl.SSLContext, options: Options) -> None:
    if options.get("tls.truststore"):
        _trust(context, options["tls.truststore"], options.get("tls.truststore.password") or "")
    if options.get("tls.store"):
        _add_store(context, options["tls.store"], options.get("tls.store.password") or "")
    elif options.get("tls.cert"):
        context.load_cert_chain(options["tls.cert"], options.get("tls.key") or None)


def _store(path: str, password: str) -> Any:
    from cryptography.hazmat.primitives.serialization import pkcs12

    with open(path, "rb") as file:
        return pkcs12.load_pkcs12(file.read(), password.encode() or None)


def _trusted_of(path: str, password: str) -> bytes:
    """The certificates of a PKCS#12 store as PEM; a key in it is left alone."""
    from cryptography.hazmat.primitives.serialization import Encoding

    store = _store(path, password)
    trusted = [*([store.cert] if store.cert else []), *store.additional_certs]
    return b"".join(one.certificate.public_bytes(Encoding.PEM) for one in trusted)


def _identity_of(path: str, password: str) -> Pems:
    """The key and the certificates of a PKCS#12 store; its authorities are trusted."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    store = _store(path, password)
    others = b"".join(one.certificate.public_bytes(Encoding.PEM) for one in store.additional_certs)
    if store.key is None or store.cert is None:
        return Pems(others)
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    certificate = store.cert.certificate.public_bytes(Encoding.PEM)
    return Pems(others, key, certificate + others)


def _trust(context: ssl.SSLContext, path: str, password: str) -> None:
    context.load_verify_locations(cadata=_trusted_of(path, password).decode())


def _add_store(context: ssl.SSLContext, path: str, password: str) -> None:
    pems = _identity_of(path, password)
    if pems.trusted:
        context.load_verify_locations(cadata=pems.trusted.decode())
    if not pems.key:
        return
    # Python reads a chain from a file only; it is the owner's alone, and exists for this call.
    descriptor, name = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(pems.key + pems.chain)
        context.load_cert_chain(name)
    finally:
        os.unlink(name)
