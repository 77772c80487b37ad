"""Passes over the tile program, and its verifier, on small programs written as
text."""

from __future__ import annotations

import re

import pytest

from jaxlib.ipu import target as machines
from jaxlib.ipu.check import verify_tile_program as verify
from jaxlib.ipu.check.verify_tile_program import InvalidSteps
from jaxlib.ipu.diagnostics import CompileError
from jaxlib.ipu.tile import text
from jaxlib.ipu.tile.program import TileProgram
from jaxlib.ipu.tile.walk import walk
from jaxlib.ipu.tile_passes import (
  allocate,
  assembled,
  coalesce,
  copy_late,
  in_place,
  local_copies,
  order,
)

TARGET = machines.resolve("ipu2", 2)
ARENA, ARGUMENT, RESULT = range(3)
ZERO = "Cost(0.0, 0.0, 0.0, 0.0, 0.0)"


def root(number: int, size: int, space: int = ARENA, address: int = 0) -> str:
  """A root on two tiles."""
  return (
    f"t{number} = TensorInfo(DType.F32, ({size},), "
    f"Layout((Factor({size}, {size // 2}, 1),)), {number}, 0, (1,), {space}, "
    f"{address})\n"
  )


def execute(fields: str, read: list[int], written: list[int], size: int) -> str:
  """A compute set that accesses tensors index by index."""
  operands, results = (
    "[" + ", ".join(f"Access({n}, [0])" for n in numbers) + "]"
    for numbers in (read, written)
  )
  return (
    f"Execute(location=0, fields={fields}, shape=({size},), "
    f"partition=Layout((Factor({size}, {size // 2}, 1),)), "
    f"operands={operands}, results={results})"
  )


def double(read: list[int], written: list[int], size: int) -> str:
  """A map that loads its first operand; what it computes is of no interest."""
  outputs = [0] * len(written)
  code = "Code((Instruction(op=Opcode.LOAD, type=RegisterType.F32),))"
  return execute(f"Map({code}, {outputs})", read, written, size)


def call(read: int, number: int) -> str:
  """An operation with an effect: a host function of one tensor."""
  return (
    f"HostCallback(location=0, operation={number}, has_effect=True, "
    f"target='f', attributes=[], operands=[HostArray({read}, [0], DType.F32)], "
    "results=[], aliases=[])"
  )


def operation(step: str, number: int) -> str:
  return step.replace("location=0", f"location=0, operation={number}", 1)


def move(a: int, b: int, size: int, offset: int = 0, read: int = 0) -> str:
  return f"Move({a}, {read}, [1], {b}, {offset}, [1], [{size}])"


def copy(*moves: str, staying: str = "", own: str = ZERO) -> str:
  listed = ", ".join(moves)
  if staying:
    staying = f", staying=[{staying}]"
  return f"Copy(location=0, own={own}, moves=[{listed}]{staying})"


def program(*lines: str) -> TileProgram:
  return text.parse("\n".join(lines), TARGET)


def kinds(found: TileProgram) -> list[str]:
  return [type(step).__name__ for step in walk(found.steps)]


# --- Passes -----------------------------------------------------------------


def test_order_frees_large_values_early():
  """Two large values, each with a small one made of it: not both at once."""
  total = "Reduce(1, 0, b'', [0], b'', [], b'')"
  found = program(
    "ProgramFields(arguments=[0], results=[5], freed=[], kept=[5])",
    root(0, 8, ARGUMENT),
    root(1, 4096), root(2, 4096), root(3, 2), root(4, 2), root(5, 2, RESULT),
    operation(double([0], [1], 4096), 0),
    operation(double([0], [2], 4096), 1),
    operation(execute(total, [1], [3], 4096), 2),
    operation(execute(total, [2], [4], 4096), 3),
    operation(double([3, 4], [5], 2), 4),
  )  # fmt: skip
  order.run(found)
  assert [step.operation for step in found.steps] == [0, 2, 1, 3, 4]
  verify.verify(found)


