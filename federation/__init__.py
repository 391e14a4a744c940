"""Rounds of federated learning: the only package that imports Flower."""

import os

# Nothing calls home. Flower reads these when it is imported, so they are set before.
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"
# gRPC writes of every failed handshake to stderr, whatever the program does about it; ours say what
# is wrong in a line of their own. Read when grpc is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
