"""Every random number comes from (seed, site, round, purpose), so that any round replays bit for bit."""

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def derive_seed(seed: int, *keys: object) -> int:
    """A 63-bit seed that depends on all keys; unlike ``hash()`` it is the same in every process."""
    text = "\x1f".join(str(key) for key in (seed, *keys))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator(seed: int, *keys: object) -> "torch.Generator":
    """A CPU generator for one purpose, for example ``generator(seed, "site-1", round_number, "views")``."""
    import torch  # imported here, because splits and phantoms need seeds but should not wait for torch

    return torch.Generator().manual_seed(derive_seed(seed, *keys))