def test_order_keeps_effects_in_order_and_steps_outside_in_place():
  total = "Reduce(1, 0, b'', [0], b'', [], b'')"
  found = program(
    "ProgramFields(arguments=[0], kept=[3, 4])",
    root(0, 8, ARGUMENT), root(1, 4096), root(2, 4096), root(3, 2), root(4, 2),
    "HostCopy(location=0, tensor=0, to_device=True)",
    operation(double([0], [1], 4096), 0),
    call(1, 1),
    operation(double([0], [2], 4096), 2),
    call(2, 3),
    operation(execute(total, [1], [3], 4096), 4),
    operation(execute(total, [2], [4], 4096), 5),
    copy(),
  )  # fmt: skip
  order.run(found)
  at = [step.operation for step in found.steps]
  assert at[0] == at[-1] == -1 and at.index(1) < at.index(3)
  assert at.index(4) < at.index(2)  # what it reads is free for the next one


def concatenated(cycles: float, n: int = 1 << 16) -> TileProgram:
  """Two large values, both live until one copy puts them together."""
  own = f"Cost(0.0, {cycles}, 0.0, 0.0, 0.0)"
  moves = move(1, 3, n), move(2, 3, n, n)
  return program(
    "ProgramFields(arguments=[0], results=[3], kept=[3])",
    root(0, 8, ARGUMENT), root(1, n), root(2, n), root(3, 2 * n, RESULT),
    operation(double([0], [1], n), 0),
    operation(double([0], [2], n), 1),
    operation(copy(*moves, staying="None, None", own=own), 2),
  )  # fmt: skip


def test_copies_are_divided_so_that_parts_are_free_early():
  found = concatenated(cycles=1e6)
  assembled.run(found)
  assert kinds(found) == ["Execute", "Copy", "Execute", "Copy"]
  first, second = (step.moves for step in found.steps if step.moves)
  assert [(m.source, m.destination_offset) for m in (*first, *second)] == [
    (1, 0), (2, 1 << 16),
  ]  # fmt: skip
  assert found.assembled == {3}
  verify.verify(found)
  assembled.verify(found)


def test_copies_that_would_take_longer_are_not_divided():
  found = concatenated(cycles=1.0)
  assembled.run(found)
  assert kinds(found) == ["Execute", "Execute", "Copy"]
  assert found.used.divisible and not found.assembled


def test_small_copies_are_looked_at_if_a_program_does_not_fit():
  found = concatenated(cycles=1e6, n=1 << 8)
  assembled.run(found)
  assert not found.used.divisible and not found.assembled
  assembled.find_divisible(found)
  assert found.used.divisible and not found.assembled


def test_copies_are_not_divided_if_something_else_needs_most():
  """A value larger than both parts and the array of them."""
  found = concatenated(cycles=1e6)
  larger = program(
    "ProgramFields()", root(0, 1 << 18), double([0], [0], 1 << 18)
  )
  found.tensors.append(larger.tensors[0])
  found.tensors[4].root = 4
  (step,) = larger.steps
  step.operation = 3
  for access in (*step.operands, *step.results):
    access.tensor = 4
  found.steps.append(step)
  assembled.run(found)
  assert kinds(found) == ["Execute", "Execute", "Copy", "Execute"]


def test_parts_of_a_concatenation_are_written_in_place():
  found = program(
    "ProgramFields(arguments=[0], results=[3], kept=[3])",
    root(0, 8, ARGUMENT), root(1, 8), root(2, 8), root(3, 16, RESULT),
    double([0], [1, 2], 8),
    copy(move(1, 3, 8), move(2, 3, 8, 8), staying="None, None"),
  )  # fmt: skip
  in_place.run(found)
  assert kinds(found) == ["Execute"]
  assert [found.tensors[n].root for n in (1, 2)] == [3, 3]
  assert [found.tensors[n].offset for n in (1, 2)] == [0, 8]
  assert found.steps[0].packed == ()  # parts are whole vectors


def test_a_copy_that_moves_less_has_nothing_in_common_with_its_copies():
  found = program(
    "ProgramFields(arguments=[0], results=[3, 4], kept=[3, 4])",
    root(0, 8, ARGUMENT), root(1, 8), root(2, 8),
    root(3, 16, RESULT), root(4, 8, RESULT),
    double([0], [1, 2], 8),
    copy(move(1, 3, 8), move(2, 3, 8, 8), move(0, 4, 8),
         staying="None, None, None"),
  )  # fmt: skip
  other = found.steps[1].renamed(lambda n: n)
  assert other.common is found.steps[1].common
  in_place.run(found)
  assert len(found.steps[1].moves) == 1 < len(other.moves)
  assert other.common is not found.steps[1].common


