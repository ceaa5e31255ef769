"""Why a model predicted a token: one module per method, each a function of a model and a ``Prediction``."""
