"""build.py's parts, as far as they need neither network nor compiler."""

from __future__ import annotations

import base64
import email
import hashlib
import json
import os
import pathlib
import re
import stat
import subprocess
import sys
import types
import zipfile
from collections.abc import Iterator

import pytest

import jax
import jaxlib
from jaxlib.ipu import plugin

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.SimpleNamespace]:
  """The modules of build/tools."""
  monkeypatch.syspath_prepend(str(ROOT / "build"))
  from tools import (
    bazel,
    command,
    environment,
    matrix,
    metadata,
    options,
    pins,
    platform_tag,
    poplar,
    system,
    upstream,
    wheelfile,
  )

  yield types.SimpleNamespace(
    bazel=bazel,
    environment=environment,
    matrix=matrix,
    metadata=metadata,
    options=options,
    pins=pins,
    platform_tag=platform_tag,
    poplar=poplar,
    system=system,
    upstream=upstream,
    wheelfile=wheelfile,
    BuildError=command.BuildError,
  )


def program(path: pathlib.Path, text: str) -> pathlib.Path:
  """A shell script that can be run."""
  path.write_text(f"#!/bin/sh\n{text}\n")
  path.chmod(path.stat().st_mode | stat.S_IXUSR)
  return path


class TestOptions:
  def test_defaults(self, tools):
    options = tools.options.parse(["--enable_ipu"])
    assert options.wheels == ["jaxlib"]
    assert options.target_cpu_features == "release"
    assert options.output_path == ROOT / "dist"
    assert options.venv == ROOT / ".venv"
    assert options.then is None

  def test_another_python_has_a_venv_of_its_own(self, tools):
    options = tools.options.parse(["--enable_ipu", "--python=python3"])
    version = "{}.{}".format(*sys.version_info)
    assert options.venv == ROOT / f".venv-{version}"
    options = tools.options.parse(["--update_pins=1.0"])
    assert options.update_pins == "1.0"

  def test_repeated_options_add_up(self, tools):
    flags = ["--copt=-g3", "--strip=never", "--copt=-DX=a b"]
    options = tools.options.parse(
      [
        "--enable_ipu",
        "--bazel_options=--copt=-g3 --strip=never",
        "--bazel_options='--copt=-DX=a b'",
      ]
    )
    assert options.bazel_options == flags

  def test_test_passes_on_all_that_follows(self, tools):
    options = tools.options.parse(
      ["--enable_ipu", "--test", "-k", "dot", "--wheels=x"]
    )
    assert options.then.arguments == ["-m", "pytest", "-k", "dot", "--wheels=x"]
    assert options.wheels == ["jaxlib"]

  def test_run_passes_on_all_that_follows(self, tools):
    options = tools.options.parse(["--enable_ipu", "--run", __file__, "--help"])
    assert options.then.arguments == [__file__, "--help"]
    assert options.then.requirements.is_file()

  @pytest.mark.parametrize(
    ("arguments", "answer"),
    [
      ([], "python3 build/build.py --enable_ipu"),
      (["--test"], "python3 build/build.py --enable_ipu"),
      (["--enable_ipu", "--wheels=jax,torch"], "'torch' is no wheel"),
      (["--enable_ipu", "--run"], "--run needs a script"),
      (["--enable_ipu", "--run", "nowhere.py"], "no script 'nowhere.py'"),
      (["--enable_ipu", "--target_cpu_features=z80"], "'release', 'native'"),
      (["--enable_ipu", "--bazel_options='-c opt"], "No closing quotation"),
    ],
  )
  def test_what_is_wrong_is_said(self, tools, capsys, arguments, answer):
    with pytest.raises(SystemExit) as exit_:
      tools.options.parse(arguments)
    assert exit_.value.code == 2
    assert answer.replace("'", "") in capsys.readouterr().err.replace("'", "")

  def test_help_explains_every_option(self):
    text = subprocess.run(
      [sys.executable, ROOT / "build" / "build.py", "--help"],
      capture_output=True,
      check=True,
      text=True,
    ).stdout
    for option in (
      "--enable_ipu", "--wheels", "--bazel_path", "--bazel_options",
      "--bazel_startup_options", "--target_cpu_features", "--output_path",
      "--install_deps", "--venv", "--run", "--test", "--verbose", "--python",
      "--update_pins",
    ):  # fmt: skip
      assert f"\n  {option}" in text


