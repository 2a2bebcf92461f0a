"""Records: the schema, the append-only store, provenance."""
