"""The tests are a package: helpers are shared whatever else is installed under the name `tests`."""
