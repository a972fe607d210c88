"""The server's side of a secure sum. It needs one vector of memory, however many sites there are."""

from fclseg.errors import PassingError
from fclseg.secure_sums.identity import Trust
from fclseg.secure_sums.keys import SEALED_TEXT, SEED_BYTES, agree, commitment, derive, join, public_key
from fclseg.secure_sums.masks import Shape, Vector
from fclseg.secure_sums.occasion import FEWEST, Occasion, SumError, needed
from fclseg.secure_sums.roster import Advert, Roster


class Collector:
    """Takes the sites' answers step by step and ends with the sum of the vectors of the ``survivors``."""

    def __init__(self, occasion: Occasion, trust: Trust, fewest: int = FEWEST):
        self.occasion, self.trust, self.fewest = occasion, trust, max(fewest, FEWEST)
        self._adverts: dict[str, Advert] = {}
        self._sealed: dict[str, dict[str, str]] = {}
        self._names: dict[str, dict[str, list[str]]] = {}  # commitments to each site's shares
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

    def accept_shares(self, site: str, shares: object) -> None:
        sealed, names = (shares.get(part) if isinstance(shares, dict) else None for part in ("sealed", "names"))
        if not isinstance(sealed, dict) or set(sealed) != set(self._adverts) - {site}:
            raise SumError(f"{site}: its shares are not for the sites of this sum: they are not used")
        if not all(isinstance(one, str) and len(one) == SEALED_TEXT for one in sealed.values()) or not _are_names(
            names, len(self._adverts)
        ):
            raise SumError(f"{site}: its shares have the wrong size: they are not used")
        self._sealed[site], self._names[site] = sealed, names  # type: ignore[assignment]

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
        """From the shares that are those which the site made, whatever another site says they are."""
        roster, advert, names = self.roster, self._adverts[site], self._names[site][kind]
        found = {roster.index(by): shares[kind][site] for by, shares in self._reveals.items() if site in shares[kind]}
        good = {index: share for index, share in found.items() if commitment(share) == names[index]}
        seed = join(good, roster.threshold)
        if seed is None or (commitment(seed) != advert.own if kind == "own" else public_key(seed) != advert.masking):
            raise PassingError(
                f"the masks of {site} cannot be removed with {len(good)} shares of it: if it happens again, start a "
                f"run without {site}"
            )
        return seed

    def _info(self, one: str, other: str) -> bytes:
        return self.roster.mask_info(one, other, self.sharing, self.context)


def _are_names(names: object, count: int) -> bool:
    """Whether these are commitments to the shares of ``count`` sites of both kinds."""
    return (
        isinstance(names, dict)
        and set(names) == {"own", "masking"}
        and all(isinstance(found, list) and len(found) == count for found in names.values())
    )
