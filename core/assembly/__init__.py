"""What a Plan becomes: backend, models, caches and drafters, put together as an engine. The only folder that
picks concrete classes."""
