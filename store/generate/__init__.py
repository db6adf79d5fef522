"""Synthetic clusters in genuine Pulsar files: a seeded plan, a compiled kernel that writes entry logs, and the metadata around them.

What a generated entry holds is a pure function of (seed, topic number, entry number): ``store.generate.draws``.
"""
