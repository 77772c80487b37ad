"""The program: what the compiler writes and an engine runs.

These records are the only contract between the Python compiler and the C++
engines. Both sides' readers are generated from the field types below
(`codec.py`, `generate_header.py`), so nothing is kept in step by hand.

A program is a tile-level program in the sense of the Poplar programming
model: tensors mapped to tiles, compute sets of vertices, exchanges between
tiles, control flow around them. Everything that can be known before running
is written into it.

Memory. A *root* tensor owns dense, row-major storage (in the device arena, an
argument, a result or the constants). A *placed* tensor (`root != own index`) is
a copy made by an exchange: its own tile mapping, its own SRAM, the same values
as the view (offset, strides) of its root. A machine of many memories must move
the bytes; an engine with one memory reads them through the view and moves
nothing.
"""

import dataclasses
import enum
from typing import Annotated, dataclass_transform

from jaxlib.ipu.kernel.instruction import Code

FORMAT_VERSION = 4

# The maximum rank of a shape, iteration spaces and views included.
HIGHEST_RANK = 256

# Scalar wire types: `struct` letters, little-endian.
U8 = Annotated[int, "B"]
U16 = Annotated[int, "H"]
U32 = Annotated[int, "I"]
U64 = Annotated[int, "Q"]
I32 = Annotated[int, "i"]
I64 = Annotated[int, "q"]
F64 = Annotated[float, "d"]
# A U8 with the number of a `dtypes.DType`; in C++ an enumeration.
ElementType = Annotated[int, "B", "DType"]


@dataclass_transform()
def record(cls: type) -> type:
  """A dataclass of the format."""
  return dataclasses.dataclass(slots=True)(cls)


# Where a root tensor's storage is. What is in the host's memory takes no SRAM;
# an engine may keep it in its arena.
ARENA, ARGUMENT, RESULT, CONSTANT, HOST = range(5)


@record
class Target:
  """The machine that the program was compiled for (see `target.py`)."""

  version: str
  num_tiles: U32
  bytes_per_tile: U64
  clock_hz: F64


@record
class Mapping:
  """Which tile holds which elements, in closed form (see `layout.py`).

  The row-major index of an element is split over `extents`; along factor f
  the index goes to part `index // blocks[f]`. The element lives on tile
  `base + sum(part[f] * strides[f])`, and on every tile that differs from it
  by a combination of the replica strides.
  """

  base: U32
  extents: list[I64]
  blocks: list[I64]
  strides: list[I64]
  replica_counts: list[I64]
  replica_strides: list[I64]


@record
class Tensor:
  """A root (`root` is its own index) or a placed tensor (a view of `root`).

  `offset` and `strides` count elements of the root; a root's are dense.
  `space` says where a root's storage is, `address` is its byte offset in the
  arena (also of one in the host's memory) or the constants, or the number of
  the argument or result.
  """

  dtype: ElementType
  shape: list[I64]
  mapping: U32
  root: U32
  offset: I64
  strides: list[I64]
  space: U8
  address: U64


@record
class Access:
  """How a vertex accesses a tensor: for each dimension of the iteration space
  the tensor's dimension with the same index, or -1 where it is broadcast."""

  tensor: U32
  dims: list[I32]


@record
class Cost:
  """The cost of each run of a step. Cycles are of the slowest tile."""

  compute_cycles: F64
  exchange_cycles: F64
  sync_cycles: F64
  exchange_bytes: F64
  flops: F64


@record
class Location:
  """The StableHLO operation a step came from, and the user's line."""

  operation: str
  name: str
  file: str
  line: U32


# --- Codelets: the typed fields of each ----------------------------------


class Facts:
  """What engines may rely on for every codelet. C++ has the same functions,
  generated from these (`generate_header.py`).

  Attributes:
    packs: whether engines are likely to rearrange whole operands before they
      compute. Doing so for every part of a compute set takes long if the parts
      share a large operand.
  """

  __slots__ = ()
  packs = False

  def num_independent(self, rank: int) -> int:
    """The number of leading dimensions of the iteration space along which
    indices are independent, unless a register program counts them (IOTA).

    A compute set over some of the indices of such a dimension, with all
    accesses restricted to these, computes exactly its part of the results.
    Zero, which is always right, where accesses are not bounded by the
    iteration space.

    Args:
      rank: of the iteration space. Only sums and differences of it and of
        scalar fields can be translated to C++.
    """
    return 0


