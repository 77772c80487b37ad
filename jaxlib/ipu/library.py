"""The shared library: PJRT's functions, and those that the compiler calls."""

from __future__ import annotations

from pathlib import Path

LIBRARY = Path(__file__).with_name("libjaxipu.so")
