"""Compiles exported programs with flipped bytes; none may end the process.

  python tests/ipu/flipped_bytes.py COUNT [SEED]

JAX reads and writes an exported program before the compiler gets it, and
jaxlib's reader itself crashes on some damaged files: these are counted apart.
Programs are compiled in processes of their own, which report each stage.
"""

from __future__ import annotations

import collections
import random
import signal
import subprocess
import sys

import numpy as np

import jax
import jax.numpy as jnp
from jax import export, lax
from jaxlib.ipu.ir import bytecode_strings

X = np.arange(8, dtype=np.float32)
_MOST_SECONDS = 60  # for one program


def _scopes(x):
  with jax.named_scope("größe"):
    return jnp.sin(x) @ x


def _loops(x):
  return lax.fori_loop(0, 3, lambda i, y: jnp.sort(y) * 2 + x[i], x)[2:5]


def _calls(x):
  noise = jax.random.normal(jax.random.key(3), (8,))
  return jnp.linalg.eigh(x[:, None] * x)[1], lax.approx_max_k(x + noise, 3)


def _types(x):
  indexed = x.astype(jnp.int8).at[jnp.array([1, 2])].set(3)
  return jnp.fft.fft(x), indexed, jnp.convolve(x, x[:3])


def programs() -> list[bytes]:
  """Exported programs."""
  functions = (_scopes, _loops, _calls, _types)
  return [
    export.export(jax.jit(f), platforms=["ipu"])(X).mlir_module_serialized
    for f in functions
  ]


def damaged(codes: list[bytes], seed: int, number: int) -> bytes:
  """A program with one changed byte, the same for a seed and a number; half of
  them among its strings."""
  rng = random.Random(f"{seed} {number}")
  code = bytearray(rng.choice(codes))
  at = rng.randrange(len(code))
  if rng.randrange(2):
    strings = bytecode_strings._section(bytes(code))
    at = code.index(strings) + rng.randrange(len(strings))
  flipped = code[at] ^ (1 << rng.randrange(8))
  code[at] = rng.choice([flipped, 0xFF, 0x80, rng.randrange(256)])
  return bytes(code)


def _compile_all(count: int, seed: int, first: int) -> None:
  """Prints for each program its number and the stages that it reaches."""
  from jaxlib.ipu import pipeline, target
  from jaxlib.ipu.diagnostics import CompileError, ErrorCode
  from jaxlib.mlir import ir
  from jaxlib.mlir.dialects import stablehlo

  codes = programs()
  machine = target.resolve("ipu2", 16)
  context = jax.jit(lambda: 0).lower().compiler_ir("stablehlo").context
  for number in range(first, count):
    signal.alarm(_MOST_SECONDS)
    print(number, end=" ", flush=True)
    code = damaged(codes, seed, number)
    try:
      with context:
        module = stablehlo.deserialize_portable_artifact(context, code)
        version = stablehlo.get_current_version()
        code = stablehlo.serialize_portable_artifact(module, version)
    except (ir.MLIRError, ValueError):
      print("unreadable")
      continue
    print("read", end=" ", flush=True)
    try:
      pipeline.compile_module(code, pipeline.Options(target=machine))
      print("compiled", flush=True)
    except CompileError as e:
      bug = e.code is ErrorCode.INTERNAL
      print("bug" if bug else "refused", repr(e.message[:200]), flush=True)
    except Exception as e:
      print("bug", type(e).__name__, repr(str(e)[:200]), flush=True)


def outcomes(count: int, seed: int) -> dict[str, list[str]]:
  """What became of each program: the lines of each kind."""
  found = collections.defaultdict(list)
  first = 0
  while first < count:
    command = [sys.executable, __file__, str(count), str(seed), str(first)]
    done = subprocess.run(
      command, capture_output=True, text=True, errors="replace"
    )
    lines = done.stdout.splitlines()
    last = -1
    for line in lines:
      number, *stages = line.split(" ", 3)
      if not number.isdecimal():
        continue
      last = int(number)
      ended = stages[-1] if stages else ""
      if len(stages) > 1 and stages[1]:
        found[stages[1]].append(line)
      elif ended == "unreadable":
        found["unreadable"].append(line)
      else:  # the process ended here
        where = "compiler" if "read" in stages else "jaxlib's reader"
        found[f"crash of the {where}"].append(f"{line}: {done.returncode}")
    if last < first:
      raise RuntimeError(f"no program was tried: {done.stderr[-2000:]}")
    first = last + 1
  return found


def main() -> None:
  count, seed, *rest = [*map(int, sys.argv[1:]), *([0] * (len(sys.argv) < 3))]
  if rest:
    return _compile_all(count, seed, rest[0])
  for kind, lines in sorted(outcomes(count, seed).items()):
    print(len(lines), kind)
    if kind.startswith(("bug", "crash of the compiler")):
      print(*lines, sep="\n")
  return None


if __name__ == "__main__":
  main()
