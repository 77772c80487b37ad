"""Decomposition: the phase itself, and the emitter that rules are written
with."""

from __future__ import annotations

import dataclasses

import engine_kit
import ipu_test_util as util
import numpy as np
import pytest
from lowering_kit import TILES, compiled

import jax
import jax.numpy as jnp
from jaxlib.ipu import ops
from jaxlib.ipu.check import interp
from jaxlib.ipu.check import verify_graph as verifier
from jaxlib.ipu.diagnostics import CompileError
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.ir import registry
from jaxlib.ipu.ir.attributes import DotDimensions, Indexing
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Graph, Module
from jaxlib.ipu.ir.registry import Operation
from jaxlib.ipu.passes.decompose import decompose

ops.load()

X = util.sample(np.float32, (4, 6), low=0.1)
I = util.sample(np.int32, (4, 6), low=0, high=1000)
F32, I32, U8 = DType.F32, DType.I32, DType.U8


@pytest.fixture
def rule(monkeypatch):
  """`rule(function, op)`: `op` decomposes by the rule until the test ends."""

  def define(function, op="stablehlo.custom_call @test"):
    operation = Operation(op, decompose=function)
    monkeypatch.setitem(registry.REGISTRY, op, operation)

  return define


# Each function takes the emitter and two arrays, f32 and i32 of shape 4x6.
def elements(e, x, i):
  y = e.select(e.compare(i, 500, "GT"), e.sqrt(x), e.add(x, -1.5))
  return e.clamp(-1, y, e.reshape(e.slice(x, (0, 0), (1, 1)), ()))


def scalars_beside_arrays(e, x, i):
  s = e.constant(np.float32(3))
  return e.subtract(s, e.multiply(e.convert(i, F32), np.float32(0.5)))


def what_is_there_already(e, x, i):
  y = e.add(e.multiply(x, 2), e.constant(2, F32))
  before = len(e.nodes)
  assert e.add(e.multiply(x, 2.0), np.float32(2)) is y
  assert len(e.nodes) == before
  (z,) = e.fori_loop(2, [y], lambda k, z: e.add(z, e.multiply(x, 2)))
  assert e.multiply(x, -0.0) is not e.multiply(x, 0.0)
  return z


def bits(e, x, i):
  parts = e.bitcast_convert(x, U8)
  assert parts.shape == (4, 6, 4)
  return e.bitcast_convert(e.reverse(parts, [2]), I32)


def movement(e, x, i):
  y = e.concatenate([x, e.slice(x, (0, 1), (4, 6), (1, 2))], 1)
  y = e.pad(y, 7, (1, 0), (0, -2), (1, 0))
  return e.broadcast_in_dim(e.transpose(y, (1, 0)), (7, 8, 2), (0, 1))


def moving_slices(e, x, i):
  at = e.reshape(e.slice(i, (0, 0), (1, 1)), ())
  cut = e.dynamic_slice(x, (at, 1), (2, 3))
  return e.dynamic_update_slice(x, cut, (0, at))


def slices_by_index(e, x, i):
  rows = Indexing((1,), (0,), (), (), (0,), 1, (1, 6))
  index = e.convert(e.compare(e.slice(i, (0, 0), (4, 1)), 500, "GT"), I32)
  return e.gather(x, index, rows)


def sums_by_index(e, x, i):
  rows = Indexing((1,), (0,), (), (), (0,), 1)
  index = e.constant(np.array([[3], [0], [3], [1]], np.int32))
  return e.scatter(x, index, x, rows, "add")


def products(e, x, i):
  y = e.matmul(x, x, transpose_rhs=True)
  dims = DotDimensions((0,), (0,), (1,), (1,))
  return e.dot_general(y, y, dims)


def reductions(e, x, i):
  largest = e.reduce(x, -np.inf, (1,), "maximum")
  general = e.reduce(x, 1, (1,), lambda a, b: e.add(e.multiply(a, 0.5), b))
  zero, one = e.constant(0, F32), e.constant(1, I32)
  total, product = e.reduce_several(
    [x, i],
    [zero, one],
    (1,),
    lambda a, b, c, d: (e.add(a, c), e.multiply(b, d)),
  )
  return e.add(e.add(largest, general), e.add(total, e.convert(product, F32)))


def loops(e, x, i):
  y, n = e.while_loop(
    [x, e.constant(0, I32)],
    lambda y, n: e.compare(n, 3, "LT"),
    lambda y, n: (e.add(y, e.multiply(x, x)), e.add(n, 1)),
  )

  def iteration(k, y):
    return e.add(y, e.convert(k, F32))

  (y,) = e.fori_loop(4, [y], iteration)
  (y,) = e.case(n, [lambda: e.negate(y), lambda: x, lambda: x, lambda: y])
  return y


