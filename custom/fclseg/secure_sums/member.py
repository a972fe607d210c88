"""A site's side of a secure sum: five answers, each given once.

Everything is on the site's disk before it is answered, because the next task may run in another process. A task that
arrives again after a lost reply gets the same answer; any other question for the same step is refused.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from fclseg.secure_sums.identity import Identity, Trust
from fclseg.secure_sums.keys import SEED_BYTES, agree, commitment, derive, new_seed, seal, split, unseal
from fclseg.secure_sums.masks import Vector
from fclseg.secure_sums.occasion import FEWEST, Occasion, SumError, check_survivors, digest
from fclseg.secure_sums.records import Record, SumRecords
from fclseg.secure_sums.roster import Advert, Roster

SECRETS = ("masking", "sealing", "own")
SHARED = ("masking", "own")
"""The two seeds that are shared among the sites. Of each site, the server may only ever get one."""


class Member:
    """One site in one sum. ``fewest``: the site's own minimum of sites in a sum."""

    def __init__(self, identity: Identity, trust: Trust, occasion: Occasion, records: SumRecords, fewest: int = FEWEST):
        self.identity, self.trust, self.occasion = identity, trust, occasion
        self.records, self.fewest = records, max(fewest, FEWEST)

    def keys(self) -> dict[str, Any]:
        """Step 1: new keys, signed."""
        record = self.records.begin(self.occasion, {name: new_seed().hex() for name in SECRETS})
        if "keys" not in record.replies:
            advert = Advert.make(self.identity, self.occasion, self._seeds(record))
            self.records.reply(record, "keys", "", advert.to_dict())
        return record.replies["keys"]["reply"]

    def shares(self, adverts: Mapping[str, Any]) -> dict[str, Any]:
        """Step 2: check everybody's keys; for each other site, its shares of both seeds, sealed. Commitments to all
        shares go with them, so that the server finds wrong ones that another site reveals."""
        record, request = self._record, digest(adverts)
        if known := record.answered("shares", request):
            return known
        roster = Roster.read(self.occasion, adverts, self.trust, self.fewest)
        if roster.to_dict().get(self.identity.name) != record.replies["keys"]["reply"]:
            raise SumError("the list of keys does not contain this site's own: nothing is shared")
        seeds, count = self._seeds(record), len(roster.sites)
        parts = [split(seeds[name], roster.threshold, count) for name in SHARED]
        mine = [b"".join(shares) for shares in zip(*parts, strict=True)]
        sealed = {
            site: seal(self._seal_key(roster, site, sends=True), mine[index], roster.seal_info(self._name, site))
            for index, site in enumerate(roster.sites)
            if site != self._name
        }
        record.adverts, record.own_share = roster.to_dict(), mine[roster.index(self._name)].hex()
        names = {kind: list(map(commitment, shares)) for kind, shares in zip(SHARED, parts, strict=True)}
        return self.records.reply(record, "shares", request, {"sealed": sealed, "names": names})

    def masked(
        self, inbox: Mapping[str, str], context: str, make: Callable[[int], Vector], update: str = ""
    ) -> dict[str, np.ndarray]:
        """Step 3: the site's vector under its own mask and one mask for each site that has sent shares. ``make`` is
        given the number of sites. ``update`` names what is summed, the same in any run."""
        record, request = self._record, digest(dict(inbox), context)
        if record.answered("masked", request):
            return self.records.load_vector(record)
        roster, sharing = self._roster, sorted({*inbox, self._name})
        if self._name in inbox or not set(sharing) <= set(roster.sites):
            raise SumError("the shares are not from the sites whose keys were sent: nothing is sent")
        if len(sharing) < max(roster.threshold, self.fewest):
            raise SumError(f"only {len(sharing)} sites share their masks, which are too few: nothing is sent")
        vector = make(len(roster.sites))
        seeds = self._seeds(record)
        vector.add_mask(derive(seeds["own"], roster.mask_info(self._name, self._name, sharing, context)), 1)
        for site in sharing:
            if site != self._name:
                info = roster.mask_info(self._name, site, sharing, context)
                key = agree(seeds["masking"], roster.adverts[site].masking, info)
                vector.add_mask(key, 1 if self._name < site else -1)
        record.inbox, record.context, record.update, record.fewest = dict(inbox), context, update, self.fewest
        parts = vector.pack()
        self.records.keep_vector(record, parts)
        self.records.reply(record, "masked", request, True)
        return parts

    def agreement(self, survivors: Sequence[str]) -> str:
        """Step 4: sign the list of sites whose vectors arrived. One list per round and task, whatever the attempt:
        the difference of two sums over different sites would be a single site's update."""
        record, survivors = self._record, list(survivors)
        request = digest(survivors)
        if known := record.answered("agreement", request):
            return known
        if "masked" not in record.replies or self._name not in survivors or survivors != sorted(survivors):
            raise SumError("this site's update is not in the sum: nothing is revealed")
        fewest = max(self.fewest, record.fewest)  # each task brings its own number: the noise was for that of step 3
        check_survivors(survivors, self._sharing(record), len(self._roster.sites), fewest)
        if record.agreed and record.agreed != survivors:
            raise SumError("a sum of this round was already opened for other sites: ask the same sites again")
        self.records.open_update(record.update, survivors)
        record.agreed = survivors
        signature = self.identity.sign(self._roster.agreement(self._sharing(record), record.context, survivors))
        return self.records.reply(record, "agreement", request, signature)

    def reveal(self, signatures: Mapping[str, str]) -> dict[str, dict[str, str]]:
        """Step 5: shares of the own masks of those who answered, and of the pairwise masks of those who did not."""
        record, request = self._record, digest(dict(signatures))
        if known := record.answered("reveal", request):
            return known
        if "agreement" not in record.replies:
            raise SumError("the list of survivors was not agreed on: nothing is revealed")
        roster, sharing, survivors = self._roster, self._sharing(record), record.agreed
        if len(signatures) < roster.threshold or not set(signatures) <= set(survivors):
            raise SumError("too few sites have signed the list of survivors: nothing is revealed")
        data = roster.agreement(sharing, record.context, survivors)
        for site, signature in signatures.items():
            self.trust.check(site, roster.adverts[site].credential, signature, data)
        reply: dict[str, dict[str, str]] = {name: {} for name in SHARED}
        for site in sharing:
            kind = "own" if site in survivors else "masking"
            if share := self._share_of(record, site):
                start = SEED_BYTES * SHARED.index(kind)
                reply[kind][site] = share[start : start + SEED_BYTES].hex()
        return self.records.reply(record, "reveal", request, reply)

    def _share_of(self, record: Record, site: str) -> bytes | None:
        """What a site has sealed for this one; None if it did not do so honestly: others may still have theirs."""
        if site == self._name:
            return bytes.fromhex(record.own_share)
        key, info = self._seal_key(self._roster, site, sends=False), self._roster.seal_info(site, self._name)
        share = unseal(key, record.inbox[site], info)
        return share if share and len(share) == len(SHARED) * SEED_BYTES else None

    def _seal_key(self, roster: Roster, other: str, sends: bool) -> bytes:
        info = roster.seal_info(*((self._name, other) if sends else (other, self._name)))
        return agree(self._seeds(self._record)["sealing"], roster.adverts[other].sealing, info)

    @property
    def _name(self) -> str:
        return self.identity.name

    @property
    def _record(self) -> Record:
        return self.records.current(self.occasion)

    @cached_property
    def _roster(self) -> Roster:
        """As it was checked in step 2."""
        adverts = self._record.adverts
        if not adverts:
            raise SumError("this site has not seen the keys of this sum: ask for them first")
        return Roster(self.occasion, {site: Advert.read(adverts[site]) for site in sorted(adverts)})

    def _sharing(self, record: Record) -> list[str]:
        return sorted({*record.inbox, self._name})

    @staticmethod
    def _seeds(record: Record) -> dict[str, bytes]:
        return {name: bytes.fromhex(record.seeds[name]) for name in SECRETS}
