"""Runs while they live: trained in threads, waiting their turn, watched, limited, and seen by whom they are for."""

from core.server.registry import RunProgress, Runs

__all__ = ["RunProgress", "Runs"]
