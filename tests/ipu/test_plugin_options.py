"""Flags: their effects, and their messages for invalid values."""

from __future__ import annotations

import json
import logging

import plugin_test_util
import pytest

from jaxlib.ipu import flags, options

read = options.read


def test_defaults():
  settings = read({})
  assert settings.use_model is None
  assert settings.hardware_ids == (0,)
  assert settings.target.version == "ipu2"
  assert settings.target.num_tiles == 1472


@pytest.mark.parametrize("text", ["true", "True", "1", "yes", "on"])
def test_spellings_of_true(text):
  assert read({"JAX_IPU_USE_MODEL": text}).use_model is True


def test_an_empty_variable_is_not_set():
  assert read({"JAX_IPU_DEVICE_COUNT": ""}) == read({})


GOOD = [
  ({"JAX_IPU_MODEL_NUM_TILES": "4"}, {"num_tiles": 4}),
  ({"JAX_IPU_DEVICE_COUNT": "3"}, {"device_count": 3}),
  ({"JAX_IPU_VISIBLE_DEVICES": "all"}, {"visible_devices": None}),
  ({"JAX_IPU_VISIBLE_DEVICES": "2,0"}, {"visible_devices": (2, 0)}),
  ({"JAX_IPU_MODEL_VERSION": "bow"}, {"version": "bow"}),
  ({"JAX_IPU_MODEL_VERSION": "Bow"}, {"version": "bow"}),
  ({"JAX_IPU_MODEL_VERSION": "gc200"}, {"version": "ipu2"}),
  ({"JAX_IPU_MODEL_VERSION": "MK2"}, {"version": "ipu2"}),
  ({"JAX_IPU_MODEL_VERSION": "C600"}, {"version": "ipu21"}),
  ({"JAX_IPU_MODEL_VERSION": "gc2"}, {"version": "ipu1"}),
  ({"JAX_IPU_MODEL_VERSION": "mk1"}, {"version": "ipu1"}),
  ({"POPLAR_LOG_LEVEL": "info"}, {"log_level": logging.INFO}),
  (
    {"TF_POPLAR_FLAGS": "--use_ipu_model --ipu_model_tiles=7"},
    {"use_model": True, "num_tiles": 7},
  ),
  ({"TF_POPLAR_FLAGS": "--use_ipu_model=true"}, {"use_model": True}),
  ({"TF_POPLAR_FLAGS": "--log_cycle_count=0"}, {"logged_tile": 0}),
  ({"TF_POPLAR_FLAGS": "--show_progress_bar"}, {"progress_bar": True}),
  ({"TF_POPLAR_FLAGS": "--show_progress_bar=auto"}, {"progress_bar": None}),
  ({"TF_POPLAR_FLAGS": "--noshow_progress_bar"}, {"progress_bar": False}),
  (
    {
      "POPLAR_ENGINE_OPTIONS": '{"autoReport.all": "true",'
      ' "autoReport.directory": "./r", "debug.allowOutOfMemory": true}'
    },
    {"report": True, "report_directory": "./r", "allow_out_of_memory": True},
  ),
  ({"JAX_IPU_VERIFY": "true"}, {"verify": True}),
  (
    {"PVTI_OPTIONS": '{"directory": "./t"}'},
    {"trace": True, "trace_directory": "./t"},
  ),
  ({"PVTI_OPTIONS": '{"enable": "false"}'}, {"trace": False}),
  (
    {"POPLAR_ENGINE_OPTIONS": '{"availableMemoryProportion": 0.3}'},
    {"available_memory_proportion": 0.3},
  ),
]


@pytest.mark.parametrize("environment, fields", GOOD, ids=str)
def test_valid_values(environment, fields):
  settings = read(environment)
  for name, value in fields.items():
    assert getattr(settings, name) == value