@record
class Map(Facts):
  """An element-wise register program over the iteration space.

  `code` holds the instructions (`kernel/opcode.py`); instruction i defines
  value i. `outputs[j]` is the value that result j gets.
  """

  code: Code
  outputs: list[U16]

  def num_independent(self, rank: int) -> int:
    return rank


@record
class Reduce(Facts):
  """Reduces the last `num_reduced` dimensions of the iteration space.

  The operands pass through the register program `code` first; its `outputs`
  are reduced. `kind` is a monoid of `ReduceKind`; ARGMAX and ARGMIN take
  (values, indices) or, with one output, make the indices themselves: the
  row-major index over the reduced dimensions. GENERAL combines by the register
  program `combine`: values 0..k-1 are the accumulators, k..2k-1 the elements,
  `combine_outputs` the new accumulators; it starts once from the operands'
  `init`, raw little-endian bytes, 8 per output. Arg-reductions break ties
  towards the smaller index.
  """

  num_reduced: U32
  kind: U8
  code: Code
  outputs: list[U16]
  combine: Code
  combine_outputs: list[U16]
  init: bytes

  def num_independent(self, rank: int) -> int:
    return rank - self.num_reduced


@record
class Fourier:
  """The matrix of a discrete Fourier transform, as operand 1 of a `Dot`.

  Coefficient k is scale * sum over j of x[j] exp(sign 2 pi i j k / length), and
  the matrix has real elements. Its rows are for the real parts of x[j],
  j < `terms`, and then, with two `planes`, for their imaginary parts; x is zero
  from `terms` on. Its columns are for the real parts of the coefficients
  k < `kept`, and then, with two `out_planes`, for their imaginary parts. Rows
  are numbered in row-major order over the product's k, columns over its n.

  An engine may compute the product by a fast transform, without reading the
  matrix. It trusts the elements, as it trusts those of any constant, but not
  the extents: where the product has others, it takes a part of the matrix.
  """

  length: U32
  sign: I32
  scale: F64
  planes: U8
  terms: U32
  out_planes: U8
  kept: U32


@record
class Dot(Facts):
  """A batched matrix product over the iteration space (b..., m..., n..., k...).

  result[b, m, n] = sum over k of lhs[b, m, k] * rhs[b, k, n], where each index
  stands for some dimensions: `num_batch`, `num_rows` and `num_columns` of
  them; the rest are summed. An operand's dimensions may overlap in its root:
  a convolution is the product of its windows and its kernel. Products and
  sums are of `accumulate_dtype`; the result is rounded once at the end. The
  partition of k determines how many partial products tiles add up. With
  `adds`, the sums are added to result 0, which has the accumulator's type: one
  of several steps that each take a part of k. `fourier` has one entry if the
  right operand is known to be the matrix of a Fourier transform, or a part of
  it.
  """

  packs = True

  accumulate_dtype: ElementType
  adds: U8
  num_batch: U32 = 1
  num_rows: U32 = 1
  num_columns: U32 = 1
  fourier: list[Fourier] = dataclasses.field(default_factory=list)

  def num_independent(self, rank: int) -> int:
    return self.num_batch + self.num_rows + self.num_columns


@record
class Scan(Facts):
  """Running totals along the last dimension of the iteration space.

  Operand 0 has the elements; operand 1, which is broadcast along the last
  dimension, the start values: result[..., i] = f(f(start, x[..., 0]), ...
  x[..., i]), or with `reverse` from the last element on. f is the register
  program `combine`, whose value `combine_output` is the new total: operand 0
  is the total so far, operand 1 the element. The partition does not cut the
  last dimension.
  """

  combine: Code
  combine_output: U16
  reverse: U8

  def num_independent(self, rank: int) -> int:
    return rank - 1


