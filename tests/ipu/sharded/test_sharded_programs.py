"""`jax.jit` of sharded arrays: values, shardings and costs."""

from __future__ import annotations

import re

import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

GRID = {"x": 4, "y": 2}
X = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(16, 8)).astype(np.float32)


def put(mesh, value, *spec):
  return jax.device_put(value, NamedSharding(mesh, P(*spec)))


PROGRAMS = {
  "matmul": lambda x, w: jnp.tanh(x @ w),
  "reductions": lambda x, w: (x.sum(), x.max(0), w.mean(1), (x > 0).all()),
  "argmax": lambda x, w: (x.argmax(0), jnp.argsort(w, axis=0)),
  "halos": lambda x, w: (jnp.roll(x, 1, 0), x[1:-1] - x[2:], jnp.cumsum(w, 0)),
  "indexing": lambda x, w: (x[jnp.array([3, 0, 7])], w.at[::3].add(1.0)),
  "loops": lambda x, w: lax.scan(
    lambda c, _: (jnp.tanh(c @ w @ x), c.sum()), x, None, length=3
  ),
  "until": lambda x, w: lax.while_loop(
    lambda c: c.sum() < 100, lambda c: c + jnp.abs(w).mean(), x
  ),
  "branches": lambda x, w: lax.cond(
    x.sum() > 0, lambda: x * 2, lambda: x - w.T
  ),
  "gradients": jax.grad(lambda x, w: (jnp.tanh(x @ w) ** 2).sum(), (0, 1)),
  "uneven": lambda x, w: (x[:7, :5].sum(1), jnp.pad(w, ((1, 2), (0, 1)))),
  "einsum": lambda x, w: jnp.einsum("ab,bc,dc->ad", x, w, x @ w),
  "random": lambda x, w: x + jax.random.normal(jax.random.key(0), x.shape),
  "linalg": lambda x, w: jnp.linalg.inv(x @ x.T + 8 * jnp.eye(8)),
  "top_k": lambda x, w: lax.top_k(x, 3),
  "bf16": lambda x, w: x.astype(jnp.bfloat16).sum(0),
  "complex": lambda x, w: jnp.abs(jnp.fft.fft(x @ w + 1j)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(both, name):
  def run(mesh):
    return jax.jit(PROGRAMS[name])(
      put(mesh, X, "x", "y"), put(mesh, W, "y", None)
    )

  both(run, GRID)


ORDERS = {
  "permuted": ({"x": 4, "y": 2}, [7, 2, 0, 5, 1, 3, 6, 4]),
  "a part": ({"x": 2, "y": 2}, [6, 1, 4, 3]),
  "transposed": ({"x": 4, "y": 2}, [0, 4, 1, 5, 2, 6, 3, 7]),
}


@pytest.mark.parametrize("name", ORDERS)
def test_meshes_of_other_devices(both, name):
  def run(mesh):
    x, w = put(mesh, X, "x", "y"), put(mesh, W, "y", "x")
    return jax.jit(lambda x, w: (x.sum(0), x @ w, (x @ w).max(1)))(x, w)

  both(run, *ORDERS[name])


def test_groups_in_the_order_of_another_mesh(both):
  """Two meshes over the same devices: groups are written along one's axes."""

  def run(mesh):
    other = jax.sharding.Mesh(mesh.devices.T, ("y", "x"))
    x = put(other, X, "x", "y")
    return jax.jit(lambda x: (x.sum(0), x.max(1)))(x)

  both(run, GRID)


def test_results_know_their_shardings(mesh):
  grid = mesh("ipu", GRID)
  x, w = put(grid, X, "x", "y"), put(grid, W, "y", None)
  compiled = jax.jit(lambda x, w: (x @ w, x.sum(0))).lower(x, w).compile()
  (ins, _), outs = compiled.input_shardings, compiled.output_shardings
  specs = [P("x", "y"), P("y", None), P("x", None), P("y")]
  for sharding, spec in zip((*ins, *outs), specs, strict=True):
    assert sharding.is_equivalent_to(NamedSharding(grid, spec), len(spec))
  a, b = compiled(x, w)
  assert (a.sharding, b.sharding) == outs
  assert a.addressable_shards[3].data.shape == (2, 8)


def test_a_constraint_is_a_sharding_of_the_result(mesh):
  grid = mesh("ipu", GRID)
  wanted = NamedSharding(grid, P("y", "x"))
  y = jax.jit(lambda x: lax.with_sharding_constraint(x + 1, wanted))(
    put(grid, X, "x", "y")
  )
  assert y.sharding.is_equivalent_to(wanted, 2)
  np.testing.assert_array_equal(y, X + 1)


def test_no_results(mesh):
  grid = mesh("ipu", GRID)
  assert jax.jit(lambda x: ())(put(grid, X, "x")) == ()
  f = jax.shard_map(lambda x: (), mesh=grid, in_specs=P("x"), out_specs=())
  assert jax.jit(f)(X) == ()


def test_explicit_axes(mesh):
  grid = mesh("ipu", GRID, types=AxisType.Explicit)
  x, w = put(grid, X, "x", None), put(grid, W, None, "y")
  with jax.set_mesh(grid):
    y = jax.jit(lambda x, w: jnp.sin(x @ w))(x, w)
  assert jax.typeof(y).sharding.spec == P("x", "y")
  np.testing.assert_allclose(y, np.sin(X @ W), rtol=2e-5, atol=2e-6)


def test_gspmd(mesh):
  try:
    jax.config.update("jax_use_shardy_partitioner", False)
  except AttributeError:
    return  # Shardy alone
  try:
    grid = mesh("ipu", GRID)
    y = jax.jit(lambda x, w: (x @ w).sum(0))(
      put(grid, X, "x", "y"), put(grid, W, "y", None)
    )
  finally:
    jax.config.update("jax_use_shardy_partitioner", True)
  np.testing.assert_allclose(y, (X @ W).sum(0), rtol=1e-5, atol=1e-5)


def test_the_text_shows_one_device_and_its_collectives(mesh):
  grid = mesh("ipu", GRID)
  compiled = jax.jit(lambda x: x.sum(0)).lower(put(grid, X, "x")).compile()
  text = compiled.as_text()
  assert "all-reduce" in text and "f32[2,16]" in text
  groups = re.search(r"replica_groups=(\S+)", text)
  assert groups, text


def test_costs_are_those_of_one_device(mesh):
  f = jax.jit(lambda x: jnp.sin(x))
  big = np.ones((1024, 1024), np.float32)
  whole = f.lower(jax.device_put(big, jax.devices("ipu")[0])).compile()
  parts = f.lower(put(mesh("ipu", GRID), big, "x", "y")).compile()
  one, eighth = whole.cost_analysis()["flops"], parts.cost_analysis()["flops"]
  assert eighth == pytest.approx(one / 8, rel=0.01)
  memory = parts.memory_analysis()
  assert memory.argument_size_in_bytes == big.nbytes // 8


def test_the_partitioners_error_names_the_program(mesh):
  grid = mesh("ipu", GRID)
  shape = jax.ShapeDtypeStruct(X.shape, np.float32)
  call = jax.ffi.ffi_call("nobody", shape, has_side_effect=True)
  with pytest.raises(jax.errors.JaxRuntimeError, match="over 8 IPUs") as e:
    jax.jit(lambda x: call(x))(put(grid, X, "x"))
  assert "What to do" in str(e.value)
  # XLA's list of the user's frames, of which the message has the innermost.
  assert "Suspected" not in str(e.value)


def test_dumps_have_the_whole_program_too(mesh, tmp_path):
  x = put(mesh("ipu", GRID), X, "x", "y")
  options = {"ipu_dump_to": str(tmp_path)}
  jax.jit(lambda x: x.sum(0), compiler_options=options)(x)
  (whole,) = tmp_path.glob("*/0_partition.txt")
  assert "sdy.sharding" in whole.read_text()
  assert "tensor<8x16xf32>" in whole.read_text()
  (part,) = tmp_path.glob("*/0_parse.txt")
  assert "tensor<2x8xf32>" in part.read_text()
  (emitted,) = tmp_path.glob("*/*_emit.txt")
  assert "partitions 8" in emitted.read_text()