# A flag, a value, and what the message must contain besides these two.
BAD = [
  ("JAX_IPU_USE_MODEL", "maybe", "true or false"),
  ("JAX_IPU_VERIFY", "2", "true or false"),
  ("JAX_IPU_USE_MODEL", "false", "no IPU hardware"),
  ("JAX_IPU_MODEL_NUM_TILES", "many", "integer >= 1"),
  ("JAX_IPU_MODEL_NUM_TILES", "0", "integer >= 1"),
  ("JAX_IPU_MODEL_NUM_TILES", "-3", "integer >= 1"),
  ("JAX_IPU_MODEL_NUM_TILES", "1473", "1 to 1472"),
  ("JAX_IPU_MODEL_NUM_TILES", "1.5", "integer >= 1"),
  ("JAX_IPU_DEVICE_COUNT", "0", "integer from 1 to"),
  ("JAX_IPU_DEVICE_COUNT", "two", "integer from 1 to"),
  ("JAX_IPU_DEVICE_COUNT", "9" * 20, "integer from 1 to"),
  ("JAX_IPU_VISIBLE_DEVICES", "0;1", "commas"),
  ("JAX_IPU_VISIBLE_DEVICES", "0,-1", "commas"),
  ("JAX_IPU_VISIBLE_DEVICES", "1,1", "distinct integers"),
  ("JAX_IPU_VISIBLE_DEVICES", "0,2147483648", "distinct integers"),
  (
    "JAX_IPU_MODEL_VERSION",
    "ipu3",
    "ipu1 (mk1, gc2), ipu2 (mk2, gc200), bow, ipu21 (c600)",
  ),
  ("JAX_IPU_MODEL_VERSION", "missing.toml", "cannot read"),
  ("JAX_IPU_FEED_DEPTH", "0", "integer >= 1"),
  ("JAX_IPU_FEED_TIMEOUT", "-1", "a number of seconds"),
  ("JAX_IPU_COLLECTIVE_TIMEOUT", "-1", "a number of seconds"),
  ("POPLAR_LOG_LEVEL", "LOUD", "TRACE, DEBUG"),
  ("TF_CPP_MIN_LOG_LEVEL", "x", "integer >= 0"),
  ("TF_POPLAR_FLAGS", "--ipu_model_tiles=x", "--ipu_model_tiles"),
  ("TF_POPLAR_FLAGS", "--use_ipu_model=x", "--use_ipu_model"),
  ("TF_POPLAR_FLAGS", "--show_progress_bar=x", "--show_progress_bar"),
  ("TF_POPLAR_FLAGS", "--log_cycle_count=all", "--log_cycle_count"),
  ("TF_POPLAR_FLAGS", "--log_cycle_count=1472", "-1 to 1471"),
  ("TF_POPLAR_FLAGS", '--use_ipu_model="', "No closing quotation"),
  ("TF_POPLAR_FLAGS", "--ipu_model_tiles=9999", "1 to 1472"),
  ("POPLAR_ENGINE_OPTIONS", "{", "JSON object"),
  ("POPLAR_ENGINE_OPTIONS", "[1]", "JSON object"),
  ("POPLAR_ENGINE_OPTIONS", '{"autoReport.all": "x"}', "autoReport.all"),
  (
    "POPLAR_ENGINE_OPTIONS",
    '{"debug.allowOutOfMemory": 3}',
    "debug.allowOutOfMemory",
  ),
  (
    "POPLAR_ENGINE_OPTIONS",
    '{"availableMemoryProportion": "1.1"}',
    "a number from 0 to 1",
  ),
  ("PVTI_OPTIONS", "true", "JSON object"),
  ("PVTI_OPTIONS", '{"enable": "x"}', "true or false"),
  ("PVTI_OPTIONS", '{"directory": ""}', "a folder"),
  ("POPLAR_ENGINE_OPTIONS", '{"autoReport.all": 7}', "true or false"),
  ("POPLAR_ENGINE_OPTIONS", '{"autoReport.directory": ""}', "a folder"),
  ("JAX_IPU_DUMP_TO", "a\0b", "a folder"),
  ("JAX_IPU_DUMP_WHEN", "never", "always"),
  (
    "POPLAR_ENGINE_OPTIONS",
    '{"autoReport.directory": "a\\u0000b"}',
    "a folder",
  ),
  ("JAX_IPU_DEVICE_COUNT", "2000000000", "an integer from 1 to 1,024"),
  ("POPLAR_ENGINE_OPTIONS", '{"autoReport.directory": null}', "a folder"),
  ("POPLAR_ENGINE_OPTIONS", '{"autoReport.directory": []}', "a folder"),
  (
    "POPLAR_ENGINE_OPTIONS",
    '{"autoReport.directory": "\\ud800"}',
    "a folder",
  ),
]


