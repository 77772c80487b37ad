"""The files of a wheel's dist-info folder."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tools import npm
from tools.pins import Supported
from tools.wheelfile import New

_LICENSES = ("ipu/LICENSE", "ipu/MPL-2.0.txt", "ipu/NOTICE.txt")
ENTRY_POINTS = "[jax_plugins]\nipu = jax_plugins.ipu\n"

_NOTE = """
# With the IPU backend

This is JAX's own release with a backend for Graphcore's IPU added. Questions
about the backend go to the JAX on IPU project, not to the authors of JAX.
"""


def licenses() -> tuple[str, ...]:
  """The names of the licences of the backend and of what is in it."""
  return _LICENSES + npm.license_names()


def edit(
  text: str, *, version: str, summary: str, requirements: Sequence[str] = ()
) -> str:
  """Upstream's METADATA, adapted for a wheel that includes the backend.

  Args:
    text: upstream's METADATA.
    version: the new version.
    summary: the new one-line summary.
    requirements: replace upstream's requirements of the same projects.
  """
  head, _, body = text.partition("\n\n")
  replaced = [re.split(r"[^\w-]", r, maxsplit=1)[0] for r in requirements]
  lines = []
  for line in head.splitlines():
    key, _, value = line.partition(": ")
    if key == "Version":
      line = f"Version: {version}"
    elif key == "Summary":
      line = f"Summary: {summary}"
    elif key == "Requires-Dist":
      if re.split(r"[^\w-]", value, maxsplit=1)[0] in replaced:
        continue
    lines.append(line)
  lines.append("Classifier: Operating System :: POSIX :: Linux")
  lines += [f"License-File: {name}" for name in licenses()]
  lines += [f"Requires-Dist: {requirement}" for requirement in requirements]
  return "\n".join(lines) + "\n\n" + body.rstrip("\n") + "\n" + _NOTE


def _minor(python: str) -> str:
  """3.13 for `cp313`."""
  return f"3.{python.removeprefix('cp3')}"


def plugin(span: Supported, description: str) -> str:
  """METADATA of the wheel that contains only the backend.

  Args:
    span: the supported versions of jax, jaxlib and Python.
    description: the long description, in Markdown.
  """
  versions = f">={span.oldest},<{span.below}"
  pythons = [_minor(python) for python in span.pythons]
  lines = [
    "Metadata-Version: 2.4",
    "Name: jax-ipu-plugin",
    f"Version: {span.newest}",
    "Summary: A backend for JAX: Graphcore's IPU, or a model of it",
    "License-Expression: Apache-2.0 AND MPL-2.0 AND MIT AND BSD-3-Clause",
    *(f"License-File: {name}" for name in licenses()),
    "Classifier: Development Status :: 4 - Beta",
    "Classifier: Intended Audience :: Science/Research",
    "Classifier: Operating System :: POSIX :: Linux",
    "Classifier: Programming Language :: C++",
    "Classifier: Programming Language :: Python :: 3",
    *(f"Classifier: Programming Language :: Python :: {p}" for p in pythons),
    "Classifier: Programming Language :: Python :: Implementation :: CPython",
    "Classifier: Topic :: Scientific/Engineering",
    f"Requires-Python: >={pythons[0]}",
    f"Requires-Dist: jax{versions}",
    f"Requires-Dist: jaxlib{versions}",
    "Description-Content-Type: text/markdown",
  ]
  return "\n".join(lines) + "\n\n" + description


def wheel(tag: str) -> New:
  """The WHEEL file of a wheel with this tag."""
  lines = [
    "Wheel-Version: 1.0",
    "Generator: jax-ipu build.py",
    f"Root-Is-Purelib: {str(tag.endswith('-any')).lower()}",
    f"Tag: {tag}",
  ]
  return New(("\n".join(lines) + "\n").encode())
