"""What every step of a tile program can be asked.

A step either does something to tensors, or it is control flow around the lists
of steps that are its regions.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Any, ClassVar, NamedTuple, Self

from jaxlib.ipu.diagnostics import internal
from jaxlib.ipu.ir.graph import Origin
from jaxlib.ipu.layout import Array, Layout
from jaxlib.ipu.plan import cost
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.code import CodeCount, ExchangeCode, Participants
from jaxlib.ipu.tile.tensor import TensorInfo


@functools.cache
def _fields(kind: Any) -> tuple[tuple[str, ...], Callable[[Any], Any]]:
  """The names of a record's fields, and what gets all of them."""
  names = tuple(f.name for f in dataclasses.fields(kind))
  return names, operator.attrgetter(*names)


def _free() -> schema.Cost:
  """The cost of a step that takes nothing itself."""
  return schema.Cost(0.0, 0.0, 0.0, 0.0, 0.0)


# A tensor that a step reads or writes, and whether it writes it.
TensorAccess = tuple[int, bool]


class Decision(NamedTuple):
  """A scalar tensor that control flow depends on, which is read after the first
  `after` regions."""

  tensor: int
  after: int


class HostWork(NamedTuple):
  """An operation of the model on the host: bytes that it reads and writes, and
  floating-point operations."""

  bytes: float
  flops: float = 0.0


class Vertices(NamedTuple):
  """What computes in a compute set, for reports: the name of the codelet, the
  iteration space, and the cycles of each tile."""

  codelet: str
  shape: tuple[int, ...]
  cycles: Array


@dataclasses.dataclass(slots=True)
class Effects:
  """What a step does to roots and placed tensors.

  Attributes:
    early_reads: roots of which each index is read before it is written.
    reads: roots that may be read until everything is written.
    full_writes: roots that are written completely.
    partial_writes: roots of which other elements keep their values.
    copies: moves from a whole root to a whole root.
    placed: placed tensors that it makes.
    used: placed tensors that it reads, and whether before it writes anything.
    permuted: roots that it both reads and writes, elements that stay in place
      apart.
    time: when it reads; it writes at the time after that.
  """

  early_reads: Sequence[int] = ()
  reads: Sequence[int] = ()
  full_writes: Sequence[int] = ()
  partial_writes: Sequence[int] = ()
  copies: Sequence[schema.Move] = ()
  placed: Sequence[int] = ()
  used: Sequence[tuple[int, bool]] = ()
  permuted: Set[int] = frozenset()
  time: int = -1


@dataclasses.dataclass(slots=True, eq=False)
class Common:
  """What a step and its copies on other tensors (`Step.renamed`) have in
  common, worked out once for all of them.

  Attributes:
    exchanges: the code of an exchange, by the price of a word of it.
  """

  exchanges: dict[int, ExchangeCode] = dataclasses.field(default_factory=dict)


