"""The classes behind ``import pulsar_admin``: objects that ask and change a store; no Click, no output, no exit below them.

They hold a name and the open store, nothing read: each call reads one snapshot of its own.
"""
