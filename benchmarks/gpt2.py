"""A step of training GPT-2 (Radford et al., 2019) in f16, for its code and
memory: batch 1, the embedding tied to the logits, dropout left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

import jax
import jax.numpy as jnp

_HALF = np.float16
_RATE = 1e-3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizes:
  """Of a model, by default GPT-2-small, and the length of its sequences."""

  layers: int = 12
  width: int = 768
  heads: int = 12
  vocabulary: int = 50_257
  length: int = 128


def training_step(
  sizes: Sizes, adam: bool = False
) -> tuple[Callable[..., Any], list[Any]]:
  """The step, and the shapes of its arguments: the state, which it returns
  with the loss, and tokens i32[length + 1].

  Args:
    sizes: of the model.
    adam: the state has Adam's two moments of each parameter in f32, and not
      parameters alone, which are updated by SGD.
  """

  def sgd(params, tokens):
    loss, grads = jax.value_and_grad(_loss)(params, tokens, sizes)
    return jax.tree.map(lambda p, g: p - _HALF(_RATE) * g, params, grads), loss

  def by_adam(state, tokens):
    params, means, squares = state
    loss, grads = jax.value_and_grad(_loss)(params, tokens, sizes)
    grads = jax.tree.map(lambda g: g.astype(np.float32), grads)
    means = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, means, grads)
    squares = jax.tree.map(
      lambda v, g: 0.999 * v + 0.001 * g * g, squares, grads
    )
    params = jax.tree.map(
      lambda p, m, v: p - (_RATE * m / (jnp.sqrt(v) + 1e-8)).astype(_HALF),
      params, means, squares,
    )  # fmt: skip
    return (params, means, squares), loss

  params = _parameters(sizes)
  tokens = jax.ShapeDtypeStruct((sizes.length + 1,), np.int32)
  if not adam:
    return sgd, [params, tokens]
  moments = jax.tree.map(
    lambda p: jax.ShapeDtypeStruct(p.shape, np.float32), params
  )
  return by_adam, [(params, moments, moments), tokens]


def _parameters(sizes: Sizes) -> Any:
  def half(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, _HALF)

  n = sizes.width
  norm = {"scale": half(n), "bias": half(n)}
  layer = {
    "norm 1": norm, "qkv": half(n, 3 * n), "qkv bias": half(3 * n),
    "out": half(n, n), "out bias": half(n),
    "norm 2": norm, "up": half(n, 4 * n), "up bias": half(4 * n),
    "down": half(4 * n, n), "down bias": half(n),
  }  # fmt: skip
  return {
    "embedding": half(sizes.vocabulary, n),
    "positions": half(sizes.length, n),
    "layers": [layer] * sizes.layers,
    "norm": norm,
  }


def _loss(params, tokens, sizes):
  x = params["embedding"][tokens[:-1]] + params["positions"]
  for p in params["layers"]:
    x = x + _attention(p, _norm(p["norm 1"], x), sizes)
    hidden = jax.nn.gelu(_norm(p["norm 2"], x) @ p["up"] + p["up bias"])
    x = x + hidden @ p["down"] + p["down bias"]
  logits = _norm(params["norm"], x) @ params["embedding"].T
  logp = jax.nn.log_softmax(logits.astype(np.float32))
  return -jnp.take_along_axis(logp, tokens[1:, None], -1).mean()


def _norm(p, x):
  x = x.astype(np.float32)
  mean = x.mean(-1, keepdims=True)
  var = ((x - mean) ** 2).mean(-1, keepdims=True)
  x = ((x - mean) * jax.lax.rsqrt(var + 1e-5)).astype(_HALF)
  return x * p["scale"] + p["bias"]


def _attention(p, x, sizes):
  heads = (sizes.length, sizes.heads, sizes.width // sizes.heads)
  q, k, v = (
    part.reshape(heads)
    for part in jnp.split(x @ p["qkv"] + p["qkv bias"], 3, -1)
  )
  scores = jnp.einsum("ihd,jhd->hij", q, k) * heads[-1] ** -0.5
  causal = jnp.tril(jnp.ones((sizes.length, sizes.length), bool))
  scores = jnp.where(causal, scores.astype(np.float32), -1e9)
  weights = jax.nn.softmax(scores).astype(_HALF)
  mixed = jnp.einsum("hij,jhd->ihd", weights, v).reshape(x.shape)
  return mixed @ p["out"] + p["out bias"]
