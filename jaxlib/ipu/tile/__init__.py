"""The tile program: the tensors and steps that the lowering builds, and that
passes rewrite until it is emitted.

A kind of step is one class; what other modules want to know of a step, they ask
it (`step.py`), and nested steps are found by one traversal (`walk.py`).
"""
