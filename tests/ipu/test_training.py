"""Typical training code: losses, normalisations, optimisers, gradients."""

from __future__ import annotations

from functools import partial

import ipu_test_util as util
import numpy as np
import pytest

import jax
import jax.numpy as jnp

Params = list[tuple[jax.Array, jax.Array]]


def init_mlp(sizes: list[int]) -> Params:
  """Weights and biases, float32, from NumPy's generator."""
  rng = util.rng_of("mlp", sizes)
  return [
    (
      rng.normal(0, n**-0.5, (n, m)).astype(np.float32),
      np.zeros(m, np.float32),
    )
    for n, m in zip(sizes[:-1], sizes[1:], strict=True)
  ]


def mlp(params: Params, x: jax.Array) -> jax.Array:
  for w, b in params[:-1]:
    x = jax.nn.relu(x @ w + b)
  w, b = params[-1]
  return x @ w + b


def cross_entropy(params: Params, x: jax.Array, labels: jax.Array) -> jax.Array:
  """Mean negative log-likelihood of integer labels."""
  logp = jax.nn.log_softmax(mlp(params, x))
  return -jnp.take_along_axis(logp, labels[:, None], 1).mean()


def batch(size: int = 32, features: int = 20, classes: int = 5):
  x = util.sample(np.float32, (size, features), low=-1, high=1)
  return x, util.sample(np.int32, (size,), low=0, high=classes - 1)


def test_softmax_and_cross_entropy(check):
  def f(x, labels):
    return {
      "softmax": jax.nn.softmax(x),
      "log softmax": jax.nn.log_softmax(x, 0),
      "by index": -jax.nn.log_softmax(x)[jnp.arange(len(x)), labels].mean(),
      "one hot": -(jax.nn.one_hot(labels, 5) * jax.nn.log_softmax(x)).sum(1),
      "accuracy": (x.argmax(1) == labels).mean(),
      "gradient": jax.grad(
        lambda x: -jax.nn.log_softmax(x)[jnp.arange(len(x)), labels].mean()
      )(x),
    }

  _, labels = batch()
  x = util.sample(np.float32, (32, 5), low=-30, high=30)
  check(f, x, labels, rtol=1e-4, atol=1e-6)


def test_layer_norm_and_its_gradient(check):
  def layer_norm(x, scale, bias):
    mean = x.mean(-1, keepdims=True)
    var = x.var(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(var + 1e-6) * scale + bias

  def f(x, scale, bias):
    out, pullback = jax.vjp(layer_norm, x, scale, bias)
    return out, pullback(jnp.cos(out))

  check(
    f,
    util.sample(np.float32, (16, 96)),
    util.sample(np.float32, (96,), key="scale"),
    util.sample(np.float32, (96,), key="bias"),
    rtol=2e-4,
    atol=2e-5,
  )


def test_batch_norm_and_rms_norm(check):
  def f(x):
    z = (x - x.mean((0, 1))) / jnp.sqrt(x.var((0, 1)) + 1e-5)
    rms = x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True))
    return z, rms, jax.nn.standardize(x, axis=1)

  check(f, util.sample(np.float32, (8, 9, 12)), rtol=2e-4, atol=1e-5)


def test_gradients_of_an_mlp(check):
  params = init_mlp([20, 33, 17, 5])
  check(jax.value_and_grad(cross_entropy), params, *batch(),
        rtol=1e-4, atol=1e-6)  # fmt: skip


def sgd(grads, params, state, step):
  del step
  return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), state


def momentum(grads, params, state, step):
  del step
  state = jax.tree.map(lambda m, g: 0.9 * m + g, state, grads)
  return jax.tree.map(lambda p, m: p - 0.05 * m, params, state), state


def adam(grads, params, state, step):
  mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state[0], grads)
  square = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, state[1], grads)
  fix_mean, fix_square = 1 - 0.9 ** (step + 1.0), 1 - 0.999 ** (step + 1.0)

  def update(p, m, v):
    return p - 1e-2 * m / fix_mean / (jnp.sqrt(v / fix_square) + 1e-8)

  return jax.tree.map(update, params, mean, square), (mean, square)


def zeros_like(params):
  return jax.tree.map(np.zeros_like, params)


