"""Runs while they live: trained in threads, waiting their turn, watched, limited, and seen by whom they are for."""

from core.server.registry import Progress, Runs

__all__ = ["Progress", "Runs"]
