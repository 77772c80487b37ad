"""Matrix products: square, skinny, batched, half precision."""

from __future__ import annotations

from functools import partial

import numpy as np

import jax.numpy as jnp
from benchmarks.workload import jitted


def operands(lhs: tuple[int, ...], rhs: tuple[int, ...], dtype=np.float32):
  def make():
    rng = np.random.default_rng(0)
    scale = 100 if np.issubdtype(dtype, np.integer) else 1
    return [(scale * rng.normal(size=s)).astype(dtype) for s in (lhs, rhs)]

  return make


def product(name: str, lhs, rhs, f=jnp.matmul, dtype=np.float32, **options):
  return jitted("matmul", name, f, operands(lhs, rhs, dtype), **options)


def transposed(a, b):
  return a.T @ b


def by_transposed(a, b):
  return a @ b.T


def of_columns(a, b):
  return jnp.einsum("ij,ij->j", a, b)


def tensor_train(a, b, c):
  return jnp.einsum("aib,bjc,ckd->ijkad", a, b, c)


def train(rank: int, size: int, ends: int):
  def make():
    rng = np.random.default_rng(0)
    shapes = (ends, size, rank), (rank, size, rank), (rank, size, ends)
    return [rng.normal(size=s).astype(np.float32) for s in shapes]

  return make


def integral(dtype):
  return partial(jnp.matmul, preferred_element_type=dtype)


WORKLOADS = [
  *[product(f"{n}x{n}", (n, n), (n, n), memory=n == 2048)
    for n in (128, 256, 512, 1024, 2048)],
  product("32x784 by 784x1024", (32, 784), (784, 1024)),
  product("1x1024 by 1024x1024", (1, 1024), (1024, 1024)),
  product("1024x1024 by 1024", (1024, 1024), (1024,)),
  product("4096x16 by 16x4096", (4096, 16), (16, 4096)),
  product("16x8192 by 8192x16", (16, 8192), (8192, 16)),
  product("transposed 512x512", (512, 512), (512, 512), transposed),
  product("8x4000 by transposed 1000x4000", (8, 4000), (1000, 4000),
          by_transposed),
  product("500 columns by columns of 500", (500, 500), (500, 500), of_columns),
  jitted("matmul", "tensor train, 16x32x16", tensor_train, train(16, 32, 4)),
  product("batch 64 of 64x64", (64, 64, 64), (64, 64, 64)),
  product("batch 8 of 256x256", (8, 256, 256), (8, 256, 256)),
  product("5000 of 3x3 by 3", (5000, 3, 3), (5000, 3, 1)),
  product("5000 of 3x3 by 3x3", (5000, 3, 3), (5000, 3, 3)),
  product("65536x3 by 3", (65536, 3), (3,)),
  product("bf16 512x512", (512, 512), (512, 512), dtype=jnp.bfloat16,
          tolerance=2e-2),
  product("f16 512x512", (512, 512), (512, 512), dtype=np.float16,
          tolerance=4e-3),
  product("i8 512x512", (512, 512), (512, 512), integral(jnp.int8),
          dtype=np.int8),
  product("i8 to i32 512x512", (512, 512), (512, 512), integral(jnp.int32),
          dtype=np.int8),
  product("i32 512x512", (512, 512), (512, 512), dtype=np.int32),
]  # fmt: skip