@pytest.mark.parametrize(
  "flag, value, allowed",
  [
    ("JAX_IPU_VISIBLE_DEVICES", ",".join(map(str, range(1025))), "up to 1,024"),
    ("POPLAR_ENGINE_OPTIONS", "9" * 5000, "JSON object"),
  ],
)
def test_long_invalid_values_are_cut(flag, value, allowed):
  with pytest.raises(flags.OptionError, match=allowed) as caught:
    read({flag: value})
  assert f"{flag}={value[:9]!r}"[:-1] in str(caught.value)
  assert len(str(caught.value)) < 600


def test_options_that_are_nested_too_deeply():
  with pytest.raises(flags.OptionError, match="not nested so deeply"):
    read({"POPLAR_ENGINE_OPTIONS": '{"a": ' + "[" * 100_000})


# Texts that no flag may answer with anything but a value or an OptionError.
ODD = [
  "",
  "-1",
  "9" * 5000,
  "\u0663",
  "nan",
  "1e400",
  "a\0b",
  "\udcff",
  "[" * 9999,
]
ODD += [
  "[]",
  "{}",
  "null",
  "true",
  '"\\ud800"',
  "NaN",
  "-Infinity",
  "é",
  ",",
  "\n",
]


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
def test_every_flag_with_odd_values(text):
  sources = [{f.name: text} for f in flags.JAX_FLAGS + flags.ENVIRONMENT_FLAGS]
  for f in flags.POPLAR_FLAGS:
    sources.append({"TF_POPLAR_FLAGS": f"{f.name}={text}"})
  for f in flags.ENGINE_OPTIONS:
    sources.append({"POPLAR_ENGINE_OPTIONS": f'{{"{f.name}": {text}}}'})
  for environ in sources:
    try:
      read(environ, {})
    except flags.OptionError as error:
      assert next(iter(environ)) in str(error)
      assert len(str(error)) < 1000
  for f in flags.JAX_FLAGS:
    try:
      read({}, {f.name.lower(): text})
    except flags.OptionError as error:
      assert f"jax.config.{f.name.lower()}" in str(error)


@pytest.mark.parametrize("flag, value, allowed", BAD)
def test_invalid_values(flag, value, allowed):
  with pytest.raises(flags.OptionError) as caught:
    read({flag: value})
  message = str(caught.value)
  assert flag in message
  assert allowed in message
  wrong = wrong_part(value)
  assert any(f"={w}: expected " in message for w in (wrong, repr(wrong)))


def wrong_part(value: str) -> object:
  """The value of the only option in a variable that may hold several."""
  if value.startswith('{"'):
    (wrong,) = json.loads(value).values()
    return wrong
  name, _, wrong = value.partition("=")
  return wrong if name.startswith("--") and wrong != '"' else value


def test_every_flag_has_a_test_with_an_invalid_value():
  tested = {flag for flag, _, _ in BAD} | {allowed for _, _, allowed in BAD}
  tested |= {
    name
    for flag, value, _ in BAD
    if value.startswith("{") and len(value) > 1
    for name in json.loads(value)
  }
  declared = (
    flags.JAX_FLAGS
    + flags.ENVIRONMENT_FLAGS
    + flags.POPLAR_FLAGS
    + flags.ENGINE_OPTIONS
    + flags.PVTI_OPTIONS
  )
  assert {flag.name for flag in declared} <= tested


def test_more_devices_than_are_visible():
  with pytest.raises(flags.OptionError, match="JAX_IPU_DEVICE_COUNT=3"):
    read({"JAX_IPU_DEVICE_COUNT": "3", "JAX_IPU_VISIBLE_DEVICES": "0,1"})


