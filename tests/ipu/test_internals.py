"""The JAX internals that we use have the shape that we expect.

These tests fail on a JAX that has changed one of them, and name it;
`jaxlib/ipu/internals` says what to do then.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import plugin_test_util
import pytest

from jaxlib.ipu import internals
from jaxlib.ipu.internals import feature as features

ROOT = Path(__file__).parents[2]
NAMES = [
  (feature.name, name)
  for feature in internals.FEATURES.values()
  for shape in feature.shapes
  for name in shape.names
]
OPTIONAL = [f.name for f in internals.FEATURES.values() if f.lost is not None]
NEEDED = [f.name for f in internals.FEATURES.values() if f.lost is None]

IMPORTS = """
import jax
import jax.experimental
import jax.ipu
from jax.experimental import checkify
import numpy as np
from jaxlib.ipu import compiler, internals
"""

# Uses every feature, with a result that depends on none of them.
PROGRAM = """
resolve = internals.resolve
hidden = internals.FEATURES[{feature!r}].shapes[-1].names[-1]
def changed(name):
  if name == hidden:
    raise AttributeError("it was renamed")
  return resolve(name)
{patch}
import jax.ipu.compat
from jaxlib.mlir import ir
internals.context_mesh()
internals.xla()
internals.allow_functions(ir.Context())
device = jax.devices("ipu")[0]
x = jax.device_put(np.arange(4, dtype=np.float32), device)
callback = jax.experimental.io_callback
for f in (
  lambda x: callback(lambda v: v.tolist(), x, x, ordered=True),
  lambda x: checkify.debug_check(x[0] == 0, "x is not 0"),
):
  try:
    jax.block_until_ready(jax.jit(f)(x))
  except internals.InternalsError:
    raise
  except Exception:
    pass  # callbacks may be what is lost
try:
  jax.config.update("jax_ipu_device_count", 2)
except (RuntimeError, AttributeError):
  pass  # it comes too late, or is what is lost
class Failing:
  def local_devices(self):
    raise OSError
for use, *given in (
  (internals.read_profile, b""),
  (internals.compile_for, "cpu", b"", b""),
  (internals.run_on, Failing(), []),
):
  try:
    use(*given)
  except Exception:
    pass  # no profile, no module, no executable
print(jax.jit(lambda x: x + 1)(x))
"""
PATCH = """
internals.feature.resolve = changed
import importlib
importlib.reload(jax.ipu)
"""


@pytest.fixture(scope="module")
def run_without():
  """Runs PROGRAM with a feature's last internal hidden."""
  forks = plugin_test_util.Forks(IMPORTS)
  yield lambda feature: forks.run(
    IMPORTS + PROGRAM.format(feature=feature, patch=PATCH)
  )
  forks.close()


@pytest.mark.parametrize(("feature", "name"), NAMES)
def test_the_installed_jax_has_the_internals(feature, name):
  shape = internals.FEATURES[feature].shape()
  assert shape is not None, f"{feature} knows no shape for this jaxlib"
  if name in shape.names:
    internals.resolve(name)


def test_no_feature_is_lost(ipu):
  assert ipu.platform  # the client exists
  assert not internals.given_up


@pytest.mark.ipu_only
@pytest.mark.parametrize("feature", OPTIONAL)
def test_a_changed_internal_disables_one_feature(run_without, feature):
  result = run_without(feature)
  assert result.returncode == 0, result.stderr
  assert result.stdout.strip() == "[1. 2. 3. 4.]"
  entry = internals.FEATURES[feature]
  name = entry.shapes[-1].names[-1]
  warnings = [
    line for line in result.stderr.splitlines() if "has changed" in line
  ]
  (warning,) = [line for line in warnings if line.endswith(entry.lost)]
  assert name in warning and "it was renamed" in warning
  # Only features that use the same internal are lost with it.
  users = [f for f in internals.FEATURES.values() if name in f.shapes[-1].names]
  for line in warnings:
    assert any(line.endswith(user.lost) for user in users), line


@pytest.mark.ipu_only
@pytest.mark.parametrize("feature", NEEDED)
def test_a_changed_required_internal_is_an_error(run_without, feature):
  result = run_without(feature)
  assert result.returncode != 0
  name = internals.FEATURES[feature].shapes[-1].names[-1]
  assert name in result.stderr and "install a jax and jaxlib" in result.stderr


def test_a_shape_is_chosen_by_version(monkeypatch):
  monkeypatch.setattr(features, "FEATURES", {})
  monkeypatch.setattr(features, "jaxlib_version", lambda: (5, 1))

  def define(**versions):
    @internals.uses("os.path.join", lost="nothing", **versions)
    def feature(join):
      return versions

    return feature

  define(since=(), until=(5,))
  define(since=(5,), until=(5, 2))
  assert define(since=(5, 2))() == {"since": (5,), "until": (5, 2)}


@pytest.mark.parametrize(
  "call, is_users",
  [
    (lambda function: function("x", missing=1), False),  # as if it had changed
    (lambda function: function.gone, False),
    (lambda function: function(object(), "x"), True),
  ],
)
def test_an_error_of_what_users_pass_is_theirs(
  monkeypatch, caplog, call, is_users
):
  monkeypatch.setattr(features, "FEATURES", {})
  monkeypatch.setattr(features, "given_up", {})
  # The function that makes the call stands in the package, as features do.
  here = {"call": call}
  source = "def feature(function): return call(function)"
  exec(compile(source, features.__file__, "exec"), here)
  call.__code__ = call.__code__.replace(co_filename=features.__file__)
  declare = internals.uses("os.path.join", lost="nothing", users=True)
  feature = declare(here["feature"])
  if is_users:
    with pytest.raises(TypeError, match="not object"):
      feature()
  else:
    assert feature() is None
  assert bool(features.given_up) is not is_users
  assert bool(caplog.records) is not is_users


@pytest.mark.parametrize(
  ("version", "numbers"),
  [("1.12.0.1+ipu", (1, 12, 0, 1)), ("1.13.0rc1", (1, 13)), ("1.2", (1, 2))],
)
def test_version_tuple(version, numbers):
  assert internals.version_tuple(version) == numbers


# Private by name or by location.
_PRIVATE = re.compile(r"^(jax\._src|jaxlib\._|jaxlib\.mlir\._)")


def test_internals_are_used_in_one_place():
  folders = ("jax", "jax_plugins", "jaxlib", "benchmarks", "ipu", "tests")
  found = []
  for path in (p for f in folders for p in (ROOT / f).rglob("*.py")):
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
      if isinstance(node, ast.Import):
        names += [alias.name for alias in node.names]
      elif isinstance(node, ast.ImportFrom) and node.level == 0:
        names += [f"{node.module}.{alias.name}" for alias in node.names]
    found += [f"{path}: {name}" for name in names if _PRIVATE.match(name)]
  assert not found, "use them in jaxlib/ipu/internals"
