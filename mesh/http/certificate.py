"""A certificate for a machine that has none."""

from __future__ import annotations

import ipaddress
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path


#: Days before its end from which a certificate that is kept is replaced.
_DAYS_LEFT: Final = 30


def has_days_left(certificate: Path, key: Path, now_ms: int) -> bool:
    """Whether there is a certificate with its key that is good for another month."""
    try:
        cert = x509.load_pem_x509_certificate(certificate.read_bytes())
        public_key = serialization.load_pem_private_key(key.read_bytes(), None).public_key()
    except (OSError, ValueError):
        return False
    at = datetime.fromtimestamp(now_ms / 1000, UTC) + timedelta(days=_DAYS_LEFT)
    return cert.public_key() == public_key and at < cert.not_valid_after_utc


def self_signed(
    directory: Path, now_ms: int, hosts: tuple[str, ...] = ("localhost", "127.0.0.1", "::1")
) -> tuple[Path, Path]:
    """Make ``api.crt`` and ``api.key`` in ``directory``, good for a year.

    The certificate is its own authority: a client that is given it trusts this key and no other.

    Args:
        directory: made if it isn't there.
        now_ms: milliseconds since 1970; the certificate is good from a day before.
        hosts: names and addresses that clients will use.

    Returns:
        The paths of the certificate and of the key, which its owner alone may read.
    """
    directory.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=365))
        .add_extension(x509.SubjectAlternativeName([_general_name(h) for h in hosts]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .add_extension(
            x509.KeyUsage(True, False, False, False, False, True, False, False, False), True
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), False)
        .sign(key, hashes.SHA256())
    )
    certificate_path, key_path = directory / "api.crt", directory / "api.key"
    certificate_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    key_path.unlink(missing_ok=True)
    descriptor = os.open(key_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secret)
    return certificate_path, key_path


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
