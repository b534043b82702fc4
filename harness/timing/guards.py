"""What a call must leave alone: its inputs, and the memory on both sides of its output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pagebench.kernels.adapter import Call
from pagebench.layouts.tensors import Batch

if TYPE_CHECKING:
    from torch import Tensor

MARGIN = 4096  # bytes on each side of an output
CANARY = 0x5A
ROW = 1024  # a pool is summed in rows of so many words
FACTORIES = ("empty_like", "zeros_like", "empty", "zeros", "new_empty", "new_zeros")


@contextmanager
def guarded_outputs(q: Tensor | None) -> Iterator[None]:
    """While a call is planned, put canaries round each new tensor that could be its output."""
    if q is None:
        yield
        return
    from torch.overrides import TorchFunctionMode

    class Guarded(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
        ) -> Any:
            made = func(*args, **(kwargs or {}))
            could_be = getattr(func, "__name__", "") in FACTORIES and _is_like(made, q)
            return _guarded(made) if could_be else made

    with Guarded():
        yield


def _is_like(made: Any, q: Tensor | None) -> bool:
    import torch

    if q is None or not isinstance(made, torch.Tensor):
        return False
    return (made.shape, made.dtype, made.device) == (q.shape, q.dtype, q.device) and (
        made.is_contiguous()
    )


def _guarded(made: Tensor) -> Tensor:
    """A copy of `made` in the middle of a longer buffer."""
    import torch

    size = made.numel() * made.element_size()
    buffer = torch.full((size + 2 * MARGIN,), CANARY, dtype=torch.uint8, device=made.device)
    inside = buffer[MARGIN : MARGIN + size].view(made.dtype).view(made.shape)
    return inside.copy_(made)


def canaries(call: Call) -> bool | None:
    """Whether the memory beside the output is whole; None where no canaries stand there."""
    import torch

    assert call.out is not None
    storage, out = call.out.untyped_storage(), call.out
    size, begin = out.numel() * out.element_size(), out.storage_offset() * out.element_size()
    if (storage.nbytes(), begin) != (size + 2 * MARGIN, MARGIN):
        return None
    whole = torch.empty(0, dtype=torch.uint8, device=out.device).set_(storage)
    return bool((whole[:MARGIN] == CANARY).all() & (whole[MARGIN + size :] == CANARY).all())


class Inputs:
    """What a call reads, as it was: sums of the pools, and copies of indices and query."""

    def __init__(self, batch: Batch) -> None:
        self._tensors = _readable(batch)
        self._were = {name: note(each) for name, (each, note) in self._tensors.items()}

    def changed(self) -> list[str]:
        """Names of the inputs that are no longer what they were."""
        import torch

        now = {name: note(each) for name, (each, note) in self._tensors.items()}
        return [name for name, were in self._were.items() if not torch.equal(were, now[name])]


Note = Callable[["Tensor"], "Tensor"]


def _readable(batch: Batch) -> Mapping[str, tuple[Tensor, Note]]:
    lowered = batch.lowered
    copied = {
        "query": batch.q,
        "page table": lowered.table,
        "indices": lowered.indices,
        "indptr": lowered.indptr,
        "lengths": lowered.lengths,
        "last page lengths": lowered.last_page_len,
    }
    notes: dict[str, tuple[Tensor, Note]] = {
        name: (each, lambda t: t.clone()) for name, each in copied.items() if each is not None
    }
    pools = {"key pool": batch.k, "value pool": batch.v}
    return notes | {name: (each, _sums) for name, each in pools.items() if each is not None}


def _sums(pool: Tensor) -> Tensor:  # int64 [rows]
    """The sum of each row of a pool's words: any single write changes one."""
    import torch

    flat = pool.contiguous().view(-1).view(torch.uint8)
    words = flat.view(torch.int32) if len(flat) % 4 == 0 else flat
    whole = len(words) // ROW * ROW
    rows = words[:whole].view(-1, ROW).sum(1, dtype=torch.int64)
    return torch.cat([rows, words[whole:].sum(dtype=torch.int64)[None]])