def test_precedence():
  environment = {
    "TF_POPLAR_FLAGS": "--ipu_model_tiles=1",
    "JAX_IPU_MODEL_NUM_TILES": "2",
  }
  assert read(environment).num_tiles == 2
  config = {"jax_ipu_model_num_tiles": 3, "jax_ipu_device_count": None}
  assert read(environment, config).num_tiles == 3
  with pytest.raises(flags.OptionError, match="jax.config.jax_ipu_device"):
    read({}, {"jax_ipu_device_count": 0})


@pytest.mark.parametrize(
  "flag, value, name",
  [
    ("TF_POPLAR_FLAGS", "--max_infeed_threads=4", "--max_infeed_threads"),
    (
      "TF_POPLAR_FLAGS",
      "--max_compilation_threads=4",
      "--max_compilation_threads",
    ),
    ("POPLAR_ENGINE_OPTIONS", '{"opt.fast": 1}', "opt.fast"),
    (
      "PVTI_OPTIONS",
      '{"enable": false, "colour": 1}',
      "known: enable, directory",
    ),
    ("JAX_IPU_NUM_TILES", "4", "did you mean JAX_IPU_MODEL_NUM_TILES?"),
    ("JAX_IPU_DEVICES_COUNT", "", "did you mean JAX_IPU_DEVICE_COUNT?"),
    ("JAX_IPU_XYZZY", "4", "known: JAX_IPU_USE_MODEL, "),
    ("TF_POPLAR_FLAGS", "--log_cycle_counts=0", "mean --log_cycle_count?"),
    (
      "POPLAR_ENGINE_OPTIONS",
      '{"autoreport.all": true}',
      "did you mean autoReport.all?",
    ),
  ],
)
def test_unknown_flags_are_named(caplog, flag, value, name):
  with caplog.at_level(logging.WARNING, logger="jaxlib.ipu"):
    assert read({flag: value}) == read({})
  assert [name in record.getMessage() for record in caplog.records] == [True]


def test_unrelated_variables_are_ignored(caplog):
  read({"MY_JAX_IPU_X": "1", "JAX_PLATFORMS": "ipu", "IPUS": "3"})
  assert not caplog.records


@pytest.mark.parametrize(
  "name, text, value",
  [
    ("jax_ipu_use_model", "yes", True),
    ("jax_ipu_model_num_tiles", "8", 8),
    ("jax_ipu_visible_devices", "3,4", "3,4"),
    ("jax_ipu_visible_devices", "all", "all"),
    ("jax_ipu_model_version", "gc200", "gc200"),
    ("jax_ipu_device_count", "many", "many"),
    ("jax_ipu_device_count", "", None),
  ],
)
def test_config_values_from_the_environment(name, text, value):
  assert options.from_environment(name, {name.upper(): text}) == value
  assert options.from_environment(name, {}) is None


def test_the_table_of_flags():
  table = flags.markdown()
  for flag in flags.JAX_FLAGS + flags.ENGINE_OPTIONS:
    assert f"`{flag.name}`" in table
  widths = {line.count("|") for line in table.splitlines()}
  assert widths == {5}


@pytest.mark.ipu_only
def test_jax_config_shows_environment_variables():
  code = """
  import jax, jax.ipu
  c = jax.config
  print(c.jax_ipu_model_num_tiles, c.jax_ipu_device_count, c.jax_ipu_use_model)
  print(c.values["jax_ipu_model_num_tiles"])
  try:
    c.update("jax_ipu_device_count", "two")
  except ValueError as e:
    print(e)
  """
  assert plugin_test_util.output(
    code, JAX_IPU_MODEL_NUM_TILES="8"
  ).splitlines() == [
    "8 None True",
    "8",
    "invalid jax.config.jax_ipu_device_count='two': expected an integer from 1 "
    "to 1,024",
  ]


# Through JAX: the message appears when an IPU is requested; nothing else fails.
@pytest.mark.ipu_only
def test_invalid_values_are_reported_to_the_user():
  code = """
  import jax
  assert float(jax.numpy.ones(3).sum()) == 3
  try:
    jax.devices("ipu")
  except RuntimeError as e:
    print(e)
  """
  message = plugin_test_util.output(code, JAX_IPU_MODEL_NUM_TILES="many")
  assert "invalid JAX_IPU_MODEL_NUM_TILES='many'" in message
  assert "in a new process" in message
