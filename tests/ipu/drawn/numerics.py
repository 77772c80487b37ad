"""Fourier transforms, linear algebra, random numbers, interpolation."""

from __future__ import annotations

from . import values as types
from .block import Block, Drawn, require

# {x} is a matrix; {s} is symmetric and positive definite, {w} well-conditioned;
# {b} has as many rows. Factors that are only unique up to signs are multiplied.
_MATRICES = (
  "jnp.linalg.cholesky({s})", "jnp.linalg.cholesky({s}, upper=True)",
  "jnp.linalg.solve({w}, {b})", "jnp.linalg.inv({w})", "jnp.linalg.det({w})",
  "jnp.linalg.slogdet({w})[1]", "jnp.linalg.eigvalsh({s})",
  "jnp.linalg.svd({x}, compute_uv=False)",
  "(lambda u, s, v: (u * s[..., None, :]) @ v)"
  "(*jnp.linalg.svd({x}, full_matrices=False))",
  "(lambda q, r: q @ r)(*jnp.linalg.qr({x}))",
  "(lambda e, v: (v * e[..., None, :]) @ v.conj().mT)(*jnp.linalg.eigh({s}))",
  "jnp.linalg.pinv({w})", "jnp.linalg.matrix_power({x} / 8, 3)",
  "jnp.linalg.norm({x} + 5)", "jnp.trace({x}, axis1=-2, axis2=-1)",
  "jax.scipy.linalg.expm({x} / 8)", "lax.linalg.lu({w})[0]",
  "jax.scipy.linalg.cho_solve((jnp.linalg.cholesky({s}), True), {b})",
  "jnp.linalg.lstsq({w}, {b})[0]", "jnp.linalg.cond({w})",
  "lax.linalg.triangular_solve({w}, {b}, left_side=True, lower=True)",
  "lax.linalg.triangular_solve({w}, {b}, left_side=True, transpose_a=True)",
  "lax.linalg.triangular_solve({w}, {b}, left_side=True, lower=True, "
  "unit_diagonal=True, conjugate_a=True)",
)  # fmt: skip
_FFT = ("fft", "ifft", "rfft", "fft2", "rfft2", "fftn", "ifftn", "rfftn",
        "irfft", "hfft", "ihfft", "irfft2")  # fmt: skip
_RANDOM_BITS = (
  "jax.random.bits({k}, {s}, jnp.uint32)",
  "jax.random.randint({k}, {s}, -9, 9)",
  "jax.random.bernoulli({k}, 0.3, {s})", "jax.random.permutation({k}, {n})",
  "jax.random.bits({k}, {s}, jnp.uint8)", "jax.random.rademacher({k}, {s})",
  "jax.random.randint({k}, {s}, 0, 200, jnp.uint8)",
  "jax.random.key_data(jax.random.split({k}, 3))",
  "jax.random.choice({k}, 7, {s})",
)  # fmt: skip
_RANDOM_FLOATS = (
  "jax.random.uniform({k}, {s}, {t})", "jax.random.normal({k}, {s}, {t})",
  "jax.random.exponential({k}, {s}, {t})", "jax.random.gumbel({k}, {s}, {t})",
  "jax.random.laplace({k}, {s}, {t})", "jax.random.logistic({k}, {s}, {t})",
  "jax.random.truncated_normal({k}, -1, 2, {s}, {t})",
  "jax.random.cauchy({k}, {s}, {t})",
  "jax.random.uniform({k}, {s}, {t}, -2, 1)",
)  # fmt: skip


