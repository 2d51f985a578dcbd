"""Pages and tables made of what was measured."""
