import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from flwr.proto.fleet_pb2 import ActivateNodeRequest, ActivateNodeResponse
from flwr.proto.fleet_pb2_grpc import FleetServicer, add_FleetServicer_to_server

from federation.fleet_errors import Stopping
from federation.fleet_line import FleetLine, SuperLinkAddress
from zones.keys import new_key

ANSWER_S = 0.4


class SlowFleet(FleetServicer):
    """Admits every node, and says so late."""

    def ActivateNode(
        self, request: ActivateNodeRequest, context: grpc.ServicerContext
    ) -> ActivateNodeResponse:
        time.sleep(ANSWER_S)
        return ActivateNodeResponse(node_id=7)


@pytest.fixture
def address() -> Iterator[SuperLinkAddress]:
    server = grpc.server(ThreadPoolExecutor(2))
    add_FleetServicer_to_server(SlowFleet(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield SuperLinkAddress(f"127.0.0.1:{port}", None)
    server.stop(None).wait()


def test_call_goes_on_for_its_grace_when_the_node_is_to_stop(address: SuperLinkAddress) -> None:
    stop = threading.Event()
    stop.set()
    line = FleetLine(address, new_key(), stop)
    try:
        reply = line.call("ActivateNode", ActivateNodeRequest(), grace_s=10.0)
        assert reply.node_id == 7
        for grace_s in (0.0, 0.1):
            with pytest.raises(Stopping):
                line.call("ActivateNode", ActivateNodeRequest(), grace_s=grace_s)
    finally:
        line.close()