@record
class Gather(Facts):
  """StableHLO's gather in a normal form.

  Iteration space: (batch..., window...), the result's dimensions in that
  order after a permutation that the accesses carry. Operand 0 is the
  operand, operand 1 the start indices with shape (batch..., index_depth).
  For result position (b, w): start[d] = indices[b, k] where
  `start_index_map[k] == d` else 0; clamped to [0, shape[d] - slice_sizes[d]];
  `batch_dims[d]` is the batch dimension that indexes operand dimension d
  directly (operand_batching_dims), else -1; `window_dims[d]` is the window
  dimension of operand dimension d, else -1 (collapsed).
  """

  num_batch_dims: U32
  start_index_map: list[I32]
  slice_sizes: list[I64]
  batch_dims: list[I32]
  window_dims: list[I32]


@record
class Scatter(Facts):
  """StableHLO's scatter in a normal form, updating result 0 in place.

  Iteration space: (batch..., window...), the update's dimensions in that
  order. Operand 0 is the start indices (batch..., index_depth), operand 1
  the updates; result 0 holds the operand's values before the step. The
  maps are those of `Gather`. An update whose window is not entirely inside the
  operand is dropped. `kind` combines old and new (SET, or a monoid of
  `ReduceKind`; GENERAL by `combine`: value 0 is the old, 1 the new).
  """

  num_batch_dims: U32
  start_index_map: list[I32]
  window_sizes: list[I64]
  batch_dims: list[I32]
  window_dims: list[I32]
  kind: U8
  register_type: U8
  combine: Code
  combine_outputs: list[U16]
  unique_indices: U8


@record
class DynamicSlice(Facts):
  """result[i] = operand[start + i]; iteration space: the result's.

  Operand 0 is the operand; operands 1.. are the scalar start indices, one
  for each dimension in `dynamic_dims` (the others start at 0), clamped so that
  the slice is inside.
  """

  dynamic_dims: list[I32]


@record
class DynamicUpdate(Facts):
  """result[start + i] = update[i]; iteration space: the update's.

  Operand 0 is the update; operands 1.. are the start indices as in
  `DynamicSlice`. Result 0 holds the operand's values before the step.
  """

  dynamic_dims: list[I32]


@record
class SortKey:
  """A key of a sort: the operand whose elements are compared.

  Floats are in total order: NaN with a sign bit, -inf, ..., -0, 0, ..., inf,
  NaN. With `zeros_equal` both zeros are equal, with `nans_equal` all NaNs are,
  and largest.
  """

  operand: U32
  descending: U8
  zeros_equal: U8
  nans_equal: U8


@record
class Sort(Facts):
  """A stable sort along the last dimension of the iteration space.

  Result j gets the first `keep` elements of operand j in the order of `keys`,
  the most significant first; the results' last dimension has that extent and is
  not in the iteration space. Without keys, value `compare_output` of the
  register program `compare` tells whether an element is less than another:
  value 2j is operand j's element, 2j + 1 that of the other. `whole`: tiles that
  share a row sort all of it, however few of its elements are kept.
  """

  keys: list[SortKey]
  compare: Code
  compare_output: U16
  keep: I64
  whole: U8


class FactorKind(enum.IntEnum):
  """What `Factorise` computes of each matrix A [m, n]; k = min(m, n).

  Reflectors I - tau v v^T are packed as in LAPACK: v is 1 in its first row, and
  the rest is stored in the column that it made zero.

  Complex matrices of n columns have 2 n here: the real parts, then the
  imaginary ones. Their reduced forms are real, and zero elsewhere. Reflectors
  are not stored, but applied to further rows X and Y of the matrix.
  """

  CHOLESKY = 0  # L of A = L L^T; NaN in all of the triangle if there is none
  LU = 1  # L below the diagonal and U; pivots [k] and the rows' order [m], I32
  QR = 2  # R and below it the reflectors; tau [k]
  INVERSE = 3  # of the lower triangle
  UNIT_INVERSE = 4  # of the lower triangle with ones for its diagonal
  HESSENBERG = 5  # Q^T A Q and below it the reflectors of Q; tau [n - 1]
  TRIDIAGONAL = 6  # the same of a symmetric matrix, zero above the diagonal
  BIDIAGONAL = 7  # Q^T A P, zero but on the diagonal and right of it; m >= n
  COMPLEX_TRIDIAGONAL = 8  # [Q^H A Q; X Q], A Hermitian; the lower half alone
  COMPLEX_BIDIAGONAL = 9  # [Q^H A P; X P; Y Q] of square A, as many rows X as Y
  ORTHONORMAL = 10  # Q of A = Q R, R with a nonnegative diagonal; m >= n


