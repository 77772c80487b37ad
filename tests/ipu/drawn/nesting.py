"""Control flow and transformations: operations that take functions."""

from __future__ import annotations

import dataclasses

from . import values as types
from .block import Block, Drawn, Operation, require
from .values import Value

# The families of operations; filled by `operations.py`, including this one.
FAMILIES: list[tuple[Operation, ...]] = []


def _parameter(d: Block, like: Value, exact: bool | None = None) -> Value:
  if exact is None:
    exact = like.exact
  return dataclasses.replace(like, text=d.root.name("p"), exact=exact)


def _indexed(v: Value, axis: int = 0) -> Value:
  shape = v.shape[:axis] + v.shape[axis + 1 :]
  return dataclasses.replace(v, shape=shape)


def _fit(d: Block, like: Value) -> Value:
  """A value that can replace another: of its shape and type, no less exact and
  no larger."""
  own = [v for v in reversed(d.own) if v.exact or not like.exact]
  own = [v for v in own if v.dtype not in types.NARROW]
  if like.dtype in types.NARROW or not own:
    return like
  v = d.one(own)
  if types.is_complex(v.dtype) and not types.is_complex(like.dtype):
    return like
  coarse = like.dtype == types.BOOL or types.is_int(like.dtype)
  if not v.size and like.size or coarse and not v.exact:
    return like
  v = d.resize(v, like.shape) if v.size else v
  if v.shape != like.shape:
    return like
  bounded = not types.is_int(like.dtype) and like.dtype != types.BOOL
  if bounded and v.bound > like.bound:
    v = v.small(max(like.bound, 1))
  v = v.cast(like.dtype)
  if like.exact and not v.exact or bounded and v.bound > max(like.bound, 1):
    return like
  return v


def _carry(d: Block, *, empty: bool = True) -> Value:
  """Loop-carried values; inexact ones are kept within 4, integers may become
  anything."""
  v = d.value(d.computing(), rank=(0, 3), empty=empty)
  if types.is_int(v.dtype):
    return dataclasses.replace(v, bound=types.reach(v.dtype))
  v = v.small(4)
  if types.is_float(v.dtype) and d.flip():
    return dataclasses.replace(v, exact=False, bound=max(v.bound, 4))
  return dataclasses.replace(v, bound=max(v.bound, 1))


def _whole(d: Block) -> str:
  """A generated scalar integer."""
  return d.array(types.INTS[0], (), exact=True).text


def fori(d: Block) -> Drawn:
  start = _carry(d)
  i, c = d.root.name("p"), _parameter(d, start)
  counter = Value(i, (), types.INTS[0], True, 8)
  block = d.nested([counter, c])
  block.statements(FAMILIES)
  f = d.root.name("f")
  lines = block.function(f, [i, c.text], [_fit(block, c)])
  count = str(d.integer(0, 3))
  if d.flip():
    count = f"jnp.clip({_whole(d)}, 0, 3)"
  text = f"lax.fori_loop(0, {count}, {f}, {start.text})"
  return Drawn(text, (c.exact, c.bound), functions=[lines])


def while_loop(d: Block) -> Drawn:
  start = _carry(d)
  c = _parameter(d, start)
  block = d.nested([c])
  block.statements(FAMILIES)
  f = d.root.name("f")
  lines = block.function(f, [c.text], [_fit(block, c)])
  count = d.one([f"jnp.clip({_whole(d)}, 0, 3)", "2", "0"])
  text = (
    f"lax.while_loop(lambda s: s[0] < {count}, "
    f"lambda s: (s[0] + 1, {f}(s[1])), (0, {start.text}))[1]"
  )
  return Drawn(text, (c.exact, c.bound), functions=[lines])


def scan(d: Block) -> Drawn:
  start = _carry(d)
  xs = d.value(d.computing(), rank=(1, 3))
  require(xs.shape[0] <= 9)
  c, x = _parameter(d, start), _parameter(d, _indexed(xs))
  block = d.nested([c, x])
  block.statements(FAMILIES)
  carried = _fit(block, c)
  y = block.one(block.own) if block.own else c
  f = d.root.name("f")
  lines = block.function(f, [c.text, x.text], [carried, y])
  reverse = ", reverse=True" if d.flip() else ""
  unroll = ", unroll=2" if d.rarely() else ""
  text = f"lax.scan({f}, {start.text}, {xs.text}{reverse}{unroll})"
  facts = (c.exact, c.bound), (y.exact, y.bound)
  return Drawn(text, *facts, functions=[lines])


