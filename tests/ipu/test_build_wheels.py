"""Reading and writing wheels: contents, tags, metadata."""

from __future__ import annotations

import base64
import dataclasses
import email
import hashlib
import os
import pathlib
import zipfile

import pytest
from build_kit import program


class TestUpstream:
  @pytest.fixture
  def pin(self, tools):
    return tools.pins.Pin.parse("jaxlib-1.0-cp311-cp311-any.whl", "ab" * 32)

  def test_a_wheel_with_another_hash_is_not_used(self, tools, tmp_path, pin):
    (tmp_path / pin.file).write_text("evil")
    python = program(tmp_path / "python", "exit 1")
    with pytest.raises(tools.BuildError, match="pins.json"):
      tools.upstream.wheel(pin, python, tmp_path)

  def test_pip_checks_the_hash(self, tools, tmp_path, pin):
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

  def test_keeps_the_files_of_the_original(
    self, tools, upstream_wheel, tmp_path
  ):
    target = tmp_path / "b.whl"
    assert self.add_to(tools, upstream_wheel, target)
    with zipfile.ZipFile(target) as archive:
      assert archive.testzip() is None
      assert archive.read("a/__init__.py") == b"x = 1\n" * 1000
      assert archive.read("a/b.py") == b"new"
      assert archive.getinfo("a/run").external_attr >> 16 & 0o111
      names = archive.namelist()
    # Nothing is missing or duplicated.
    assert len(names) == len(set(names)) == 5

  def test_record_matches_the_contents(self, tools, upstream_wheel, tmp_path):
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


class TestNpm:
  @pytest.fixture
  def package(self, tools):
    return tools.npm.Package("a@1.0", "a-1.0.tgz", "ab" * 32, {}, {})

  def test_an_archive_with_another_hash_is_not_used(
    self, tools, tmp_path, package, monkeypatch
  ):
    program(tmp_path / "npm", f"echo evil > {tmp_path}/cache/a-1.0.tgz")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(tools.BuildError, match="sha256 of third_party/npm"):
      tools.npm.archive(package, tmp_path / "cache")
    assert not (tmp_path / "cache" / "a-1.0.tgz").exists()

  def test_a_missing_npm_is_an_error_that_says_how_to_get_it(
    self, tools, tmp_path, package, monkeypatch
  ):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(tools.BuildError, match="apt-get install -y npm"):
      tools.npm.archive(package, tmp_path)

  def test_an_archive_is_downloaded_once(
    self, tools, tmp_path, package, monkeypatch
  ):
    (tmp_path / package.archive).write_text("right")
    digest = hashlib.sha256(b"right").hexdigest()
    monkeypatch.setenv("PATH", "")
    right = dataclasses.replace(package, sha256=digest)
    assert tools.npm.archive(right, tmp_path).read_text() == "right"

  def test_every_library_of_pages_is_pinned_with_a_licence(self, tools):
    from jaxlib.ipu.reporting import page

    pinned = [name for p in tools.npm.packages() for name in p.files]
    assert sorted(pinned) == sorted([*page.LIBRARIES, *page.STYLES])
    assert all(p.licenses for p in tools.npm.packages())
    for name in tools.metadata.licenses():
      assert name in tools.metadata.edit("A: b\n\n", version="1", summary="")
