"""The verifier refuses programs that the interpreter would trap."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from program_kit import (
  BOOL,
  FREE,
  I32,
  Kit,
  add,
  code,
  double,
  everywhere,
  load,
)

from jaxlib.ipu.check import interp
from jaxlib.ipu.check.interp import Trap
from jaxlib.ipu.check.verify import verify
from jaxlib.ipu.check.verify_state import InvalidProgram
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.kernel.isa import ReduceKind, RegisterType
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.layout import Factor, Layout, Replica, linear, single
from jaxlib.ipu.program import schema

X = np.arange(8, dtype=np.float32)


def priced(steps: list) -> None:
  for step in steps:
    if isinstance(step, schema.Execute):
      step.cost.compute_cycles = 1.0


def refused(kit: Kit, message: str) -> None:
  priced(kit.steps)
  with pytest.raises(InvalidProgram, match=message):
    verify(kit.program())


def doubling(tiles: int = 2) -> tuple[Kit, int, int]:
  kit = Kit(tiles=tiles)
  a, r = kit.argument((8,)), kit.result((8,))
  kit.execute(double(), (8,), [(a, (0,))], [(r, (0,))])
  priced(kit.steps)
  return kit, a, r


@pytest.mark.parametrize(
  "change, message",
  [
    ({"number": 1}, "there is no argument 1"),
    ({"mapping": 9}, "there is no mapping 9"),
    ({"tile_bytes": 4}, "argument 0 takes 16 bytes of a tile, not 4"),
  ],
  ids=str,
)
def test_layouts_of_arguments(change, message):
  kit, a, _ = doubling()
  program = kit.program()
  free = schema.Cost(0, 0, 0, 0, 0)
  right = schema.ArrayLayout(0, 0, program.tensors[a].mapping, 16, free, free)
  program.layouts = [right]
  verify(program)
  program.layouts = [dataclasses.replace(right, **change)]
  with pytest.raises(InvalidProgram, match=message):
    verify(program)


def test_a_valid_program_passes():
  kit, _, _ = doubling()
  verify(kit.program())
  np.testing.assert_array_equal(interp.run(kit.bytes(), [X]).outputs[0], 2 * X)


def test_missing_and_invalid_costs():
  kit, _, _ = doubling()
  kit.steps[0].cost.compute_cycles = 0.0
  with pytest.raises(InvalidProgram, match="vertices that cost nothing"):
    verify(kit.program())
  kit.steps[0].cost.compute_cycles = float("nan")
  with pytest.raises(InvalidProgram, match="it costs"):
    verify(kit.program())


@pytest.mark.parametrize(
  "layout, message",
  [
    (Layout((Factor(8, 4, 2),), base=3), "uses tile 5 of 4"),
    (Layout((Factor(8, 2, 1),), (Replica(2, 2),)), "do not nest"),
    (Layout((Factor(8, 0, 0),)), "blocks"),
    (Layout((Factor(7, 7, 0),)), "8 elements under a mapping of 7"),
  ],
)
def test_mappings(layout, message):
  kit = Kit(tiles=4)
  kit.argument((8,), layout=layout)
  refused(kit, message)


@pytest.mark.parametrize(
  "change, message",
  [
    ({"dtype": 99}, "unknown element type 99"),
    ({"root": 9}, "no tensor 9"),
    ({"mapping": 9}, "no mapping 9"),
    ({"strides": [2]}, "a root must be dense"),
    ({"space": 7}, "unknown space|not stored there"),
    ({"address": 3}, "not stored there"),
  ],
)
def test_tensors(change, message):
  kit, a, _ = doubling()
  kit.tensors[a] = dataclasses.replace(kit.tensors[a], **change)
  refused(kit, message)


def test_views_stay_in_their_root():
  kit, a, _ = doubling()
  kit.placed(a, single(4), (4,), 1, (2,))
  verify(kit.program())
  kit.placed(a, single(4), (4,), 2, (2,))
  refused(kit, "reaches from 2 to 8")


def test_arena_holds_its_roots():
  kit, _, _ = doubling()
  kit.tensor((8,))
  kit.arena = 16
  refused(kit, "32 bytes at 0 of an arena of 16")


def test_steps_refer_to_existing_records():
  kit, _, _ = doubling()
  kit.steps[0].location = 1
  refused(kit, "no location 1")
  kit, _, _ = doubling()
  kit.steps[0].operands[0].tensor = 17
  refused(kit, "no tensor 17")
  kit, _, _ = doubling()
  kit.steps[0].partition = 9
  refused(kit, "no mapping 9")


@pytest.mark.parametrize(
  "fields, message",
  [
    (schema.Map(code(load(1)), [0]), "loads operand 1"),
    (schema.Map(code(load(0)), [1]), "outputs"),
    (schema.Map(code(load(0)), []), "without its value"),
    (
      schema.Map(code((Opcode.NEGATE, RegisterType.F32, 0)), [0]),
      "not yet there",
    ),
    (
      schema.Map(
        code(load(0, RegisterType.I32), (Opcode.FLOOR, RegisterType.I32, 0)),
        [1],
      ),
      "FLOOR. does not exist for I32",
    ),
    (
      schema.Map(
        code(
          load(0),
          (Opcode.EQ, RegisterType.F32, 0, 0),
          (Opcode.ADD, RegisterType.F32, 0, 1),
        ),
        [2],
      ),
      "ADD. takes a value of type 0, but 1 is 3",
    ),
    (
      schema.Map(code((Opcode.IOTA, RegisterType.I32, 0, 0, 0, 1)), [0]),
      "counts dimension 1",
    ),
    (schema.Dot(11, 0), "a product of 1 operands"),
    (
      schema.Reduce(2, ReduceKind.SUM, code(load(0)), [0], Code(), [], b""),
      "reduces 2 of 1",
    ),
    (
      schema.Reduce(1, ReduceKind.SET, code(load(0)), [0], Code(), [], b""),
      "unknown reduction",
    ),
    (
      schema.Reduce(
        1, ReduceKind.GENERAL, code(load(0)), [0], code(load(0)), [0], b""
      ),
      "0 bytes of start",
    ),
    (schema.DynamicSlice([0]), "0 starts"),
  ],
)
def test_fields(fields, message):
  kit = Kit(tiles=2)
  a, r = kit.argument((8,)), kit.result((8,))
  kit.execute(fields, (8,), [(a, (0,))], [(r, (0,))])
  refused(kit, message)


@pytest.mark.parametrize(
  "change, message",
  [
    ({"slice_sizes": [1, 1]}, "dimension 1 of the window is 1"),
    ({"slice_sizes": [7, 2]}, "a window of"),
    ({"start_index_map": [5]}, "indices name"),
    ({"start_index_map": [0, 1]}, "for 2 components"),
    ({"batch_dims": [-1]}, "rank 2"),
  ],
)
def test_windows(change, message):
  kit = Kit(tiles=1)
  a, i = kit.argument((6, 2)), kit.argument((4, 1), I32)
  r = kit.result((4, 2))
  fields = schema.Gather(1, [0], [1, 2], [-1, -1], [-1, 0])
  kit.execute(fields, (4, 2), [(a, (-1, -1)), (i, (0, -1))], [(r, (0, 1))])
  priced(kit.steps)
  verify(kit.program())
  kit.steps[0].fields = dataclasses.replace(fields, **change)
  refused(kit, message)


def test_accesses():
  kit, a, r = doubling()
  kit.steps[0].operands[0].dims = [1]
  refused(kit, "accesses tensor 0")
  kit = Kit(tiles=1)
  a, r = kit.argument((4,)), kit.result((8,))
  kit.execute(double(), (8,), [(a, (0,))], [(r, (0,))])
  refused(kit, "reaches index 7 of dimension 0")


def test_operands_are_where_they_are_read():
  kit = Kit(tiles=2)
  a, r = kit.argument((8,), layout=single(8, 0)), kit.result((8,))
  kit.execute(double(), (8,), [(a, (0,))], [(r, (0,))])
  refused(kit, "operand 0, tensor 0, is not whole on tile 1")


def test_results_are_where_they_are_computed():
  kit = Kit(tiles=2)
  a, r = kit.argument((8,)), kit.result((8,), layout=single(8, 1))
  kit.execute(double(), (8,), [(a, (0,))], [(r, (0,))])
  refused(kit, "result 0, tensor 1, is not where tile 0 computes it")


def test_residency_without_a_closed_form_is_counted():
  kit = Kit(tiles=3)
  crooked = Layout((Factor(12, 5, 1),))
  row = kit.argument((4,), layout=everywhere(4, 3))
  x, r = (f((3, 4), layout=crooked) for f in (kit.argument, kit.result))
  kit.execute(
    add(), (3, 4), [(x, (0, 1)), (row, (-1, 0))], [(r, (0, 1))], crooked
  )
  priced(kit.steps)
  verify(kit.program())
  kit.tensors[row].mapping = kit.mapping(everywhere(4, 2), 4)
  refused(kit, "tensor 0, is not whole on tile 2")


def test_reading_before_writing():
  kit = Kit(tiles=2)
  t, r = kit.tensor((8,)), kit.result((8,))
  kit.execute(double(), (8,), [(t, (0,))], [(r, (0,))])
  refused(kit, "tensor 0 is read before it is written")


def test_results_are_written():
  kit = Kit(tiles=2)
  kit.result((8,))
  refused(kit, r"no step writes the results \[0\]")


def test_arguments_are_not_written():
  kit, a, _ = doubling()
  kit.copy(kit.whole(a, a))
  refused(kit, "writes to tensor 0, an argument")


def stale_kit() -> tuple[Kit, int, int, int]:
  kit = Kit(tiles=2)
  a, t = kit.argument((8,)), kit.tensor((8,))
  r = kit.result((8,), layout=single(8, 1))
  view = kit.placed(t, single(8, 1))
  kit.copy(kit.whole(a, t))
  kit.copy(kit.move(view))
  return kit, t, view, r


def test_placed_tensors_go_stale():
  kit, t, view, r = stale_kit()
  kit.execute(double(), (8,), [(t, (0,))], [(t, (0,))])
  kit.execute(double(), (8,), [(view, (0,))], [(r, (0,))], single(8, 1))
  refused(kit, r"step 3 \(Execute\): placed tensor 3 is used without")
  with pytest.raises(Trap, match="stale"):
    interp.run(kit.bytes(), [X + 1])


def test_placed_tensors_go_stale_at_the_end_of_an_iteration():
  kit, t, view, r = stale_kit()
  body: list = []
  kit.execute(
    double(), (8,), [(view, (0,))], [(r, (0,))], single(8, 1), into=body
  )
  kit.execute(double(), (8,), [(t, (0,))], [(t, (0,))], into=body)
  priced(body)
  kit.steps.append(schema.Repeat(2, body, 0))
  kit.copy(kit.whole(t, r))
  refused(kit, r"step 2.body.0 \(Execute\): placed tensor 3")
  body.insert(0, kit.steps[1])
  verify(kit.program())


def overlapping(shift: int) -> tuple[Kit, int, int, int]:
  """An argument's double in t; u begins `shift` bytes after t."""
  kit = Kit(tiles=2)
  a, r = kit.argument((8,)), kit.result((8,))
  t, u = kit.tensor((8,)), kit.tensor((8,))
  address = kit.tensors[t].address + shift
  kit.tensors[u] = dataclasses.replace(kit.tensors[u], address=address)
  kit.execute(double(), (8,), [(a, (0,))], [(t, (0,))])
  return kit, t, u, r


