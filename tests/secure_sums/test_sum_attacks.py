"""A server that records everything and asks wrong questions learns nothing about one site."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import chisquare
from sum_parties import SHAPE, Authority, Federation, copied, occasion, plain_sum, random_vectors

from fclseg.secure_sums.collector import Collector
from fclseg.secure_sums.identity import SimulatedSite, SimulatedTrust
from fclseg.secure_sums.keys import agree, derive, join, new_seed, public_key, split
from fclseg.secure_sums.masks import Shape, Vector
from fclseg.secure_sums.occasion import SumError, digest, statement
from fclseg.secure_sums.roster import Advert

LARGE = Shape(narrow=200_000, wide=4, bits=12)


def at_step(federation, step, number=0, attempt=1, context="sent to all"):
    """Stop before a step: the collector, and the vectors."""
    now, vectors = occasion(number, attempt), random_vectors(federation.names, SHAPE)
    collector = Collector(now, federation.trust, federation.fewest)
    steps = ("keys", "shares", "masked", "agreement", "reveal")
    for name in federation.names:
        collector.accept_keys(name, federation.member(name, now).keys())
    if steps.index(step) > 1:
        for name in federation.names:
            shares = federation.member(name, now).shares(collector.roster.to_dict())
            collector.accept_shares(name, shares)
    if steps.index(step) > 2:
        collector.start(SHAPE, context)
        for name in federation.names:
            parts = federation.member(name, now).masked(
                collector.inbox(name), context, lambda n, v=name: copied(vectors[v])
            )
            collector.accept_vector(name, parts)
    return collector, now, vectors


def test_what_the_server_sees_of_one_site_is_uniform(tmp_path):
    """The plain vector is constant, so any trace of it would show. Fixed seeds are impossible with real keys: the
    limit is one false alarm in a million."""
    federation = Federation(tmp_path, 4)
    constant = Vector.of(LARGE, np.full(LARGE.narrow, 5), np.full(LARGE.wide, 1))
    vectors = {name: copied(constant) for name in federation.names}
    federation.run_sum(occasion(), vectors)
    for name, parts in [(name, answer) for step, name, answer in federation.seen if step == "masked"]:
        numbers = Vector.unpack(LARGE, parts).narrow
        assert chisquare(np.bincount(numbers, minlength=4096)).pvalue > 1e-6, name
        assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.02


def test_masks_of_a_fixed_key_are_uniform():
    vector = Vector.zeros(Shape(400_000, 0, 8))
    vector.add_mask(bytes(range(32)), 1)
    assert chisquare(np.bincount(vector.narrow, minlength=256)).pvalue > 0.01


def test_everything_recorded_does_not_unmask_one_site(tmp_path):
    """The attack: all public keys, all shares that were revealed, the seeds they give. Site 4 disappeared, so its
    pairwise seed is known; site 1's is not, and its update stays uniform after removing all that is known."""
    federation = Federation(tmp_path, 4)
    vectors = {name: Vector.of(LARGE, np.full(LARGE.narrow, 5), np.zeros(4)) for name in federation.names}
    collector = federation.run_sum(occasion(), vectors, {"site-4": "masked"})
    seen = {(step, name): answer for step, name, answer in federation.seen}
    attacked = Vector.unpack(LARGE, seen["masked", "site-1"])
    attacked.add_mask(derive(collector._seed("own", "site-1"), collector._info("site-1", "site-1")), -1)
    known = agree(
        collector._seed("masking", "site-4"), collector._adverts["site-1"].masking, collector._info("site-1", "site-4")
    )
    attacked.add_mask(known, -1)
    assert chisquare(np.bincount(attacked.narrow, minlength=4096)).pvalue > 1e-6
    shares = [seen["reveal", name] for name in ("site-1", "site-2", "site-3")]
    assert all("site-1" not in one["masking"] and "site-4" not in one["own"] for one in shares)


def test_shares_below_the_threshold_do_not_give_the_seed():
    seed = new_seed()
    shares = dict(enumerate(split(seed, 3, 4)))
    assert join(shares, 3) == join({index: shares[index] for index in (0, 1, 3)}, 3) == seed
    assert join({index: shares[index] for index in (0, 3)}, 3) is None
    assert join({index: shares[index] for index in (0, 3)}, 2) != seed


