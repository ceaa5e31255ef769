"""What is written about runs: reports, comparisons, figures."""
