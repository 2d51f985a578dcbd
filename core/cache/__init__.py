"""KV caches: full, offloaded, retrieval, streaming; one protocol, one contract suite."""