def nothing_to_do(e, x, i):
  before = len(e.nodes)
  y = e.transpose(e.reshape(x, (4, 6)), (0, 1))
  y = e.slice(y, (0, 0), (4, 6))
  y = e.concatenate([y, e.constant(0, F32, (4, 0))], 1)
  y = e.pad(e.broadcast_in_dim(y, (4, 6), (0, 1)), 0, (0, 0), (0, 0))
  y = e.dynamic_slice(e.convert(e.reverse(y, []), F32), (0, 0), (4, 6))
  assert y is x and [n.op for n in e.nodes[before:]] == ["stablehlo.constant"]
  none = e.exponential(e.slice(x, (0, 2), (4, 2)))
  assert none.node.op == "stablehlo.constant" and none.shape == (4, 0)
  return y


def _movement(x, i):
  y = jnp.concatenate([x, x[:, 1::2]], 1)
  y = jax.lax.pad(y, jnp.float32(7), [(1, 0, 1), (0, -2, 0)])
  return jnp.broadcast_to(y.T[:, :, None], (7, 8, 2))


def _moving_slices(x, i):
  cut = jax.lax.dynamic_slice(x, (i[0, 0], 1), (2, 3))
  return jax.lax.dynamic_update_slice(x, cut, (0, i[0, 0]))


def _products(x, i):
  y = x @ x.T
  return jnp.einsum("ij,ij->i", y, y)


def _reductions(x, i):
  general = jax.lax.reduce(x, 1.0, lambda a, b: a * 0.5 + b, (1,))
  product = jax.lax.reduce(i, 1, jax.lax.mul, (1,))
  return x.max(1) + general + (x.sum(1) + product.astype(jnp.float32))


EXPECTED = {
  elements: lambda x, i: jnp.clip(
    jnp.where(i > 500, jnp.sqrt(x), x - 1.5), -1, x[0, 0]
  ),
  scalars_beside_arrays: lambda x, i: 3 - jnp.float32(0.5) * i,
  bits: lambda x, i: np.asarray(x).view(np.int32).byteswap(),
  what_is_there_already: lambda x, i: 6 * x + 2,
  movement: _movement,
  moving_slices: _moving_slices,
  slices_by_index: lambda x, i: x[(i[:, 0] > 500).astype(np.int32)],
  sums_by_index: lambda x, i: jnp.asarray(x).at[np.array([3, 0, 3, 1])].add(x),
  products: _products,
  reductions: _reductions,
  loops: lambda x, i: x + 3 * x * x + 6,
  nothing_to_do: lambda x, i: x,
}


@pytest.mark.ipu_only
@pytest.mark.parametrize("tiles", TILES)
@pytest.mark.parametrize("function", EXPECTED, ids=lambda f: f.__name__)
def test_emitted_operations(function, rule, tiles):
  rule(lambda e, node: [function(e, *node.inputs)])
  expected = np.asarray(EXPECTED[function](X, I))
  result = jax.ShapeDtypeStruct(expected.shape, expected.dtype)
  data = compiled(jax.ffi.ffi_call("test", result), [X, I], tiles)
  engine_kit.check(data, [X, I], ulps=64)
  (actual,) = interp.run(data, [X, I]).outputs
  np.testing.assert_allclose(actual, expected, rtol=1e-5)


def module(function, *types) -> Module:
  """A module with a function that is written with the emitter."""
  e = Emitter([])
  return Module("m", e.region(types, lambda *v: function(e, *v)), [], [])


def operations(graph: Graph) -> list:
  """Names of a graph's operations, with regions as lists after their node."""
  names = []
  for node in graph.nodes:
    names.append(node.op.removeprefix("stablehlo."))
    names += [operations(region) for region in node.regions]
  return names


def decomposed(function, *types) -> list:
  m = module(function, *types)
  assert decompose(m.graph)
  verifier.verify(m, lowerable=True)
  assert not decompose(m.graph)
  return operations(m.graph)


A, SCALAR = ((2,), F32), ((), F32)


def call(e, op, *inputs):
  return e.node(op, inputs, [(inputs[0].shape, inputs[0].dtype)])[0]


def test_emitted_operations_are_decomposed_in_turn(rule):
  rule(lambda e, n: [e.sine(call(e, "test.b", *n.inputs))], "test.a")
  rule(lambda e, n: [call(e, "test.c", e.negate(n.inputs[0]))], "test.b")
  rule(lambda e, n: [n.inputs[0]], "test.c")

  def f(e, x):
    y = call(e, "test.a", x)
    return e.add(y, call(e, "test.c", y))

  assert decomposed(f, A) == ["negate", "sine", "add"]


