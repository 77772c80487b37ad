"""The virtual environment that build.py creates, fills and runs programs in."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence

from tools import command, system
from tools.command import ROOT, BuildError

# Any of these is uninstalled before new wheels are installed.
_OURS = ("jax", "jaxlib", "jax-ipu-plugin")


def _sha256(path: pathlib.Path) -> str:
  with path.open("rb") as file:
    return hashlib.file_digest(file, "sha256").hexdigest()


class Environment:
  """A venv in a folder, created only when it is needed."""

  def __init__(self, folder: pathlib.Path):
    self._folder = folder
    self._stamp = folder / ".jax_ipu.json"
    self.python = folder / "bin" / "python"

  def create(self) -> None:
    """Creates the venv with the running Python, unless it exists.

    Raises:
      BuildError: this Python cannot create one, or the folder holds something
        else.
    """
    config = self._folder / "pyvenv.cfg"
    if not self._folder.exists():
      if package := system.venv_package():
        raise BuildError(
          f"{sys.executable} cannot create virtual environments. Type:"
          f" {system.install_command([package])} (or add --install_deps)"
        )
      with command.stage(f"making the virtual environment {self._folder}"):
        command.run(
          [sys.executable, "-m", "venv", self._folder],
          hint="Choose another folder with --venv.",
        )
    elif not config.is_file() or not self.python.exists():
      raise BuildError(
        f"--venv={self._folder} exists, but is not a working virtual"
        " environment. Remove it or choose another folder."
      )
    wanted = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if f"version = {wanted}." not in config.read_text():
      raise BuildError(
        f"--venv={self._folder} was created by another Python than {wanted}."
        " Remove it or choose another folder."
      )

  def _pip(self, *words: str | os.PathLike[str]) -> None:
    options = ("-m", "pip", "--disable-pip-version-check")
    command.run(
      [self.python, *options, *words],
      hint="See the output of pip, which uses your own settings"
      " (`pip config list`).",
    )

  def _recall(self) -> dict[str, object]:
    return json.loads(self._stamp.read_text()) if self._stamp.exists() else {}

  def _remember(self, key: str, value: object) -> None:
    self._stamp.write_text(json.dumps({**self._recall(), key: value}))

  def install_build_requirements(self) -> None:
    """Installs the requirements of `setup.py bdist_wheel`."""
    self.create()
    path = ROOT / "build" / "requirements-build.txt"
    if self._recall().get("build") != _sha256(path):
      with command.stage(f"installing what {path.name} names"):
        self._pip("install", "--quiet", "--requirement", path)
      self._remember("build", _sha256(path))

  def install(
    self, wheels: Sequence[pathlib.Path], requirements: pathlib.Path
  ) -> None:
    """Installs wheels and, once, the packages in the file `requirements`."""
    new = {path.name: _sha256(path) for path in wheels}
    if self._recall().get("wheels") != new:
      names = ", ".join(new)
      self._remember("wheels", None)
      with command.stage(f"installing {names} into {self._folder}"):
        self._pip("uninstall", "-qq", "--yes", *_OURS)
        self._pip("install", "--quiet", *wheels)
      self._remember("wheels", new)
      self._remember(requirements.name, None)
    if self._recall().get(requirements.name) != _sha256(requirements):
      with command.stage(f"installing what {requirements.name} names"):
        self._pip("install", "--quiet", *wheels, "--requirement", requirements)
        self._pip("check")
      self._remember(requirements.name, _sha256(requirements))

  def run(self, arguments: Sequence[str]) -> int:
    """Runs the venv's Python on the IPU model; returns its exit code."""
    env = {**os.environ, "JAX_IPU_USE_MODEL": "true"}
    for name in ("JAX_PLATFORMS", "PYTHONPATH", "PYTHONHOME"):
      env.pop(name, None)
    cwd = ROOT if arguments[0] == "-m" else None
    return subprocess.call([self.python, *arguments], env=env, cwd=cwd)
