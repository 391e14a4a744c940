"""How our certificates are made: a CA, the listeners' under it, and the zones'."""

import datetime as dt
import ipaddress
import re
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from marl_sched.errors import SecurityError
from zones.keys import PrivateKey, PublicKey, fingerprint

ALWAYS = ("localhost", "127.0.0.1")
"""Every listener's certificate is for these too."""

_CA_DAYS = 3650
_BACKDATED = dt.timedelta(minutes=10)  # for callers whose clocks are behind
_FREE = "(free)"  # no zone can have this name
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
_DNS_NAME = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*\.?")


def make_ca(key: PrivateKey, now: dt.datetime) -> x509.Certificate:
    """Make the certificate of a new CA; its name is unlike any other CA's."""
    name = _name(f"marl-sched CA {fingerprint(key.public_key()).hex()[:8]}")
    usage = x509.KeyUsage(
        key_cert_sign=True,
        crl_sign=True,
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        _start(name, key.public_key(), now)
        .issuer_name(name)
        .not_valid_after(now + dt.timedelta(days=_CA_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA384())
    )


class Issuer:
    """A CA's certificate and key, and until when what it signs is valid."""

    def __init__(self, ca: x509.Certificate, key: PrivateKey, now: dt.datetime, days: int) -> None:
        """Sign from `now` on for a number of days, at most as long as the CA is valid."""
        self._ca = ca
        self._key = key
        self._now = now
        self._until = min(now + dt.timedelta(days=days), ca.not_valid_after_utc)

    def sign_server(self, key: PublicKey, hosts: Sequence[str]) -> x509.Certificate:
        """Issue the listeners' certificate, for `hosts` and ALWAYS.

        Raises:
            SecurityError: A host is neither name nor address.
        """
        names = [general_name(host) for host in dict.fromkeys((*hosts, *ALWAYS))]
        builder = _start(_name("marl-sched coordinator"), key, self._now)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return self._sign(builder, ExtendedKeyUsageOID.SERVER_AUTH)

    def sign_zone(self, key: PublicKey, zone: str) -> x509.Certificate:
        """Issue a zone's certificate, or with an empty name a free key's; for a client only.

        The name is for people: what counts is the key.
        """
        name = _name(zone or _FREE)
        return self._sign(_start(name, key, self._now), ExtendedKeyUsageOID.CLIENT_AUTH)

    def _sign(
        self, builder: x509.CertificateBuilder, use: x509.ObjectIdentifier
    ) -> x509.Certificate:
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            builder.issuer_name(self._ca.subject)
            .not_valid_after(self._until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
            .add_extension(issuer, critical=False)
            .sign(self._key, hashes.SHA384())
        )


def general_name(host: str) -> x509.GeneralName:
    """Return a host as it stands in a certificate.

    Raises:
        SecurityError: It is neither a DNS name nor an address.
    """
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if len(host) > 253 or not _DNS_NAME.fullmatch(host):
        raise SecurityError(
            f"--host {host!r}: not a host, expected a DNS name or an IP address, without a port"
        )
    return x509.DNSName(host)


def _start(name: x509.Name, key: PublicKey, now: dt.datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
