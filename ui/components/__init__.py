"""The page's components: one folder each with Python, script, style and template."""