def test_results_replace_whole_operands_only():
  for shift, message in (
    (0, None),
    (4, "which overlaps its operand"),
    (32, None),
  ):
    kit, t, u, r = overlapping(shift)
    kit.execute(double(), (8,), [(t, (0,))], [(u, (0,))])
    kit.execute(double(), (8,), [(u, (0,))], [(r, (0,))])
    priced(kit.steps)
    if message is None:
      verify(kit.program())
    else:
      refused(kit, message)


def test_results_replace_operands_element_by_element():
  kit, t, u, _ = overlapping(0)
  reversed_ = kit.placed(t, linear(8, 2), (8,), 7, (-1,))
  kit.copy(kit.move(reversed_))
  kit.execute(double(), (8,), [(reversed_, (0,))], [(u, (0,))])
  refused(kit, f"tensor {u}, which overlaps its operand {t}")


def test_overwritten_memory_is_not_read():
  kit, t, u, r = overlapping(4)
  kit.execute(double(), (8,), [(kit.arguments[0], (0,))], [(u, (0,))])
  kit.execute(double(), (8,), [(t, (0,))], [(r, (0,))])
  refused(kit, f"tensor {t} is read before it is written")


def test_memory_is_overwritten_at_the_end_of_an_iteration():
  kit, t, u, r = overlapping(4)
  body: list = []
  kit.execute(double(), (8,), [(t, (0,))], [(r, (0,))], into=body)
  kit.execute(
    double(), (8,), [(kit.arguments[0], (0,))], [(u, (0,))], into=body
  )
  priced(body)
  kit.copy(kit.whole(kit.arguments[0], r))
  kit.steps.append(schema.Repeat(2, body, 0))
  refused(kit, f"tensor {t} is read before it is written")


def test_results_are_written_in_every_branch():
  kit = Kit(tiles=1)
  s, a = kit.argument((), BOOL), kit.argument((8,))
  r = kit.result((8,))
  steps: list = []
  kit.copy(kit.whole(a, r), into=steps)
  branches = [schema.Branch(steps), schema.Branch([])]
  kit.steps.append(schema.Switch(s, branches, FREE, 0))
  refused(kit, "no step writes the results")
  branches[1].steps = steps
  verify(kit.program())


def test_predicates_are_scalars():
  kit = Kit(tiles=1)
  a = kit.argument((8,), BOOL)
  kit.steps.append(schema.While([], a, [], FREE, 0))
  refused(kit, "tests tensor 0")


def test_placed_tensors_receive_the_whole_view():
  kit, t, view, _ = stale_kit()
  kit.steps[1].moves[0].source_offset = 1
  kit.steps[1].moves[0].shape = [7]
  refused(kit, "gets another view than its own")
