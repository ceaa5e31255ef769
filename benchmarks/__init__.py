"""What ``python -m core bench`` measures: a module per subject; those of the page under load are in page_load/."""
