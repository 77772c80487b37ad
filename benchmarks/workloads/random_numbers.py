"""Threefry: bits, uniform and normal numbers, keys."""

from __future__ import annotations

from functools import partial

import numpy as np

import jax.numpy as jnp
from benchmarks.workload import jitted
from jax import random


def seed():
  return [np.int32(42)]


def draw(function, count: int):
  return lambda seed: function(random.key(seed), (count,))


def split(seed):
  return random.key_data(random.split(random.key(seed), 1000))


def dropout(seed):
  mask = random.bernoulli(random.key(seed), 0.9, (512, 1024))
  return jnp.where(mask, 1 / 0.9, 0.0)


random_numbers = partial(jitted, "random")

WORKLOADS = [
  random_numbers("bits, 16", draw(random.bits, 16), seed),
  random_numbers("bits, 1 Mi", draw(random.bits, 2**20), seed),
  random_numbers("uniform, 64 Ki", draw(random.uniform, 2**16), seed),
  random_numbers("uniform, 1 Mi", draw(random.uniform, 2**20), seed),
  random_numbers("normal, 1 Mi", draw(random.normal, 2**20), seed),
  random_numbers("split in 1000", split, seed),
  random_numbers("dropout mask, 512x1024", dropout, seed),
]
