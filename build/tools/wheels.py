"""The contents of each of the three wheels."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterator

from tools import (
  command,
  metadata,
  npm,
  pins,
  platform_tag,
  upstream,
  wheelfile,
)
from tools.command import ROOT, BuildError
from tools.wheelfile import Kept, New

Files = dict[str, New | Kept]

# The files of a package: no C++, no build files, no leftovers of editors.
_SUFFIXES = {".py", ".pyi", ".typed", ".toml", ".json", ".html", ".css", ".js"}

# `import jax` adds the flags and the names that IPU programs expect.
_HOOK = b"\nfrom jax import ipu as ipu\n"


def version() -> str:
  """The version of the jax and jaxlib wheels built with this Python."""
  return f"{pins.release()}+ipu"


def _package(folder: str) -> Iterator[tuple[str, New]]:
  """The files of a Python package in the source tree."""
  root = ROOT / folder
  if not root.is_dir():
    raise BuildError(f"{root} does not exist: is this checkout complete?")
  for path in sorted(root.rglob("*")):
    if path.suffix in _SUFFIXES and path.is_file():
      yield path.relative_to(ROOT).as_posix(), New(path.read_bytes())


def _licenses(dist_info: str) -> Iterator[tuple[str, New]]:
  folder = ROOT / "third_party" / "licenses"
  fetched = npm.licenses()
  for name in metadata.licenses():
    base = name.removeprefix("ipu/")
    path = ROOT / "LICENSE" if base == "LICENSE" else folder / base
    data = fetched[base] if base in fetched else path.read_bytes()
    yield f"{dist_info}/licenses/{name}", New(data)


def _backend(library: pathlib.Path) -> Files:
  files: Files = {
    name: file
    for name, file in _package("jaxlib/ipu")
    if not name.startswith(npm.VENDOR)
  }
  for name, data in npm.libraries().items():
    files[f"{npm.VENDOR}/{name}"] = New(data)
  files["jaxlib/ipu/libjaxipu.so"] = New(library.read_bytes(), executable=True)
  span = pins.supported()
  versions = {"oldest": span.oldest, "newest": span.newest}
  files["jaxlib/ipu/jax_versions.json"] = New(json.dumps(versions).encode())
  return files


def _overlay() -> Files:
  files: Files = {
    **dict(_package("jax/ipu")),
    **dict(_package("jax_plugins/ipu")),
  }
  # A plugin of pytest, by a name of its own for `-p`.
  files["ipu_artifacts.py"] = New((ROOT / "ipu_artifacts.py").read_bytes())
  return files


def _renamed(kept: dict[str, Kept], name: str) -> Files:
  """Upstream's files, with the dist-info folder renamed to our version."""
  old = f"{name}-{pins.release()}.dist-info/"
  new = f"{name}-{version()}.dist-info/"
  return {path.replace(old, new): file for path, file in kept.items()}


def _save(
  files: Files, folder: pathlib.Path, project: str, tag: str
) -> pathlib.Path:
  path = folder / f"{project}-{tag}.whl"
  # `pip install dist/*.whl` accepts only one wheel per project.
  for other in folder.glob(f"{project.partition('-')[0]}-*.whl"):
    if other != path:
      command.say(f"removing {other}: a folder holds one wheel of a project")
      other.unlink()
  fresh = wheelfile.write(path, files)
  command.say(f"{'wrote' if fresh else 'up to date:'} {path}")
  return path


def jaxlib(
  library: pathlib.Path, folder: pathlib.Path, python: str | os.PathLike[str]
) -> pathlib.Path:
  """Upstream's jaxlib plus the backend."""
  source = upstream.wheel(pins.pin("jaxlib", pins.release()), python)
  dist_info = f"jaxlib-{version()}.dist-info"
  *_, interpreter, abi, platform = source.stem.split("-")
  platform = platform_tag.newest([platform, platform_tag.of_library(library)])
  tag = f"{interpreter}-{abi}-{platform}"
  with wheelfile.files_of(source) as kept:
    files = _renamed(kept, "jaxlib")
    files |= _backend(library) | dict(_licenses(dist_info))
    text = metadata.edit(
      _text(files, f"{dist_info}/METADATA"),
      version=version(),
      summary="XLA library for JAX, with a backend for the IPU",
    )
    files[f"{dist_info}/METADATA"] = New(text.encode())
    files[f"{dist_info}/WHEEL"] = metadata.wheel(tag)
    return _save(files, folder, f"jaxlib-{version()}", tag)


def jax(folder: pathlib.Path, python: str | os.PathLike[str]) -> pathlib.Path:
  """Upstream's jax plus the overlay."""
  source = upstream.wheel(pins.pin("jax", pins.release()), python)
  dist_info = f"jax-{version()}.dist-info"
  tag = "py3-none-any"
  with wheelfile.files_of(source) as kept:
    init = wheelfile.read(kept["jax/__init__.py"]) + _HOOK
    files = _renamed(kept, "jax")
    files |= _overlay() | dict(_licenses(dist_info))
    files["jax/__init__.py"] = New(init)
    text = metadata.edit(
      _text(files, f"{dist_info}/METADATA"),
      version=version(),
      summary="Differentiate, compile, and transform NumPy code, on IPUs too",
      requirements=[f"jaxlib=={version()}"],
    )
    files[f"{dist_info}/METADATA"] = New(text.encode())
    files[f"{dist_info}/WHEEL"] = metadata.wheel(tag)
    files[f"{dist_info}/entry_points.txt"] = New(metadata.ENTRY_POINTS.encode())
    files[f"{dist_info}/top_level.txt"] = New(
      b"ipu_artifacts\njax\njax_plugins\n"
    )
    return _save(files, folder, f"jax-{version()}", tag)


def plugin(library: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
  """The backend alone, for every unmodified jax and jaxlib that it supports.

  Its version is that of the newest JAX it was tested with.
  """
  span = pins.supported()
  project = f"jax_ipu_plugin-{span.newest}"
  dist_info = f"{project}.dist-info"
  tag = f"py3-none-{platform_tag.of_library(library)}"
  text = metadata.plugin(span, (ROOT / "README.md").read_text())
  files = _backend(library) | _overlay() | dict(_licenses(dist_info))
  files[f"{dist_info}/METADATA"] = New(text.encode())
  files[f"{dist_info}/WHEEL"] = metadata.wheel(tag)
  files[f"{dist_info}/entry_points.txt"] = New(metadata.ENTRY_POINTS.encode())
  files[f"{dist_info}/top_level.txt"] = New(
    b"ipu_artifacts\njax\njax_plugins\njaxlib\n"
  )
  return _save(files, folder, project, tag)


def _text(files: Files, name: str) -> str:
  file = files[name]
  assert isinstance(file, Kept)
  return wheelfile.read(file).decode()


def build(
  kind: str,
  library: pathlib.Path,
  folder: pathlib.Path,
  python: str | os.PathLike[str],
) -> pathlib.Path:
  """Builds a wheel in `folder` unless it exists already.

  Args:
    kind: `jaxlib`, `jax` or `plugin`.
    library: libjaxipu.so.
    folder: the folder for the wheel.
    python: a Python with pip, which downloads upstream's wheels.
  """
  if kind == "jaxlib":
    return jaxlib(library, folder, python)
  if kind == "jax":
    return jax(folder, python)
  return plugin(library, folder)
