"""Benchmarks of the page: ``load`` (many visitors), ``class`` and ``browser``, each in its own processes."""
