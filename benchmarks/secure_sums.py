"""Bytes and CPU time of one round's upload of the encoder at a preset's size: plain, 8-bit, secure sums, and NVFlare's
homomorphic encryption if TenSEAL is installed (pip install tenseal; it is no dependency).

    python benchmarks/secure_sums.py --preset paper --sites 10
    python benchmarks/secure_sums.py --memory              what a round adds to the server's memory, 4 to 100 sites

The last columns are one site's work and the server's work for all sites. One mask and one folding are measured and
multiplied by the number of sites; the key agreement, below 0.1 s for 10 sites, is left out.
"""

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fclseg.federation.averaging import WeightedMean
from fclseg.federation.codecs.layout import Layout
from fclseg.federation.codecs.presets import CODECS
from fclseg.federation.payload import component_arrays
from fclseg.federation.spool import Spool
from fclseg.federation.states import Arrays, array_bytes
from fclseg.methods.exchange import get_row
from fclseg.presets import get_preset
from fclseg.secure_sums.integers import REPORTED, Scales, SumPlan, Update
from fclseg.secure_sums.masks import Vector

HE_PARAMETERS = {"poly_modulus_degree": 8192, "coeff_mod_bit_sizes": [60, 40, 40], "scale": 2.0**40}
"""NVFlare's defaults (``nvflare/lighter/impl/he.py``)."""


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU time, which other processes on the machine do not change much."""
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def moved(network: Arrays, seed: int) -> Arrays:
    random = np.random.default_rng(seed)
    return {
        key: array + (1e-3 * random.standard_normal(array.shape)).astype(array.dtype)
        if array.dtype.kind == "f"
        else array
        for key, array in network.items()
    }


def plain(base: Arrays, sent: Arrays, sites: int) -> tuple[int, float, float]:
    def mean() -> None:
        total = WeightedMean("online", base)
        for _ in range(sites):
            total.add(sent, 100)
        total.result()

    return array_bytes(sent), 0.0, seconds(mean)[0]


def coded(base: Arrays, sent: Arrays, sites: int) -> tuple[int, float, float]:
    codec = CODECS["8bit"].networks
    spent, encoded = seconds(lambda: codec.encode(sent, base))
    back, _ = seconds(lambda: codec.decode(encoded.message, base, base))
    return encoded.message.nbytes, spent, sites * back + plain(base, sent, sites)[2]


def sums(base: Arrays, sent: Arrays, sites: int, bits: int) -> tuple[int, float, float]:
    """Numbers of ``bits`` bits, with scales as a second round has them."""
    update = Update({"online": sent}, {"online": base}, 100, dict.fromkeys(REPORTED, 0.0))
    first = SumPlan({"online": base}, Scales(bits), sites, frozenset({"online"}))
    total, _ = first.encode(update, {})
    plan = SumPlan({"online": base}, first.decode(total, {"online": base}, 1).scales, sites, frozenset({"online"}))
    encoding, (vector, _) = seconds(lambda: plan.encode(update, {}))
    masking, _ = seconds(lambda: vector.add_mask(bytes(32), 1))
    packing, parts = seconds(vector.pack)
    folded = Vector.zeros(plan.shape)
    folding, _ = seconds(lambda: folded.add(Vector.unpack(plan.shape, parts)))
    decoding, _ = seconds(lambda: plan.decode(total_of(plan, vector), {"online": base}, sites))
    size = sum(part.nbytes for part in parts.values())
    return size, encoding + sites * masking + packing, sites * (folding + masking) + decoding


def total_of(plan: SumPlan, vector: Vector) -> Vector:
    """A sum that can be decoded: no masks, one site."""
    clean = Vector.zeros(plan.shape)
    clean.narrow += vector.narrow
    clean.wide[0] = 100
    return clean


def homomorphic(base: Arrays, sent: Arrays, sites: int) -> tuple[int, float, float] | None:
    """Encrypted like NVFlare does it, extrapolated from half a million numbers."""
    try:
        import tenseal
    except ImportError:
        return None
    scheme = tenseal.SCHEME_TYPE.CKKS
    scale, arguments = HE_PARAMETERS["scale"], {key: HE_PARAMETERS[key] for key in HE_PARAMETERS if key != "scale"}
    context = tenseal.context(scheme, encryption_type=tenseal.ENCRYPTION_TYPE.SYMMETRIC, **arguments)
    context.global_scale = scale
    count = sum(array.size for array in sent.values())
    values = np.random.default_rng(0).standard_normal(min(count, 500_000))
    times = count / values.size
    spent, vector = seconds(lambda: tenseal.ckks_vector(context, values))
    data = vector.serialize()
    adding, _ = seconds(lambda: vector + tenseal.ckks_vector_from(context, data))
    decrypting, _ = seconds(vector.decrypt)
    return int(len(data) * times), (spent + decrypting) * times, sites * adding * times


def anonymous_mb() -> float:
    """Memory of this process that the system cannot take back by itself: not pages of files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) / 1024