class Region(list["Step"]):
  """A list of steps: a program's, a loop's body, a branch.

  Attributes:
    freed: roots from elsewhere whose memory is free after their last use in it.
    kept: roots that are needed after its operations.
    like: the body of another call of the same function that is equal in all
      that calls may differ in, too; None if there is none.
  """

  __slots__ = ("freed", "kept", "like")

  def __init__(
    self,
    steps: Iterable[Step] = (),
    freed: Iterable[int] = (),
    kept: Iterable[int] = (),
  ) -> None:
    super().__init__(steps)
    self.freed = set(freed)
    self.kept = set(kept)
    self.like: Region | None = None

  @property
  def model(self) -> Region:
    """The same region for all that are alike."""
    return self if self.like is None else self.like

  def renamed(self, name: Callable[[int], int]) -> Region:
    """The same steps on the tensors that `name` gives for theirs."""
    return Region([s.renamed(name) for s in self], self.freed, self.kept)


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class Step:
  """A step of a tile program.

  Attributes:
    location: number of the source location.
    own: the cost of its vertices, its exchange or its decision alone; `price`
      adds what comes with them.
    buffers: bytes that each tile needs while it runs, besides tensors: for
      candidates, partial results, parts of sorted rows, messages and copies in
      another order.
    origins: the operations of a fused node that it belongs to; empty for
      others, which are where `location` says.
    operation: the place of its operation among those of its region; -1 for
      steps before and after all of them.
    has_effect: whether it follows all earlier steps with an effect.
    time: its place in program order, after liveness analysis.
    moves: of an exchange.
    staying: of moves from roots to roots, the bytes that each copies on its
      tile (`messages.staying`), unless both have one address in the end.
    within: bytes that each tile therefore copies to another place of its own,
      once storage is assigned (tile_passes/local_copies.py).
    word_price: bytes that tiles may copy to save a word of its exchange code
      (moves/messages.py).
    packed: bytes of each copy that the slowest tile makes for its vertices: of
      operands in another order, of results that they cannot store as vectors.
    on_host: whether its exchange is with the host.
    on_links: whether its exchange is with other devices.
    calls_host: whether it waits for a function on the host.
    exclusive: whether only one of its regions runs.
    passes_arguments: whether it copies the arguments of a call, or its results.
    is_end: whether it streams an argument or a result of the program: it is in
      no function.
    buffers_of: what its buffers are, in words.
    constants: of its register program, in order.
    passed: how many of these differ from call to call of the function that it
      is in, and are passed to it.
    common: shared with its copies; a pass that changes what one of them does to
      its tensors gives it another.
    known_code: bytes of its code on its tiles; None if counting it says.
  """

  location: int
  own: schema.Cost = dataclasses.field(default_factory=_free)
  buffers: Array | None = None
  origins: Sequence[Origin] = ()
  operation: int = -1
  has_effect: bool = False
  time: int = -1
  moves: Sequence[schema.Move] = ()
  staying: Sequence[Any] | None = None
  within: Array | None = None
  word_price: int = 0
  packed: tuple[int, ...] = ()
  passed: int = 0
  common: Common = dataclasses.field(default_factory=Common)

  on_host: ClassVar[bool] = False
  on_links: ClassVar[bool] = False
  calls_host: ClassVar[bool] = False
  exclusive: ClassVar[bool] = False
  passes_arguments: ClassVar[bool] = False
  is_end: ClassVar[bool] = False

  # --- Control flow --------------------------------------------------------

  @property
  def regions(self) -> Sequence[Region]:
    """The lists of steps that it runs."""
    return ()

  @property
  def trips(self) -> int | None:
    """How often it runs each region; None if data decide, 0 if few data let it
    run them."""
    return 1

  @property
  def decision(self) -> Decision | None:
    """What decides which region runs, or how often."""
    return None

  @property
  def callee(self) -> int | None:
    """The function that it calls, whose steps run as if they stood in its
    place; None if it calls none."""
    return None

  @property
  def private(self) -> Sequence[int]:
    """Tensors of the function that it calls."""
    return ()

  # --- Data ----------------------------------------------------------------

  def accesses(self) -> Iterator[TensorAccess]:
    """The tensors that it accesses itself, in order."""
    return iter(())

  def reads(self) -> list[int]:
    """The tensors that it reads itself."""
    return [tensor for tensor, written in self.accesses() if not written]

  def writes(self) -> list[int]:
    """The tensors that it writes itself."""
    return [tensor for tensor, written in self.accesses() if written]

  def effects(self, tensors: Sequence[TensorInfo]) -> Effects:
    """Its effects, if it has no regions: as far as is known of any step, it
    reads until it has written all of its results."""
    reads, writes = self.reads(), self.writes()
    return Effects(
      reads=[tensors[n].root for n in reads],
      full_writes=list(dict.fromkeys(tensors[n].root for n in writes)),
      used=[(n, False) for n in reads if tensors[n].root != n],
    )

  def replaceable(self, tensors: Sequence[TensorInfo]) -> Iterator[int]:
    """Tensors whose memory a result may take, as it reads them index by index
    or copies them as a whole."""
    return iter(())

  @property
  def writes_parts(self) -> bool:
    """Whether its vertices can write results to parts of roots."""
    return False

  def renamed(self, name: Callable[[int], int]) -> Step:
    """The same step on the tensors that `name` gives for its own, which it asks
    for in one order for all steps that differ in their tensors alone."""
    found = copy.copy(self)
    found.moves = [
      schema.Move(
        name(m.source), m.source_offset, m.source_strides,
        name(m.destination), m.destination_offset, m.destination_strides,
        m.shape,
      )
      for m in self.moves
    ]  # fmt: skip
    return found

  def __copy__(self) -> Self:
    # Without it, records with slots are pickled, which takes three times as
    # long.
    kind: Any = type(self)
    found: Self = object.__new__(kind)
    names, get = _fields(kind)
    for name, value in zip(names, get(self)):
      setattr(found, name, value)
    return found

  # --- Figures -------------------------------------------------------------

  def price(self, target: Target) -> schema.Cost:
    """Its cost on a machine, without its regions."""
    total = self.own
    for size in self.packed:
      total = cost.add(total, cost.local_copy(target, size))
    if self.within is not None:
      size = int(self.within.max())
      total = cost.add(total, cost.local_copy(target, size))
    return total

  def set_word_price(
    self, target: Target, tensors: Sequence[TensorInfo], price: int
  ) -> None:
    """Sets `word_price`, and charges for the copies that this takes."""
    self.word_price = price

  @property
  def loaded(self) -> list[int]:
    """The tensors that vertices load or store."""
    return []

  @property
  def constants(self) -> tuple[int, ...]:
    return ()

  @property
  def known_code(self) -> int | None:
    return None

  @property
  def has_messages(self) -> bool:
    """Whether it may send anything from tile to tile."""
    return bool(self.moves)

  @property
  def buffers_of(self) -> str:
    return "message buffers"

  @property
  def words(self) -> str:
    """What it is called in reports: `HostCallback` is a "host callback"."""
    name = type(self).__name__
    return "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()

  def vertices(
    self, target: Target, tensors: Sequence[TensorInfo]
  ) -> Vertices | None:
    """Its vertices, if it is a compute set."""
    return None

  def host_work(
    self, target: Target, tensors: Sequence[TensorInfo]
  ) -> Iterator[HostWork]:
    """What the model does for it on the host, without its regions."""
    return iter(())

  def count_code(self, count: CodeCount) -> Participants:
    """Adds its code on each tile, that of its regions included, and sets its
    message buffers."""
    return Participants.joined([count.steps(region) for region in self.regions])

  def code_text(self) -> Iterator[str]:
    """Its register programs, an instruction to a line."""
    return iter(())

  # --- Emission ------------------------------------------------------------

  def record(self, target: Target, number: Callable[[Layout], int]) -> Any:
    """The step in the wire format.

    Args:
      target: the machine, for its price.
      number: of a mapping in the program.

    Raises:
      CompileError: this kind of step is only for passes, which should have
        replaced it.
    """
    raise internal(f"a {type(self).__name__} cannot be emitted")