def test_the_server_cannot_put_its_keys_in_a_sites_place(tmp_path):
    federation = Federation(tmp_path, 4)
    collector, now, _ = at_step(federation, "shares")
    roster = collector.roster.to_dict()
    seeds = {name: new_seed() for name in ("masking", "sealing", "own")}
    stranger, other = Authority(tmp_path, "stranger").issue("site-2"), federation.identities["site-3"]
    forged = {
        "another root": Advert.make(stranger, now, seeds).to_dict(),
        "another site's certificate": Advert.make(other, now, seeds).to_dict(),
        "another site that claims its name": Advert.make(
            SimpleNamespace(name="site-2", credential=other.credential, sign=other.sign), now, seeds
        ).to_dict(),
        "no certificate": Advert.make(SimulatedSite("site-2"), now, seeds).to_dict(),
        "a key after signing": {**roster["site-2"], "masking": public_key(seeds["masking"])},
        "an old round": Advert.make(federation.identities["site-2"], occasion(7), seeds).to_dict(),
        "expired": Advert.make(federation.authority.issue("site-2", days=-1), now, seeds).to_dict(),
        "a lead": Advert.make(federation.authority.issue("site-2", role="lead"), now, seeds).to_dict(),
        "the same key twice": roster["site-3"],
        "no dictionary": "keys",
    }
    for name, advert in forged.items():
        with pytest.raises(SumError):
            federation.member("site-1", now).shares({**roster, "site-2": advert})
            pytest.fail(name)
    federation.member("site-1", now).shares(roster)


def test_a_roster_that_is_too_short_or_without_the_site_is_refused(tmp_path):
    federation = Federation(tmp_path, 4, fewest=4)
    collector, now, _ = at_step(federation, "shares")
    roster = collector.roster.to_dict()
    for left_out in ("site-1", "site-4"):
        with pytest.raises(SumError):
            federation.member("site-1", now).shares({name: a for name, a in roster.items() if name != left_out})


@pytest.mark.parametrize(
    "survivors",
    [
        ["site-1"],
        ["site-1", "site-2"],
        ["site-2", "site-3", "site-4"],
        ["site-1", "site-2", "site-5"],
        ["site-1", "site-1", "site-2"],
        ["site-2", "site-1", "site-3"],
    ],
)
def test_wrong_lists_of_survivors_are_not_signed(tmp_path, survivors):
    federation = Federation(tmp_path, 4)
    _, now, _ = at_step(federation, "agreement")
    with pytest.raises(SumError):
        federation.member("site-1", now).agreement(survivors)


def test_the_fewest_sites_of_a_sum_do_not_become_fewer_after_the_noise(tmp_path):
    """Each of four adds half of the noise if the job promises sums of four; of three that would be too little."""
    federation = Federation(tmp_path, 4, fewest=4)
    _, now, _ = at_step(federation, "agreement")
    federation.fewest = 3
    with pytest.raises(SumError, match="needs 4"):
        federation.member("site-1", now).agreement(federation.names[:3])
    federation.member("site-1", now).agreement(federation.names)


def test_one_list_of_survivors_per_round_whatever_the_attempt(tmp_path):
    """Otherwise the difference of two sums would be site 4's update."""
    federation = Federation(tmp_path, 4)
    vectors = random_vectors(federation.names, SHAPE)
    federation.run_sum(occasion(attempt=1), vectors)
    with pytest.raises(SumError, match="already opened"):
        federation.run_sum(occasion(attempt=2), vectors, {"site-4": "masked"})
    again = federation.run_sum(occasion(attempt=3), vectors)
    np.testing.assert_array_equal(again.result().signed()[0], plain_sum(vectors, federation.names)[0])
    federation.run_sum(occasion(1, attempt=4), vectors, {"site-4": "masked"})


def test_shares_need_signatures_of_the_same_list(tmp_path):
    federation = Federation(tmp_path, 4)
    _, now, _ = at_step(federation, "agreement")
    lists = {"site-1": federation.names, "site-2": federation.names, "site-3": federation.names[:3]}
    signatures = {name: federation.member(name, now).agreement(names) for name, names in lists.items()}
    for wrong in (
        signatures,
        {name: signatures[name] for name in ("site-1", "site-2")},
        {**signatures, "site-3": signatures["site-1"]},
        {"site-1": signatures["site-1"], "site-2": signatures["site-2"], "site-9": signatures["site-1"]},
    ):
        with pytest.raises(SumError):
            federation.member("site-1", now).reveal(wrong)


