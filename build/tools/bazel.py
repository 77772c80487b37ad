"""Finds Bazel, configures it for this machine, and builds with it."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
from collections.abc import Sequence

from tools import command, system
from tools.command import ROOT, BuildError

# The distribution's Bazel and its missing dependencies.
_PACKAGES = (
  "bazel-bootstrap",
  "bazel-platforms",
  "bazel-rules-java",
  "bazel-rules-proto",
)
_NAMES = ("bazel", "bazelisk")
# The major versions that support WORKSPACE.
_OLDEST, _NEWEST = 4, 7
_TARGET = "//jaxlib/ipu:libjaxipu.so"
# Some 15 minutes of processor time, mostly for the kernels.
_FIRST_BUILD = "5 to 10 minutes on two cores"
_CONFIGS = {"release": [], "native": ["native"], "default": ["default_cpu"]}


def _find(path: pathlib.Path | None) -> str | None:
  if path is None:
    return next(filter(None, map(shutil.which, _NAMES)), None)
  found = shutil.which(path.absolute())
  if found is None:
    raise BuildError(
      f"--bazel_path={path} is not a program. Pass the path of a bazel or"
      " bazelisk, or omit the option to use the one on the PATH."
    )
  return found


def wanted_packages(path: pathlib.Path | None) -> Sequence[str]:
  """Debian packages to install: none if the user already has a Bazel."""
  found = _find(path)
  if found is None or os.path.realpath(found) == "/usr/bin/bazel":
    return _PACKAGES
  return ()


class Bazel:
  """A working Bazel, with its startup options."""

  def __init__(
    self,
    path: pathlib.Path | None,
    startup_options: Sequence[str],
    verbose: bool,
  ):
    found = _find(path)
    if found is None:
      raise BuildError(
        "no bazel or bazelisk on the PATH. Type:"
        f" {system.install_command(_PACKAGES)} (or add --install_deps, or pass"
        " --bazel_path)"
      )
    self._start = [found, *startup_options]
    self._verbose = verbose
    self._path = found

  def _version(self) -> tuple[int, ...]:
    """(4, 2, 3), or () for the distribution's Bazel, which reports no
    version."""
    words = command.run(
      [self._path, "--version"],
      quiet=True,
      hint=f"{self._path} does not seem to be Bazel; see --bazel_path.",
    ).split()
    number = words[-1].split("-")[0] if words else ""
    parts = number.split(".")
    return tuple(map(int, parts)) if all(map(str.isdigit, parts)) else ()

  def configure(
    self, *, generator_python: str, pip_python: pathlib.Path
  ) -> None:
    """Writes .jax_configure.bazelrc, so that plain `bazel test` works too.

    Args:
      generator_python: the Python that runs generators during the build; its
        base installation is used, so that a venv may be deleted.
      pip_python: a Python with pip, which downloads XLA's headers.

    Raises:
      BuildError: this Bazel is not supported.
    """
    version = self._version()
    if version and not _OLDEST <= version[0] <= _NEWEST:
      raise BuildError(
        f"{self._path} is Bazel {'.'.join(map(str, version))}, expected Bazel"
        f" {_OLDEST} to {_NEWEST}. Choose another one with --bazel_path, or set"
        f" USE_BAZEL_VERSION={_NEWEST}.x for bazelisk."
      )
    lines = [
      "# Written by build/build.py.",
      f"build --define=PYTHON_BIN_PATH={os.path.realpath(generator_python)}",
      f"build --repo_env=PYTHON_BIN_PATH={pip_python}",
    ]
    if version >= (6,):
      # There is no MODULE.bazel, only WORKSPACE.
      lines.append("common --noenable_bzlmod")
    text = "\n".join(lines) + "\n"
    path = ROOT / ".jax_configure.bazelrc"
    if not path.exists() or path.read_text() != text:
      path.write_text(text)

  def build_library(
    self, cpu_features: str, options: Sequence[str]
  ) -> pathlib.Path:
    """Builds libjaxipu.so and returns its path.

    Args:
      cpu_features: `release`, `native` or `default`.
      options: further options of `bazel build`, which override ours.
    """
    configs = ["monolithic", "opt", *_CONFIGS[cpu_features]]
    flags = [f"--config={name}" for name in configs] + list(options)
    shown = ["--verbose_failures"]
    if self._verbose:
      shown.append("--subcommands")
    if not sys.stderr.isatty():
      # A line now and then, which names what is being compiled.
      rate = f"--show_progress_rate_limit={command.REMINDER_SECONDS}"
      shown += ["--curses=no", "--color=no", rate]
    if not (ROOT / "bazel-bin").exists():
      command.say(f"the first build takes {_FIRST_BUILD}, later ones seconds")
    with command.stage(
      f"building {_TARGET} with {self._path}", reminders=False
    ):
      command.run(
        [*self._start, "build", *shown, *flags, _TARGET],
        hint="See the output of Bazel.",
      )
    folder = command.run(
      [*self._start, "info", *flags, "bazel-bin"],
      hint="It has just worked: please report this.",
      quiet=True,
    ).strip()
    return pathlib.Path(folder) / _TARGET[2:].replace(":", "/")
