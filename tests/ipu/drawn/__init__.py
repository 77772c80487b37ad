"""Random JAX programs over all operations, as Python text.

`python tests/ipu/drawn_programs.py --count 100000` compares that many with
XLA:CPU, isolated from each other's crashes and hangs; failures are shrunk and
printed as scripts. `test_drawn_operations.py` runs a fixed sample.

`block` generates statements and tracks their values. The other files contain
the operations, one generator function each.
"""
