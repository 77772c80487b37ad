"""What Debian's and Ubuntu's Bazel needs beside itself. See README.md."""

# Debian packages that hold repositories which Bazel would download.
_PACKAGED = {
    "platforms": "/usr/share/bazel/platforms",
    "rules_java": "/usr/share/bazel/rules/java",
    "rules_proto": "/usr/share/bazel/rules/proto",
}

def distro_repositories():
    """Keeps the distribution's Bazel off the network; does nothing in others.

    The distribution's Bazel has no version number, released ones have.
    """
    if native.bazel_version:
        return
    for name in ["rules_cc", "remote_coverage_tools"]:
        native.local_repository(name = name, path = "third_party/bazel/" + name)
    for name, path in _PACKAGED.items():
        native.local_repository(name = name, path = path)
