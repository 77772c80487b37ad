"""Typical programs of JAX libraries, compared with the CPU.

A small sample of each library. Libraries that are not installed are skipped.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import ipu_test_util as util
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax.experimental import checkify, sparse

# Not all libraries support the newest JAX yet.
pytestmark = [pytest.mark.ipu_only, pytest.mark.filterwarnings("ignore")]

IMAGES = util.sample(np.float32, (4, 10, 10, 1), low=-1, high=1)
LABELS = np.array([0, 3, 9, 3])
X = util.sample(np.float32, (20, 3), low=-1, high=1)
Y = (X @ np.array([1.0, -2.0, 0.5])).astype(np.float32)


def library(name: str) -> Any:
  """The library, if it is installed."""
  try:
    return importlib.import_module(name)
  except ModuleNotFoundError as error:
    if error.name is None or error.name.split(".")[0] != name.split(".")[0]:
      raise
    pytest.skip(f"{name} is not installed")


@pytest.fixture
def compare(ipu, cpu) -> Callable[..., None]:
  """`compare(f)`: f() gives the same on either default device."""

  def run(f: Callable[[], Any], rtol: float = 1e-4, atol: float = 1e-5) -> None:
    results = []
    for device in (ipu, cpu):
      with jax.default_device(device):
        results.append(jax.tree.map(util.to_numpy, f()))
    assert jax.tree.leaves(results[0])
    util.check_equal(*results, rtol=rtol, atol=atol)

  return run


def losses(apply: Callable[..., Any], params: Any) -> list[jax.Array]:
  """The losses of training steps on the images."""
  optax = library("optax")
  optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2))
  state = optimizer.init(params)

  @jax.jit
  def step(params, state):
    def loss(params):
      logits = apply(params, IMAGES)
      return optax.softmax_cross_entropy_with_integer_labels(
        logits, LABELS
      ).mean()

    value, gradient = jax.value_and_grad(loss)(params)
    updates, state = optimizer.update(gradient, state, params)
    return optax.apply_updates(params, updates), state, value

  values = []
  for _ in range(3):
    params, state, value = step(params, state)
    values.append(value)
  return values


# --- Networks ----------------------------------------------------------------


def test_a_cnn_in_flax(compare):
  nn = library("flax.linen")
  net = nn.Sequential([
    nn.Conv(4, (3, 3)), nn.relu, lambda x: nn.max_pool(x, (2, 2), (2, 2)),
    nn.GroupNorm(2), nn.Conv(8, (3, 3), strides=2), nn.gelu,
    lambda x: x.reshape(len(x), -1), nn.Dense(10),
  ])  # fmt: skip
  compare(lambda: losses(net.apply, net.init(jax.random.key(0), IMAGES)))


def test_a_cnn_in_equinox(compare):
  eqx = library("equinox")

  def run():
    keys = jax.random.split(jax.random.key(0), 3)
    net = eqx.nn.Sequential([
      eqx.nn.Conv2d(1, 4, 3, key=keys[0]), eqx.nn.MaxPool2d(2, 2),
      eqx.nn.Lambda(jax.nn.relu), eqx.nn.Conv2d(4, 4, 3, groups=2, key=keys[1]),
      eqx.nn.Lambda(jnp.ravel), eqx.nn.Linear(16, 10, key=keys[2]),
    ])  # fmt: skip
    params, static = eqx.partition(net, eqx.is_array)
    return losses(
      lambda params, x: jax.vmap(eqx.combine(params, static))(
        jnp.moveaxis(x, -1, 1)
      ),
      params,
    )

  compare(run)


def test_a_cnn_in_haiku(compare):
  hk = library("haiku")

  def net(x):
    return hk.Sequential([
      hk.Conv2D(4, 3, stride=2), jax.nn.relu, hk.AvgPool(2, 2, "SAME"),
      hk.DepthwiseConv2D(2, 3), hk.LayerNorm(-1, True, True), hk.Flatten(),
      hk.Linear(10),
    ])(x)  # fmt: skip

  f = hk.without_apply_rng(hk.transform(net))
  compare(lambda: losses(f.apply, f.init(jax.random.key(0), IMAGES)))


@pytest.mark.parametrize("name", ["adam", "lamb", "rmsprop", "sm3", "lbfgs"])
def test_optimizers_of_optax(compare, name):
  optax = library("optax")
  optimizer = getattr(optax, name)(0.1)

  def loss(w):
    return jnp.sum((X @ w["w"] + w["b"] - Y) ** 2)

  @jax.jit
  def step(params, state):
    value, gradient = jax.value_and_grad(loss)(params)
    more = {"value": value, "grad": gradient, "value_fn": loss}
    more = more if name == "lbfgs" else {}
    updates, state = optimizer.update(gradient, state, params, **more)
    return optax.apply_updates(params, updates), state

  def run():
    params = {"w": jnp.full(3, 0.1), "b": jnp.full(1, 0.2)}
    state = optimizer.init(params)
    for _ in range(3):
      params, state = step(params, state)
    return params

  compare(run)


# --- Probability -------------------------------------------------------------


def _regression(x, y=None):
  numpyro, dist = library("numpyro"), library("numpyro.distributions")
  w = numpyro.sample("w", dist.Normal(jnp.zeros(3), 1.0).to_event(1))
  noise = numpyro.sample("noise", dist.Exponential(1.0))
  numpyro.sample("y", dist.Normal(x @ w, noise + 0.1), obs=y)


def test_nuts_in_numpyro(compare):
  infer = library("numpyro.infer")

  def run():
    mcmc = infer.MCMC(
      infer.NUTS(_regression, max_tree_depth=3),
      num_warmup=3, num_samples=4, progress_bar=False,
    )  # fmt: skip
    mcmc.run(jax.random.key(0), X, Y)
    return mcmc.get_samples()

  compare(run, 1e-2, 1e-2)


def test_svi_in_numpyro(compare):
  infer, numpyro = library("numpyro.infer"), library("numpyro")

  def run():
    guide = infer.autoguide.AutoMultivariateNormal(_regression)
    svi = infer.SVI(
      _regression, guide, numpyro.optim.Adam(0.01), infer.Trace_ELBO()
    )
    result = svi.run(jax.random.key(0), 10, X, Y, progress_bar=False)
    return result.params, result.losses

  compare(run, 1e-3, 1e-3)


def test_a_gaussian_process(check):
  x = np.linspace(0, 5, 12, dtype=np.float32)

  def loss(p):
    square = (x[:, None] - x) ** 2
    kernel = jnp.exp(p[0] - square * jnp.exp(p[1])) + jnp.eye(12) * 0.1
    factor = jnp.linalg.cholesky(kernel)
    weights = jax.scipy.linalg.cho_solve((factor, True), np.sin(x))
    return np.sin(x) @ weights / 2 + jnp.log(jnp.diag(factor)).sum()

  p = np.array([0.1, -0.3], np.float32)
  check(
    lambda p: (loss(p), jax.grad(loss)(p), jax.hessian(loss)(p)), p,
    rtol=2e-3, atol=2e-3,
  )  # fmt: skip


# --- Differential equations and solvers --------------------------------------


def test_an_ode_and_its_gradient_in_diffrax(check):
  dfx = library("diffrax")

  def solve(y, a):
    return dfx.diffeqsolve(
      dfx.ODETerm(lambda t, y, a: jnp.stack([a * y[1], -y[0]])),
      dfx.Tsit5(), 0.0, 2.0, 0.1, y, args=a,
      saveat=dfx.SaveAt(ts=jnp.linspace(0, 2, 4)),
      stepsize_controller=dfx.PIDController(rtol=1e-4, atol=1e-5),
    ).ys  # fmt: skip

  f = lambda y, a: (solve(y, a), jax.grad(lambda a: solve(y, a).sum())(a))
  y = np.array([1.0, 0.5], np.float32)
  check(f, y, np.float32(1.3), rtol=1e-3, atol=1e-3)


def test_an_sde_in_diffrax(check):
  dfx = library("diffrax")

  def path(seed):
    noise = dfx.VirtualBrownianTree(0.0, 1.0, 1e-3, (), jax.random.key(seed))
    terms = dfx.MultiTerm(
      dfx.ODETerm(lambda t, y, _: -y),
      dfx.ControlTerm(lambda t, y, _: jnp.array(0.3), noise),
    )
    y = jnp.array(1.0)
    return dfx.diffeqsolve(terms, dfx.Euler(), 0.0, 1.0, 0.1, y).ys

  check(jax.vmap(path), np.arange(3), rtol=1e-4, atol=1e-4)


def _curve(y, a):
  return jnp.stack([a - y[0], 3 * (y[1] - y[0] ** 2)])


@pytest.mark.parametrize("kind", ["root", "least squares", "minimum"])
def test_optimistix(check, kind):
  optx = library("optimistix")

  def f(y, a):
    if kind == "root":
      solver = optx.Newton(1e-5, 1e-5)
      solve = lambda a: optx.root_find(_curve, solver, y, a).value
      return solve(a), jax.jacobian(solve)(a)
    if kind == "minimum":
      square = lambda y, a: jnp.sum(_curve(y, a) ** 2)
      return optx.minimise(square, optx.BFGS(1e-4, 1e-4), y, a).value
    solver = optx.LevenbergMarquardt(1e-5, 1e-5)
    return optx.least_squares(_curve, solver, y, a).value

  y = np.array([0.5, 0.8], np.float32)
  check(f, y, np.float32(1.1), rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("name", ["LU", "QR", "SVD", "GMRES", "Normal"])
def test_lineax(check, name):
  lx = library("lineax")
  solver = {
    "GMRES": lambda: lx.GMRES(rtol=1e-5, atol=1e-5),
    "Normal": lambda: lx.Normal(lx.Cholesky()),
  }.get(name, lambda: getattr(lx, name)())()
  b = np.arange(5, dtype=np.float32)

  def solve(a):
    return lx.linear_solve(lx.MatrixLinearOperator(a), b, solver).value

  a = util.sample(np.float32, (5, 5), low=-1, high=1)
  a += 4 * np.eye(5, dtype=np.float32)
  f = lambda a: (solve(a), jax.grad(lambda a: solve(a).sum())(a))
  check(f, a, rtol=1e-3, atol=1e-4)


def test_jaxopt(check):
  jaxopt = library("jaxopt")

  def loss(w, penalty):
    return jnp.mean((X @ w - Y) ** 2) + penalty * jnp.sum(w**2)

  def solve(penalty):
    solver = jaxopt.LBFGS(loss, maxiter=30)
    return solver.run(jnp.zeros(3), penalty).params

  f = lambda p: (solve(p), jax.jacobian(solve)(p))
  check(f, np.float32(0.3), rtol=5e-3, atol=5e-3)


# --- JAX features that libraries build on ------------------------------------


def test_sparse_matrices(compare):
  dense = np.where(X > 0.2, X, 0)

  @jax.jit
  def f(m, v):
    loss = lambda m, v: jnp.sum((m @ v) ** 2)
    return (
      m @ v, m.T @ jnp.ones(20), (m * 2).todense(), m.T.sum_duplicates(
        nse=m.nse).todense(), (m.T @ m).todense(),
      sparse.grad(loss)(m, v).todense(),
    )  # fmt: skip

  compare(lambda: f(sparse.BCOO.fromdense(dense), jnp.asarray(X[:3])))
  compare(lambda: jax.jit(lambda m: m @ X[:3])(sparse.BCSR.fromdense(dense)))


def test_checkify(ipu, cpu):
  """Errors of each kind match the CPU's, also in loops and batches."""

  def iteration(total, i):
    checkify.check(i < 3, "{i} is too many", i=i)
    return total + i, total

  cases = {
    "division by zero": lambda x: x / (x - x),
    "nan generated": lambda x: jnp.log(-x),
    "out-of-bounds": lambda x: jnp.arange(3.0)[jnp.int32(x) + 7],
    "3.0 is too many": lambda x: jax.lax.scan(iteration, x, jnp.arange(5.0)),
    "4.0 is too many": jax.vmap(lambda x: iteration(x, x)),
  }
  for words, f in cases.items():
    x = jnp.full(1, 4.0) if words.startswith("4") else jnp.array(1.0)
    messages = []
    for device in (ipu, cpu):
      with jax.default_device(device):
        checked = checkify.checkify(f, errors=checkify.all_checks)
        error, _ = jax.jit(checked)(jax.device_put(x, device))
        messages.append(error.get())
    assert words in messages[0]
    assert messages[0].split("\n")[0] == messages[1].split("\n")[0]


def test_error_if_of_equinox(ipu):
  eqx = library("equinox")
  f = eqx.filter_jit(lambda x: eqx.error_if(x, x < 0, "x is negative") + 1)
  with jax.default_device(ipu):
    assert f(jnp.array(1.0)) == 2
    with pytest.raises(Exception, match="x is negative"):
      jax.block_until_ready(f(jnp.array(-1.0)))
