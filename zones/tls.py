"""Looking at a listener's certificate before, or after, a handshake has failed.

A TLS library only says that a handshake failed. Here the same certificate is fetched without trust,
and the first check that it does not pass is told in words.
"""

import contextlib
import datetime as dt
import ipaddress
import socket
import ssl

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from marl_sched.errors import SecurityError
from zones.chains import (
    Certificates,
    check_dates,
    check_host,
    check_signed,
    check_use,
    utc_now,
)


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT or [IPv6]:PORT.

    Raises:
        SecurityError: It is not one.
    """
    host, _, port = address.rpartition(":")
    is_ipv6 = host.startswith("[") and host.endswith("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536 or (":" in host) != is_ipv6:
        raise SecurityError(f"{address!r}: not an address, expected HOST:PORT")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Return whether a host, name or address, is this one and nothing else."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host.lower().rstrip(".") == "localhost"


def fetch_certificate(address: str, timeout_s: float) -> x509.Certificate:
    """Fetch the certificate that a listener shows. Nothing of it is checked.

    Raises:
        SecurityError: There is no certificate in it that can be read.
        OSError: Nobody listens there, or not with TLS.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    host, port = split_address(address)
    with (
        socket.create_connection((host, port), timeout_s) as plain,
        context.wrap_socket(plain, server_hostname=host) as secured,
    ):
        content = secured.getpeercert(binary_form=True)
    try:
        return x509.load_der_x509_certificate(content or b"")
    except (ValueError, x509.InvalidVersion):
        raise SecurityError(
            f"the certificate of {address}: cannot be read, expected X.509"
        ) from None


def explain_failure(
    address: str,
    roots: Certificates,
    roots_from: str,
    timeout_s: float,
    now: dt.datetime | None = None,
) -> None:
    """Say why a handshake failed: what is wrong with the listener's certificate.

    Those between it and the CA cannot be seen here, so call this after a failed handshake only.

    Args:
        address: HOST:PORT.
        roots: The CAs that we trust.
        roots_from: Where they come from.
        timeout_s: Longest wait.
        now: Time to check against; this host's clock by default.

    Raises:
        SecurityError: The first thing that is wrong with it.
    """
    with contextlib.suppress(OSError):
        certificate = fetch_certificate(address, timeout_s)
        where = f"the certificate of {address}"
        now = now or utc_now()
        check_dates(certificate, where, now)
        check_host(certificate, split_address(address)[0], where)
        check_use(certificate, ExtendedKeyUsageOID.SERVER_AUTH, where)
        check_dates(check_signed((certificate,), roots, where, roots_from), roots_from, now)
