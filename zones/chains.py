"""Certificates, from files and from peers: every check that a certificate must pass, in words."""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from marl_sched.errors import SecurityError
from zones.keys import CURVES, PrivateKey, PublicKey, describe, read_file

Certificates = tuple[x509.Certificate, ...]

_MAX_CHAIN = 8


def utc_now() -> dt.datetime:
    """Return this host's clock."""
    return dt.datetime.now(dt.UTC)


def load_certificates(path: Path) -> Certificates:
    """Read a PEM file of certificates, a listener's own first.

    Raises:
        SecurityError: It holds none, too many, or something else.
    """
    return parse_certificates(read_file(path, "certificates in PEM"), str(path))


def parse_certificates(content: bytes, where: str) -> Certificates:
    """Parse certificates in PEM that came from `where`.

    Raises:
        SecurityError: There are none, too many, or something else.
    """
    try:
        certificates = tuple(x509.load_pem_x509_certificates(content))
    except (ValueError, x509.InvalidVersion):
        raise SecurityError(f"{where}: not a certificate, expected certificates in PEM") from None
    if len(certificates) > _MAX_CHAIN:
        raise SecurityError(
            f"{where}: {len(certificates)} certificates, expected at most {_MAX_CHAIN}"
        )
    return certificates


def certificates_to_pem(certificates: Sequence[x509.Certificate]) -> bytes:
    """Return certificates as one PEM file."""
    return b"".join(c.public_bytes(serialization.Encoding.PEM) for c in certificates)


def public_key_of(certificate: x509.Certificate, where: str) -> PublicKey:
    """Return the key that a certificate is for.

    Raises:
        SecurityError: It is not on an elliptic curve that we use.
    """
    try:
        key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, PublicKey) or not isinstance(key.curve, CURVES):
        raise SecurityError(f"{where}: for {describe(key)}, expected an EC key, P-256 or P-384")
    return key


def check_dates(certificate: x509.Certificate, where: str, now: dt.datetime) -> None:
    """Check that a certificate is valid now.

    Raises:
        SecurityError: It is not yet, or no longer.
    """
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    clock = f"this host's clock says {show_time(now)}"
    if now < first:
        raise SecurityError(
            f"{where}: not valid before {show_time(first)} by the clock of its maker, but {clock}; "
            "expected a clock that is right, or a certificate valid now"
        )
    if now > last:
        raise SecurityError(
            f"{where}: expired at {show_time(last)}, and {clock}; expected a certificate valid now"
        )


def show_time(time: dt.datetime) -> str:
    """Return a time as messages show it."""
    return f"{time.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC"


def check_pair(certificate: x509.Certificate, key: PrivateKey, where: str, where_key: str) -> None:
    """Check that a certificate is for a key.

    Raises:
        SecurityError: It is for another.
    """
    if public_key_of(certificate, where) != key.public_key():
        raise SecurityError(
            f"{where_key}: does not match {where}, expected the key this certificate was made for"
        )


def names_of(certificate: x509.Certificate) -> list[str]:
    """Return the DNS names and IP addresses that a certificate is for."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    names = found.get_values_for_type(x509.DNSName)
    return [*names, *map(str, found.get_values_for_type(x509.IPAddress))]


def check_host(certificate: x509.Certificate, host: str, where: str) -> None:
    """Check that a certificate is for a host.

    Raises:
        SecurityError: It is for others only; the message lists them.
    """
    names = names_of(certificate)
    if not any(_is_named(host, name) for name in names):
        listed = ", ".join(names) or "no host at all"
        raise SecurityError(f"{where}: for {listed}; expected a certificate for {host}")


def _is_named(host: str, name: str) -> bool:
    try:
        return ipaddress.ip_address(host) == ipaddress.ip_address(name)
    except ValueError:
        pass
    host, name = host.lower().rstrip("."), name.lower()
    if name.startswith("*."):
        return host.partition(".")[2] == name[2:]
    return host == name


def check_signed(
    chain: Sequence[x509.Certificate], roots: Certificates, where: str, by: str
) -> x509.Certificate:
    """Check that a chain leads to one of the CAs.

    Args:
        chain: A certificate and, in any order, those between it and the CA.
        roots: The CAs.
        where: Where the chain comes from.
        by: Where the CAs come from.

    Returns:
        The CA that it leads to.

    Raises:
        SecurityError: It leads to none of them.
    """
    certificate, *between = chain
    for _ in range(_MAX_CHAIN):
        root = _issuer(certificate, roots)
        if root is not None:
            return root
        issuer = _issuer(certificate, between)
        if issuer is None:
            break
        certificate = issuer
    raise SecurityError(f"{where}: not signed by the CA of {by}, expected a certificate that is")


def _issuer(
    certificate: x509.Certificate, others: Sequence[x509.Certificate]
) -> x509.Certificate | None:
    return next((other for other in others if is_issued(certificate, other)), None)


def is_issued(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    """Return whether `issuer` is a CA and has signed `certificate`."""
    try:
        constraints = issuer.extensions.get_extension_for_class(x509.BasicConstraints).value
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.ExtensionNotFound):
        return False
    return constraints.ca


def check_use(certificate: x509.Certificate, use: x509.ObjectIdentifier, where: str) -> None:
    """Check that a certificate may be used as a server's, or as a client's.

    Raises:
        SecurityError: It names other uses only.
    """
    try:
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return
    except ValueError:
        uses = x509.ExtendedKeyUsage([])
    if use not in uses:
        raise SecurityError(f"{where}: not made for this use, expected {use._name}")
