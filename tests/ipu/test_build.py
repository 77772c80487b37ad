"""build.py's parts, as far as they need neither network nor compiler."""

from __future__ import annotations

import base64
import email
import hashlib
import os
import pathlib
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
    metadata,
    options,
    platform_tag,
    poplar,
    system,
    upstream,
    wheelfile,
  )

  yield types.SimpleNamespace(
    bazel=bazel,
    environment=environment,
    metadata=metadata,
    options=options,
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
      "--install_deps", "--venv", "--run", "--test", "--verbose",
    ):  # fmt: skip
      assert f"\n  {option}" in text


def test_a_folder_for_the_wheels(tools, tmp_path):
  tools.system.check_folder(tmp_path / "a" / "b")
  (tmp_path / "file").write_text("")
  for path in (tmp_path / "file", tmp_path / "file" / "below"):
    with pytest.raises(tools.BuildError, match=f"--output_path={path} cannot"):
      tools.system.check_folder(path)


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


class TestUpstream:
  def test_pins_are_what_is_installed(self, tools):
    pins = tools.upstream.read_pins()
    assert pins["jax"].version == jax.__version__
    assert pins["jaxlib"].version == jaxlib.__version__
    assert pins["jaxlib"].version == plugin.JAXLIB_VERSION

  def test_every_pin_has_its_hash(self, tools, tmp_path):
    path = tmp_path / "requirements.txt"
    for text in ("jax==1.0\n", "jax --hash=sha256:00\n", "jax==1 --hash=md5:0"):
      path.write_text(text)
      with pytest.raises(tools.BuildError, match="is no pin"):
        tools.upstream.read_pins(path)

  def test_a_wheel_with_another_hash_is_not_used(self, tools, tmp_path):
    version = tools.upstream.read_pins()["jax"].version
    (tmp_path / f"jax-{version}-py3-none-any.whl").write_text("evil")
    python = program(tmp_path / "python", "exit 1")
    with pytest.raises(tools.BuildError, match="requirements.txt"):
      tools.upstream.wheel("jax", python, tmp_path)

  def test_pip_is_told_to_check_the_hash(self, tools, tmp_path):
    python = program(
      tmp_path / "python",
      f'echo "$@" > {tmp_path}/args; for a; do case $a in '
      f"--requirement=*) cp ${{a#*=}} {tmp_path}/pins;; esac; done",
    )
    with pytest.raises(tools.BuildError, match="pip downloaded no wheel"):
      tools.upstream.wheel("jaxlib", python, tmp_path)
    assert "--require-hashes" in (tmp_path / "args").read_text()
    pins = (tmp_path / "pins").read_text()
    assert pins.startswith("jaxlib==") and "--hash=sha256:" in pins


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

  def test_the_plugin_goes_with_one_jax(self, tools):
    text = tools.metadata.plugin("1.0", "1.0", "# Title\n")
    parsed = email.message_from_string(text)
    assert parsed["Name"] == "jax-ipu-plugin"
    assert parsed.get_all("Requires-Dist") == ["jax==1.0", "jaxlib==1.0"]
    assert parsed.get_payload() == "# Title\n"