def test_replays_are_refused_and_lost_replies_repeated(tmp_path):
    federation = Federation(tmp_path, 4)
    vectors = random_vectors(federation.names, SHAPE)
    collector = federation.run_sum(occasion(attempt=5), vectors)
    member, roster = federation.member("site-1", occasion(attempt=5)), collector.roster.to_dict()
    seen = {(step, name): answer for step, name, answer in federation.seen}
    assert member.keys() == seen["keys", "site-1"] and member.shares(roster) == seen["shares", "site-1"]

    def not_again(sites):
        pytest.fail("an update must not be masked twice with the same keys")

    again = member.masked(collector.inbox("site-1"), "sent to all", not_again)
    np.testing.assert_array_equal(again["narrow"], seen["masked", "site-1"]["narrow"])
    with pytest.raises(SumError):
        member.masked(collector.inbox("site-1"), "something else", not_again)
    with pytest.raises(SumError):
        federation.member("site-1", occasion(attempt=4)).keys()
    federation.member("site-1", occasion(1, attempt=6)).keys()
    with pytest.raises(SumError):
        federation.member("site-1", occasion(attempt=5)).reveal(dict(collector.signatures))
    assert not list((tmp_path / "site-1").rglob("*.npz")), "secrets of an earlier sum stay on disk"


def test_sites_that_were_sent_different_things_give_noise(tmp_path):
    """A server that sends site 1 another network than the others, to isolate it, gets nothing."""
    federation = Federation(tmp_path, 4)
    collector, now, vectors = at_step(federation, "masked")
    collector.start(SHAPE, "to the others")
    for name in federation.names:
        context = "to site 1" if name == "site-1" else "to the others"
        member = federation.member(name, now)
        collector.accept_vector(
            name, member.masked(collector.inbox(name), context, lambda n, v=name: copied(vectors[v]))
        )
    data = federation.member("site-1", now).agreement(federation.names)
    with pytest.raises(SumError):
        collector.accept_agreement("site-1", data)


def test_sealed_shares_are_read_by_their_receiver_only(tmp_path):
    """The server swaps two sealed messages: the receiver cannot open them and gives no share of them."""
    federation = Federation(tmp_path, 4)
    collector, now, vectors = at_step(federation, "masked")
    inbox = collector.inbox("site-1")
    inbox["site-2"], inbox["site-3"] = inbox["site-3"], inbox["site-2"]
    collector.start(SHAPE, "")
    for name in federation.names:
        box = inbox if name == "site-1" else collector.inbox(name)
        member = federation.member(name, now)
        collector.accept_vector(name, member.masked(box, "", lambda n, v=name: copied(vectors[v])))
    for name in federation.names:
        collector.accept_agreement(name, federation.member(name, now).agreement(federation.names))
    reveal = federation.member("site-1", now).reveal(collector.signatures)
    assert set(reveal["own"]) == {"site-1", "site-4"}


def test_simulated_sites_sign_by_name():
    SimulatedTrust().check("a", "", SimulatedSite("a").sign(b"x"), b"x")
    with pytest.raises(SumError):
        SimulatedTrust().check("b", "", SimulatedSite("a").sign(b"x"), b"x")


def test_digests_depend_on_everything():
    assert digest("a", ["b"]) != digest("a", "b") != digest("ab")


def test_a_second_name_needs_a_second_certificate(tmp_path):
    """One certificate cannot stand under two names. Who has been given three of them knows three parts of the sum, and
    so the fourth: the coordinator must not certify one hospital twice."""
    federation = Federation(tmp_path, 4)
    collector, now, vectors = at_step(federation, "shares")
    roster, seeds = collector.roster.to_dict(), {name: new_seed() for name in ("masking", "sealing", "own")}
    again = Advert.make(federation.identities["site-2"], now, seeds).to_dict()
    with pytest.raises(SumError, match="site-5: a signature is not that of a certified site"):
        federation.member("site-1", now).shares({**roster, "site-5": again})
    opened = federation.run_sum(occasion(1), vectors).result().signed()
    own = plain_sum(vectors, ["site-2", "site-3", "site-4"])
    for total, known, wanted in zip(opened, own, vectors["site-1"].signed(), strict=True):
        assert np.array_equal(total - known, wanted)


@pytest.mark.parametrize(
    ("name", "role"), [("server.org", None), ("server.org", "server"), ("lead", "lead"), ("admin", "project_admin")]
)
def test_certificates_of_the_server_and_of_people_are_no_sites(tmp_path, name, role):
    """One root certifies them all. A server with its own certificate, a lead's and a coordinator's would be three of
    four sites in a sum, and would know the fourth's update."""
    federation = Federation(tmp_path, 3)
    federation.identities[name] = federation.authority.issue(name, role=role)
    collector, now, _ = at_step(federation, "shares")
    seeds = {kind: new_seed() for kind in ("masking", "sealing", "own")}
    advert = Advert.make(federation.identities[name], now, seeds).to_dict()
    with pytest.raises(SumError, match="not that of a certified site"):
        federation.member("site-1", now).shares({**collector.roster.to_dict(), name: advert})
    with pytest.raises(SumError, match="not that of a certified site"):
        collector.accept_keys(name, advert)