def test_parts_that_something_else_reads_are_copied():
  found = program(
    "ProgramFields(arguments=[0], results=[3, 4], kept=[3, 4])",
    root(0, 8, ARGUMENT), root(1, 8), root(2, 8), root(3, 16, RESULT),
    root(4, 8, RESULT, 1),
    double([0], [1, 2], 8),
    copy(move(1, 3, 8), move(2, 3, 8, 8), staying="None, None"),
    double([1], [4], 8),
  )  # fmt: skip
  in_place.run(found)
  assert kinds(found) == ["Execute", "Copy", "Execute"]
  assert found.tensors[1].root == 1


@pytest.mark.parametrize("read_later", [False, True])
def test_results_over_arguments_that_are_still_read_are_copied_late(read_later):
  last = [double([0], [2], 8)] if read_later else []
  found = program(
    "ProgramFields(arguments=[0], results=[1], aliases=[(0, 0)], kept=[1])",
    root(0, 8, ARGUMENT), root(1, 8, RESULT), root(2, 8),
    double([0], [1], 8),
    *last,
  )  # fmt: skip
  copy_late.run(found)
  assert kinds(found) == ["Execute"] * (1 + read_later) + ["Copy"] * read_later
  (result,) = found.results
  assert (result == 1) == (not read_later)
  assert found.tensors[result].space == RESULT
  assert found.tensors[1].space == (ARENA if read_later else RESULT)
  verify.verify(found)


@pytest.mark.parametrize("read_later", [False, True])
def test_copies_of_whole_roots_share_their_memory(read_later):
  last = [double([1, 2], [3], 8)] if read_later else [double([2], [3], 8)]
  found = program(
    "ProgramFields(arguments=[0], results=[3], kept=[3])",
    root(0, 8, ARGUMENT), root(1, 8), root(2, 8), root(3, 8, RESULT),
    double([0], [1], 8),
    copy(move(1, 2, 8)),
    *last,
  )  # fmt: skip
  coalesce.run(found)
  one, other = (found.tensors[n].storage for n in (1, 2))
  assert (one == other >= 0) == (not read_later)
  coalesce.verify(found)
  found.tensors[1].storage = found.tensors[2].storage = 1
  if read_later:
    with pytest.raises(CompileError, match="1 and 2 share .* both live at"):
      coalesce.verify(found)


def test_roots_that_become_a_result_are_in_its_memory():
  found = program(
    "ProgramFields(arguments=[0], results=[2], kept=[2])",
    root(0, 8, ARGUMENT), root(1, 8), root(2, 8, RESULT, 0),
    double([0], [1], 8),
    copy(move(1, 2, 8)),
  )  # fmt: skip
  coalesce.run(found)
  assert found.tensors[1].space == RESULT and found.tensors[1].address == 0
  allocate.run(found)
  assert found.arena_bytes == 0


def test_storage_of_several_sizes_is_an_error():
  found = program(
    "ProgramFields(arguments=[0])", root(0, 8, ARGUMENT), root(1, 8),
    root(2, 4),
  )  # fmt: skip
  found.tensors[1].storage = found.tensors[2].storage = 1
  with pytest.raises(CompileError, match="not of one size"):
    coalesce.verify(found)


@pytest.mark.parametrize(
  ("last", "addresses"),
  [
    # Each value takes the place of the one of which it is made.
    ([double([2], [3], 8), double([3], [4], 8)], [0, 0, 0]),
    # The first value is read to the end.
    ([double([2], [3], 8), double([1, 3], [4], 8)], [0, 64, 64]),
    # It is not read index by index.
    ([copy(move(2, 3, 8)), double([3], [4], 8)], [0, 0, 64]),
  ],
)
def test_memory_is_used_again(last, addresses):
  found = program(
    "ProgramFields(arguments=[0], results=[4], kept=[4])",
    root(0, 8, ARGUMENT), root(1, 8), root(2, 8), root(3, 8),
    root(4, 8, RESULT),
    double([0], [1], 8), double([1], [2], 8), *last,
  )  # fmt: skip
  allocate.run(found)
  assert [found.tensors[n].address for n in (1, 2, 3)] == addresses
  assert found.arena_bytes == max(addresses) + 64


