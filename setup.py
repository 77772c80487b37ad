"""Builds the wheel of jax with the IPU overlay: python setup.py bdist_wheel.

The wheel of jaxlib, which contains the backend, is built by build/build.py.
"""

import pathlib
import sys

import setuptools

ROOT = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "build"))

from tools import command, wheels  # noqa: E402


class bdist_wheel(setuptools.Command):
  """Packs upstream's pinned jax and our overlay into one wheel."""

  description = "make dist/jax-…+ipu-py3-none-any.whl"
  user_options = [("dist-dir=", "d", "where the wheel goes (default: dist)")]

  def initialize_options(self) -> None:
    self.dist_dir = str(ROOT / "dist")

  def finalize_options(self) -> None:
    pass

  def run(self) -> None:
    folder = pathlib.Path(self.dist_dir).absolute()
    path = wheels.jax(folder, sys.executable)
    self.distribution.dist_files.append(("bdist_wheel", "py3", str(path)))


try:
  setuptools.setup(
    name="jax",
    version=wheels.version(),
    description="JAX with an overlay for the IPU",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=[],
    py_modules=[],
    cmdclass={"bdist_wheel": bdist_wheel},
  )
except command.BuildError as error:
  sys.exit(f"setup.py: error: {error}")
