"""How a node learns which zone it is: the hello of the ServerApp, and what the node answers.

ServerApp  --query {config, run, zone, epoch}-->  node
           <--------- {name, assigned, epoch, is_ready, problem} ---------
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version

from flwr.app import ConfigRecord, RecordDict

from marl_sched import kernel_cache

HELLO = "hello"
STATUS = "zone"

_MAX_NAME = 63
"""Characters of a zone's name."""
_MAX_LINE = 500
"""Characters of what a zone says that are shown."""

_Value = str | int | bool


@dataclass(frozen=True)
class Hello:
    """What the ServerApp tells a node.

    Attributes:
        config: The resolved experiment as YAML.
        run: Name of the run.
        zone: The zone that the node is from now on; empty: none.
        epoch: Of that assignment, from 1; 0: none.
        last_round: The last committed round that the zone took part in; states of later rounds are
            void. None: nothing is known.
        refusal: Why this node is not wanted; it ends then. Empty: it is.
        software: What the ServerApp runs on; empty: not said.
    """

    config: str
    run: str
    zone: str = ""
    epoch: int = 0
    last_round: int | None = None
    refusal: str = ""
    software: str = ""


@dataclass(frozen=True)
class ZoneStatus:
    """What a node answers.

    Attributes:
        name: The zone that it was started for; empty: any.
        assigned: The zone that it is; empty: none.
        epoch: Of that assignment; 0: none.
        is_ready: It can carry out orders at once: kernels compiled, state loaded.
        problem: Why it cannot be what it was told to be, in one line; empty: it can.
    """

    name: str
    assigned: str = ""
    epoch: int = 0
    is_ready: bool = False
    problem: str = ""


def software() -> str:
    """Return what must be equal in all processes of a run, for the results to be."""
    kernels = kernel_cache.CACHE_FOLDER.name.partition("-")[0]
    return f"marl-sched {version('marl-sched')}, flwr {version('flwr')}, kernels {kernels}"


def encode_hello(hello: Hello) -> RecordDict:
    """Return the content of a query; it says what this process runs on."""
    record: dict[str, _Value] = {
        "config": hello.config,
        "run": hello.run,
        "zone": hello.zone,
        "epoch": hello.epoch,
        "refusal": hello.refusal,
        "software": hello.software or software(),
    }
    if hello.last_round is not None:
        record["last_round"] = hello.last_round
    return RecordDict({HELLO: ConfigRecord({**record})})


def decode_hello(content: RecordDict) -> Hello | None:
    """Read what `encode_hello` wrote; None from a ServerApp that only asks for the name.

    Raises:
        ValueError: A value is missing or of another type.
    """
    if HELLO not in content.config_records:
        return None
    record = content.config_records[HELLO]
    return Hello(
        config=_text(record, "config"),
        run=_text(record, "run"),
        zone=_text(record, "zone"),
        epoch=_number(record, "epoch"),
        last_round=_number(record, "last_round") if "last_round" in record else None,
        refusal=_text(record, "refusal") if "refusal" in record else "",
        software=_text(record, "software") if "software" in record else "",
    )


def encode_status(status: ZoneStatus) -> RecordDict:
    """Return the content of the answer to a query."""
    record: Mapping[str, _Value] = {
        "name": status.name,
        "assigned": status.assigned,
        "epoch": status.epoch,
        "is_ready": status.is_ready,
        "problem": status.problem,
    }
    return RecordDict({STATUS: ConfigRecord({**record})})


def decode_status(content: RecordDict) -> ZoneStatus:
    """Read what `encode_status` wrote.

    Raises:
        ValueError: A value is missing or of another type.
    """
    if STATUS not in content.config_records:
        raise ValueError(f"no record {STATUS!r}")
    record = content.config_records[STATUS]
    is_ready = record.get("is_ready")
    if not isinstance(is_ready, bool):
        raise ValueError(f"is_ready = {_line(repr(is_ready))}, expected true or false")
    return ZoneStatus(
        name=_name(record, "name"),
        assigned=_name(record, "assigned"),
        epoch=_number(record, "epoch"),
        is_ready=is_ready,
        problem=_line(_text(record, "problem")),
    )


def _name(record: Mapping[str, object], key: str) -> str:
    name = _text(record, key)
    if len(name) > _MAX_NAME:
        raise ValueError(f"{key} of {len(name)} characters, expected at most {_MAX_NAME}")
    return name


def _line(text: str) -> str:
    """Return what a zone says as one line that a terminal and a log can take."""
    shown = "".join(c if c.isprintable() else " " for c in text[: _MAX_LINE + 1])
    return shown if len(shown) <= _MAX_LINE else f"{shown[: _MAX_LINE - 4]} ..."


def _text(record: Mapping[str, object], key: str) -> str:
    value = record.get(key)
    if not isinstance(value, str):
        raise ValueError(f"{key} = {_line(repr(value))}, expected a text")
    return value


def _number(record: Mapping[str, object], key: str) -> int:
    value = record.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{key} = {_line(repr(value))}, expected an integer >= 0")
    return value
