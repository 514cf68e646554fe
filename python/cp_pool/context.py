"""What an adapter gets besides tensors: the case and the context of the rank."""

from __future__ import annotations

import json
import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup

    Tensor = torch.Tensor

__all__ = ["CaseView", "Connection", "Ctx", "Lengths"]


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


class CaseView:
    """A case, with its keys as attributes (docs/matrix_format.md)."""

    suite: str
    model: str
    backend: str
    comm: str
    cp_size: int
    inner: int
    layout: str
    dtype: str
    batch: int
    seqlen_q: int
    seqlen_kv: int
    heads: int
    kv_heads: int
    head_dim_qk: int
    head_dim_v: int
    causal: bool
    window: tuple[int, int]
    chunk: int
    #: First query, end of queries, first key, end of keys and type of each slice.
    mask: tuple[tuple[int, int, int, int, str], ...] | None
    softcap: float
    softmax: str
    bias: str | None
    max_logit: bool
    seqlens: tuple[int, ...] | None
    seqlens_kv: tuple[int, ...] | None
    pad_between_seqs: bool
    training: bool
    deterministic: bool
    #: scaling ("current" or "delayed"), forward (True), backward (bool) and output ("bf16" or "fp8"), or None.
    fp8: dict[str, Any] | None
    input_scale: float
    score_offset: float
    strided: bool
    replicated: int
    all_queries: bool
    group: int
    group_ranks: tuple[tuple[int, ...], ...] | None
    group_lengths: tuple[tuple[int, ...], ...] | None
    seed: int
    #: The ID of the case; empty for cases without an ID, such as the mask probe.
    id: str

    _DEFAULTS: ClassVar[dict[str, Any]] = {
        "suite": "adhoc",
        "model": "case",
        "backend": "math",
        "comm": "p2p",
        "cp_size": 2,
        "inner": 2,
        "layout": "bshd",
        "dtype": "bf16",
        "batch": 2,
        "causal": False,
        "window": (-1, -1),
        "chunk": 0,
        "mask": None,
        "softcap": 0.0,
        "softmax": "vanilla",
        "bias": None,
        "max_logit": False,
        "seqlens": None,
        "seqlens_kv": None,
        "pad_between_seqs": False,
        "training": True,
        "deterministic": False,
        "fp8": None,
        "input_scale": 1.0,
        "score_offset": 0.0,
        "strided": False,
        "replicated": 0,
        "all_queries": False,
        "group": 1,
        "group_ranks": None,
        "group_lengths": None,
        "seed": 1234,
    }

    def __init__(self, fields: dict[str, Any], case_id: str = "") -> None:
        values = self.__dict__
        values.update(self._DEFAULTS)
        for key, value in fields.items():
            values[key] = _frozen(value)
        values["id"] = case_id

    @classmethod
    def from_json(cls, text: str, case_id: str = "") -> CaseView:
        return cls(json.loads(text), case_id)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a case cannot be changed: {name}")

    def __repr__(self) -> str:
        return f"CaseView({self.id or self.fields})"

    @property
    def fields(self) -> dict[str, Any]:
        """All keys of the case, with their values."""
        return {key: value for key, value in self.__dict__.items() if key != "id"}

    @property
    def scale(self) -> float:
        """The factor of the scores."""
        return 1.0 / math.sqrt(self.head_dim_qk)

    @property
    def replicated_queries(self) -> int:
        """How many query tokens at the beginning of each sequence every rank has, if it has so many. Of keys these are
        `replicated`."""
        return self.seqlen_q if self.all_queries else self.replicated

    @property
    def unequal(self) -> bool:
        """Whether queries and keys have different lengths."""
        return self.seqlen_q != self.seqlen_kv or (self.seqlens_kv is not None and self.seqlens_kv != self.seqlens)

    @property
    def uneven_heads(self) -> bool:
        """Whether heads, or key-value heads, do not divide by the ranks that split them."""
        ranks = {"a2a": self.cp_size, "a2a+p2p": self.inner}.get(self.comm, 1)
        return self.heads % ranks != 0 or self.kv_heads % ranks != 0

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype of q, k, v and out."""
        import torch

        return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[self.dtype]


class Lengths:
    """The number of tokens of each sequence. With padding="absent", the padded lengths are the valid ones."""

    __slots__ = ("padded_kv", "padded_q", "valid_kv", "valid_q")

    def __init__(self, valid_q: list[int], padded_q: list[int], valid_kv: list[int], padded_kv: list[int]) -> None:
        self.valid_q, self.padded_q = valid_q, padded_q
        self.valid_kv, self.padded_kv = valid_kv, padded_kv


class Connection:
    """The part of the context that all steps of a rank in one group share, until the groups are made again."""

    def __init__(
        self,
        global_rank: int,
        global_ranks: list[int],
        device: torch.device,
        group: ProcessGroup,
        generation: int,
    ) -> None:
        self.global_rank, self.global_ranks, self.device = global_rank, global_ranks, device
        self.rank, self.world_size = global_ranks.index(global_rank), len(global_ranks)
        self.group, self.generation = group, generation
        # Of a case with a2a+p2p.
        self.inner_group: ProcessGroup | None = None
        self.outer_group: ProcessGroup | None = None


class Ctx:
    """The context of a step on one rank. In setup(ctx) there is no case: `case` is None, and reading lengths or rows
    raises AttributeError."""

    def __init__(
        self,
        connection: Connection,
        case: CaseView | None = None,
        lengths: Lengths | None = None,
        rows: tuple[Tensor, Tensor, Tensor, Tensor] | None = None,
        bias: Tensor | None = None,
        sink: Tensor | None = None,
    ) -> None:
        self._connection, self._lengths, self._rows = connection, lengths, rows
        self.case = case
        #: This rank's part of the bias, and the sink (docs/definitions.md); None if the case has none.
        self.bias, self.sink = bias, sink

    @property
    def rank(self) -> int:
        """The rank of this process in the group. Its rank in torch.distributed is global_rank."""
        return self._connection.rank

    @property
    def world_size(self) -> int:
        """The number of ranks of the group."""
        return self._connection.world_size

    @property
    def ranks(self) -> list[int]:
        """The ranks of the group, numbered within the group."""
        return list(range(self._connection.world_size))

    @property
    def global_rank(self) -> int:
        """The rank of this process in WORLD of torch.distributed. It may differ from `rank` if the case has several
        groups."""
        return self._connection.global_rank

    @property
    def global_ranks(self) -> list[int]:
        """The rank in WORLD of each rank of the group: the values that src= and dst= of torch.distributed take."""
        return list(self._connection.global_ranks)

    @property
    def device(self) -> torch.device:
        return self._connection.device

    @property
    def group(self) -> ProcessGroup:
        """The process group of the ranks that share the sequences: WORLD of torch.distributed, or with several groups a
        part of it."""
        return self._connection.group

    @property
    def inner_group(self) -> ProcessGroup | None:
        """a2a+p2p: this rank and its neighbours, which exchange tokens for heads; else None."""
        return self._connection.inner_group

    @property
    def outer_group(self) -> ProcessGroup | None:
        """a2a+p2p: the ranks that have the same place in their inner groups as this rank; else None."""
        return self._connection.outer_group

    @property
    def generation(self) -> int:
        """How often the groups have been made again after an abort."""
        return self._connection.generation

    @property
    def stream(self) -> torch.cuda.Stream | None:
        """The current CUDA stream, on which inputs are ready and results are read; None on a CPU."""
        import torch

        return torch.cuda.current_stream(self.device) if self.device.type == "cuda" else None

    @cached_property
    def generator(self) -> torch.Generator:
        """A generator on the rank's device. It is seeded for each step, with the same seed on all ranks."""
        import torch

        generator = torch.Generator(self.device)
        generator.manual_seed(1234 if self.case is None else self.case.seed % 2**63)
        return generator

    # Offsets of the sequences: int32 on the device, with one element more than there are sequences.

    @cached_property
    def cu_seqlens_q(self) -> Tensor:
        """Where each sequence begins among the valid query tokens of all ranks."""
        return self._offsets(self._known_lengths.valid_q)

    @cached_property
    def cu_seqlens_kv(self) -> Tensor:
        return self._offsets(self._known_lengths.valid_kv)

    @cached_property
    def cu_seqlens_q_padded(self) -> Tensor:
        """Where each sequence begins among the query tokens of all ranks, padding included."""
        return self._offsets(self._known_lengths.padded_q)

    @cached_property
    def cu_seqlens_kv_padded(self) -> Tensor:
        return self._offsets(self._known_lengths.padded_kv)

    @cached_property
    def local_cu_seqlens_q(self) -> Tensor:
        """Where each sequence begins among the valid query rows of this rank."""
        return self._local_offsets(self.sequences_q, self.positions_q)

    @cached_property
    def local_cu_seqlens_kv(self) -> Tensor:
        return self._local_offsets(self.sequences_kv, self.positions_kv)

    @cached_property
    def local_cu_seqlens_q_padded(self) -> Tensor:
        """Where each sequence begins among the query rows of this rank, padding included."""
        return self._local_offsets(self.sequences_q, None)

    @cached_property
    def local_cu_seqlens_kv_padded(self) -> Tensor:
        return self._local_offsets(self.sequences_kv, None)

    @property
    def max_seqlen_q(self) -> int:
        """The largest number of valid query tokens of a sequence, over all ranks."""
        return max(self._known_lengths.valid_q, default=0)

    @property
    def max_seqlen_kv(self) -> int:
        return max(self._known_lengths.valid_kv, default=0)

    @property
    def seqlens_q(self) -> list[int]:
        """The number of valid query tokens of each sequence, over all ranks."""
        return list(self._known_lengths.valid_q)

    @property
    def seqlens_kv(self) -> list[int]:
        return list(self._known_lengths.valid_kv)

    @property
    def replicated_q(self) -> list[int]:
        """The number of query tokens of each sequence that are on every rank. They are the first of the sequence."""
        assert self.case is not None
        return [min(self.case.replicated_queries, length) for length in self._known_lengths.valid_q]

    @property
    def replicated_kv(self) -> list[int]:
        assert self.case is not None
        return [min(self.case.replicated, length) for length in self._known_lengths.valid_kv]

    # This rank's rows in packed order: in thd as the shard holds them, in bshd and sbhd sequence by sequence.

    @property
    def positions_q(self) -> Tensor:
        """int64: the position of each query row of this rank in its sequence; -1 is padding."""
        return self._known_rows[0]

    @property
    def sequences_q(self) -> Tensor:
        """int64: the sequence of each query row of this rank."""
        return self._known_rows[1]

    @property
    def positions_kv(self) -> Tensor:
        return self._known_rows[2]

    @property
    def sequences_kv(self) -> Tensor:
        return self._known_rows[3]

    @property
    def _known_lengths(self) -> Lengths:
        if self._lengths is None:
            raise AttributeError("setup(ctx) has no case, and so no lengths")
        return self._lengths

    @property
    def _known_rows(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if self._rows is None:
            raise AttributeError("setup(ctx) has no case, and so no rows")
        return self._rows

    def _offsets(self, lengths: list[int]) -> Tensor:
        import torch

        offsets = [0]
        for length in lengths:
            offsets.append(offsets[-1] + length)
        return torch.tensor(offsets, dtype=torch.int32, device=self.device)

    def _local_offsets(self, sequences: Tensor, positions: Tensor | None) -> Tensor:
        import torch

        counted = sequences if positions is None else sequences[positions >= 0]
        counts = torch.bincount(counted, minlength=len(self._known_lengths.valid_q))
        return torch.nn.functional.pad(counts.cumsum(0), (1, 0)).to(torch.int32)
