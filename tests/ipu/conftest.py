"""Fixtures for the tests of the IPU backend.

The suite compares the IPU with XLA:CPU in one process, so both platforms have
to exist; the CPU remains the default, as for users. Flags that the plugin reads
when its client is created (`JAX_IPU_DEVICE_COUNT`, `JAX_IPU_MODEL_NUM_TILES`,
...) may be set outside and are not changed.

`--ipu-platform=cpu` compares XLA:CPU with itself. This says nothing about the
IPU, but shows whether a test only requires what XLA:CPU does.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import os
import sys
import types
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# Makes ipu_test_util importable, whatever pytest's import mode.
sys.path.insert(0, str(Path(__file__).parent))

_PLATFORM = "--ipu-platform"

os.environ.setdefault("JAX_IPU_USE_MODEL", "true")
os.environ.setdefault("JAX_IPU_VERIFY", "true")
if "JAX_IPU_MODEL_NUM_TILES" in os.environ:
  # The sizes of the tests fit a whole IPU; on a few tiles they may overflow.
  os.environ.setdefault(
    "POPLAR_ENGINE_OPTIONS", '{"debug.allowOutOfMemory": "true"}'
  )
# XLA:CPU is compared with, not measured. Without LLVM's optimisations it takes
# 32 ms to compile a small program instead of 138.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
if "cpu" not in os.environ.get("JAX_PLATFORMS", "cpu").split(","):
  os.environ["JAX_PLATFORMS"] += ",cpu"

# Compile times vary, and failures have to be reproducible: no deadline, and the
# same examples in every run.
hypothesis.settings.register_profile(
  "ipu",
  deadline=None,
  derandomize=True,
  max_examples=25,
  print_blob=True,
  suppress_health_check=[
    hypothesis.HealthCheck.too_slow,
    hypothesis.HealthCheck.data_too_large,
  ],
)
hypothesis.settings.load_profile("ipu")


@pytest.fixture(scope="module")
def from_repository() -> Iterator[Callable[[str], types.ModuleType]]:
  """Imports a module that is in the repository but not in the wheels."""
  with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(Path(__file__).parents[2]))
    yield importlib.import_module


@pytest.fixture(scope="module")
def six_programs(from_repository) -> types.ModuleType:
  """The programs of `ipu/docs/six_programs.md`."""
  return from_repository("benchmarks.six_programs")


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.SimpleNamespace]:
  """The modules of build/tools."""
  monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "build"))
  from tools import (
    bazel,
    command,
    environment,
    matrix,
    metadata,
    npm,
    options,
    pins,
    platform_tag,
    poplar,
    system,
    upstream,
    wheelfile,
  )

  yield types.SimpleNamespace(
    bazel=bazel,
    command=command,
    environment=environment,
    matrix=matrix,
    metadata=metadata,
    npm=npm,
    options=options,
    pins=pins,
    platform_tag=platform_tag,
    poplar=poplar,
    system=system,
    upstream=upstream,
    wheelfile=wheelfile,
    BuildError=command.BuildError,
  )


def _part(text: str) -> tuple[int, int]:
  part, ways = map(int, text.split("/"))
  if not 0 <= part < ways:
    raise ValueError(text)
  return part, ways


def pytest_addoption(parser: pytest.Parser) -> None:
  parser.addoption(
    _PLATFORM,
    default="ipu",
    help="the platform under test; `cpu` checks the tests themselves",
  )
  parser.addoption(
    "--drawn-seed",
    type=int,
    default=0,
    help="draws other programs in test_drawn_operations.py",
  )
  parser.addoption(
    "--part",
    type=_part,
    default=(0, 1),
    metavar="I/N",
    help="runs part I of N of the tests, the same ones each time",
  )


def pytest_configure(config: pytest.Config) -> None:
  config.addinivalue_line(
    "markers", "ipu_only: asks for what only the IPU backend has"
  )
  config.addinivalue_line(
    "markers", "slow: takes much memory or many seconds; runs by default"
  )


def pytest_collection_modifyitems(
  config: pytest.Config, items: list[pytest.Item]
) -> None:
  _keep_part(config, items)
  platform = config.getoption(_PLATFORM)
  if platform == "ipu":
    return
  skip = pytest.mark.skip(
    reason=f"--ipu-platform={platform}: this test asks for the IPU itself"
  )
  for item in items:
    if "ipu_only" in item.keywords:
      item.add_marker(skip)


def _keep_part(config: pytest.Config, items: list[pytest.Item]) -> None:
  # By name: a new test does not change which of the others run.
  part, ways = config.getoption("--part")
  kept, others = [], []
  for item in items:
    number = zlib.crc32(item.nodeid.encode())
    (kept if number % ways == part else others).append(item)
  config.hook.pytest_deselected(items=others)
  items[:] = kept


@pytest.fixture(scope="session")
def ipu(request: pytest.FixtureRequest):
  """The device under test."""
  import jax

  return jax.devices(request.config.getoption(_PLATFORM))[0]


@pytest.fixture(scope="session")
def cpu():
  """The reference device."""
  import jax

  return jax.devices("cpu")[0]


@pytest.fixture(scope="session")
def check(ipu, cpu) -> Callable[..., None]:
  """`check(f, *args)`: jitted on both devices, f gives the same results."""
  import ipu_test_util

  return functools.partial(ipu_test_util.check, devices=(ipu, cpu))


@pytest.fixture
def without_code(monkeypatch: pytest.MonkeyPatch) -> None:
  """SRAM plans only contain tensors and the buffers of vertices: no code, state
  of vertices, stacks or message buffers."""
  from jaxlib.ipu.sram import memory
  from jaxlib.ipu.tile.walk import walk

  count = memory.tile_code

  def none(*args: Any) -> Any:
    code = count(*args)
    for step in walk(args[0].steps):
      if step.moves or step.on_host:
        step.buffers = None
    fields = (0 * getattr(code, f.name) for f in dataclasses.fields(code))
    return type(code)(*fields)

  monkeypatch.setattr(memory, "tile_code", none)


@pytest.fixture
def on_ipu(ipu):
  """Eager calls in the test run on the device under test."""
  import jax

  with jax.default_device(ipu):
    yield ipu
