"""Pulsar's and BookKeeper's bytes at rest: codecs, the ledger metadata store, read models, plans and scans.

Imports neither click nor rich, never prints, prompts or exits. Errors leave as ``pulsar_admin.store.errors.StoreError``.
"""
