from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class AuthorityRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AuthorityReply(_message.Message):
    __slots__ = ("ca",)
    CA_FIELD_NUMBER: _ClassVar[int]
    ca: bytes
    def __init__(self, ca: _Optional[bytes] = ...) -> None: ...

class EnrolRequest(_message.Message):
    __slots__ = ("token", "zone", "certificate_request")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    token: str
    zone: str
    certificate_request: bytes
    def __init__(self, token: _Optional[str] = ..., zone: _Optional[str] = ..., certificate_request: _Optional[bytes] = ...) -> None: ...

class EnrolReply(_message.Message):
    __slots__ = ("zone", "ca", "certificate", "fleet_address", "exchange_address", "clock_s")
    ZONE_FIELD_NUMBER: _ClassVar[int]
    CA_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    FLEET_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CLOCK_S_FIELD_NUMBER: _ClassVar[int]
    zone: str
    ca: bytes
    certificate: bytes
    fleet_address: str
    exchange_address: str
    clock_s: int
    def __init__(self, zone: _Optional[str] = ..., ca: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., fleet_address: _Optional[str] = ..., exchange_address: _Optional[str] = ..., clock_s: _Optional[int] = ...) -> None: ...
