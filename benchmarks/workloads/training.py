"""Whole training steps with donated state."""

from __future__ import annotations

from benchmarks import models
from benchmarks.workload import training

WORKLOADS = [
  training(
    "training",
    f"MNIST MLP with momentum, batch {size}",
    models.momentum_step,
    lambda: models.momentum_state(models.MNIST),
    lambda size=size: models.digits(size),
    memory=size == 128,
  )
  for size in (32, 128)
] + [
  training(
    "training",
    "MLP with Adam, batch 64",
    models.adam_step,
    lambda: models.adam_state((784, 512, 256, 10)),
    lambda: models.digits(64),
  ),
  training(
    "training",
    "small MLP with Adam, batch 16",
    models.adam_step,
    lambda: models.adam_state((784, 32, 10)),
    lambda: models.digits(16),
  ),
  training(
    "training",
    "CNN with momentum, batch 32",
    models.cnn_step,
    models.cnn_state,
    lambda: models.images(32),
    tolerance=1e-3,
  ),
  training(
    "training",
    "transformer with AdamW",
    models.transformer_step,
    models.transformer_state,
    lambda: (models.tokens(),),
    tolerance=1e-3,
    memory=True,
  ),
]
