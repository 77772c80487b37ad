"""A generated program: Python text that computes with JAX."""

from __future__ import annotations

import dataclasses
import textwrap
from typing import Any

import ml_dtypes  # noqa: F401 - NumPy learns the narrow types' names
import numpy as np

import jax
import jax.numpy as jnp
import jax.scipy
from jax import lax

NAMES: dict[str, Any] = {"np": np, "jax": jax, "jnp": jnp, "lax": lax}


@dataclasses.dataclass(frozen=True)
class Program:
  """A function `f`, its arguments, and how to compile it for the IPU.

  Attributes:
    text: defines `f`.
    arguments: a NumPy expression for each.
    exact: whether each result is bit-identical whatever the order of additions
      and the implementation of functions.
    tiles: the number of tiles to plan for.
    donated: the numbers of donated arguments.
    x64: whether 64-bit types are enabled.
  """

  text: str
  arguments: tuple[str, ...]
  exact: tuple[bool, ...]
  tiles: int = 1472
  donated: tuple[int, ...] = ()
  x64: bool = False

  def function(self) -> Any:
    """f, from arrays to a tuple of arrays."""
    names = dict(NAMES)
    exec(compile(self.text, "<drawn>", "exec"), names)
    return names["f"]

  def values(self) -> list[np.ndarray]:
    """The arguments."""
    return [np.asarray(eval(a, dict(NAMES))) for a in self.arguments]

  def script(self) -> str:
    """A standalone script that shows the results of both platforms."""
    head = "import numpy as np\n\nimport jax\nimport jax.numpy as jnp\n"
    head += "import jax.scipy\nfrom jax import lax\n\n"
    if self.x64:
      head += 'jax.config.update("jax_enable_x64", True)\n'
    lines = "".join(f"  {a},\n" for a in self.arguments)
    options = f'{{"ipu_num_tiles": {self.tiles}}}'
    donated = f", donate_argnums={self.donated}" if self.donated else ""
    tail = textwrap.dedent(f"""
      for platform, options in (("cpu", {{}}), ("ipu", {options})):
        device = jax.devices(platform)[0]
        with jax.default_device(device):
          g = jax.jit(f, compiler_options=options{donated})
          for result in g(*jax.device_put(arguments, device)):
            print(platform, result.dtype, result.shape, np.asarray(result))
    """)
    return f"{head}\n{self.text}\narguments = [\n{lines}]\n{tail}"
