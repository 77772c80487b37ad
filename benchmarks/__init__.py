"""Benchmarks of the IPU backend against XLA:CPU. See run.py."""