def matrix(d: Block) -> Drawn:
  large = [t for t in (*d.floats(), *d.complexes()) if t.itemsize >= 4]
  n = d.one([1, 2, 3, 4, 6, 9])
  batch = d.shape(0, 1) if d.flip() else ()
  require(n * n * max(1, *batch, 1) <= types.MOST)
  dtype = d.one(large)
  x = d.array(dtype, (*batch, n, n)).small()
  b = d.array(dtype, (*batch, n, d.integer(0, 4))).small()
  one = f"jnp.eye({n}, dtype={types.text(dtype)})"
  s = f"({x.text} @ {x.text}.conj().mT / {n} + 2 * {one})"
  w = f"({x.text} / {n} + 5 * {one})"
  row = d.one(_MATRICES)
  if not row.startswith(("jnp.linalg.norm", "jnp.trace")):
    require(b.size or "{b}" not in row)
  if "lstsq" in row or "cond" in row or "expm" in row:
    require(not batch)
  text = row.format(x=x.text, s=s, w=w, b=b.text)
  return Drawn(text, (False, 4000))


def fourier(d: Block) -> Drawn:
  f = d.one(_FFT)
  real = f in ("rfft", "rfft2", "rfftn", "ihfft")
  large = [t for t in d.floats() if t.itemsize >= 4]
  types_ = large if real else d.complexes()
  rank = 2 if "2" in f else 1
  v = d.value(types_, rank=(rank, 3), empty=False).small()
  if f in ("irfft", "hfft", "irfft2"):
    # XLA ignores what a real result cannot have; libraries differ.
    require(False)
  norm = d.one(["", ', norm="ortho"', ', norm="forward"'])
  return Drawn(f"jnp.fft.{f}({v.text}{norm})", (False, 3 * v.size))


def back_again(d: Block) -> Drawn:
  """The inverse of a real transform is applied to a transform, so that it is
  meaningful."""
  large = [t for t in d.floats() if t.itemsize >= 4]
  v = d.value(large, rank=(1, 3), empty=False).small()
  n = v.shape[-1]
  text = f"jnp.fft.irfft(jnp.fft.rfft({v.text}) * 2, {n})"
  return Drawn(text, (False, 12))


def random_bits(d: Block) -> Drawn:
  text = d.one(_RANDOM_BITS).format(k=_key(d), s=d.shape(), n=d.integer(0, 20))
  return Drawn(text, (True, 2.0**32))


def random_floats(d: Block) -> Drawn:
  dtype = d.one(d.floats())
  text = d.one(_RANDOM_FLOATS).format(
    k=_key(d), s=d.shape(), t=types.text(dtype)
  )
  return Drawn(f"jnp.clip({text}, -4, 4)", (False, 4))


def _key(d: Block) -> str:
  kind = d.one(["threefry2x32", "rbg", "unsafe_rbg"])
  seed = str(d.integer(0, 9))
  if d.flip():
    v = d.array(types.INTS[0], (), exact=True)
    seed = v.text
  key = f'jax.random.key({seed}, impl="{kind}")'
  return f"jax.random.fold_in({key}, 5)" if d.rarely() else key


def interpolate(d: Block) -> Drawn:
  v = d.value(d.floats()[:1], rank=(1, 3), empty=False).small()
  rows = ["jnp.interp({x}, jnp.arange(-2.0, 3.0), jnp.arange(5.0) ** 2)",
          "jax.image.resize({x}, {s}, 'linear')",
          "jax.image.resize({x}, {s}, 'cubic')",
          "jax.image.resize({x}, {s}, 'nearest')",
          "jnp.gradient({x}, axis=0)", "jnp.diff({x}, axis=0)",
          "jnp.trapezoid({x}, axis=0)", "jnp.cumsum({x}, axis=-1)",
          "jnp.ediff1d({x})", "jnp.unwrap({x} / 4)", "jnp.cov({x}[0])",
          "jax.scipy.ndimage.map_coordinates("
          "{x}, [{x}[..., 0] * 0 + 0.5] * {r}, order=1)"]  # fmt: skip
  row = d.one(rows)
  require("gradient" not in row or v.shape[0] > 1)
  require("[0]" not in row or v.rank > 1 and v.shape[-1] > 1)
  require(v.rank > 1 or "[..., 0]" not in row)
  s = tuple(d.integer(1, 6) for _ in v.shape)
  return Drawn(row.format(x=v.text, s=s, r=v.rank), (False, 600))


OPERATIONS = (
  matrix, fourier, back_again, random_bits, random_floats, interpolate,
)  # fmt: skip
