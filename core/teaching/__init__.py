"""Learn from broken models: bugs that can be switched on, a doctor that finds them, and lessons about them."""
