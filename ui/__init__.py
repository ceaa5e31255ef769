"""The page: one module a tab, each a function that builds its tab and wires its own events."""