@record
class Factorise(Facts):
  """Factors matrices.

  Iteration space: (matrix, row). Operand 0 holds the matrices, [count, rows,
  columns], result 0 what `kind`, a `FactorKind`, computes of them in the
  same shape; further results [count, ...] depend on the kind. Dimensions other
  than the first two are not in the iteration space: a vertex takes them whole.
  Where the partition cuts rows, the tiles that share a matrix exchange words
  for each column. An inverse may instead read the matrix whole, not by rows.
  """

  kind: U8
  rows: I64
  columns: I64


@record
class Bisect(Facts):
  """Eigenvalues of symmetric tridiagonal matrices in ascending order.

  Iteration space: (matrix, eigenvalue). Operand 0 has the diagonals [count,
  rows], operand 1 the off-diagonal elements [count, rows - 1]; a vertex reads
  those of its matrices whole. Result 0 [count, values] gets the eigenvalues
  `first`, `first` + 1, ...: number k is the smallest x for which more than k
  pivots of the elimination of T - x are not positive. All of a matrix are NaN
  if an element of it is not finite.
  """

  rows: I64
  first: I64


@record
class InverseIteration(Facts):
  """Eigenvectors of symmetric tridiagonal matrices T, each independently.

  Iteration space: (matrix, value). Operand 0 has the diagonals [count, rows],
  operand 1 the off-diagonal elements [count, rows - 1]; a vertex reads those of
  its matrices whole. Operand 2 has eigenvalues x [count, values]. Result 0
  [count, values, rows] gets for each a vector of length 1: two steps of inverse
  iteration near x, from a start that depends only on the value's number and the
  row (`codelets/inverse_iteration.py`). Those of equal or close values are
  independent of each other, but not orthogonal.
  """

  rows: I64


Fields = (
  Map
  | Reduce
  | Dot
  | Scan
  | Gather
  | Scatter
  | DynamicSlice
  | DynamicUpdate
  | Sort
  | Factorise
  | Bisect
  | InverseIteration
)


# --- Steps -----------------------------------------------------------------


@record
class Execute:
  """A compute set: one codelet, split over tiles by `partition`.

  `shape` is the iteration space, `partition` a mapping over its elements.
  """

  fields: Fields
  shape: list[I64]
  partition: U32
  operands: list[Access]
  results: list[Access]
  cost: Cost
  location: U32


@record
class Move:
  """One move of an exchange: a view of one root becomes a view of another
  tensor.

  Offsets and strides count elements, row-major, of the tensor they belong
  to (a placed destination's own dense index space). `shape` is shared.
  """

  source: U32
  source_offset: I64
  source_strides: list[I64]
  destination: U32
  destination_offset: I64
  destination_strides: list[I64]
  shape: list[I64]


@record
class Copy:
  """An exchange: all moves happen in one superstep."""

  moves: list[Move]
  cost: Cost
  location: U32


@record
class HostCopy:
  """A stream between the host and a tensor's tiles; `to_device` or back."""

  tensor: U32
  to_device: U8
  cost: Cost
  location: U32


# Kinds of an Attribute.
SCALAR, ARRAY, STRING, DICTIONARY = range(4)


@record
class Attribute:
  """An attribute passed to a host function at each call.

  `data` holds a scalar's or an array's elements of `dtype`, or a string's
  bytes; `count` is their number. The `count` entries of a dictionary follow it.
  """

  name: str
  kind: U8
  dtype: ElementType
  count: U32
  data: bytes


@record
class HostArray:
  """A root as a host function sees it: dense, its dimension d being `dims[d]`
  of the root's.

  A real root holds complex numbers in pairs, along a last dimension that `dims`
  leaves out; elements of less than 8 bits, and floats of 8, are bytes of the
  root.
  """

  tensor: U32
  dims: list[I32]
  dtype: ElementType