def test_a_folder_for_the_wheels(tools, tmp_path):
  tools.system.check_folder(tmp_path / "a" / "b")
  (tmp_path / "file").write_text("")
  for path in (tmp_path / "file", tmp_path / "file" / "below"):
    with pytest.raises(tools.BuildError, match=f"--output_path={path} cannot"):
      tools.system.check_folder(path)


class TestPython:
  def test_a_shim_leads_to_its_python(self, tools, tmp_path):
    shim = program(tmp_path / "shim", f'exec {sys.executable} "$@"')
    assert tools.system.find_python(str(shim)) == sys.executable

  @pytest.mark.parametrize("path", ["/nowhere/python", "/bin/false"])
  def test_what_is_none(self, tools, path):
    with pytest.raises(tools.BuildError, match=f"--python={path} must be"):
      tools.system.find_python(path)

  def test_build_py_continues_in_it(self, tmp_path):
    """Its pins would be changed, were the other Python not started first."""
    other = program(
      tmp_path / "python",
      f'if [ "$1" = -c ]; then echo {tmp_path}/python; else echo "$@"; fi',
    )
    words = ["build/build.py", "--update_pins=nonsense", f"--python={other}"]
    done = subprocess.run(
      [sys.executable, *words], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.split() == [str(ROOT / words[0]), *words[1:]]


class TestBazel:
  def test_wrong_path(self, tools, tmp_path):
    missing = tmp_path / "bazel"
    with pytest.raises(tools.BuildError, match="is no program"):
      tools.bazel.Bazel(missing, [], verbose=False)

  def test_none_at_all(self, tools, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(tools.BuildError, match="apt-get install -y bazel"):
      tools.bazel.Bazel(None, [], verbose=False)
    assert "bazel-bootstrap" in tools.bazel.wanted_packages(None)

  def test_ones_own_needs_no_packages(self, tools, tmp_path, monkeypatch):
    program(tmp_path / "bazelisk", "echo bazel 7.4.1")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not tools.bazel.wanted_packages(None)

  @pytest.mark.parametrize(
    ("printed", "version"),
    [
      ("bazel 7.4.1", (7, 4, 1)),
      ("bazel 6.5.0-vmware", (6, 5, 0)),
      ("bazel no_version", ()),
    ],
  )
  def test_version(self, tools, tmp_path, printed, version):
    path = program(tmp_path / "bazel", f"echo {printed}")
    assert tools.bazel.Bazel(path, [], verbose=False)._version() == version

  @pytest.mark.parametrize("version", ["3.7.2", "8.0.0"])
  def test_versions_that_cannot_build_this(self, tools, tmp_path, version):
    path = program(tmp_path / "bazel", f"echo bazel {version}")
    with pytest.raises(tools.BuildError, match=f"{version}(?s:.)*--bazel_path"):
      tools.bazel.Bazel(path, [], verbose=False).configure(
        generator_python=sys.executable, pip_python=tmp_path / "python"
      )

  def test_what_is_no_bazel(self, tools, tmp_path):
    path = program(tmp_path / "bazel", "exit 3")
    with pytest.raises(tools.BuildError, match=r"code 3(?s:.)*--bazel_path"):
      tools.bazel.Bazel(path, [], verbose=False)._version()


class TestEnvironment:
  def test_a_folder_that_is_no_venv(self, tools, tmp_path):
    with pytest.raises(tools.BuildError, match="--venv=.* is no virtual"):
      tools.environment.Environment(tmp_path).create()

  def test_a_venv_of_another_python(self, tools, tmp_path):
    (tmp_path / "pyvenv.cfg").write_text("version = 3.9.2\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    with pytest.raises(tools.BuildError, match="another Python"):
      tools.environment.Environment(tmp_path).create()

  def test_runs_on_the_model(self, tools, tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    (tmp_path / "bin").mkdir()
    program(
      tmp_path / "bin" / "python",
      f'echo "$JAX_IPU_USE_MODEL,$JAX_PLATFORMS,$1" > {tmp_path}/out; exit 7',
    )
    assert tools.environment.Environment(tmp_path).run(["x.py"]) == 7
    assert (tmp_path / "out").read_text() == "true,,x.py\n"


def test_the_line_about_poplar(tools, monkeypatch):
  monkeypatch.delenv("TF_POPLAR_BASE", raising=False)
  assert "model only" in tools.poplar.describe()
  monkeypatch.setenv("TF_POPLAR_BASE", "/opt/poplar")
  assert "/opt/poplar" in tools.poplar.describe()


class TestPins:
  def test_the_installed_jax_is_pinned(self, tools):
    versions = {pin.version for pin in tools.pins.read()}
    assert jax.__version__ in versions
    assert jaxlib.__version__ in versions

  def test_what_the_wheel_says_is_what_is_pinned(self, tools):
    span = tools.pins.supported()
    tested = json.loads(plugin.VERSIONS.read_text())
    assert tested == {"oldest": span.oldest, "newest": span.newest}

  def test_every_release_is_whole(self, tools):
    """jax for every jaxlib, a series once, and the file in order."""
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
  def test_a_damaged_file_says_so(self, tools, tmp_path, row):
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

  def test_a_release_takes_the_place_of_its_series(self, tools):
    old = self.pins(tools, "1.9/cp314", "1.10/cp315")
    new = self.pins(tools, "1.10.1/cp315", "1.10.1/cp316")
    names = list(tools.pins.renewed(old, new))
    assert [name[:16] for name in names] == [
      "jaxlib-1.9-cp314", "jaxlib-1.10.1-cp", "jaxlib-1.10.1-cp"
    ]  # fmt: skip

  def test_the_index_is_asked_for_every_python(self, tools, tmp_path):
    """A pip that has one release for Python 3.13 only."""
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


# A version of JAX; other projects' stand in build/requirements-*.txt.
_VERSION = re.compile(r"(?<![\d.])0\.(?:10\.2|1[1-9](?:\.\d+)+)(?![\d.])")
_DOCUMENTS = {"README.md", "CHANGELOG.md", "ipu/docs/build.md"}


def test_versions_of_jax_stand_in_one_file(tools):
  kinds = ["*.py", "*.md", "*.toml", "*.bzl", "*.bazel", ".bazelrc", ".ci"]
  done = subprocess.run(
    ["git", "ls-files", "--", *kinds], cwd=ROOT, capture_output=True, text=True
  )
  if done.returncode:
    pytest.skip("this is not a checkout of git")
  found = {
    name
    for name in done.stdout.split()
    if (ROOT / name).exists() and _VERSION.search((ROOT / name).read_text())
  }
  assert found <= _DOCUMENTS


class TestSupportedPairs:
  """The tables of README.md and build.md are what the pins say."""

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

  def test_each_release_has_the_newest_python_it_is_made_for(self, tools):
    assert self.choose(tools, self.PINS, ["cp311", "cp312", "cp313"]) == [
      ("1.0", "cp311", "/cp311", True),
      ("1.1", "cp313", "/cp313", False),
      ("1.2", "cp313", "/cp313", True),
    ]

  def test_or_another_that_is_there(self, tools):
    assert self.choose(tools, self.PINS, ["cp312"]) == [
      ("1.0", "cp312", "/cp312", False),
      ("1.1", "cp312", "/cp312", False),
      ("1.2", "cp312", "/cp312", True),
    ]

  def test_or_is_not_tested(self, tools):
    (row,) = self.choose(tools, ["1.0/cp311"], ["cp313"])
    assert row == ("1.0", "cp311", None, True)

  def test_a_python_without_the_version_is_not_taken(self, tools, tmp_path):
    found = tools.matrix.find_pythons(["cp3999", tools.pins.this_python()])
    assert list(found) == [tools.pins.this_python()]


class TestUpstream:
  @pytest.fixture
  def pin(self, tools):
    return tools.pins.Pin.parse("jaxlib-1.0-cp311-cp311-any.whl", "ab" * 32)

  def test_a_wheel_with_another_hash_is_not_used(self, tools, tmp_path, pin):
    (tmp_path / pin.file).write_text("evil")
    python = program(tmp_path / "python", "exit 1")
    with pytest.raises(tools.BuildError, match="pins.json"):
      tools.upstream.wheel(pin, python, tmp_path)

  def test_pip_is_told_to_check_the_hash(self, tools, tmp_path, pin):
    python = program(
      tmp_path / "python",
      f'echo "$@" > {tmp_path}/args; for a; do case $a in '
      f"--requirement=*) cp ${{a#*=}} {tmp_path}/pins;; esac; done",
    )
    with pytest.raises(tools.BuildError, match="pip downloaded no jaxlib-1.0"):
      tools.upstream.wheel(pin, python, tmp_path)
    assert "--require-hashes" in (tmp_path / "args").read_text()
    pins = (tmp_path / "pins").read_text()
    assert pins == f"jaxlib==1.0 --hash=sha256:{'ab' * 32}\n"


class TestPlatformTag:
  READELF = """
   0x01 (NEEDED)  Shared library: [libm.so.6]
   0x01 (NEEDED)  Shared library: [libc.so.6]
    0x0010:   Name: GLIBC_2.9  Flags: none  Version: 4
    0x0020:   Name: GLIBC_2.34  Flags: none  Version: 3
  """

  def test_the_newest_symbol_decides(self, tools):
    assert tools.platform_tag.glibc_needed(self.READELF) == (2, 34)

  def test_other_libraries_are_refused(self, tools):
    text = self.READELF.replace("libm.so.6", "libstdc++.so.6")
    with pytest.raises(tools.BuildError, match=r"libstdc\+\+.so.6"):
      tools.platform_tag.glibc_needed(text)

  def test_newest_compares_numbers(self, tools):
    tags = ["manylinux_2_9_x86_64", "manylinux_2_27_x86_64"]
    assert tools.platform_tag.newest(tags) == tags[1]
    tags.append("linux_x86_64")
    assert tools.platform_tag.newest(tags) == tags[2]
    with pytest.raises(tools.BuildError, match="win32"):
      tools.platform_tag.newest(["win32"])


class TestWheelFile:
  @pytest.fixture
  def upstream_wheel(self, tools, tmp_path) -> pathlib.Path:
    """A small wheel with a text file and a program."""
    new = tools.wheelfile.New
    path = tmp_path / "a-1-py3-none-any.whl"
    files = {
      "a/__init__.py": new(b"x = 1\n" * 1000),
      "a/run": new(b"#!/bin/sh\n", executable=True),
      "a-1.dist-info/METADATA": new(b"Name: a\n"),
    }
    assert tools.wheelfile.write(path, files)
    return path

  def add_to(self, tools, source, target, data=b"new") -> bool:
    with tools.wheelfile.files_of(source) as kept:
      files = {**kept, "a/b.py": tools.wheelfile.New(data)}
      return tools.wheelfile.write(target, files)

  def test_keeps_what_it_takes_over(self, tools, upstream_wheel, tmp_path):
    target = tmp_path / "b.whl"
    assert self.add_to(tools, upstream_wheel, target)
    with zipfile.ZipFile(target) as archive:
      assert archive.testzip() is None
      assert archive.read("a/__init__.py") == b"x = 1\n" * 1000
      assert archive.read("a/b.py") == b"new"
      assert archive.getinfo("a/run").external_attr >> 16 & 0o111
      names = archive.namelist()
    # Nothing is left out and nothing is there twice.
    assert len(names) == len(set(names)) == 5

  def test_record_is_true(self, tools, upstream_wheel, tmp_path):
    target = tmp_path / "b.whl"
    self.add_to(tools, upstream_wheel, target)
    with zipfile.ZipFile(target) as archive:
      record = archive.read("a-1.dist-info/RECORD").decode()
      rows = [line.split(",") for line in record.splitlines()]
      assert sorted(row[0] for row in rows) == sorted(archive.namelist())
      for name, digest, size in rows:
        if name != "a-1.dist-info/RECORD":
          data = archive.read(name)
          sha256 = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
          assert digest == f"sha256={sha256.decode().rstrip('=')}"
          assert int(size) == len(data)

  def test_the_same_contents_are_the_same_bytes(
    self, tools, upstream_wheel, tmp_path
  ):
    one, two = tmp_path / "one.whl", tmp_path / "two.whl"
    self.add_to(tools, upstream_wheel, one)
    self.add_to(tools, upstream_wheel, two)
    assert one.read_bytes() == two.read_bytes()

  def test_writes_only_what_changed(self, tools, upstream_wheel, tmp_path):
    target = tmp_path / "b.whl"
    assert self.add_to(tools, upstream_wheel, target)
    before = os.stat(target).st_mtime_ns
    assert not self.add_to(tools, upstream_wheel, target)
    assert os.stat(target).st_mtime_ns == before
    assert self.add_to(tools, upstream_wheel, target, b"other")
    target.write_bytes(b"broken")
    assert self.add_to(tools, upstream_wheel, target, b"other")


class TestMetadata:
  UPSTREAM = (
    "Metadata-Version: 2.4\nName: jax\nVersion: 1.0\nSummary: S\n"
    "License-File: LICENSE\nRequires-Dist: jaxlib<=1.0,>=0.9\n"
    "Requires-Dist: jaxlib==0.9; extra == 'old'\nRequires-Dist: numpy>=2\n"
    "\nSummary: not a header\n"
  )

  def test_edit(self, tools):
    text = tools.metadata.edit(
      self.UPSTREAM,
      version="1.0+ipu",
      summary="new",
      requirements=["jaxlib==1.0+ipu"],
    )
    parsed = email.message_from_string(text)
    assert parsed["Version"] == "1.0+ipu"
    assert parsed["Summary"] == "new"
    assert parsed.get_all("Requires-Dist") == ["numpy>=2", "jaxlib==1.0+ipu"]
    assert "LICENSE" in parsed.get_all("License-File")
    assert "ipu/NOTICE.txt" in parsed.get_all("License-File")
    assert "Summary: not a header" in parsed.get_payload()

  def test_the_plugin_goes_with_every_supported_jax(self, tools):
    span = tools.pins.Supported("1.0", "1.2.3", "1.3", ("cp311", "cp312"))
    parsed = email.message_from_string(tools.metadata.plugin(span, "# Title\n"))
    assert parsed["Name"] == "jax-ipu-plugin"
    assert parsed["Version"] == "1.2.3"
    assert parsed["Requires-Python"] == ">=3.11"
    versions = ">=1.0,<1.3"
    assert parsed.get_all("Requires-Dist") == [
      f"jax{versions}", f"jaxlib{versions}"
    ]  # fmt: skip
    classifiers = parsed.get_all("Classifier")
    for python in ("3.11", "3.12"):
      assert f"Programming Language :: Python :: {python}" in classifiers
    assert parsed.get_payload() == "# Title\n"
