"""One small program for each StableHLO operation that the compiler knows.

`SAMPLES[name](x)` is a JAX program that contains the operation; x is a 4 x 4
array of ones of any element type. A sample may raise what JAX raises for types
that the operation does not support. A sample given as text is a StableHLO
function, for operations that JAX rarely or never emits, with $T for the type of
the array and $E for its element type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import jax
import jax.numpy as jnp
from jax import lax


def _over_one_device(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
  """f in a shard_map over one device, with the axis name i."""

  def mapped(x: Any) -> Any:
    mesh = jax.make_mesh(
      (1,),
      ("i",),
      devices=jax.devices("ipu")[:1],
      axis_types=(jax.sharding.AxisType.Auto,),
    )
    spec = jax.sharding.PartitionSpec("i")
    return jax.shard_map(
      f, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
    )(x)

  return mapped


def _one_layout(x: Any) -> Any:
  from jax.experimental import layout

  order = layout.Layout(major_to_minor=(0, 1))
  return layout.with_layout_constraint(x, order)


def _callback(x: Any) -> Any:
  return jax.pure_callback(lambda v: v, jax.typeof(x), x)


def _conv(x: Any) -> Any:
  return lax.conv(x[None, None], x[None, None, :2, :2], (1, 1), "SAME")


def _pool(x: Any) -> Any:
  zero = np.zeros((), x.dtype)
  return lax.reduce_window(x, zero, lax.add, (2, 2), (1, 1), "VALID")


def _pool_gradient(x: Any) -> Any:
  def f(x: Any) -> Any:
    return lax.reduce_window(x, -np.inf, lax.max, (2, 2), (2, 2), "VALID")

  return jax.vjp(f, x)[1](x[:2, :2])[0]


def _random_bits(x: Any) -> Any:
  key = jnp.zeros(4, jnp.uint32)
  return lax.rng_bit_generator(key, x.shape, x.dtype)[1]


def _uniform(x: Any) -> Any:
  return lax.rng_uniform(x[0, 0], x[0, 0], (4,))


def _triangular(x: Any) -> Any:
  return lax.linalg.triangular_solve(x, x, left_side=True)


def _fft(x: Any) -> Any:
  kind = "FFT" if jnp.iscomplexobj(x) else "RFFT"
  return lax.fft(x, kind, (4,))


def _while(x: Any) -> Any:
  return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1]), (0, x))


def _case(x: Any) -> Any:
  return lax.cond(x[0, 0] == x[1, 1], lambda x: x.T, lambda x: x, x)


def _sum(x: Any) -> Any:
  return lax.reduce(x, np.zeros((), x.dtype), lax.add, (0,))


def _collective(name: str, **options: Any) -> Callable[[Any], Any]:
  function = getattr(lax, name)
  return _over_one_device(lambda x: function(x, "i", **options))


_NORM = """
func.func @main(%p: tensor<i32>, %x: $T) -> $T {
  %s = stablehlo.slice %x [0:1, 0:4] : ($T) -> tensor<1x4x$E>
  %v = stablehlo.reshape %s : (tensor<1x4x$E>) -> tensor<4x$E>
  CALL
  return %y : $T
}
"""
_TRAINING = """%y, %m, %n = "stablehlo.batch_norm_training"(%x, %v, %v)
    {epsilon = 0.1 : f32, feature_index = 1 : i64} :
    ($T, tensor<4x$E>, tensor<4x$E>) -> ($T, tensor<4x$E>, tensor<4x$E>)"""
_INFERENCE = """%y = "stablehlo.batch_norm_inference"(%x, %v, %v, %v, %v)
    {epsilon = 0.1 : f32, feature_index = 1 : i64} :
    ($T, tensor<4x$E>, tensor<4x$E>, tensor<4x$E>, tensor<4x$E>) -> $T"""
_GRADIENT = """%y, %m, %n = "stablehlo.batch_norm_grad"(%x, %v, %v, %v, %x)
    {epsilon = 0.1 : f32, feature_index = 1 : i64} :
    ($T, tensor<4x$E>, tensor<4x$E>, tensor<4x$E>, $T) ->
    ($T, tensor<4x$E>, tensor<4x$E>)"""
_IF = """
func.func @main(%p: tensor<i32>, %x: $T) -> $T {
  %c = stablehlo.compare EQ, %p, %p : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %y = "stablehlo.if"(%c) ({
    %t = stablehlo.transpose %x, dims = [1, 0] : ($T) -> $T
    stablehlo.return %t : $T
  }, {
    stablehlo.return %x : $T
  }) : (tensor<i1>) -> $T
  return %y : $T
}
"""
_MAP = """
func.func @main(%p: tensor<i32>, %x: $T) -> $T {
  %y = "stablehlo.map"(%x) ({
  ^bb0(%a: tensor<$E>):
    %b = stablehlo.add %a, %a : tensor<$E>
    stablehlo.return %b : tensor<$E>
  }) {dimensions = array<i64: 0, 1>} : ($T) -> $T
  return %y : $T
}
"""
_IDENTIFIER = """
func.func @main(%p: tensor<i32>, %x: $T) -> $T {
  %i = stablehlo.OPERATION : tensor<ui32>
  %e = stablehlo.convert %i : (tensor<ui32>) -> tensor<$E>
  %b = stablehlo.broadcast_in_dim %e, dims = [] : (tensor<$E>) -> $T
  %y = stablehlo.add %x, %b : $T
  return %y : $T
}
"""
_BROADCAST = """
func.func @main(%p: tensor<i32>, %x: $T) -> $T {
  %y = "stablehlo.collective_broadcast"(%x)
    {replica_groups = dense<0> : tensor<1x1xi64>} : ($T) -> $T
  return %y : $T
}
"""

_INFEED = """
func.func @main(%p: tensor<i32>, %x: $T) -> $T {
  %t = stablehlo.create_token : !stablehlo.token
  %y:2 = "stablehlo.infeed"(%t) {infeed_config = ""} :
    (!stablehlo.token) -> ($T, !stablehlo.token)
  return %y#0 : $T
}
"""
_OUTFEED = """
func.func @main(%p: tensor<i32>, %x: $T) -> $T {
  %t = stablehlo.create_token : !stablehlo.token
  %u = "stablehlo.outfeed"(%x, %t) {outfeed_config = ""} :
    ($T, !stablehlo.token) -> !stablehlo.token
  return %x : $T
}
"""
_FEED = """
func.func @main(%p: tensor<i32>, %x: $T) -> $T {
  %n = stablehlo.convert %p : (tensor<i32>) -> tensor<ui32>
  %y = stablehlo.custom_call @ipu_feed(%n) {
    api_version = 4 : i32, has_side_effect = true,
    backend_config = {may_end = 0 : ui64}} : (tensor<ui32>) -> $T
  return %y : $T
}
"""
_MARKER = """
func.func @main(%p: tensor<i32>, %x: $T) -> $T {
  %y = stablehlo.custom_call @TARGET(%x) : ($T) -> $T
  return %y : $T
}
"""
_SINK = """
func.func @main(%p: tensor<i32>, %x: $T) -> $T {
  stablehlo.custom_call @TARGET(%x) {has_side_effect = true} : ($T) -> ()
  return %x : $T
}
"""

_UNARY = """
func.func @main(%p: tensor<i32>, %x: $T) -> $T {
  %y = stablehlo.OPERATION %x : $T
  return %y : $T
}
"""
_ALL_TO_ALL = """
func.func @main(%p: tensor<i32>, %x: $T) -> $T {
  %y = "stablehlo.all_to_all"(%x) {
    split_dimension = 0 : i64, concat_dimension = 0 : i64,
    split_count = 1 : i64, replica_groups = dense<0> : tensor<1x1xi64>
  } : ($T) -> $T
  return %y : $T
}
"""
_RAGGED_ALL_TO_ALL = """
func.func @main(%p: tensor<i32>, %x: $T) -> $T {
  %from = stablehlo.constant dense<0> : tensor<1xi32>
  %rows = stablehlo.constant dense<1> : tensor<1xi32>
  %y = stablehlo.custom_call @ragged_all_to_all(
      %x, %x, %from, %rows, %from, %rows) {
    api_version = 4 : i32,
    backend_config = {replica_groups = dense<0> : tensor<1x1xi64>}
  } : ($T, $T, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> $T
  return %y : $T
}
"""
_DYNAMIC_SLICE = """
func.func @main(%p: tensor<i32>, %x: $T) -> $T {
  %a = stablehlo.constant dense<0> : tensor<2xi32>
  %b = stablehlo.constant dense<4> : tensor<2xi32>
  %c = stablehlo.constant dense<1> : tensor<2xi32>
  %y = stablehlo.real_dynamic_slice %x, %a, %b, %c :
    ($T, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> $T
  return %y : $T
}
"""
_TOKEN = """
func.func @main(%p: tensor<i32>, %x: $T) -> $T {
  %t = stablehlo.create_token : !stablehlo.token
  %u = stablehlo.after_all %t, %t : !stablehlo.token
  return %x : $T
}
"""


def _marker(target: str) -> str:
  return _MARKER.replace("TARGET", target)


SAMPLES: dict[str, Callable[[Any], Any] | str] = {
  "abs": lax.abs,
  "add": lambda x: lax.add(x, x),
  "after_all": _TOKEN,
  "all_gather": _collective("all_gather"),
  "all_reduce": _collective("psum"),
  "all_to_all": _ALL_TO_ALL,
  "and": lambda x: lax.bitwise_and(x, x.T),
  "atan2": lambda x: lax.atan2(x, x),
  "batch_norm_grad": _NORM.replace("CALL", _GRADIENT),
  "batch_norm_inference": _NORM.replace("CALL", _INFERENCE),
  "batch_norm_training": _NORM.replace("CALL", _TRAINING),
  "bitcast_convert": lambda x: lax.bitcast_convert_type(x, _as_bits(x.dtype)),
  "broadcast_in_dim": lambda x: lax.broadcast(x, (3,)),
  "case": _case,
  "cbrt": lax.cbrt,
  "ceil": lax.ceil,
  "cholesky": lax.linalg.cholesky,
  "clamp": lambda x: lax.clamp(x, x, x),
  "collective_broadcast": _BROADCAST,
  "collective_permute": _collective("ppermute", perm=[(0, 0)]),
  "compare": lambda x: lax.eq(x, x.T),
  "complex": lambda x: lax.complex(x, x),
  "concatenate": lambda x: lax.concatenate([x, x], 0),
  "constant": lambda x: jnp.asarray(np.ones(3), x.dtype),
  "convert": lambda x: lax.convert_element_type(x, jnp.float32),
  "convolution": _conv,
  "cosine": lax.cos,
  "count_leading_zeros": lax.clz,
  "create_token": _TOKEN,
  "custom_call": _callback,
  "custom_call @ApproxTopK": lambda x: lax.approx_max_k(x, 2),
  "custom_call @LayoutConstraint": _one_layout,
  "custom_call @ProductOfElementaryHouseholderReflectors": (
    lambda x: lax.linalg.householder_product(x, x[0])
  ),
  "custom_call @Qr": lambda x: lax.linalg.qr(x, full_matrices=False),
  "custom_call @SPMDFullToShardShape": _marker("SPMDFullToShardShape"),
  "custom_call @SPMDShardToFullShape": _marker("SPMDShardToFullShape"),
  "custom_call @Sharding": _marker("Sharding"),
  "custom_call @ragged_all_to_all": _RAGGED_ALL_TO_ALL,
  "custom_call @control_dep": _SINK.replace("TARGET", "control_dep"),
  "custom_call @dce_sink": _SINK.replace("TARGET", "dce_sink"),
  "custom_call @annotate_device_placement": (
    _marker("annotate_device_placement")
  ),
  "custom_call @ipu_eigh": lax.linalg.eigh,
  "custom_call @ipu_feed": _FEED,
  "custom_call @ipu_gehrd": lax.linalg.hessenberg,
  "custom_call @ipu_geqp3": lambda x: lax.linalg.qr(x, pivoting=True),
  "custom_call @ipu_lu": lax.linalg.lu,
  "custom_call @ipu_svd": lax.linalg.svd,
  "custom_call @ipu_sytrd_lower": lax.linalg.tridiagonal,
  "custom_call @ipu_sytrd_upper": (
    lambda x: lax.linalg.tridiagonal(x, lower=False)
  ),
  "divide": lambda x: lax.div(x, x),
  "dot_general": lambda x: lax.dot(x, x),
  "dynamic_slice": lambda x: lax.dynamic_slice_in_dim(x, jnp.argmax(x != 0), 2),
  "dynamic_update_slice": (
    lambda x: lax.dynamic_update_slice(x, x[:2], (jnp.argmax(x[0] != 0), 0))
  ),
  "exponential": lax.exp,
  "exponential_minus_one": lax.expm1,
  "fft": _fft,
  "floor": lax.floor,
  # Evenly spaced indices would be compiled to copies.
  "gather": lambda x: x[jnp.array([0, 1, 3])],
  "if": _IF,
  "imag": lax.imag,
  "infeed": _INFEED,
  "iota": lambda x: lax.iota(x.dtype, 4),
  "is_finite": lax.is_finite,
  "log": lax.log,
  "log_plus_one": lax.log1p,
  "logistic": _UNARY.replace("OPERATION", "logistic"),
  "map": _MAP,
  "maximum": lambda x: lax.max(x, x.T),
  "minimum": lambda x: lax.min(x, x.T),
  "multiply": lambda x: lax.mul(x, x),
  "negate": lax.neg,
  "not": lax.bitwise_not,
  "or": lambda x: lax.bitwise_or(x, x.T),
  "outfeed": _OUTFEED,
  "pad": lambda x: lax.pad(x, x[0, 0], ((1, 1, 1), (0, 0, 0))),
  "partition_id": _IDENTIFIER.replace("OPERATION", "partition_id"),
  "popcnt": lax.population_count,
  "power": lambda x: lax.pow(x, x),
  "real": lax.real,
  "real_dynamic_slice": _DYNAMIC_SLICE,
  "reduce": _sum,
  "reduce_precision": lambda x: lax.reduce_precision(x, 3, 2),
  "reduce_scatter": _collective("psum_scatter", tiled=True),
  "reduce_window": _pool,
  "remainder": lambda x: lax.rem(x, x),
  "replica_id": _IDENTIFIER.replace("OPERATION", "replica_id"),
  "reshape": lambda x: lax.reshape(x, (2, 8)),
  "reverse": lambda x: lax.rev(x, (0,)),
  "rng": _uniform,
  "rng_bit_generator": _random_bits,
  "round_nearest_afz": lax.round,
  "round_nearest_even": (
    lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)
  ),
  "rsqrt": lax.rsqrt,
  "scatter": lambda x: x.at[jnp.array([0, 1, 3])].set(x[:3]),
  "select": lambda x: lax.select(lax.eq(x, x.T), x, x.T),
  "select_and_scatter": _pool_gradient,
  "shift_left": lambda x: lax.shift_left(x, x),
  "shift_right_arithmetic": lambda x: lax.shift_right_arithmetic(x, x),
  "shift_right_logical": lambda x: lax.shift_right_logical(x, x),
  "sign": lax.sign,
  "sine": lax.sin,
  "slice": lambda x: lax.slice(x, (1, 1), (3, 4)),
  "sort": lax.sort,
  "sqrt": lax.sqrt,
  "subtract": lambda x: lax.sub(x, x),
  "tan": lax.tan,
  "tanh": lax.tanh,
  "transpose": lambda x: lax.transpose(x, (1, 0)),
  "triangular_solve": _triangular,
  "while": _while,
  "xor": lambda x: lax.bitwise_xor(x, x.T),
}


def _as_bits(dtype: Any) -> Any:
  bits = jax.dtypes.itemsize_bits(dtype)
  return jnp.dtype(f"uint{bits}")