def conditional(d: Block) -> Drawn:
  v = d.value(d.computing())
  count = d.integer(2, 3)
  likes, functions, names = None, [], []
  for _ in range(count):
    p = _parameter(d, v)
    block = d.nested([p])
    block.statements(FAMILIES)
    if likes is None:
      likes = block.one(block.own) if block.own else p
      if likes.text == p.text:
        likes = p
      result = likes
      exact, bound = likes.exact, likes.bound
    else:
      # If a branch has no value of its own, it returns one of this type.
      seed = d.array(likes.dtype, likes.shape, exact=likes.exact)
      result = _fit(block, dataclasses.replace(seed, exact=likes.exact))
      if result.text == seed.text:
        result = seed
      exact, bound = exact and result.exact, max(bound, result.bound)
    name = d.root.name("f")
    functions.append(block.function(name, [p.text], [result]))
    names.append(name)
  assert likes is not None
  where = _whole(d)
  if count == 2:
    text = f"lax.cond({where} > 0, {names[0]}, {names[1]}, {v.text})"
  else:
    text = f"lax.switch({where}, [{', '.join(names)}], {v.text})"
  return Drawn(text, (exact, bound), functions=functions)


def vmap(d: Block) -> Drawn:
  v = d.value(d.computing(), rank=(1, 3))
  a = d.axis(v)
  n = v.shape[a]
  rank = d.integer(0, 2)
  shape = [d.integer(1, 4) for _ in range(rank)]
  b = d.integer(0, rank)
  shape.insert(b, n)
  w = d.array(d.one(d.computing()), tuple(shape))
  p, q = _parameter(d, _indexed(v, a)), _parameter(d, _indexed(w, b))
  if d.rarely():
    q = _parameter(d, w)
  block = d.nested([p, q])
  block.statements(FAMILIES)
  require(block.own)
  result = block.one(block.own)
  f = d.root.name("f")
  lines = block.function(f, [p.text, q.text], [result])
  to = d.integer(0, result.rank)
  second = None if q.shape == w.shape and q.rank == w.rank else b
  text = f"jax.vmap({f}, ({a}, {second}), {to})({v.text}, {w.text})"
  # A batch without elements tests nothing.
  require(n)
  return Drawn(text, (result.exact, result.bound), functions=[lines])


def inner_jit(d: Block) -> Drawn:
  v = d.value(d.computing())
  p = _parameter(d, v)
  block = d.nested([p])
  block.statements(FAMILIES)
  require(block.own)
  result = block.one(block.own)
  f = d.root.name("f")
  lines = block.function(f, [p.text], [result])
  how = d.one(["jax.jit", "jax.checkpoint"])
  text = f"{how}({f})({v.text})"
  return Drawn(text, (result.exact, result.bound), functions=[lines])


def gradient(d: Block) -> Drawn:
  """A derivative, clipped to magnitude 4; never exact."""
  floats = [t for t in d.floats() if t.itemsize >= 4]
  v = d.value(floats, empty=False).small(4)
  p = _parameter(d, v)
  block = d.nested([p])
  block.statements(FAMILIES)
  own = [w for w in block.own if types.is_float(w.dtype)]
  own = [w for w in own if w.dtype not in types.NARROW]
  require(own)
  result = block.one(own)
  f = d.root.name("f")
  scalar = dataclasses.replace(
    result, text=f"jnp.sum({result.text}).astype({types.text(v.dtype)})"
  )
  how = d.one(["grad", "jvp", "vjp", "linearize", "jacrev", "hvp"])
  many = how in ("jvp", "vjp", "linearize", "jacrev")
  lines = block.function(f, [p.text], [result if many else scalar])
  x = v.text
  ones = f"jnp.ones({result.shape}, {types.text(result.dtype)})"
  text = {
    "grad": f"jax.grad({f})({x})",
    "jvp": f"jax.jvp({f}, ({x},), (jnp.ones_like({x}),))[1]",
    "vjp": f"jax.vjp({f}, {x})[1]({ones})[0]",
    "linearize": f"jax.linearize({f}, {x})[1](jnp.ones_like({x}))",
    "jacrev": f"jax.jacrev({f})({x})",
    "hvp": f"jax.jvp(jax.grad({f}), ({x},), (jnp.ones_like({x}),))[1]",
  }[how]
  require(how != "jacrev" or v.size * result.size <= types.MOST)
  return Drawn(f"jnp.clip({text}, -4, 4)", (False, 4), functions=[lines])


OPERATIONS = (
  scan, fori, while_loop, conditional, vmap, inner_jit, gradient, gradient,
)  # fmt: skip