def test_a_site_that_signed_its_own_request_takes_part(tmp_path):
    """NVFlare writes 'client' into certificates of signed requests."""
    federation = Federation(tmp_path, 3)
    federation.identities["site-3"] = federation.authority.issue("site-3", role="client")
    vectors = random_vectors(federation.names, SHAPE)
    assert federation.run_sum(occasion(), vectors).survivors == federation.names


@pytest.mark.parametrize("key", ["00" * 32, "01" + "00" * 31, "ff", "", "keys" * 16])
def test_an_unusable_key_of_one_site_does_not_stop_the_others(tmp_path, key):
    """Points of low order give no common key: every honest site would refuse to mask."""
    federation = Federation(tmp_path, 4)
    now, identity = occasion(), federation.identities["site-4"]
    collector = Collector(now, federation.trust)
    for kind in ("masking", "sealing"):
        good = {name: public_key(new_seed()) for name in ("masking", "sealing", "own")} | {kind: key}
        data = statement("keys", now, "site-4", good["masking"], good["sealing"], good["own"])
        advert = Advert(**good, credential=identity.credential, signature=identity.sign(data))
        with pytest.raises(SumError):
            collector.accept_keys("site-4", advert.to_dict())


def test_texts_of_a_site_are_bounded_before_they_are_passed_on(tmp_path):
    federation = Federation(tmp_path, 4)
    collector, now, _ = at_step(federation, "shares")
    advert = collector.roster.to_dict()["site-4"]
    with pytest.raises(SumError):
        collector.accept_keys("site-4", {**advert, "credential": advert["credential"] + "x" * 10_000})
    shares = federation.member("site-4", now).shares(collector.roster.to_dict())
    for wrong in (
        {**shares, "sealed": {**shares["sealed"], "site-1": "0" * 10**6}},
        {**shares, "names": {**shares["names"], "own": ["0"] * 5}},
        {**shares, "names": None},
        shares["sealed"],
    ):
        with pytest.raises(SumError):
            collector.accept_shares("site-4", wrong)
    collector.accept_shares("site-4", shares)


def test_one_site_with_wrong_shares_does_not_stop_a_sum_of_many(tmp_path):
    """Thirteen sites: trying groups of nine shares one after the other would not find one without the first site's."""
    federation = Federation(tmp_path, 13)
    vectors = random_vectors(federation.names, SHAPE)
    collector = federation.run_sum(occasion(), vectors)
    for shares in collector._reveals["site-1"].values():
        shares |= dict.fromkeys(shares, bytes(16))
    np.testing.assert_array_equal(collector.result().signed()[0], plain_sum(vectors, federation.names)[0])


def test_another_run_of_the_same_name_does_not_make_a_site_forget_its_list(tmp_path):
    """The server asks another run for keys in between, so that the first one's list is gone."""
    federation = Federation(tmp_path, 4)
    vectors = random_vectors(federation.names, SHAPE)
    federation.run_sum(occasion(run="run-a"), vectors)
    for name in federation.names:
        federation.member(name, occasion(run="run-b", attempt=2)).keys()
    with pytest.raises(SumError, match="already opened"):
        federation.run_sum(occasion(run="run-a", attempt=3), vectors, {"site-4": "masked"})


@pytest.mark.parametrize("again", ["run-b", "other"])
def test_the_same_update_is_not_summed_with_other_sites_in_another_run(tmp_path, again):
    """A run that is started over, or submitted under another name, trains to the same bits."""
    federation = Federation(tmp_path, 4)
    vectors = random_vectors(federation.names, SHAPE)
    federation.run_sum(occasion(run="run-a"), vectors, update="3f" * 32)
    with pytest.raises(SumError, match="already summed with other sites"):
        federation.run_sum(occasion(run=again, attempt=2), vectors, {"site-4": "masked"}, update="3f" * 32)
    federation.run_sum(occasion(run=again, attempt=3), vectors, update="3f" * 32)
    federation.run_sum(occasion(run="third", attempt=4), vectors, {"site-4": "masked"}, update="4a" * 32)
