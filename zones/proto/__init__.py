"""Protocols between processes; the modules beside the .proto files are generated: `make proto`."""