def test_roots_with_one_storage_have_one_address():
  found = program(
    "ProgramFields(arguments=[0], results=[4], kept=[4])",
    root(0, 8, ARGUMENT),
    root(1, 8).replace(")\n", ", storage=1)\n"),
    root(2, 8),
    root(3, 8).replace(")\n", ", storage=1)\n"),
    root(4, 8, RESULT),
    double([0], [1], 8), copy(move(1, 3, 8)), double([0], [2], 8),
    double([2, 3], [4], 8),
  )  # fmt: skip
  allocate.run(found)
  assert [found.tensors[n].address for n in (1, 3, 2)] == [0, 0, 64]
  assert found.arena_bytes == 128


@pytest.mark.parametrize("address", [0, 64])
def test_what_stays_on_its_tile_is_copied_there_unless_its_address_is_the_same(
  address,
):
  found = program(
    "ProgramFields(arguments=[0], results=[1])",
    root(0, 8, ARGUMENT), root(1, 8, RESULT),
    root(2, 8, ARENA, 0), root(3, 8, ARENA, address),
    double([0], [2], 8),
    copy(move(2, 3, 8), staying="array([16, 16])"),
    double([3], [1], 8),
  )  # fmt: skip
  local_copies.run(found)
  _, step, _ = found.steps
  price = step.price(TARGET)
  if address:
    assert step.within is not None and step.within.tolist() == [16, 16]
    assert price.compute_cycles > 0
  else:
    assert step.within is None and price.compute_cycles == 0


# --- The verifier -----------------------------------------------------------


START = (
  "ProgramFields(arguments=[0], results=[1], kept=[1])",
  root(0, 8, ARGUMENT),
  root(1, 8, RESULT),
  root(2, 8),
  # Placed tensors: all of t2 on one tile.
  "t3 = TensorInfo(DType.F32, (8,), Layout((Factor(8, 8, 1),)), 2, 0, (1,))",
  "t4 = TensorInfo(DType.F32, (8,), Layout((Factor(8, 8, 2),)), 2, 0, (1,))",
)
PLACE = copy(move(2, 3, 8))


def repeat(*body: str) -> str:
  return f"Repeat(location=0, count=2, body=Region([{', '.join(body)}]))"


def switch(*branches: str) -> str:
  inner = ", ".join(f"Region([{b}])" for b in branches)
  return f"Switch(location=0, selector=0, branches=[{inner}])"


@pytest.mark.parametrize(
  "lines",
  [
    (double([0], [2], 8), PLACE, double([3], [1], 8)),
    (double([0], [2], 8), PLACE, repeat(double([3], [1], 8)),
     double([0], [1], 8)),
    (double([0], [2], 8), PLACE,
     repeat(double([3], [1], 8), copy(move(2, 4, 8))), double([0], [1], 8)),
    (switch(double([0], [1], 8), double([0], [1], 8)),),
    (double([0], [1], 8), switch("", double([0], [1], 8))),
  ],
  ids=[
    "placed", "placed before a loop", "another copy in a loop", "both branches",
    "one more branch",
  ],
)  # fmt: skip
def test_programs_that_are_right(lines):
  verify.verify(program(*START, *lines))


@pytest.mark.parametrize(
  ("lines", "message"),
  [
    ((), "no step writes result 1"),
    ((double([2], [1], 8),), "step 0 (Execute): reads root 2, which has no"),
    ((double([0], [2], 8), double([3], [1], 8)),
     "step 1 (Execute): reads tensor 3, which was not placed"),
    ((double([0], [2], 8), PLACE, double([0], [2], 8), double([3], [1], 8)),
     "step 3 (Execute): reads tensor 3, which was not placed"),
    ((double([0], [2], 8), PLACE, repeat(double([3], [1], 8),
      double([0], [2], 8))),
     "step 2.0.0 (Execute): reads tensor 3, which was not placed"),
    ((switch(double([0], [1], 8), ""),), "no step writes result 1"),
    ((repeat(double([0], [1], 8)),), "no step writes result 1"),
    ((double([0], [0], 8),), "writes tensor 0, which is fixed"),
    ((double([9], [1], 8),), "step 0 (Execute): there is no tensor 9"),
    ((double([0], [9], 8),), "step 0 (Execute): there is no tensor 9"),
    ((switch(double([2], [1], 8)),), "step 0.0.0 (Execute): reads root 2"),
  ],
)  # fmt: skip
def test_programs_that_are_wrong(lines, message):
  with pytest.raises(InvalidSteps, match=re.escape(message)):
    verify.verify(program(*START, *lines))
