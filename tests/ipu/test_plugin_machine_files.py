"""Machines that are described in TOML files."""

from __future__ import annotations

import dataclasses
import re

import pytest

from jaxlib.ipu import flags, options, target

read = options.read


def test_a_machine_from_a_file(tmp_path):
  machine = tmp_path / "small.toml"
  machine.write_text('base = "ipu2"\nnum_tiles = 64\n')
  settings = read({"JAX_IPU_MODEL_VERSION": str(machine)})
  assert settings.target.num_tiles == 64


def test_a_machine_from_a_file_starts_from_any_name_of_a_machine(tmp_path):
  machine = tmp_path / "small.toml"
  machine.write_text('base = "C600"\nnum_tiles = 64\n')
  target = read({"JAX_IPU_MODEL_VERSION": str(machine)}).target
  assert (target.version, target.clock_hz) == ("small", 1.49e9)


@pytest.mark.parametrize(
  "line, problem",
  [
    ("exchange_bytes_per_cycle = 0", "exchange_bytes_per_cycle is 0"),
    ("sync_cycles = -1", "sync_cycles is -1"),
    ("fp16_macs = 2", "fp16_macs is 2, it must be from 4"),
    ("clock_hz = inf", "clock_hz is inf"),
    ("host_bytes_per_second = nan", "host_bytes_per_second is nan"),
    ("num_tiles = 10_000_000_000", "from 1 to 1,048,576"),
    ("num_tiles = true", "num_tiles = True must be of type int"),
    ("tiles = 3", "unknown property 'tiles'"),
    ('base = "ipu9"', "not one of ipu1 (mk1, gc2), ipu2"),
    ("base = []", "base = [] is not one of ipu1"),
    ("num_tiles =", "is not TOML"),
    (f"num_tiles = {'[' * 5000}", "is nested too deeply"),
    ("num_tiles = {a = 1}", "num_tiles = {'a': 1} must be of type int"),
  ],
)
def test_an_invalid_machine_in_a_file(tmp_path, line, problem):
  machine = tmp_path / "odd.toml"
  machine.write_text(line + "\n")
  with pytest.raises(flags.OptionError, match=re.escape(problem)):
    read({"JAX_IPU_MODEL_VERSION": str(machine)})


@pytest.mark.parametrize(
  "field", ["base", *(f.name for f in dataclasses.fields(target.Target))]
)
def test_every_property_of_a_machine_with_odd_values(tmp_path, field):
  """Each is an error that names the property and the file, or a machine."""
  odd = ["[]", "{}", "{a = 1}", "nan", "inf", "-inf", "1e400", "-1", "true"]
  odd += ["9" * 30, '""', '"\\u0000"', "1979-05-27", "07:32:00", "1e-320"]
  for i, text in enumerate(odd):
    file = tmp_path / f"machine{i}.toml"
    file.write_text(f"{field} = {text}\n")
    try:
      read({"JAX_IPU_MODEL_VERSION": str(file)}, {})
      assert text == "1e-320" and least(field) == 0, text
    except flags.OptionError as error:
      assert field in str(error) and str(file) in str(error)
      assert len(str(error)) < 2000


def least(field: str) -> float:
  """What a property has to be at least."""
  return target._LIMITS.get(field, (1, 0))[0]
