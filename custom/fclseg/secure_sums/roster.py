"""The sites of one sum: their public keys, what both sides derive from them, and the sentences that are signed."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from fclseg.secure_sums.identity import Identity, Trust
from fclseg.secure_sums.keys import agree, commitment, new_seed, public_key
from fclseg.secure_sums.occasion import Occasion, SumError, digest, statement, threshold

MOST_TEXT = 10_000
"""Characters of anything in a site's keys; a certificate is the longest."""


@dataclass(frozen=True)
class Advert:
    """The public keys of one site for one sum, signed with its certificate."""

    masking: str  # X25519, for the masks that two sites have in common
    sealing: str  # X25519, for shares that pass through the server
    own: str  # commitment to the seed of the site's own mask
    credential: str
    signature: str

    @classmethod
    def make(cls, identity: Identity, occasion: Occasion, seeds: Mapping[str, bytes]) -> "Advert":
        keys = (public_key(seeds["masking"]), public_key(seeds["sealing"]), commitment(seeds["own"]))
        signature = identity.sign(statement("keys", occasion, identity.name, *keys))
        return cls(*keys, identity.credential, signature)

    @classmethod
    def read(cls, values: object) -> "Advert":
        names = cls.__dataclass_fields__
        if not isinstance(values, dict) or set(values) != set(names):
            raise SumError("the keys of a site are incomplete: run the same version everywhere")
        if not all(isinstance(value, str) and len(value) <= MOST_TEXT for value in values.values()):
            raise SumError("the keys of a site are damaged: run the same version everywhere")
        return cls(**values)

    def check(self, name: str, occasion: Occasion, trust: Trust) -> None:
        data = statement("keys", occasion, name, self.masking, self.sealing, self.own)
        trust.check(name, self.credential, self.signature, data)
        for key in (self.masking, self.sealing):
            agree(new_seed(), key, b"")  # one site's unusable key would otherwise stop every other site

    def to_dict(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True)
class Roster:
    """Everybody's keys. Whoever has the same roster has the same ``name``, which goes into every derived key."""

    occasion: Occasion
    adverts: Mapping[str, Advert]

    @classmethod
    def read(cls, occasion: Occasion, values: object, trust: Trust, fewest: int) -> "Roster":
        """Check every signature: the server could otherwise put its own keys in the place of a site's."""
        if not isinstance(values, Mapping) or not all(isinstance(site, str) for site in values):
            raise SumError("the list of keys is damaged: run the same version everywhere")
        adverts = {site: Advert.read(values[site]) for site in sorted(values)}
        if len(adverts) < fewest:
            raise SumError(f"only {len(adverts)} sites take part, but this site's sums have at least {fewest}")
        for site, advert in adverts.items():
            advert.check(site, occasion, trust)
        public = [key for advert in adverts.values() for key in (advert.masking, advert.sealing, advert.own)]
        if len(set(public)) < len(public):
            raise SumError("two sites have the same key: it is not used")
        return cls(occasion, adverts)

    @cached_property
    def name(self) -> str:
        return digest({site: [one.masking, one.sealing, one.own] for site, one in self.adverts.items()})

    @property
    def sites(self) -> list[str]:
        return list(self.adverts)

    @property
    def threshold(self) -> int:
        return threshold(len(self.adverts))

    def index(self, site: str) -> int:
        return self.sites.index(site)

    def seal_info(self, sender: str, receiver: str) -> bytes:
        return statement("seal", self.occasion, self.name, sender, receiver)

    def mask_info(self, one: str, other: str, sharing: Sequence[str], context: str) -> bytes:
        """``context`` names everything that the sites were sent: sites that were sent different things have different
        masks, and their sum is noise."""
        return statement("mask", self.occasion, self.name, sorted((one, other)), list(sharing), context)

    def agreement(self, sharing: Sequence[str], context: str, survivors: Sequence[str]) -> bytes:
        return statement("survivors", self.occasion, self.name, list(sharing), context, list(survivors))

    def to_dict(self) -> dict[str, Any]:
        return {site: advert.to_dict() for site, advert in self.adverts.items()}
