"""Reports on one run, comparisons of several runs, and their figures."""
