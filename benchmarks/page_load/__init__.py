"""Benchmarks of the page: ``load`` (many visitors) and ``soak`` (long use), each in its own processes."""
