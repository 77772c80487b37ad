"""The supported versions of JAX: pins, documents, pairs to test."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys

import pytest
from build_kit import ROOT, program

import jax
import jaxlib
from jaxlib.ipu import plugin


class TestPins:
  def test_the_installed_jax_is_pinned(self, tools):
    versions = {pin.version for pin in tools.pins.read()}
    assert jax.__version__ in versions
    assert jaxlib.__version__ in versions

  def test_the_versions_in_the_wheel_are_pinned(self, tools):
    span = tools.pins.supported()
    tested = json.loads(plugin.VERSIONS.read_text())
    assert tested == {"oldest": span.oldest, "newest": span.newest}

  def test_every_release_is_complete(self, tools):
    """A jax for every jaxlib, one release per series, and a sorted file."""
    pins = tools.pins.read()
    for pin in pins:
      assert tools.pins.pin("jax", pin.version, pin.python).python == "py3"
    series = {pin.version: tools.pins.numbers(pin.version)[:2] for pin in pins}
    assert len(set(series.values())) == len(series)
    text = tools.pins.PATH.read_text()
    rows = json.dumps(tools.pins.renewed(pins, []), indent=1) + "\n"
    assert text == rows

  @pytest.mark.parametrize(
    "row",
    [
      {"jax-1.0.tar.gz": "0" * 64},
      {"jax-1.0-py3-none-any.whl": "0"},
      {"torch-1.0-py3-none-any.whl": "0" * 64},
      {"jax-1.0rc1-py3-none-any.whl": "0" * 64},
      {},
      "not json",
    ],
  )
  def test_a_damaged_file_is_an_error(self, tools, tmp_path, row):
    path = tmp_path / "pins.json"
    path.write_text(row if isinstance(row, str) else json.dumps(row))
    with pytest.raises(tools.BuildError):
      tools.pins.read(path)

  def pins(self, tools, *names):
    return [
      tools.pins.Pin.parse(f"jaxlib-{v}-{p}-{p}-linux_x86_64.whl", "0" * 64)
      for v, p in (name.split("/") for name in names)
    ]

  def test_the_newest_release_for_a_python(self, tools, monkeypatch):
    rows = self.pins(tools, "1.10/cp315", "1.9/cp315", "1.9/cp314")
    monkeypatch.setattr(tools.pins, "read", lambda: rows)
    assert tools.pins.release("cp315") == "1.10"
    assert tools.pins.release("cp314") == "1.9"
    with pytest.raises(tools.BuildError, match="cp311.*cp314, cp315"):
      tools.pins.release("cp311")
    assert tools.pins.supported() == tools.pins.Supported(
      oldest="1.9", newest="1.10", below="1.11", pythons=("cp314", "cp315")
    )

  def test_a_release_replaces_its_series(self, tools):
    old = self.pins(tools, "1.9/cp314", "1.10/cp315")
    new = self.pins(tools, "1.10.1/cp315", "1.10.1/cp316")
    names = list(tools.pins.renewed(old, new))
    assert [name[:16] for name in names] == [
      "jaxlib-1.9-cp314", "jaxlib-1.10.1-cp", "jaxlib-1.10.1-cp"
    ]  # fmt: skip

  def test_the_index_is_asked_for_every_python(self, tools, tmp_path):
    """A pip that has one release, for Python 3.13 only."""
    name = "-1.2-cp313-cp313-manylinux_2_27_x86_64.whl"
    sha256 = {"archive_info": {"hashes": {"sha256": "ab" * 32}}}
    report = {
      "install": [
        {"download_info": {"url": f"https://host/{p}{name}", **sha256}}
        for p in tools.pins.PROJECTS
      ]
    }
    (tmp_path / "report").write_text(json.dumps(report))
    python = program(
      tmp_path / "python",
      f'case "$*" in *python-version=3.13*) cat {tmp_path}/report;;'
      ' *) echo "No matching distribution found" >&2; exit 1;; esac',
    )
    path = tmp_path / "pins.json"
    tools.pins.update("1.2", path, str(python))
    assert json.loads(path.read_text()) == {
      f"{p}{name}": "ab" * 32 for p in tools.pins.PROJECTS
    }
    with pytest.raises(tools.BuildError, match="nonsense"):
      tools.pins.update("nonsense", path, str(python))
    program(python, 'echo "No matching distribution found" >&2; exit 1')
    with pytest.raises(tools.BuildError, match="--update_pins 1.3: your"):
      tools.pins.update("1.3", path, str(python))


# A version of JAX; versions of other projects are in build/requirements-*.txt.
_VERSION = re.compile(r"(?<![\d.])0\.(?:10\.2|1[1-9](?:\.\d+)+)(?!\.?\d)")
_DOCUMENTS = {
  "README.md", "CHANGELOG.md", "ipu/docs/build.md", "ipu/docs/coverage.md",
}  # fmt: skip


def test_versions_of_jax_are_in_one_file(tools):
  kinds = {".py", ".md", ".toml", ".bzl", ".bazel", ".bazelrc"}
  folders = (
    ".ci", "benchmarks", "build", "ipu", "jax", "jax_plugins", "jaxlib",
    "tests", "third_party",
  )  # fmt: skip
  paths = [*ROOT.iterdir()]
  paths += [path for top in folders for path in (ROOT / top).rglob("*")]
  seen = {
    str(path.relative_to(ROOT))
    for path in paths
    if path.is_file()
    and ".cache" not in path.parts
    and (path.suffix in kinds or path.name in kinds or ".ci" in path.parts)
  }
  assert seen > _DOCUMENTS
  found = {name for name in seen if _VERSION.search((ROOT / name).read_text())}
  assert found <= _DOCUMENTS


class TestSupportedPairs:
  """The tables in README.md and build.md match the pins."""

  @pytest.mark.parametrize("name", ["README.md", "ipu/docs/build.md"])
  def test_the_table(self, tools, name):
    text = (ROOT / name).read_text()
    table = re.search(r"<!-- pairs.* -->\n(.*)<!-- pairs end -->", text, re.S)
    assert table and table[1] == tools.matrix.markdown(tools.pins.read()), (
      f"{name}: paste the output of `python build/test_matrix.py --markdown`"
    )

  def test_documents_name_pinned_versions_only(self, tools):
    pinned = {pin.version for pin in tools.pins.read()}
    for name in _DOCUMENTS:
      named = set(_VERSION.findall((ROOT / name).read_text()))
      assert named <= pinned, name

  def choose(self, tools, names, found):
    rows = TestPins().pins(tools, *names)
    pairs = tools.matrix.choose(rows, {tag: f"/{tag}" for tag in found})
    return [(p.release, p.tag, p.python, p.forked) for p in pairs]

  PINS = ("1.2/cp313", "1.2/cp312", "1.1/cp313", "1.1/cp312", "1.0/cp312",
          "1.0/cp311")  # fmt: skip

  def test_each_release_is_paired_with_its_newest_python(self, tools):
    assert self.choose(tools, self.PINS, ["cp311", "cp312", "cp313"]) == [
      ("1.0", "cp311", "/cp311", True),
      ("1.1", "cp313", "/cp313", False),
      ("1.2", "cp313", "/cp313", True),
    ]

  def test_another_python_if_that_is_missing(self, tools):
    assert self.choose(tools, self.PINS, ["cp312"]) == [
      ("1.0", "cp312", "/cp312", False),
      ("1.1", "cp312", "/cp312", False),
      ("1.2", "cp312", "/cp312", True),
    ]

  def test_a_release_without_a_python_is_not_tested(self, tools):
    (row,) = self.choose(tools, ["1.0/cp311"], ["cp313"])
    assert row == ("1.0", "cp311", None, True)

  def test_missing_pythons_are_skipped(self, tools, tmp_path):
    found = tools.matrix.find_pythons(["cp3999", tools.pins.this_python()])
    assert list(found) == [tools.pins.this_python()]


class TestMatrix:
  """What test_matrix.py runs where."""

  @pytest.fixture
  def runs(self, tools, tmp_path):
    """The arguments of pytest for a pair, of a release that makes a fork or
    not."""
    matrix = importlib.import_module("test_matrix")
    pair = tools.matrix.Pair
    run = matrix.Run(tmp_path, [], full=False)

    def runs(kind, newest=False, forked=True):
      return run._runs(pair("cp311", "python", "1.0", forked), kind, newest)

    for name in matrix._ONCE:
      assert (matrix._TESTS / f"test_{name}.py").exists(), name
    return runs

  def test_everything_runs_on_the_newest_release(self, runs):
    ((tests, *left_out),) = runs("fork", newest=True)
    (own,) = runs("plugin")
    assert tests == str(ROOT / "tests" / "ipu")
    assert str(ROOT / "tests" / "ipu" / "test_internals.py") in own
    assert {*left_out} < {f"--ignore={path}" for path in own}

  def test_older_releases_share_the_other_tests(self, runs):
    (fork,) = runs("fork")
    own, plugin = runs("plugin", forked=False)
    assert runs("plugin") == [own]
    # What `own` runs does not run again, but for what depends on the wheels.
    assert {*fork} - {*plugin} == {"--part=1/4"}
    of_wheels = str(ROOT / "tests" / "ipu" / "test_plugin_installation.py")
    assert of_wheels in own
    assert {*plugin} - {*fork} == {"--part=0/4", f"--ignore={of_wheels}"}
    assert {f"--ignore={path}" for path in own} < {*plugin}

  def test_the_parts_are_all(self):
    found = []
    for part in ("0/1", "0/3", "1/3", "2/3"):
      words = ["-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
      done = subprocess.run(
        [sys.executable, *words, f"--part={part}", "tests/ipu/test_layout.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
      )
      assert done.returncode == 0, done.stdout + done.stderr
      found.append({line for line in done.stdout.splitlines() if "::" in line})
    everything, *parts = found
    assert all(parts) and sum(map(len, parts)) == len(everything)
    assert set().union(*parts) == everything
