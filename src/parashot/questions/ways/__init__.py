"""Whole ways to train, by strategy, loading and computing: training steps with their loading."""
