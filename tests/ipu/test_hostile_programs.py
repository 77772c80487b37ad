"""Carefully modified executables, with a valid checksum but invalid contents.

Loading one is an error, never a crash.
"""

from __future__ import annotations

import functools
import struct

import engine_kit
import numpy as np
import pytest
from program_kit import FREE, Kit

import jax
from jax.experimental import serialize_executable
from jaxlib.ipu import host_functions
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.program import container, schema

pytestmark = pytest.mark.ipu_only


@pytest.fixture(scope="module")
def serialised(ipu):
  x = jax.device_put(np.arange(64, dtype=np.float32), ipu)
  compiled = jax.jit(lambda x: (x + 1, x[::-1] * 2)).lower(x).compile()
  return serialize_executable.serialize(compiled)


def load(ipu, serialised, change):
  """Loads the executable after `change(program)`, which preserves its
  length."""
  payload, *trees = serialised
  start = payload.index(container.MAGIC)
  begin, size = struct.unpack_from("<QQ", payload, start + 32)
  data = payload[start : start + begin + size]
  program, constants = container.read(data)
  change(program)
  bent = container.write(program, bytes(constants))
  assert len(bent) == len(data)
  payload = payload[:start] + bent + payload[start + len(data) :]
  return serialize_executable.deserialize_and_load(
    payload, *trees, backend=ipu.client, execution_devices=[ipu]
  )


def execute(program: schema.Program) -> schema.Execute:
  return next(s for s in program.steps if isinstance(s, schema.Execute))


def write_to_the_argument(program):
  execute(program).results[0].tensor = program.arguments[0]


def write_outside(program):
  execute(program).shape[0] = 2**40


def swap_the_results(program):
  program.results.reverse()


def take_tiles_beyond_the_last(program):
  program.mappings[-1].base = 2**31


def map_fewer_elements(program):
  mapping = program.mappings[program.tensors[program.arguments[0]].mapping]
  mapping.extents[0] -= 1


def need_a_tile_that_is_not_there(program):
  program.memory.peak_tile = 1472


def need_more_than_there_is(program):
  program.memory.temporary_bytes = 2**63


def run_on_no_tiles(program):
  program.target.num_tiles = 0


def lay_out_other_elements(program):
  program.layouts[0].mapping = program.tensors[program.arguments[1]].mapping


def lay_out_what_is_not_there(program):
  program.layouts[0].number = 2


def move_for_less_than_nothing(program):
  program.layouts[0].from_default.exchange_cycles = -1.0


CHANGES = [
  (write_to_the_argument, "which is an argument or a constant"),
  (write_outside, "reads or writes index"),
  (swap_the_results, "is not stored there"),
  (take_tiles_beyond_the_last, "uses tiles beyond"),
  (map_fewer_elements, "has a mapping of"),
  (need_a_tile_that_is_not_there, "fullest tile is 1472"),
  (need_more_than_there_is, "an SRAM plan of"),
  (run_on_no_tiles, "a machine of 0 tiles"),
]


def test_unchanged_programs_run(ipu, serialised):
  loaded = load(ipu, serialised, lambda program: None)
  x = jax.device_put(np.arange(64, dtype=np.float32), ipu)
  np.testing.assert_array_equal(loaded(x)[0], np.arange(64) + 1)


LAYOUT_CHANGES = [
  (lay_out_other_elements, "none of its elements"),
  (lay_out_what_is_not_there, "has a layout but does not exist"),
  (move_for_less_than_nothing, "a step has cost -1"),
]


@pytest.mark.parametrize(
  "change, said", LAYOUT_CHANGES, ids=[c.__name__ for c, _ in LAYOUT_CHANGES]
)
def test_changed_layouts_are_refused(ipu, change, said):
  x, w = np.ones((1, 512), np.float32), np.ones((512, 512), np.float32)
  with jax.default_device(ipu):
    compiled = jax.jit(lambda w, x: x @ w).lower(w, x).compile()
  serialised = serialize_executable.serialize(compiled)
  with pytest.raises(jax.errors.JaxRuntimeError, match=said):
    load(ipu, serialised, change)


@pytest.fixture(scope="module")
def complex_on_host(ipu):
  """A complex argument, and a result in the host's memory."""
  host = jax.sharding.SingleDeviceSharding(ipu, memory_kind="pinned_host")
  z = jax.device_put(np.ones((2, 4), np.complex64), ipu)
  compiled = jax.jit(lambda z: z * 2, out_shardings=host).lower(z).compile()
  return serialize_executable.serialize(compiled)


def host_type(program, is_result):
  return next(h for h in program.host_types if h.is_result == is_result)


def take_the_result_off_the_host(program):
  host_type(program, 1).on_host = 0


def put_the_argument_on_the_host(program):
  host_type(program, 0).on_host = 1


def take_complex_for_doubles(program):
  host_type(program, 1).dtype = DType.F64


