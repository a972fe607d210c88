"""The codecs that a job can choose by name."""

from dataclasses import dataclass

from fclseg.errors import FCLSegError
from fclseg.federation.codecs.codec import Codec
from fclseg.federation.codecs.exact import Exact
from fclseg.federation.codecs.steps import Steps
from fclseg.federation.codecs.uniform import Uniform


@dataclass(frozen=True)
class CodecPair:
    """``networks`` for components that are averaged and have a reference, ``features`` for those that are passed on."""

    networks: Codec
    features: Codec


LOSSLESS = Codec(Exact())

CODECS = {
    "lossless": CodecPair(LOSSLESS, LOSSLESS),
    "8bit": CodecPair(Codec(Uniform(8)), Codec(Uniform(8))),
    "tiny": CodecPair(Codec(Steps(1.4), halves=True), Codec(Uniform(2))),
}


def get_codec(name: str) -> CodecPair:
    if name not in CODECS:
        raise FCLSegError(f"there is no codec '{name}': choose one of {', '.join(CODECS)}")
    return CODECS[name]
