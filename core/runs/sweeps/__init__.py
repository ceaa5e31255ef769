"""Sweeps: many settings and many seeds, each an ordinary run, trained by several processes of one machine."""

from core.runs.sweeps.sweep import Goal, Range, Sweep, load_sweep

__all__ = ["Goal", "Range", "Sweep", "load_sweep"]
