"""Programs for several devices become the program of each device.

A module that JAX compiles for N devices has whole arrays and says how they are
split. XLA's partitioner, in this process and stopped before it generates code,
turns it into the module that every device runs: arrays are the device's part,
and collectives exchange what is elsewhere. The rest of the compiler sees that
module alone.
"""
