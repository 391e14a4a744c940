"""The certificate that the coordinator's listeners show: three files, our own or brought."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from cryptography.x509.oid import ExtendedKeyUsageOID

from zones.chains import (
    certificates_to_pem,
    check_dates,
    check_host,
    check_pair,
    check_signed,
    check_use,
    load_certificates,
    utc_now,
)
from zones.keys import fingerprint, key_to_pem, load_key


@dataclass(frozen=True)
class ServerTls:
    """What a listener needs, checked.

    Attributes:
        ca: PEM of the CAs that callers are to trust.
        certificate: PEM of the certificate and those between it and the CA.
        key: PEM of its private key.
        ca_fingerprint: SHA-256 of the public key of the CA that the certificate leads to.
    """

    ca: bytes
    certificate: bytes
    key: bytes = field(repr=False)
    ca_fingerprint: bytes

    def credentials(self, client_ca: bytes | None = None) -> grpc.ServerCredentials:
        """Return gRPC credentials.

        Args:
            client_ca: PEM of the CAs that must have signed the caller's certificate; None lets
                callers without any in.
        """
        return grpc.ssl_server_credentials(
            [(self.key, self.certificate)],
            root_certificates=client_ca,
            require_client_auth=client_ca is not None,
        )


@dataclass(frozen=True)
class ServerFiles:
    """Where a listener's certificate is.

    Attributes:
        ca: CAs that callers are to trust.
        certificate: The certificate, then those between it and the CA.
        key: Its private key.
    """

    ca: Path
    certificate: Path
    key: Path

    def load(self, hosts: Sequence[str] = (), now: dt.datetime | None = None) -> ServerTls:
        """Read the files and check all that a caller will check, and more.

        Args:
            hosts: Names and addresses by which callers will know us.
            now: Time to check against; this host's clock by default.

        Raises:
            SecurityError: A file is missing, unreadable, not private, of another kind, expired, for
                another host, or does not belong to the others.
        """
        now = now or utc_now()
        roots = load_certificates(self.ca)
        chain = load_certificates(self.certificate)
        key = load_key(self.key)
        where = str(self.certificate)
        check_pair(chain[0], key, where, str(self.key))
        root = check_signed(chain, roots, where, str(self.ca))
        check_dates(root, str(self.ca), now)
        for certificate in chain:
            check_dates(certificate, where, now)
        check_use(chain[0], ExtendedKeyUsageOID.SERVER_AUTH, where)
        for host in hosts:
            check_host(chain[0], host, where)
        return ServerTls(
            ca=certificates_to_pem(roots),
            certificate=certificates_to_pem(chain),
            key=key_to_pem(key),
            ca_fingerprint=fingerprint(root.public_key()),
        )
