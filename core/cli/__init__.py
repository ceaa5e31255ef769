"""The commands of ``python -m core``: one module each, with a ``run(options)`` that returns the exit code."""
