"""``lab.watch``: a training by a user's own loop as a run that the page and the command line follow."""
