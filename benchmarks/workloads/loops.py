"""While loops and scans with small bodies."""

from __future__ import annotations

import numpy as np

import jax
import jax.numpy as jnp
from benchmarks.workload import jitted
from jax import lax
from jax.experimental.ode import odeint

# Loops over few elements, which are one native function on both sides, at some
# 10 ns per iteration.
SCALAR_LIMIT = 2.0


def scalars(x, n):
  return lax.fori_loop(0, n, lambda i, x: x * 1.0001 + 0.5, x)


def collatz(x, n):
  del x

  def step(s):
    n, steps = s
    return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1

  return lax.while_loop(lambda s: s[0] != 1, step, (n, 0))


def vector(x, n):
  return lax.fori_loop(0, n, lambda i, x: jnp.tanh(x) + i * 1e-3, x)


def recurrence(x, n):
  return lax.fori_loop(0, n, lambda i, x: x * 0.99 + 0.5, x)


def lorenz(x, n):
  """Runge-Kutta steps on three numbers that are sliced and stacked."""

  def slope(s):
    x, y, z = s
    return jnp.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

  def step(i, s, h=1e-3):
    a = slope(s)
    b = slope(s + h / 2 * a)
    c = slope(s + h / 2 * b)
    return s + h / 6 * (a + 2 * b + 2 * c + slope(s + h * c))

  return lax.fori_loop(0, n, step, x)


def newton(x, n):
  del n

  def more(s):
    y, i = s
    return (i < 60) & (jnp.abs(y * y - x) > 1e-6 * x).any()

  return lax.while_loop(more, lambda s: (0.5 * (s[0] + x / s[0]), s[1] + 1),
                        (x, 0))[0]  # fmt: skip


def branches(x, n):
  def step(i, x):
    return lax.cond(i % 3 == 0, jnp.sin, lambda x: x * 0.9, x)

  return lax.fori_loop(0, n, step, x)


def cheap_branches(x, n):
  def step(i, x):
    return lax.cond(i % 3 == 0, lambda x: x * 1.01, lambda x: x * 0.9 + 0.5, x)

  return lax.fori_loop(0, n, step, x)


def switch(x, n):
  def step(i, x):
    return lax.switch(
      i % 3, [jnp.sin, lambda x: jnp.tanh(x) * 2, lambda x: x - x.mean()], x
    )

  return lax.fori_loop(0, n, step, x)


def sum_and_branch(x, n):
  def step(s):
    i, x, total = s
    x = lax.cond(total > 0, lambda x: x * 0.5 - 1, lambda x: x * 0.9 + 1, x)
    return i + 1, x, x.sum()

  return lax.while_loop(lambda s: s[0] < n, step, (jnp.int32(0), x, x.sum()))


def linear_ode(a, x, n):
  return lax.fori_loop(0, n, lambda i, x: x + 1e-3 * (a @ x), x)


def power_iteration(a, x, n):
  def step(i, x):
    y = a @ x
    return y / jnp.sqrt((y * y).sum())

  return lax.fori_loop(0, n, step, x)


def centred(x, n):
  return lax.fori_loop(0, n, lambda i, x: (x - x.mean()) * 1.01 + 0.1, x)


def hmm_forward(transitions, likelihoods):
  """Log likelihood of a sequence under a hidden Markov model."""

  def step(p, likelihood):
    p = (p @ transitions) * likelihood
    total = p.sum()
    return p / total, jnp.log(total)

  states = transitions.shape[0]
  start = jnp.full(states, 1 / states)
  return lax.scan(step, start, likelihoods)[1].sum()


def kalman(f, q, r, xs):
  """Estimates of a Kalman filter that observes the first state."""

  def step(s, x):
    mean, cov = f @ s[0], f @ s[1] @ f.T + q
    gain = cov[:, 0] / (cov[0, 0] + r)
    mean = mean + gain * (x - mean[0])
    cov = cov - gain[:, None] * cov[0]
    return (mean, cov), mean

  states = f.shape[0]
  return lax.scan(step, (jnp.zeros(states), jnp.eye(states)), xs)[1]


