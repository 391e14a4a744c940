"""What a join token looks like: SECRET-FINGERPRINT, both in base32.

The secret lets one zone in, once. The fingerprint is the SHA-256 of the public key of the CA that
signed the coordinator's certificate: whoever has a token needs no file to know the coordinator by.
Only the secret is ever sent.
"""

import base64
import re
import secrets
from dataclasses import dataclass, field

from marl_sched.errors import SecurityError

_SECRET_BYTES = 20
_TOKEN = re.compile("[a-z2-7]{32}-[a-z2-7]{52}")


@dataclass(frozen=True)
class JoinToken:
    """A join token.

    Attributes:
        secret: 160 random bits, 32 characters.
        ca_fingerprint: SHA-256 of the CA's public key, 32 bytes.
    """

    secret: str = field(repr=False)
    ca_fingerprint: bytes

    def text(self) -> str:
        """Return the token as it is handed over."""
        return f"{self.secret}-{_encode(self.ca_fingerprint)}"


def new_secret() -> str:
    """Draw the secret of a token from the system's generator."""
    return _encode(secrets.token_bytes(_SECRET_BYTES))


def parse_join_token(text: str) -> JoinToken:
    """Parse a token as it was handed over.

    Raises:
        SecurityError: It is not one; the message does not repeat it.
    """
    text = text.strip()
    if not _TOKEN.fullmatch(text):
        raise SecurityError(
            f"join token of {len(text)} characters: not one of ours, expected the 85 characters "
            "that `marl-sched certificates DIR --join-token` prints"
        )
    secret, _, encoded = text.partition("-")
    return JoinToken(secret, base64.b32decode(f"{encoded.upper()}===="))


def _encode(content: bytes) -> str:
    return base64.b32encode(content).decode("ascii").rstrip("=").lower()
