"""Measure and explain heads and predictions: snapshots, alignment scores, ablation, inspection, attribution, patching.

Attention weights show where a head attends. They are not by themselves an explanation of the answer; ``ablation``
tests whether the model needs a head, and ``attribution`` has the methods that explain one prediction. Import the module
you need: this package imports none of them, so that decoding one input does not load pandas.
"""