@record
class HostCallback:
  """Runs a function on the host while the device waits.

  The operands stream to the host, the function runs, the results stream back.
  Result j is written over operand `aliases[j]`, or over nothing (-1).
  """

  target: str
  attributes: list[Attribute]
  operands: list[HostArray]
  results: list[HostArray]
  aliases: list[I32]
  cost: Cost
  location: U32


# The number that stands for "none".
NONE = -1


@record
class HostMove:
  """Streams all of a root to another one, or back; the other one is in the
  host's memory (`HOST`).

  Both have the same shape and type, unless there is an I32 scalar `index`: then
  the one in the host's memory has one more dimension, the first, of which the
  index, after it was clamped, selects a part.
  """

  source: U32
  destination: U32
  index: I64
  cost: Cost
  location: U32


@record
class Infeed:
  """Waits for the next item of a feed, and streams its arrays to `results`.

  The feed is the device's infeed, or the one whose number the U32 scalar `feed`
  holds. At its end there are no more items: that is an error, unless there is a
  BOOL scalar `valid`, which then becomes false, and all results zero.
  """

  results: list[HostArray]
  feed: I64
  valid: I64
  cost: Cost
  location: U32


@record
class Outfeed:
  """Streams `operands` to the host, where they are the next item of the
  device's outfeed, and waits for room for it."""

  operands: list[HostArray]
  cost: Cost
  location: U32


class CollectiveKind(enum.IntEnum):
  """What the devices of a group do with their operands.

  Operands and results are dense; parts are equal slices of the leading
  dimension, one for each device of the group, in the group's order.
  """

  ALL_REDUCE = 0  # all operands, combined
  ALL_GATHER = 1  # the operands, one after the other
  REDUCE_SCATTER = 2  # the device's own part of all operands, combined
  ALL_TO_ALL = 3  # the device's own part of each operand, one after the other
  PERMUTE = 4  # the operand of the device's source; zeros if it has none
  BROADCAST = 5  # the operand of the group's first device; zeros in no group
  RAGGED_ALL_TO_ALL = 6  # slices of which run-time values tell place and size


@record
class PartitionId:
  """Writes the number of the device among those of the run to a U32 scalar."""

  tensor: U32
  cost: Cost
  location: U32


@record
class Group:
  """Devices that take part in one meeting, in order."""

  devices: list[U32]


@record
class Collective:
  """Devices of a run exchange the roots `operands`, and get `results`.

  `kind` is a `CollectiveKind`, `reduction` the monoid of the reducing kinds
  (`isa.ReduceKind`), otherwise 0. Devices are partition numbers. Each meets the
  others of its group, and waits for them. Each is in one group, but for
  BROADCAST and PERMUTE, where it may be in none, meets nobody and gets
  zeros. `sources` are a PERMUTE's: for each device the one of its group whose
  operand it gets, or -1; other kinds have none.

  All kinds but the last have as many results as operands. RAGGED_ALL_TO_ALL
  has the operands (array, output, input offsets, send sizes, output offsets,
  receive sizes) and one result: the output, but that slice k, rows
  [input offset k, + send size k) of the array, replaces the rows from
  output offset k on of the output of device `k // (slices / devices)` of the
  group. The last four are of one integer type and one shape [slices].
  """

  kind: U8
  reduction: U8
  operands: list[U32]
  results: list[U32]
  groups: list[Group]
  sources: list[I32]
  cost: Cost
  location: U32


@record
class Repeat:
  """Runs `body` `count` times."""

  count: U64
  body: list["Step"]
  location: U32


@record
class While:
  """Runs `condition`, then `body` for as long as `predicate` holds."""

  condition: list["Step"]
  predicate: U32
  body: list["Step"]
  cost: Cost
  location: U32


@record
class Switch:
  """Runs the branch that `selector` (a scalar I32 or BOOL) names.

  Out of range runs the last branch. A BOOL selects branch 1 when false, as
  StableHLO's `if` lists the true branch first.
  """

  selector: U32
  branches: list["Branch"]
  cost: Cost
  location: U32


