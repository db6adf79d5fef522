"""Click commands, one module (or package) per pulsar-admin group, imported only when called."""