def take_another_shape(program):
  host_type(program, 0).shape.reverse()


@pytest.mark.parametrize(
  "change, said",
  [
    (take_the_result_off_the_host, "which is not in the host's memory"),
    (put_the_argument_on_the_host, "argument 0 .* but not streamed"),
    (take_complex_for_doubles, "result 0 has another host type, 12"),
    (take_another_shape, "argument 0 has another host type, 14"),
  ],
  ids=lambda x: getattr(x, "__name__", ""),
)
def test_host_types_that_contradict_the_tensors(
  ipu, complex_on_host, change, said
):
  load(ipu, complex_on_host, lambda program: None)
  with pytest.raises(jax.errors.JaxRuntimeError, match=said):
    load(ipu, complex_on_host, change)


def result_for_vectors(program):
  call = next(s for s in program.steps if isinstance(s, schema.HostCallback))
  call.results[:2] = call.results[1::-1]


def order_that_is_none(program):
  call = next(s for s in program.steps if isinstance(s, schema.HostCallback))
  by_name = {a.name: a for a in call.attributes}
  by_name["compute_left"].data = b"?"


@pytest.mark.parametrize("change", [result_for_vectors, order_that_is_none])
def test_lapack_is_called_with_shapes_that_belong_together(ipu, change):
  a = np.eye(8, dtype=np.complex64)
  with jax.default_device(ipu):
    compiled = jax.jit(jax.lax.linalg.eig).lower(a).compile()
  serialised = serialize_executable.serialize(compiled)
  load(ipu, serialised, lambda program: None)
  with pytest.raises(
    jax.errors.JaxRuntimeError,
    match=r"INVALID_ARGUMENT.*lapack_cgeev_ffi .*do not belong together",
  ):
    load(ipu, serialised, change)


# name, operands, results, attributes, and a result's shape that is wrong
LAPACK = [
  ("geqrf", [(2, 5, 3)], [(2, 5, 3), (2, 3)], {}, (1, (2, 2))),
  ("geqrf", [(2, 5, 3)], [(2, 5, 3), (2, 3)], {}, (0, (2, 3, 3))),
  ("geqrf", [(2, 5, 3)], [(2, 5, 3), (2, 3)], {}, (1, (1, 3))),
  ("orgqr", [(5, 3), (3,)], [(5, 3)], {}, (0, (3, 3))),
]


@pytest.mark.parametrize("name, operands, results, attributes, wrong", LAPACK)
def test_ffi_calls_of_lapack_check_shapes(
  ipu, name, operands, results, attributes, wrong
):
  arrays = [np.ones(shape, np.float32) for shape in operands]

  def call(shapes, *arrays):
    types = [jax.ShapeDtypeStruct(s, np.float32) for s in shapes]
    target = f"lapack_s{name}_ffi"
    return jax.ffi.ffi_call(target, types)(*arrays, **attributes)

  with jax.default_device(ipu):
    found = jax.jit(functools.partial(call, results))(*arrays)
    assert [f.shape for f in found] == results
    index, shape = wrong
    shapes = [*results[:index], shape, *results[index + 1 :]]
    with pytest.raises(jax.errors.JaxRuntimeError, match="belong together"):
      jax.jit(functools.partial(call, shapes))(*arrays)


def test_python_functions_are_called_with_their_own_arrays(ipu):
  function = host_functions.PythonFunction(
    lambda x: [x + 1], [(np.dtype(np.float32), (8,))],
    [(np.dtype(np.float32), (8,))],
  )  # fmt: skip

  def run(size):
    kit = Kit()
    a, r = kit.argument((size,)), kit.result((size,))
    attributes = [
      schema.Attribute(
        name, schema.SCALAR, DType.U64, 1, number.to_bytes(8, "little")
      )
      for name, number in (
        ("function", function.number),
        ("process", host_functions.PROCESS),
      )
    ]
    kit.steps.append(
      schema.HostCallback(
        host_functions.PYTHON_TARGET,
        attributes,
        [schema.HostArray(a, [0], DType.F32)],
        [schema.HostArray(r, [0], DType.F32)],
        [-1],
        FREE,
        0,
      )
    )
    return engine_kit.run(kit.bytes(), [np.zeros(size, np.float32)])

  np.testing.assert_array_equal(run(8).outputs[0], np.ones(8))
  with pytest.raises(engine_kit.EngineError, match=r"\[16, 16\] bytes"):
    run(4)


@pytest.mark.parametrize(
  "change, said", CHANGES, ids=[change.__name__ for change, _ in CHANGES]
)
def test_changed_programs_are_refused(ipu, serialised, change, said):
  with pytest.raises(jax.errors.JaxRuntimeError, match=said) as caught:
    load(ipu, serialised, change)
  assert "DATA_LOSS: corrupt IPU program" in str(caught.value)
