"""The parts of build.py; setup.py uses them too. Standard library only."""
