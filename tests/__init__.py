"""The tests are a package, so that helpers can be shared whatever else is installed under the name `tests`."""
