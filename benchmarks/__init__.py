"""What ``python -m core bench`` measures, a module a subject; those of the page are in benchmarks/page_load/."""
