"""How good answers are: right or wrong, in what way, by how much, at every length, over several trainings.

The measures of a training's own evaluations are in ``core.evaluation``. Nothing is imported here: the command line
asks for n-grams, and need not wait for torch.
"""
