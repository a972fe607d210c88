"""Features as bytes, and how many there are: a whole bank, or fewer vectors such as prototypes."""

from collections.abc import Mapping

import numpy as np

from fclseg.errors import FCLSegError
from fclseg.federation.codecs.codec import Codec, Network
from fclseg.federation.codecs.layout import Arrays

FEATURES, ROWS = "features", "rows"
ROWS_BYTES = 4


def encode_features(codec: Codec, state: Network) -> Arrays:
    """What travels in place of a component that is passed on."""
    rows = min(len(array) for array in state.values())
    return {FEATURES: codec.encode(state).message, ROWS: np.array([rows], np.uint32)}


def decode_features(codec: Codec, encoded: Mapping[str, np.ndarray], like: Network) -> Arrays:
    """What another party encoded, of which there is at most as much as in the method's own bank ``like``."""
    rows, most = encoded.get(ROWS), min(len(array) for array in like.values())
    if not isinstance(rows, np.ndarray) or rows.dtype != np.uint32 or rows.shape != (1,) or not 0 < rows[0] <= most:
        raise FCLSegError(f"an encoded message does not say how many features of at most {most} it has: it is not used")
    return codec.decode(encoded.get(FEATURES), first_rows(like, int(rows[0])))


def first_rows(bank: Network, rows: int) -> Arrays:
    return {name: array[:rows] for name, array in bank.items()}
