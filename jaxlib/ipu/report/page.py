class LibrariesMissing(RuntimeError): pass
def html(report, other=None):
  raise LibrariesMissing("x")
