"""What fits where and how fast it will be: pure functions of the facts of machine, model and settings."""
