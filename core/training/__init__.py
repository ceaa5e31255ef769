"""Training: the loop and its loss, optimizers, schedules, checkpoints, and training in several processes."""
