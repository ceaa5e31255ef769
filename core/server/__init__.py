"""Runs on a server: trained in processes, queued, watched, limited, and visible to those who may see them."""

from core.server.registry import Runs

__all__ = ["Runs"]
