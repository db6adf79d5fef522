"""The classes behind ``import pulsar_admin``: objects that query and change a store, without Click, output or exit codes.

They hold a name and the open store, but no data: each call reads one snapshot of its own.
"""
