from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FromZone(_message.Message):
    __slots__ = ("hello", "post", "leave", "view")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    POST_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    post: Post
    leave: Leave
    view: View
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., post: _Optional[_Union[Post, _Mapping]] = ..., leave: _Optional[_Union[Leave, _Mapping]] = ..., view: _Optional[_Union[View, _Mapping]] = ...) -> None: ...

class FromHub(_message.Message):
    __slots__ = ("welcome", "collected", "aborted")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    COLLECTED_FIELD_NUMBER: _ClassVar[int]
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    collected: Collected
    aborted: Aborted
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., collected: _Optional[_Union[Collected, _Mapping]] = ..., aborted: _Optional[_Union[Aborted, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("zone", "round", "attempt", "token")
    ZONE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    zone: str
    round: int
    attempt: int
    token: bytes
    def __init__(self, zone: _Optional[str] = ..., round: _Optional[int] = ..., attempt: _Optional[int] = ..., token: _Optional[bytes] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("members",)
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, members: _Optional[_Iterable[str]] = ...) -> None: ...

class Post(_message.Message):
    __slots__ = ("number", "step", "outbox")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    OUTBOX_FIELD_NUMBER: _ClassVar[int]
    number: int
    step: int
    outbox: Outbox
    def __init__(self, number: _Optional[int] = ..., step: _Optional[int] = ..., outbox: _Optional[_Union[Outbox, _Mapping]] = ...) -> None: ...

class Collected(_message.Message):
    __slots__ = ("number", "step", "moments", "with_digests", "digests", "offloads", "notices", "settlements")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    MOMENTS_FIELD_NUMBER: _ClassVar[int]
    WITH_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    OFFLOADS_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    SETTLEMENTS_FIELD_NUMBER: _ClassVar[int]
    number: int
    step: int
    moments: Array
    with_digests: _containers.RepeatedScalarFieldContainer[int]
    digests: Array
    offloads: Rows
    notices: Rows
    settlements: Rows
    def __init__(self, number: _Optional[int] = ..., step: _Optional[int] = ..., moments: _Optional[_Union[Array, _Mapping]] = ..., with_digests: _Optional[_Iterable[int]] = ..., digests: _Optional[_Union[Array, _Mapping]] = ..., offloads: _Optional[_Union[Rows, _Mapping]] = ..., notices: _Optional[_Union[Rows, _Mapping]] = ..., settlements: _Optional[_Union[Rows, _Mapping]] = ...) -> None: ...

class Rows(_message.Message):
    __slots__ = ("n_columns", "counts", "values")
    N_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    n_columns: int
    counts: _containers.RepeatedScalarFieldContainer[int]
    values: bytes
    def __init__(self, n_columns: _Optional[int] = ..., counts: _Optional[_Iterable[int]] = ..., values: _Optional[bytes] = ...) -> None: ...

class Leave(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class View(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: bytes
    def __init__(self, json: _Optional[bytes] = ...) -> None: ...

class Aborted(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Outbox(_message.Message):
    __slots__ = ("zone", "offloads", "notices", "settlements", "digests", "moments")
    ZONE_FIELD_NUMBER: _ClassVar[int]
    OFFLOADS_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    SETTLEMENTS_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    MOMENTS_FIELD_NUMBER: _ClassVar[int]
    zone: str
    offloads: Array
    notices: Array
    settlements: Array
    digests: Array
    moments: Array
    def __init__(self, zone: _Optional[str] = ..., offloads: _Optional[_Union[Array, _Mapping]] = ..., notices: _Optional[_Union[Array, _Mapping]] = ..., settlements: _Optional[_Union[Array, _Mapping]] = ..., digests: _Optional[_Union[Array, _Mapping]] = ..., moments: _Optional[_Union[Array, _Mapping]] = ...) -> None: ...

class Array(_message.Message):
    __slots__ = ("shape", "values")
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    shape: _containers.RepeatedScalarFieldContainer[int]
    values: bytes
    def __init__(self, shape: _Optional[_Iterable[int]] = ..., values: _Optional[bytes] = ...) -> None: ...
