"""Fixtures of the tests of models."""

from tests.support.served_hub import served  # noqa: F401 (a fixture)
