"""The parts of build.py, also used by setup.py. Standard library only."""