def test_regions_are_rewritten_and_see_new_values(rule):
  rule(lambda e, n: [e.negate(n.inputs[0])], "test.a")

  def f(e, x, n):
    outer = call(e, "test.a", x)
    start = call(e, "test.a", n)
    loop = e.while_loop(
      [start, outer],
      lambda n, y: e.compare(call(e, "test.a", n), 0, "LT"),
      lambda n, y: (n, e.add(y, outer)),
    )
    (branch,) = e.case(
      e.constant(0, I32), [lambda: outer, lambda: call(e, "test.a", outer)]
    )
    total = e.reduce(
      branch, 0, (0,), lambda a, b: e.add(a, call(e, "test.a", b))
    )
    return e.add(loop[1], total)

  body = ["negate", "constant", "compare"]
  assert decomposed(f, A, SCALAR) == [
    *("negate", "negate"),
    *("while", body, ["add"]),
    *("constant", "case", [], ["negate"]),
    *("constant", "reduce", ["negate", "add"]),
    "add",
  ]


def test_regions_are_moved_and_copied(rule):
  """The replaced operation may have regions that contain operations with
  rules."""

  def twice(e, node):
    (x,), (region,) = node.inputs, node.regions
    return e.fori_loop(1, e.call(region, e.call(region, [x])),
                       lambda i, y: e.call(region, [y]))  # fmt: skip

  rule(twice, "test.twice")
  rule(lambda e, n: [e.negate(n.inputs[0])], "test.a")

  def f(e, x):
    def body(y):
      (z,) = e.fori_loop(2, [y], lambda i, z: e.add(z, call(e, "test.a", y)))
      return z

    return e.node("test.twice", [x], [A], None, [e.region([A], body)])

  body = ["constant", "add", "negate", "add"]
  loop = ["constant", "while", ["constant", "compare"], body]
  inner = ["constant", "add", *loop]
  outer = ["constant", "while", ["constant", "compare"], inner]
  assert decomposed(f, A) == [*loop, *loop, *outer]


def test_a_rule_may_leave_a_node_as_it_is(monkeypatch):
  op = "stablehlo.negate"

  def only_scalars(e, node):
    (x,) = node.inputs
    return None if x.shape else [e.subtract(0, x)]

  monkeypatch.setitem(
    registry.REGISTRY,
    op,
    dataclasses.replace(registry.REGISTRY[op], decompose=only_scalars),
  )
  f = lambda e, x, s: e.add(e.negate(x), e.negate(s))
  m = module(f, A, SCALAR)
  assert decompose(m.graph)
  assert operations(m.graph) == ["negate", "constant", "subtract", "add"]


def test_invalid_rules_are_errors(rule):
  f = lambda e, x: call(e, "test.a", x)
  rule(lambda e, n: [e.compare(n.inputs[0], 0, "LT")], "test.a")
  with pytest.raises(CompileError, match="test.a decomposes to .'2xi1'., not"):
    decompose(module(f, A).graph)
  rule(lambda e, n: None, "test.a")
  with pytest.raises(CompileError, match="test.a has no lowering"):
    decompose(module(f, A).graph)
  with pytest.raises(CompileError, match="add of 2xf32, 3xf32"):
    module(lambda e, x, y: e.add(x, y), A, ((3,), F32))
  with pytest.raises(ValueError, match="test.b has no rule"):
    registry.define(Operation("test.b"))


def test_operations_without_a_lowering_have_to_be_decomposed(rule):
  rule(lambda e, n: list(n.inputs), "test.a")
  m = module(lambda e, x: call(e, "test.a", x), A)
  verifier.verify(m)
  with pytest.raises(verifier.InvalidGraph, match="nothing lowers test.a"):
    verifier.verify(m, lowerable=True)


def test_each_node_is_visited_once(rule):
  """Each node is visited once: rules see as many nodes as there are."""
  seen = []

  def step(e, node):
    seen.append(node)
    x, n = node.inputs[0], node.attributes
    if not n:
      return [e.negate(x)]
    for _ in range(2):
      (x,) = e.node("test.tree", [x], [A], n - 1)
    return [x]

  rule(step, "test.tree")
  m = module(lambda e, x: e.node("test.tree", [x], [A], 10), A)
  assert decompose(m.graph)
  assert len(m.graph.nodes) == 1 << 10
  assert len(seen) == (2 << 10) - 1
