"""Bulk reading: slices of entry logs and journals into typed columns, by the same function on every engine."""
