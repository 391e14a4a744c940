"""Private files and keys: private from their first byte on, checked before use.

All keys are on elliptic curves. A zone has one key, EC P-384 in OpenSSH format as Flower wants it,
for both node authentication and mutual TLS.
"""

import hashlib
import os
import stat
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

from marl_sched.errors import SecurityError
from marl_sched.files import write_atomically

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600
PUBLIC_FILE = 0o644

PrivateKey = ec.EllipticCurvePrivateKey
PublicKey = ec.EllipticCurvePublicKey

_MAX_BYTES = 1 << 16
CURVES = (ec.SECP256R1, ec.SECP384R1)
"""Those that gRPC offers."""
_OPENSSH = b"-----BEGIN OPENSSH PRIVATE KEY-----"


def make_private_folder(path: Path) -> None:
    """Create a folder, and those above it, for their owner alone; one that exists stays as it is.

    Raises:
        SecurityError: It is no folder, or others may put files into it.
        OSError: It cannot be created.
    """
    for folder in (*reversed(path.parents), path):
        if not folder.exists():
            folder.mkdir(PRIVATE_FOLDER, exist_ok=True)
    if not path.is_dir():
        raise SecurityError(f"{path}: a file, expected a folder")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o022:
        raise SecurityError(
            f"{path}: mode {mode:04o}, others may write to it; expected 0700 (chmod 700 {path})"
        )


def write_private(path: Path, content: bytes) -> None:
    """Replace a file that only its owner may read."""
    write_atomically(path, lambda file: file.write(content), PRIVATE_FILE)


def write_public(path: Path, content: bytes) -> None:
    """Replace a file that all may read."""
    write_atomically(path, lambda file: file.write(content), PUBLIC_FILE)


def read_file(path: Path, kind: str, is_private: bool = False) -> bytes:
    """Read a small file.

    Args:
        path: The file.
        kind: What is expected there, for the message.
        is_private: Only the owner may have access.

    Raises:
        SecurityError: It is missing, unreadable, empty, too large, no file, or not private.
    """
    try:
        # A named pipe would otherwise make us wait for its writer.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise SecurityError(f"{path}: cannot be read: {error.strerror}, expected {kind}") from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            what = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise SecurityError(f"{path}: {what}, expected {kind}")
        if is_private:
            _check_private(path, status)
        content = b""
        while len(content) <= _MAX_BYTES and (part := os.read(handle, _MAX_BYTES)):
            content += part
    finally:
        os.close(handle)
    if not content:
        raise SecurityError(f"{path}: empty, expected {kind}")
    if len(content) > _MAX_BYTES:
        raise SecurityError(f"{path}: more than {_MAX_BYTES} bytes, expected {kind}")
    return content


def _check_private(path: Path, status: os.stat_result) -> None:
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise SecurityError(
            f"{path}: mode {mode:04o}, others than its owner have access; "
            f"expected 0600 (chmod 600 {path})"
        )
    if status.st_uid not in (0, os.geteuid()):
        raise SecurityError(
            f"{path}: belongs to user {status.st_uid}, expected {os.geteuid()}, who runs this"
        )


def new_key() -> PrivateKey:
    """Make a key, EC P-384."""
    return ec.generate_private_key(ec.SECP384R1())


def key_to_pem(key: PrivateKey) -> bytes:
    """Return a key as TLS libraries read it, PKCS #8."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def key_to_openssh(key: PrivateKey) -> bytes:
    """Return a key as Flower reads it."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )


def public_to_pem(key: PublicKey) -> bytes:
    """Return a public key as Flower's Control API takes it."""
    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def fingerprint(key: CertificatePublicKeyTypes) -> bytes:
    """Return the SHA-256 of a public key, 32 bytes."""
    content = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(content).digest()


def load_key(path: Path, is_node_key: bool = False) -> PrivateKey:
    """Read a private key.

    Args:
        path: A PEM file that only its owner may read, not encrypted.
        is_node_key: It must be EC P-384 in OpenSSH format. Else P-256 will do, and any format.

    Raises:
        SecurityError: It is not that.
    """
    kind = "an EC private key in PEM, not encrypted"
    if is_node_key:
        kind = "an EC P-384 private key in OpenSSH format, not encrypted"
    content = read_file(path, kind, is_private=True)
    is_openssh = content.lstrip().startswith(_OPENSSH)
    load = serialization.load_ssh_private_key if is_openssh else serialization.load_pem_private_key
    try:
        key = load(content, password=None)
    except TypeError:
        raise SecurityError(f"{path}: an encrypted key, expected {kind}") from None
    except (ValueError, UnsupportedAlgorithm):
        raise SecurityError(f"{path}: not a private key in PEM, expected {kind}") from None
    if not isinstance(key, PrivateKey) or not isinstance(key.curve, CURVES):
        raise SecurityError(f"{path}: {describe(key)}, expected {kind}, on P-256 or P-384")
    if is_node_key and not (is_openssh and isinstance(key.curve, ec.SECP384R1)):
        form = "OpenSSH" if is_openssh else "PKCS #8"
        raise SecurityError(f"{path}: {describe(key)} in {form} format, expected {kind}")
    return key


def describe(key: object) -> str:
    """Return what kind of key something is, for a message."""
    if isinstance(key, PrivateKey | PublicKey):
        return f"an EC key on {key.curve.name}"
    return (
        f"a key of type {type(key).__name__.removesuffix('PrivateKey').removesuffix('PublicKey')}"
    )
