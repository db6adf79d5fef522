"""Protobuf sources of everything Pulsar and BookKeeper store as protobuf, with generated code beside them."""