def tanh_recurrence(x, n):
  return lax.fori_loop(0, n, lambda i, x: jnp.tanh(1.1 * x + 0.1), x)


def metropolis(x, steps, thresholds):
  """Random-walk Metropolis of a normal distribution, from given randomness."""

  def density(x):
    return -0.5 * (x * x).sum()

  def step(s, random):
    x, now = s
    change, threshold = random
    there = x + 0.5 * change
    then = density(there)
    accept = threshold < then - now
    s = jnp.where(accept, there, x), jnp.where(accept, then, now)
    return s, s[0]

  return lax.scan(step, (x, density(x)), (steps, thresholds))[1]


def lstm(xs, w, u):
  def cell(s, x):
    h, c = s
    i, f, g, o = jnp.split(x @ w + h @ u, 4, axis=-1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (h, c), h

  zeros = jnp.zeros((xs.shape[1], u.shape[0]))
  return lax.scan(cell, (zeros, zeros), xs)[1]


def scan(xs, w):
  def cell(h, x):
    h = jnp.tanh(h @ w + x)
    return h, h

  return lax.scan(cell, xs[0], xs)[1]


def scan_gradient(xs, w):
  return jax.grad(lambda w: (scan(xs, w) ** 2).sum())(w)


def sequence(length: int, batch: int, width: int):
  def make():
    rng = np.random.default_rng(0)
    xs = rng.normal(0, 0.5, (length, batch, width)).astype(np.float32)
    w = rng.normal(0, width**-0.5, (width, width)).astype(np.float32)
    return [xs, w]

  return make


def matrix_and_vector(n: int, trips: int):
  def make():
    a = np.random.default_rng(0).normal(0, 1, (n, n))
    # A symmetric matrix: its power iteration converges.
    return [np.float32(a + a.T), np.ones(n, np.float32), np.int32(trips)]

  return make


def hidden_states(states: int, length: int):
  def make():
    rng = np.random.default_rng(0)
    transitions = rng.uniform(0.1, 1, (states, states))
    transitions /= transitions.sum(1, keepdims=True)
    likelihoods = rng.uniform(0.1, 1, (length, states))
    return [np.float32(transitions), np.float32(likelihoods)]

  return make


def bodies(x, n):
  """Bodies in space that attract each other."""

  def step(i, s):
    x, v = s
    apart = x[None] - x[:, None]
    squares = (apart * apart).sum(-1, keepdims=True) + 0.1
    v = v + 1e-3 * (apart * squares**-1.5).sum(1)
    return x + 1e-3 * v, v

  return lax.fori_loop(0, n, step, (x, jnp.zeros_like(x)))[0]


def life(cells, n):
  """The game of life."""

  def step(i, x):
    around = sum(
      jnp.roll(x, (i, j), (0, 1))
      for i in (-1, 0, 1)
      for j in (-1, 0, 1)
      if (i, j) != (0, 0)
    )
    return ((around == 3) | ((x == 1) & (around == 2))).astype(x.dtype)

  return lax.fori_loop(0, n, step, cells)


def small_systems(x, n):
  """Five products of a 3x3 matrix and a vector."""
  matrices = 0.3 * jnp.cos(jnp.arange(45.0)).reshape(5, 3, 3)
  return lax.fori_loop(
    0, n, lambda i, x: jnp.einsum("bij,bj->bi", matrices, x) + 0.1, x
  )


def pagerank(links):
  """The scaled matrix does not change."""
  links = links / links.sum(0)
  n = len(links)
  return lax.fori_loop(
    0, 20, lambda i, ranks: 0.85 * links @ ranks + 0.15 / n, jnp.ones(n) / n
  )


def logistic_regression(x, y):
  def loss(v):
    return jnp.mean(jnp.logaddexp(0, x @ v) - y * (x @ v))

  gradient = jax.grad(loss)
  start = jnp.zeros(x.shape[1])
  return lax.fori_loop(0, 100, lambda i, v: v - 0.1 * gradient(v), start)


def lotka_volterra(start, times):
  """An adaptive step's stages are a loop that updates rows of a matrix."""

  def slope(y, t):
    hares, lynxes = y
    return jnp.stack([hares * (1 - 0.1 * lynxes), lynxes * (0.1 * hares - 1)])

  return odeint(slope, start, times)


def links(pages: int):
  def make():
    return [np.float32(np.random.default_rng(0).uniform(size=(pages, pages)))]

  return make


def labelled(samples: int, features: int):
  def make():
    rng = np.random.default_rng(0)
    labels = rng.normal(size=samples) > 0
    x = rng.normal(size=(samples, features))
    return [np.float32(x), np.float32(labels)]

  return make


def observations(states: int, length: int):
  def make():
    f = np.eye(states) + 0.1 * np.eye(states, k=1)
    q = 0.01 * np.eye(states)
    xs = np.random.default_rng(0).normal(0, 1, length).cumsum()
    return [np.float32(f), np.float32(q), np.float32(0.5), np.float32(xs)]

  return make


def walk(parameters: int, length: int):
  def make():
    rng = np.random.default_rng(0)
    steps = rng.normal(0, 1, (length, parameters))
    thresholds = np.log(rng.uniform(0.01, 1, length))
    start = np.zeros(parameters, np.float32)
    return [start, np.float32(steps), np.float32(thresholds)]

  return make


def gated(length: int, batch: int, width: int):
  def make():
    rng = np.random.default_rng(0)
    xs = rng.normal(0, 0.5, (length, batch, width))
    w, u = rng.normal(0, width**-0.5, (2, width, 4 * width))
    return [np.float32(xs), np.float32(w), np.float32(u)]

  return make


def q_learning(table, states, actions, rewards):
  """Updates single elements of a table at computed indices."""

  def step(q, t):
    state, action, reward = t
    best = q[(state * 7 + action) % q.shape[0]].max()
    change = 0.1 * (reward + 0.9 * best - q[state, action])
    return q.at[state, action].add(change), None

  return lax.scan(step, table, (states, actions, rewards))[0]


def experience(states: int, actions: int, steps: int):
  def make():
    rng = np.random.default_rng(0)
    return [
      np.float32(rng.normal(size=(states, actions))),
      rng.integers(0, states, steps).astype(np.int32),
      rng.integers(0, actions, steps).astype(np.int32),
      np.float32(rng.normal(size=steps)),
    ]

  return make


def union_find(a, b):
  """Loops of a few trips within a loop."""

  def root(parents, x):
    return lax.while_loop(lambda x: parents[x] != x, lambda x: parents[x], x)

  def join(i, parents):
    u, v = root(parents, a[i]), root(parents, b[i])
    return parents.at[jnp.maximum(u, v)].set(jnp.minimum(u, v))

  return lax.fori_loop(0, a.shape[0], join, jnp.arange(256))


def pairs(below: int, count: int):
  def make():
    rng = np.random.default_rng(0)
    return list(rng.integers(0, below, (2, count)).astype(np.int32))

  return make


def points(n: int, count: int):
  def make():
    rng = np.random.default_rng(0)
    return [np.float32(rng.normal(size=(count, 3))), np.int32(n)]

  return make


def cells(n: int, *shape: int):
  def make():
    rng = np.random.default_rng(0)
    return [rng.integers(0, 2, shape).astype(np.int32), np.int32(n)]

  return make


def state(n: int, *shape: int):
  return lambda: [np.full(shape, 2, np.float32), np.int32(n)]


WORKLOADS = [
  jitted("loops", "2 scalars, 10000 trips", scalars, state(10_000),
         limit=SCALAR_LIMIT, tolerance=1e-3),
  jitted("loops", "collatz of 97", collatz, state(97), limit=SCALAR_LIMIT),
  jitted("loops", "vector of 8, 10000 trips", recurrence,
         state(10_000, 8), limit=SCALAR_LIMIT),
  jitted("loops", "lorenz, 1000 trips", lorenz, state(1000, 3),
         limit=SCALAR_LIMIT, tolerance=1e-3),
  jitted("loops", "vector of 16, 1000 trips", vector, state(1000, 16)),
  jitted("loops", "vector of 4096, 100 trips", vector, state(100, 4096)),
  jitted("loops", "newton, 1024", newton, state(0, 1024)),
  jitted("loops", "cond in a loop, 256, 300 trips", branches, state(300, 256)),
  jitted("loops", "cond in a loop, 8, 1000 trips", cheap_branches,
         state(1000, 8), limit=SCALAR_LIMIT),
  jitted("loops", "switch of 3, 8, 1000 trips", switch, state(1000, 8),
         limit=SCALAR_LIMIT, tolerance=1e-3),
  jitted("loops", "cond and sum, 8, 1000 trips", sum_and_branch,
         state(1000, 8), limit=SCALAR_LIMIT, tolerance=1e-3),
  jitted("loops", "linear ODE, 3x3, 1000 trips", linear_ode,
         matrix_and_vector(3, 1000), limit=SCALAR_LIMIT, tolerance=1e-3),
  jitted("loops", "power iteration, 8x8, 1000 trips", power_iteration,
         matrix_and_vector(8, 1000), limit=SCALAR_LIMIT, tolerance=1e-3),
  jitted("loops", "x - mean(x), 8, 1000 trips", centred, state(1000, 8),
         limit=SCALAR_LIMIT, tolerance=1e-3),
  jitted("loops", "tanh of a scalar, 10000 trips", tanh_recurrence,
         state(10_000)),
  jitted("loops", "scalar recurrence, 10000 trips", recurrence,
         state(10_000), limit=SCALAR_LIMIT),
  jitted("loops", "5 bodies, 1000 trips", bodies, points(1000, 5),
         tolerance=1e-3),
  jitted("loops", "life, 8x8, 1000 trips", life, cells(1000, 8, 8)),
  jitted("loops", "5 of 3x3 by 3, 1000 trips", small_systems, points(1000, 5)),
  jitted("loops", "PageRank, 1000 pages, 20 trips", pagerank, links(1000)),
  jitted("loops", "logistic regression, 500x20, 100 trips",
         logistic_regression, labelled(500, 20), tolerance=1e-3),
  jitted("loops", "odeint, 2 species, 20 times", lotka_volterra,
         lambda: [np.float32([2, 1]), np.linspace(0, 5, 20, dtype=np.float32)],
         tolerance=1e-3),
  jitted("loops", "union-find, 512 pairs of 256", union_find, pairs(256, 512)),
  jitted("scan", "Q-learning, 100x4, 1000 steps", q_learning,
         experience(100, 4, 1000)),
  jitted("scan", "HMM, 16 states, 1000 steps", hmm_forward,
         hidden_states(16, 1000), tolerance=1e-3),
  jitted("scan", "Kalman filter, 4 states, 1000 steps", kalman,
         observations(4, 1000), tolerance=1e-3),
  jitted("scan", "Metropolis, 4 parameters, 1000 steps", metropolis,
         walk(4, 1000), tolerance=1e-3),
  jitted("scan", "LSTM, 64 steps, 8x32", lstm, gated(64, 8, 32)),
  jitted("scan", "RNN, 64 steps, 8x32", scan, sequence(64, 8, 32)),
  jitted("scan", "RNN, 32 steps, 32x128", scan, sequence(32, 32, 128)),
  jitted("scan", "gradient, 64 steps, 8x32", scan_gradient,
         sequence(64, 8, 32), tolerance=1e-3),
]  # fmt: skip
