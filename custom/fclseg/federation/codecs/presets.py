"""The codecs that a job can choose by name."""

from dataclasses import dataclass

from fclseg.errors import FCLSegError
from fclseg.federation.codecs.codec import Codec
from fclseg.federation.codecs.exact import Exact
from fclseg.federation.codecs.steps import Steps
from fclseg.federation.codecs.uniform import Uniform
from fclseg.methods.exchange import NEVER, OTHERS, Flow


@dataclass(frozen=True)
class RunCodec:
    """One codec per use. With error feedback, coarse rounding is enough. A target network that only goes up has no
    feedback: coarse rounding would make it seem closer to the online network than it is."""

    networks: Codec  # networks that come down and go up again
    targets: Codec  # networks that only go up
    features: Codec  # features that are passed on to the other sites

    def of(self, flow: Flow) -> Codec:
        if flow.combine == OTHERS:
            return self.features
        return self.targets if flow.down == NEVER else self.networks


PLAIN = "plain"
"""Numbers as they are: no codec at all."""
LOSSLESS = Codec(Exact())

CODECS = {
    "lossless": RunCodec(LOSSLESS, LOSSLESS, LOSSLESS),
    "8bit": RunCodec(Codec(Uniform(8)), Codec(Uniform(8)), Codec(Uniform(8))),
    "tiny": RunCodec(Codec(Steps(1.4), halves=True), Codec(Uniform(4), halves=True), Codec(Uniform(2))),
}


def get_codec(name: str) -> RunCodec | None:
    """The codec of this name; None for ``PLAIN``."""
    if name != PLAIN and name not in CODECS:
        raise FCLSegError(f"there is no codec '{name}': choose one of {', '.join((PLAIN, *CODECS))}")
    return CODECS.get(name)
