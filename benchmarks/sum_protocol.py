"""CPU time and memory of the steps of a secure sum (keys, shares, agreement, removal of masks) for 4, 20 and 100 sites.

    python benchmarks/sum_protocol.py [--sites 4 20 100] [--absent 1]

All sites are in this process and keep their secrets in files, as in a run; signatures are those of a simulation. The
vector is short, so that the steps count and not the masks, which ``secure_sums.py`` measures at the size of a network.
``--absent`` sites are repaired after the others have sent their vectors.
"""

import argparse
import multiprocessing
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from secure_sums import anonymous_mb

from fclseg.secure_sums.collector import Collector
from fclseg.secure_sums.identity import SimulatedSite, SimulatedTrust
from fclseg.secure_sums.masks import Shape, Vector
from fclseg.secure_sums.member import Member
from fclseg.secure_sums.occasion import Occasion
from fclseg.secure_sums.records import SumRecords

SHAPE = Shape(narrow=10_000, wide=10, bits=15)


def measure(sites: int, absent: int) -> tuple[float, float, float]:
    """CPU seconds of one site and of the server, and the MB that the sum adds to this process."""
    names, occasion, spent = (
        [f"site-{number:04d}" for number in range(sites)],
        Occasion("run", 0, "pretrain", 1),
        Counter(),
    )
    collector, start, most = Collector(occasion, SimulatedTrust()), anonymous_mb(), 0.0

    def timed(who: str, work: Callable[[], Any]) -> Any:
        nonlocal most
        started = time.process_time()
        result = work()
        spent[who] += time.process_time() - started
        most = max(most, anonymous_mb())
        return result

    with tempfile.TemporaryDirectory() as folder:
        member = {
            name: Member(SimulatedSite(name), SimulatedTrust(), occasion, SumRecords(Path(folder) / name))
            for name in names
        }

        def ask(asked: list[str], question: Callable[[str], Any], accept: Callable[[str, Any], None]) -> None:
            for name in asked:
                answer = timed("site", lambda name=name: question(name))
                timed("server", lambda name=name, answer=answer: accept(name, answer))

        def vector(_: int) -> Vector:
            return Vector.of(SHAPE, np.ones(SHAPE.narrow), np.ones(SHAPE.wide))

        ask(names, lambda name: member[name].keys(), collector.accept_keys)
        roster = timed("server", collector.roster.to_dict)
        ask(names, lambda name: member[name].shares(roster), collector.accept_shares)
        collector.start(SHAPE, "")
        present = names[absent:]
        ask(present, lambda name: member[name].masked(collector.inbox(name), "", vector), collector.accept_vector)
        ask(present, lambda name: member[name].agreement(collector.survivors), collector.accept_agreement)
        signatures = dict(collector.signatures)
        ask(present, lambda name: member[name].reveal(signatures), collector.accept_reveal)
        total = timed("server", collector.result)
    assert (total.signed()[0] == len(present)).all(), "the sum is wrong"
    return spent["site"] / sites, spent["server"], most - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, nargs="+", default=[4, 20, 100])
    parser.add_argument("--absent", type=int, default=1)
    args = parser.parse_args()
    print(f"{'sites':>6}{'site CPU s':>12}{'server CPU s':>14}{'MB':>7}")
    for sites in args.sites:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            site, server, size = pool.apply(measure, (sites, args.absent))
        print(f"{sites:6}{site:12.2f}{server:14.2f}{size:7.0f}", flush=True)


if __name__ == "__main__":
    main()