def round_memory(base: Arrays, sites: int, way: str) -> float:
    """MB that a round adds, at most, while the updates of all sites arrive one after the other."""
    start, most = anonymous_mb(), 0.0
    random = np.random.default_rng(0)
    if way == "sums_only":
        plan = SumPlan({"online": base}, Scales(8, 100.0, {"online": np.ones(channels(base))}), sites)
        total = Vector.zeros(plan.shape)
        for _ in range(sites):
            parts = {"narrow": random.integers(0, 256, plan.shape.packed, np.uint8)}
            total.add(Vector.unpack(plan.shape, {**parts, "wide": np.zeros(plan.shape.wide, np.uint64)}))
            most = max(most, anonymous_mb())
        return most - start
    with tempfile.TemporaryDirectory(dir=".") as folder:
        spool, mean = Spool(Path(folder) if way == "on disk" else None), WeightedMean("online", base)
        for number in range(sites):
            mean.add(spool.keep({key: np.array(array) for key, array in base.items()}), 100, str(number))
            most = max(most, anonymous_mb())
        mean.result()
        return max(most, anonymous_mb()) - start


def channels(network: Arrays) -> int:
    return Layout.of(network).numbers.channels.size


def memory_table(base: Arrays) -> None:
    """Each figure in a process of its own, so that what one has freed is not counted for the next."""
    counts = (4, 20, 100)
    print(f"MB that a round adds to the server's memory{''.join(f'{count:>7} sites' for count in counts)}")
    for way in ("sums_only", "on disk", "in memory"):
        found = []
        for count in counts:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                found.append(pool.apply(round_memory, (base, count, way)))
        print(f"{way:43}{''.join(f'{size:13.0f}' for size in found)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--sites", type=int, default=10)
    parser.add_argument("--memory", action="store_true", help="the server's memory instead of bytes and time")
    args = parser.parse_args()
    base = component_arrays(get_row("fedsimclr"), get_preset(args.preset))["online"]
    if args.memory:
        memory_table(base)
        return
    sent = moved(base, 1)
    count = sum(array.size for array in base.values())
    print(f"{count:,} numbers, {args.sites} sites")
    print(f"{'':24}{'MB up':>9}{'bytes/number':>14}{'site CPU s':>12}{'server CPU s':>14}")
    rows: dict[str, Callable[[], tuple[int, float, float] | None]] = {
        "plain": lambda: plain(base, sent, args.sites),
        "8bit": lambda: coded(base, sent, args.sites),
        "sums_only, 16 bits": lambda: sums(base, sent, args.sites, 16),
        "sums_only, 8 bits": lambda: sums(base, sent, args.sites, 8),
        "sums_only, 4 bits": lambda: sums(base, sent, args.sites, 4),
        "NVFlare HE (CKKS)": lambda: homomorphic(base, sent, args.sites),
    }
    for name, measure in rows.items():
        if (found := measure()) is None:
            print(f"{name:24}  not measured: TenSEAL is not installed")
            continue
        size, site, server = found
        print(f"{name:24}{size / 1e6:9.2f}{size / count:14.2f}{site:12.2f}{server:14.2f}")


if __name__ == "__main__":
    main()
