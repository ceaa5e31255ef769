"""Learn from broken models: the bugs, the doctor that finds them, and the lessons about them."""
