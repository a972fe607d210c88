"""The server side of a run's codec: encodes what leaves and decodes what arrives."""

from collections.abc import Mapping

from fclseg.engine.messages import NEEDS_WHOLE, Message
from fclseg.engine.model import GlobalModel
from fclseg.errors import FCLSegError, PublicError
from fclseg.federation.codecs.features import decode_features, encode_features
from fclseg.federation.codecs.presets import RunCodec
from fclseg.federation.downlink import Downlink, reference
from fclseg.federation.states import Arrays
from fclseg.methods.exchange import ALWAYS, MEAN, Row


def start_downlink(row: Row, codec: RunCodec | None, means: Mapping[str, Arrays], known: bool) -> Downlink | None:
    """The networks that come down each round, before the first round; ``known``: sites derive them from the seed."""
    down = [flow.component for flow in row.flows if flow.down == ALWAYS and flow.combine == MEAN]
    held = {name: dict(means[name]) for name in down if name in means}
    return Downlink(codec.networks, held, known=known) if codec else None


class Coding:
    """The interface that the round loop uses. This class is for runs without a codec: nothing is changed."""

    def __init__(self, model: GlobalModel):
        self.model = model

    def networks(self, number: int) -> dict[str, Arrays]:
        """The averaged components that come down in this round, as the sites will decode them."""
        return self.model.downloads()

    def outgoing(self, site: str, message: Message) -> Message:
        """The message to a site, with bytes instead of the networks that have a codec."""
        return message

    def incoming(self, site: str, message: Message) -> None:
        """Decode what a site sent, in place."""

    def failed(self, failures: Mapping[str, str]) -> None:
        """Record the sites that could not decode what they were sent."""

    def carry_over(self, previous: Mapping[str, Arrays]) -> None:
        """After aggregation: carry the rounding error of the previous networks over to the new ones."""


class Coded(Coding):
    """Of a run with a codec."""

    def __init__(self, model: GlobalModel, downlink: Downlink, codec: RunCodec, like: Mapping[str, Arrays]):
        super().__init__(model)
        self.downlink, self.codec, self.like = downlink, codec, like
        self._flows = {flow.component: flow for flow in model.row.flows}
        self._features: dict[str, dict[str, Arrays]] = {}

    def networks(self, number: int) -> dict[str, Arrays]:
        networks = self.model.downloads()
        networks |= self.downlink.advance(number, networks)
        self._features = {
            name: {site: encode_features(self.codec.features, state) for site, state in states.items()}
            for name, states in self.model.others.items()
        }
        return networks

    def outgoing(self, site: str, message: Message) -> Message:
        messages = self.downlink.messages(site)
        message.encoded = {name: messages[name] for name in message.components if name in messages}
        message.components = {name: part for name, part in message.components.items() if name not in messages}
        message.others = {
            name: {other: self._features[name][other] for other in states} for name, states in message.others.items()
        }
        return message

    def incoming(self, site: str, message: Message) -> None:
        """An answer also confirms that the site has the networks of this round."""
        if plain := sorted(set(self._flows) & set(message.components)):
            raise PublicError(
                f"{site}: component '{plain[0]}' arrived without the run's codec: run the same job at every site"
            )
        if unknown := sorted({*message.encoded, *message.others} - set(self.like)):
            raise PublicError(f"{site}: unknown component '{unknown[0]}': run the same version and job at every site")
        try:
            for name, messages in message.encoded.items():
                message.components[name] = self._decode(site, message.round_number, name, messages)
            for name, states in message.others.items():
                message.others[name] = {
                    other: decode_features(self.codec.features, parts, self.like[name])
                    for other, parts in states.items()
                }
        except FCLSegError as error:
            raise PublicError(f"{site}: {error}") from None
        message.encoded = {}
        self.downlink.acknowledge(site)

    def failed(self, failures: Mapping[str, str]) -> None:
        for site, reason in failures.items():
            if NEEDS_WHOLE in reason:
                self.downlink.forget(site)

    def carry_over(self, previous: Mapping[str, Arrays]) -> None:
        self.downlink.carry_over(previous, self.model.means)

    def _decode(self, site: str, number: int, name: str, messages: Arrays) -> Arrays:
        base, codec = reference(name, self.downlink.held, self.like[name]), self.codec.of(self._flows[name])
        return codec.decode(messages.get(f"{number:04d}"), self.like[name], base)
