import subprocess
import sys

import torch

from fclseg.randomness import derive_seed, generator


def test_seeds_depend_on_every_key_and_on_where_one_ends():
    keys = [(0, "site-1", 3, "views"), (1, "site-1", 3, "views"), (0, "site-2", 3, "views"), (0, "site-1", 4, "views")]
    keys += [(0, "site-1", 3, "batches"), (0, "site-13", "views"), (0, "site-1", "3views")]
    seeds = {derive_seed(*key) for key in keys}
    assert len(seeds) == len(keys) and all(0 <= seed < 2**63 for seed in seeds)


def test_another_process_draws_the_same_numbers():
    code = "import torch, fclseg.randomness as r; print(torch.rand(3, generator=r.generator(0, 'a', 1)).tolist())"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert printed.strip() == str(torch.rand(3, generator=generator(0, "a", 1)).tolist())
