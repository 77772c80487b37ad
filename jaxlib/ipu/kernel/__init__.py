"""Register programs: what element-wise operations are compiled to.

`opcode` has the table of instructions, `instruction` the programs as immutable
data, `element_types` the types in which they compute; `writer` makes programs,
`evaluate` defines them on NumPy arrays, `data_flow` finds patterns in them.
"""
