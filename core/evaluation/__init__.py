"""Evaluation: accuracy, answers, BLEU and chrF, error rates, accuracy by length, n-gram baseline, significance.

Nothing is imported here, so that the command line can read a constant from ``ngram`` without loading torch.
"""
