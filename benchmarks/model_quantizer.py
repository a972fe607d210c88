"""NVFlare's own ModelQuantizer on the update of benchmarks/codec_costs.py, to compare codecs with.

It rounds the network itself, while a codec encodes its difference to a network that both ends have. It imports
bitsandbytes even for float16. Its kinds blockwise8, float4 and normfloat4 also need a GPU; float16 and adaquant do not.
"""

import numpy as np
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_opt.pt.quantization.dequantizer import ModelDequantizer
from nvflare.app_opt.pt.quantization.quantizer import ModelQuantizer

from fclseg.federation.states import Arrays, parameter_names


def quantize(kind: str, before: dict[str, Arrays], after: dict[str, Arrays]) -> tuple[int, float]:
    """Bytes of all components with the scales that travel with them, and the squared error of the received update
    relative to its square."""
    size, error, square = 0, 0.0, 0.0
    for name, arrays in after.items():
        floats = {key: array for key, array in arrays.items() if array.dtype.kind == "f"}  # it refuses integers
        sent = ModelQuantizer(kind).process_dxo(DXO(DataKind.WEIGHTS, data=floats), Shareable(), FLContext())
        size += _nested_bytes(sent.data) + _nested_bytes(sent.meta)
        found = ModelDequantizer().process_dxo(sent, Shareable(), FLContext()).data
        for key in parameter_names(arrays):
            error += float(np.square(np.asarray(found[key]) - arrays[key], dtype=np.float64).sum())
            square += float(np.square(before[name][key] - arrays[key], dtype=np.float64).sum())
    return size, error / square


def _nested_bytes(value: object) -> int:
    if isinstance(value, dict):
        return sum(map(_nested_bytes, value.values()))
    return int(getattr(value, "nbytes", 0))
