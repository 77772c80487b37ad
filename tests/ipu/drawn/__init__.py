"""JAX programs drawn at random, over all operations, as Python text.

`python tests/ipu/drawn_programs.py --count 100000` compares as many with
XLA:CPU, each kept from the others' crashes and hangs; what fails is shrunk and
printed as a script. `test_drawn_operations.py` runs a fixed sample.

`block` draws statements and keeps account of the values; the files beside it
hold the operations: a function each that draws one.
"""
