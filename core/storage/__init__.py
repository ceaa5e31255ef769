"""Files on disk: crash-safe writes, checksummed tensors, bounded YAML, and the errors shown to the user."""
