"""The page, served, for the tests beside this file."""

from tests.serving import address, runs

__all__ = ["address", "runs"]
