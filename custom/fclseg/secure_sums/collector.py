"""The server's side of a secure sum. It needs one vector of memory, however many sites there are."""

from collections.abc import Callable

from fclseg.errors import PassingError
from fclseg.secure_sums.identity import Trust
from fclseg.secure_sums.keys import SEED_BYTES, agree, commitment, derive, join, public_key
from fclseg.secure_sums.masks import Shape, Vector
from fclseg.secure_sums.occasion import FEWEST, Occasion, SumError, needed
from fclseg.secure_sums.roster import Advert, Roster


class Collector:
    """Takes the sites' answers step by step and ends with the sum of the vectors of the ``survivors``."""

    def __init__(self, occasion: Occasion, trust: Trust, fewest: int = FEWEST):
        self.occasion, self.trust, self.fewest = occasion, trust, max(fewest, FEWEST)
        self._adverts: dict[str, Advert] = {}
        self._sealed: dict[str, dict[str, str]] = {}
        self._total: Vector | None = None
        self.context = ""
        self.survivors: list[str] = []
        self.signatures: dict[str, str] = {}
        self._reveals: dict[str, dict[str, dict[str, bytes]]] = {}

    def accept_keys(self, site: str, advert: object) -> None:
        """A site with invalid keys is left out here, because every honest site would refuse the whole list."""
        found = Advert.read(advert)
        found.check(site, self.occasion, self.trust)
        self._adverts[site] = found

    @property
    def roster(self) -> Roster:
        return Roster(self.occasion, {site: self._adverts[site] for site in sorted(self._adverts)})

    def accept_shares(self, site: str, sealed: object) -> None:
        others = set(self._adverts) - {site}
        if not isinstance(sealed, dict) or set(sealed) != others or not all(map(_is_text, sealed.values())):
            raise SumError(f"{site}: its shares are not for the sites of this sum: they are not used")
        self._sealed[site] = sealed

    @property
    def sharing(self) -> list[str]:
        """The sites that have shared their masks and are asked for their vectors."""
        return sorted(self._sealed)

    def inbox(self, site: str) -> dict[str, str]:
        return {sender: sealed[site] for sender, sealed in sorted(self._sealed.items()) if sender != site}

    def start(self, shape: Shape, context: str) -> None:
        """From here on vectors are added to the sum as they arrive."""
        self._total, self.context, self.survivors = Vector.zeros(shape), context, []

    def accept_vector(self, site: str, parts: object) -> None:
        assert self._total is not None, "start comes first"
        if site not in self._sealed or site in self.survivors:
            raise SumError(f"{site}: an update of this site is not expected in this sum: it is not used")
        self._total.add(Vector.unpack(self._total.shape, parts))
        self.survivors = sorted((*self.survivors, site))

    def accept_agreement(self, site: str, signature: object) -> None:
        data = self.roster.agreement(self.sharing, self.context, self.survivors)
        self.trust.check(site, self._adverts[site].credential, str(signature), data)
        self.signatures[site] = str(signature)

    def accept_reveal(self, site: str, reveal: object) -> None:
        """Shares of the masks that must be removed, and of no others."""
        wanted = {"own": set(self.survivors), "masking": set(self.sharing) - set(self.survivors)}
        if not isinstance(reveal, dict) or set(reveal) != set(wanted):
            raise SumError(f"{site}: its shares are incomplete: they are not used")
        try:
            found = {kind: {owner: bytes.fromhex(share) for owner, share in reveal[kind].items()} for kind in wanted}
        except (AttributeError, ValueError, TypeError):
            raise SumError(f"{site}: its shares are damaged: they are not used") from None
        if any(not set(found[kind]) <= owners for kind, owners in wanted.items()) or any(
            len(share) != SEED_BYTES for shares in found.values() for share in shares.values()
        ):
            raise SumError(f"{site}: its shares are not those of this sum: they are not used")
        self._reveals[site] = found

    @property
    def revealed(self) -> int:
        return len(self._reveals)

    def check_enough(self, step: str, answered: int) -> None:
        """End the attempt if too few sites are left; another attempt may succeed."""
        least = needed(len(self._adverts), self.fewest)
        if answered < least:
            raise PassingError(
                f"round {self.occasion.round}: {answered} sites answered step '{step}' of the secure sum, which needs "
                f"{least}: wait until the sites are connected and start the run again"
            )

    def result(self) -> Vector:
        """The sum of the survivors' vectors, without any mask."""
        assert self._total is not None, "start comes first"
        for site in self.sharing:
            if site in self.survivors:
                self._total.add_mask(derive(self._seed("own", site), self._info(site, site)), -1)
            else:
                self._repair(site)
        return self._total

    def _repair(self, absent: str) -> None:
        """Remove the masks that the survivors have in common with a site that did not answer."""
        seed = self._seed("masking", absent)
        for site in self.survivors:
            key = agree(seed, self._adverts[site].masking, self._info(site, absent))
            self._total.add_mask(key, -1 if site < absent else 1)  # type: ignore[union-attr]

    def _seed(self, kind: str, site: str) -> bytes:
        roster, advert = self.roster, self._adverts[site]
        shares = {roster.index(by): found[kind][site] for by, found in self._reveals.items() if site in found[kind]}
        name_of: Callable[[bytes], str] = commitment if kind == "own" else public_key
        seed = join(shares, roster.threshold, advert.own if kind == "own" else advert.masking, name_of)
        if seed is None:
            raise PassingError(f"the masks of {site} cannot be removed: {len(shares)} shares of it are not enough")
        return seed

    def _info(self, one: str, other: str) -> bytes:
        return self.roster.mask_info(one, other, self.sharing, self.context)


def _is_text(value: object) -> bool:
    return isinstance(value, str)
