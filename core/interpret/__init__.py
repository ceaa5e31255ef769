"""Measure and explain heads and predictions: snapshots, alignment scores, ablation, inspection, attribution, patching.

Attention weights show where a head attends. They do not explain the answer on their own: ``ablation`` tests whether the
model needs a head, and ``attribution`` has methods that explain one prediction. Import the module you need: this
package imports none of them, so decoding one input does not load pandas.
"""