OPTIMIZERS = {
  "sgd": (sgd, lambda p: ()),
  "momentum": (momentum, zeros_like),
  "adam": (adam, lambda p: (zeros_like(p), zeros_like(p))),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_steps(ipu, cpu, name):
  """Twenty donated steps lower the loss, and both devices agree on it."""
  update, init_state = OPTIMIZERS[name]

  @partial(jax.jit, donate_argnums=(0, 1))
  def train(params, state, step, x, labels):
    loss, grads = jax.value_and_grad(cross_entropy)(params, x, labels)
    params, state = update(grads, params, state, step)
    return params, state, loss

  losses = []
  for device in (ipu, cpu):
    params = init_mlp([20, 32, 5])
    params, state = jax.device_put((params, init_state(params)), device)
    x, labels = jax.device_put(batch(), device)
    losses.append([])
    for step in range(20):
      params, state, loss = train(params, state, step, x, labels)
      losses[-1].append(float(loss))
  np.testing.assert_allclose(losses[0], losses[1], rtol=2e-3)
  assert losses[0][-1] < 0.8 * losses[0][0]


def test_training_inside_a_scan(check):
  """A whole training run as one program."""

  def train(params, x, labels):
    def step(params, _):
      loss, grads = jax.value_and_grad(cross_entropy)(params, x, labels)
      return sgd(grads, params, (), 0)[0], loss

    return jax.lax.scan(step, params, length=15)

  check(train, init_mlp([20, 16, 5]), *batch(), rtol=2e-3, atol=1e-4)


def test_per_example_gradients(check):
  params = init_mlp([20, 8, 5])

  def f(params, x, labels):
    one = lambda x, label: jax.grad(cross_entropy)(params, x[None], label[None])
    return jax.vmap(one)(x, labels)

  check(f, params, *batch(7), rtol=1e-4, atol=1e-6)


def test_second_derivatives(check):
  def f(x):
    y = jnp.tanh(x) * jnp.sin(x).sum()
    return (y**2).mean()

  def derivatives(x, v):
    return {
      "hessian": jax.hessian(f)(x),
      "jacobian": jax.jacobian(jnp.sin)(x),
      "hessian-vector": jax.jvp(jax.grad(f), (x,), (v,)),
      "forward": jax.jacfwd(lambda x: x[:2] * x[2])(x),
    }

  x, v = (util.sample(np.float32, (5,), low=-1, high=1, key=i) for i in (0, 1))
  check(derivatives, x, v, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_training(check, dtype):
  params = jax.tree.map(lambda p: p.astype(dtype), init_mlp([20, 16, 5]))
  x, labels = batch()
  tolerance = 2e-2 if dtype == "float16" else 1e-1
  check(
    jax.value_and_grad(cross_entropy),
    params,
    x.astype(dtype),
    labels,
    rtol=tolerance,
    atol=tolerance / 10,
  )


def test_attention(check):
  """Causal self-attention with four heads, and its gradient."""

  def attention(x, wqkv, wo):
    n, d = x.shape
    q, k, v = jnp.split(x @ wqkv, 3, 1)
    q, k, v = (a.reshape(n, 4, d // 4).swapaxes(0, 1) for a in (q, k, v))
    scores = q @ k.swapaxes(1, 2) / np.sqrt(d // 4)
    mask = jnp.tril(jnp.ones((n, n), bool))
    weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf))
    return (weights @ v).swapaxes(0, 1).reshape(n, d) @ wo

  def loss(x, wqkv, wo):
    return (attention(x, wqkv, wo) ** 2).mean()

  x = util.sample(np.float32, (12, 32), low=-1, high=1)
  wqkv = util.sample(np.float32, (32, 96), low=-0.3, high=0.3)
  wo = util.sample(np.float32, (32, 32), low=-0.3, high=0.3)
  check(attention, x, wqkv, wo, rtol=1e-4, atol=1e-5)
  check(jax.grad(loss, (0, 1, 2)), x, wqkv, wo, rtol=1e-3, atol=1e-5)


def test_gradient_through_indexing_and_control_flow(check):
  def f(x, i):
    y = jnp.where(x > 0, jnp.log1p(jnp.abs(x)), x * x)
    y = y.at[i].multiply(2.0)
    return jax.lax.cond(y.sum() > 0, jnp.sum, jnp.prod, y[i])

  x = util.sample(np.float32, (10,), low=0.5, high=2)
  check(jax.value_and_grad(f), x, np.array([1, 5, 9], np.int32), rtol=1e-4)
