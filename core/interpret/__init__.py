"""Measure and explain what attention heads do: snapshots, alignment scores, ablation, inspection, shape traces.

Attention weights show where a head attends. They are not by themselves an explanation of the answer; ``ablation``
tests whether the model needs a head. Import the module you need: this package imports none of them, so that decoding
one input does not load pandas.
"""
