"""The devices that a collective combines, as XLA writes them in HLO.

XLA describes groups along the axes of a mesh by these axes:

    mesh['x'=4,'y'=2], device_ids=([2,4]T(1,0)) {'x', 'y':(1)2}

Its conversion to StableHLO keeps the mesh and the axes and drops the order of
the devices, without which the groups are others. They are read here from the
HLO instead, and written out. Other forms survive the conversion.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import numpy as np

from jaxlib.ipu.diagnostics import internal

# Device numbers by group.
Groups = np.ndarray[tuple[int, int], np.dtype[np.int64]]
# Axes of a mesh, or parts of them: name, what is before the part, its size.
Axes = tuple[tuple[str, str, str], ...]
# By channel, which several collectives of one program may share (JAX 0.12), and
# by axes.
Found = dict[int, dict[Axes, Groups]]

_COLLECTIVE = re.compile(
  r"channel_id=(\d+), replica_groups=mesh\[(.*?)\]"
  r"(?:, device_ids=\((.*?)\))? \{(.*?)\}(?:,|$)",
  re.MULTILINE,
)
_AXIS = re.compile(r"'([^']*)'=(\d+)")
# An axis, or its part of `size` (the second number) after `before` (the first).
_PART = re.compile(r"'([^']*)'(?::\((\d+)\)(\d+))?")
_IOTA = re.compile(r"\[([\d,]+)\](?:T\(([\d,]+)\))?")


# In an attribute of StableHLO.
_REFERENCE = re.compile(
  r'axis_ref<name = "([^"]*)"(?:, sub_axis_info = \((\d+)\)(\d+))?'
)


def axes_of(attribute: str) -> Axes:
  """The axes that an attribute of StableHLO names."""
  return tuple(_REFERENCE.findall(attribute))


def read(hlo: str) -> Found:
  """The groups in mesh form.

  Args:
    hlo: a module's text, without metadata.

  Raises:
    CompileError: the text is not of the known form.
  """
  found: Found = {}
  for channel, mesh, devices, axes in _COLLECTIVE.findall(hlo):
    sizes = {name: int(size) for name, size in _AXIS.findall(mesh)}
    try:
      groups = _groups(sizes, devices, axes)
      key = tuple(_PART.findall(axes))
      others = found.setdefault(int(channel), {})
      if not np.array_equal(others.setdefault(key, groups), groups):
        raise ValueError("two orders of devices on one channel")
    except (KeyError, ValueError) as e:
      raise internal(
        f"replica groups mesh[{mesh}] device_ids=({devices}) {{{axes}}} of"
        f" XLA's partitioner cannot be read ({e})"
      ) from e
  return found


def _groups(sizes: Mapping[str, int], devices: str, axes: str) -> Groups:
  parts = [
    (name, int(before or 1), int(size or sizes[name]))
    for name, before, size in _PART.findall(axes)
  ]
  # Every axis is cut wherever one of the parts begins or ends.
  shape: list[int] = []
  place: dict[tuple[str, int], int] = {}  # the dimension that begins there
  for name, size in sizes.items():
    cuts = {1, size}
    cuts |= {cut for n, b, s in parts if n == name for cut in (b, b * s)}
    ends = sorted(cuts)
    for begin, end in zip(ends, ends[1:]):
      place[name, begin] = len(shape)
      shape.append(end // begin)
  grouped = []
  for name, begin, size in parts:
    at = begin
    while at < begin * size:
      dim = place[name, at]
      grouped.append(dim)
      at *= shape[dim]
  others = [d for d in range(len(shape)) if d not in grouped]
  numbers = _devices(devices, math.prod(shape)).reshape(shape)
  count = math.prod(shape[d] for d in others)
  return numbers.transpose(others + grouped).reshape(count, -1)


def _devices(text: str, count: int) -> np.ndarray:
  """The mesh's devices in order: all, a transposed count, or a list."""
  if not text:
    return np.arange(count)
  if iota := _IOTA.fullmatch(text):
    numbers = np.arange(count).reshape(_numbers(iota[1]))
    return numbers.transpose(_numbers(iota[2])) if iota[2] else numbers
  return np.array(_numbers(text))


def _numbers(text: str) -> list[int]:
  return [int(n) for n in text.split(",")]
