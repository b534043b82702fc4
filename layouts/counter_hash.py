"""Random numbers as a function of (seed, stream, counter): the same on every device.

The mixer is the SplitMix64 finaliser (Steele, Lea, Flood 2014), applied to a 64-bit counter.
NumPy and torch give the same bits, because torch's int64 products wrap like uint64 products.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB
SEED_STRIDE = 0xD1B54A32D192ED03
STREAM_STRIDE = 0x8CB92BA72F3D8DD7


def _key(seed: int, stream: int) -> int:
    return (seed * SEED_STRIDE + stream * STREAM_STRIDE + GOLDEN) % 2**64


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def hash_numpy(seed: int, stream: int, counters: np.ndarray) -> np.ndarray:  # uint64, same shape
    """64 random bits for each counter."""
    import numpy as np

    with np.errstate(over="ignore"):
        z = counters.astype(np.uint64) * np.uint64(GOLDEN) + np.uint64(_key(seed, stream))
        z = (z ^ (z >> np.uint64(30))) * np.uint64(MIX_1)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(MIX_2)
        return z ^ (z >> np.uint64(31))


def hash_torch(seed: int, stream: int, counters: Tensor) -> Tensor:  # int64, same shape
    """The same bits as `hash_numpy`, as int64, on the counters' device."""
    z = counters * _signed(GOLDEN) + _signed(_key(seed, stream))
    z = (z ^ _logical_shift(z, 30)) * _signed(MIX_1)
    z = (z ^ _logical_shift(z, 27)) * _signed(MIX_2)
    return z ^ _logical_shift(z, 31)


def _logical_shift(z: Tensor, bits: int) -> Tensor:
    """torch shifts int64 arithmetically; the mask clears the copies of the sign bit."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def permutation(seed: int, stream: int, count: int, device: Any) -> Tensor:  # int64 [count]
    """A random permutation of 0..count-1: a stable sort by 31 bits of the counters' hashes.

    Ties keep counter order, so every device gives the same permutation. On a CPU, int32 keys sort
    four times faster than int64 keys.
    """
    import torch

    keys = hash_torch(seed, stream, torch.arange(count, device=device))
    return torch.sort(_logical_shift(keys, 33).to(torch.int32), stable=True).indices
