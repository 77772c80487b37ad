"""Every use of private parts of JAX and jaxlib, in one place.

JAX has no public API for these features, so each one names the internals that
it uses, and from which version on they have that shape. If the internals of a
feature have changed in the installed JAX, the feature is disabled with a
warning that names them, and everything else continues; a feature that is
required raises an error instead.

When JAX changes one of these: give the old shape an `until`, and define the
feature again with the new names and `since`. `tests/ipu/test_internals.py`
fails on a JAX whose internals match no shape here.

JAX is not imported before a feature is used.
"""

from jaxlib.ipu.internals.backend import (
  allow_compilation_cache as allow_compilation_cache,
)
from jaxlib.ipu.internals.backend import (
  allow_donation as allow_donation,
)
from jaxlib.ipu.internals.backend import (
  distributed_group as distributed_group,
)
from jaxlib.ipu.internals.backend import (
  make_client as make_client,
)
from jaxlib.ipu.internals.backend import (
  read_profile as read_profile,
)
from jaxlib.ipu.internals.backend import (
  register_profiler as register_profiler,
)
from jaxlib.ipu.internals.compiler import (
  allow_functions as allow_functions,
)
from jaxlib.ipu.internals.compiler import (
  allow_inlining as allow_inlining,
)
from jaxlib.ipu.internals.compiler import (
  compile_for as compile_for,
)
from jaxlib.ipu.internals.compiler import (
  compiler_options as compiler_options,
)
from jaxlib.ipu.internals.compiler import (
  run_on as run_on,
)
from jaxlib.ipu.internals.feature import (
  FEATURES as FEATURES,
)
from jaxlib.ipu.internals.feature import (
  PLATFORM as PLATFORM,
)
from jaxlib.ipu.internals.feature import (
  Feature as Feature,
)
from jaxlib.ipu.internals.feature import (
  InternalsError as InternalsError,
)
from jaxlib.ipu.internals.feature import (
  Shape as Shape,
)
from jaxlib.ipu.internals.feature import (
  given_up as given_up,
)
from jaxlib.ipu.internals.feature import (
  jaxlib_version as jaxlib_version,
)
from jaxlib.ipu.internals.feature import (
  resolve as resolve,
)
from jaxlib.ipu.internals.feature import (
  uses as uses,
)
from jaxlib.ipu.internals.feature import (
  version_tuple as version_tuple,
)
from jaxlib.ipu.internals.host_functions import (
  abstract_token as abstract_token,
)
from jaxlib.ipu.internals.host_functions import (
  add_late_rules as add_late_rules,
)
from jaxlib.ipu.internals.host_functions import (
  allow_callbacks as allow_callbacks,
)
from jaxlib.ipu.internals.host_functions import (
  emit_call as emit_call,
)
from jaxlib.ipu.internals.host_functions import (
  lower_check as lower_check,
)
from jaxlib.ipu.internals.host_functions import (
  make_effect as make_effect,
)
from jaxlib.ipu.internals.host_functions import (
  physical_aval as physical_aval,
)
from jaxlib.ipu.internals.host_functions import (
  register_debug_rules as register_debug_rules,
)
from jaxlib.ipu.internals.host_functions import (
  register_ffi_handlers as register_ffi_handlers,
)
from jaxlib.ipu.internals.partitioner import (
  Xla as Xla,
)
from jaxlib.ipu.internals.partitioner import (
  sharding_options as sharding_options,
)
from jaxlib.ipu.internals.partitioner import (
  xla as xla,
)
from jaxlib.ipu.internals.primitives import (
  guarantee_custom_calls as guarantee_custom_calls,
)
from jaxlib.ipu.internals.primitives import (
  lapack_handlers as lapack_handlers,
)
from jaxlib.ipu.internals.primitives import (
  pivoted_qr as pivoted_qr,
)
from jaxlib.ipu.internals.primitives import (
  register_lapack_rules as register_lapack_rules,
)
from jaxlib.ipu.internals.primitives import (
  register_point_to_point as register_point_to_point,
)
from jaxlib.ipu.internals.users import (
  Option as Option,
)
from jaxlib.ipu.internals.users import (
  add_last_run as add_last_run,
)
from jaxlib.ipu.internals.users import (
  array_class as array_class,
)
from jaxlib.ipu.internals.users import (
  context_mesh as context_mesh,
)
from jaxlib.ipu.internals.users import (
  define_option as define_option,
)
from jaxlib.ipu.internals.users import (
  devices_are_known as devices_are_known,
)
from jaxlib.ipu.internals.users import (
  hide_frames as hide_frames,
)
from jaxlib.ipu.internals.users import (
  keep_memory_kinds as keep_memory_kinds,
)
from jaxlib.ipu.internals.users import (
  list_device_attributes as list_device_attributes,
)
from jaxlib.ipu.internals.users import (
  make_devices_callable as make_devices_callable,
)
from jaxlib.ipu.internals.users import (
  translate_compile_errors as translate_compile_errors,
)
from jaxlib.ipu.internals.users import (
  watch_transfer_guard as watch_transfer_guard,
)
from jaxlib.ipu.internals.users import (
  wrap_program_text as wrap_program_text,
)