@record
class Branch:
  """One branch of a Switch."""

  steps: list["Step"]


@record
class Call:
  """Runs function `function` of `Program.functions`.

  `body` has the steps as this call runs them. All calls of a function have
  equal bodies, on the same tensors, but for costs, locations and the constants
  of register programs, which the call passes. In a body are only calls of
  functions of lower numbers.
  """

  function: U32
  body: list["Step"]
  cost: Cost
  location: U32


Step = (
  Execute
  | Copy
  | HostCopy
  | HostCallback
  | PartitionId
  | Collective
  | Repeat
  | While
  | Switch
  | HostMove
  | Infeed
  | Outfeed
  | Call
)


@record
class Function:
  """Steps whose code several places of the program share: bytes of this code
  on the tile that has most of it."""

  code_bytes: U64


@record
class Alias:
  """Result `result` may be written over argument `argument` if donated."""

  argument: U32
  result: U32


@record
class HostType:
  """The caller's type of an argument or a result, if it differs from the
  tensor: complex numbers, elements of less than 8 bits, dimensions in another
  order, and arrays in the host's memory.

  A buffer has as many bytes as the tensor. `is_result` tells whether `number`
  counts results or arguments. `minor_to_major` lists the dimensions from the
  innermost in memory; it is empty for a row-major array.
  """

  is_result: U8
  number: U32
  dtype: ElementType
  shape: list[I64]
  minor_to_major: list[I64]
  on_host: U8


@record
class ArrayLayout:
  """An argument or a result whose mapping is not the default one of its shape
  and type (`plan/default_layout.py`).

  Arrays keep their mapping between programs. An argument whose mapping is not
  this one moves here before the run, through the default mapping, and stays.
  `is_result` says which of the two `number` counts; `tile_bytes` is the size of
  its part on the fullest tile.
  """

  is_result: U8
  number: U32
  mapping: U32
  tile_bytes: U64
  from_default: Cost
  to_default: Cost


@record
class NamedValue:
  """One entry of `compiled.cost_analysis()`."""

  name: str
  value: F64


@record
class Memory:
  """The SRAM plan: bytes over all tiles, and those of single tiles by which a
  program is admitted (`sram/memory.py`).

  `range_tiles` are the lengths of the ranges of tiles that need equally many
  bytes each, `range_bytes`, from the first tile on. If there are none, all
  tiles need as much as the fullest one.
  """

  argument_bytes: U64
  result_bytes: U64
  alias_bytes: U64
  temporary_bytes: U64
  code_bytes: U64
  peak_tile_bytes: U64
  peak_tile: U32
  range_tiles: list[U32] = dataclasses.field(default_factory=list)
  range_bytes: list[U64] = dataclasses.field(default_factory=list)


@record
class Omission:
  """Bytes of `Program.module` that are among the constants, and are therefore
  left out: `size` bytes from `address` on of the constants precede byte
  `position` of what is left."""

  position: U64
  address: U64
  size: U64


@record
class Sharding:
  """How an array is split over devices: XLA's `OpSharding`, serialised."""

  proto: bytes


@record
class Program:
  """A compiled program, for `num_partitions` devices that each run it.

  If they are several, `shardings` are those of the whole arguments, in order,
  and after them that of the results, a tuple's unless there is one. `module` is
  the StableHLO it was compiled from, without `omissions`, which are in order.
  """

  name: str
  target: Target
  mappings: list[Mapping]
  tensors: list[Tensor]
  arguments: list[U32]
  results: list[U32]
  host_types: list[HostType]
  layouts: list[ArrayLayout]
  aliases: list[Alias]
  donors: list[U32]
  arena_bytes: U64
  steps: list["Step"]
  locations: list[Location]
  cost_analysis: list[NamedValue]
  memory: Memory
  estimated_seconds: F64
  module: bytes
  omissions: list[Omission]
  num_partitions: U32 = 1
  shardings: list[Sharding] = dataclasses.field(default_factory=list)
  functions: list[Function] = dataclasses.field(default_factory=list)
