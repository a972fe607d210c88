"""What sites have after every round, with absent sites too, and that the server loses nothing by rounding."""

import numpy as np
import pytest

from fclseg.errors import FCLSegError
from fclseg.federation.codecs.codec import ChecksumError, Codec
from fclseg.federation.codecs.presets import CODECS
from fclseg.federation.codecs.uniform import Uniform
from fclseg.federation.downlink import INITIAL, WHOLE, Downlink, follow, reference

TINY = CODECS["tiny"].networks


def network(seed, scale=1.0):
    random = np.random.default_rng(seed)
    return {
        "w": (scale * random.standard_normal((50, 40))).astype(np.float32),
        "bn.running_var": np.square(random.standard_normal(8)).astype(np.float32),
        "bn.num_batches_tracked": np.array(seed, np.int64),
    }


def moved(arrays, seed):
    change = network(seed, 0.01)
    return {name: arrays[name] + change[name].astype(arrays[name].dtype) for name in arrays}


def start(codec=TINY, **options):
    return Downlink(codec, {"online": network(0)}, **options)


def identical(a, b):
    return all(np.array_equal(a[name], b[name]) for name in b) and a.keys() == b.keys()


class Site:
    """A site that keeps what it decoded last."""

    def __init__(self, codec=TINY):
        self.codec, self.held, self.round = codec, network(0), INITIAL

    def receive(self, link, name="site"):
        messages = link.messages(name)["online"]
        self.held = follow(self.codec, self.held, self.round, messages)
        self.round = link.newest
        link.acknowledge(name)
        return sorted(messages)


def test_present_sites_get_one_message_and_hold_what_the_server_holds():
    link, site = start(), Site()
    online = network(0)
    for number in range(6):
        online = moved(online, 100 + number)
        decoded = link.advance(number, {"online": online})["online"]
        assert site.receive(link) == [f"{number:04d}"]
        assert identical(site.held, decoded) and identical(site.held, link.held["online"])
        assert np.abs(decoded["w"] - online["w"]).max() < 0.02  # the error does not grow


def test_an_absent_site_gets_what_it_missed():
    link, present, absent = start(), Site(), Site()
    online = network(0)
    for number in range(4):
        online = moved(online, number)
        link.advance(number, {"online": online})
        present.receive(link, "present")
    assert absent.receive(link, "absent") == ["0000", "0001", "0002", "0003"]
    assert identical(absent.held, present.held)
    link.advance(4, {"online": online})
    assert absent.receive(link, "absent") == ["0004"]


def test_whole_networks_where_they_are_shorter_or_messages_are_gone():
    codec = Codec(Uniform(8))  # a quarter of a network per round, and the newest four at most are kept
    link, site = start(codec), Site(codec)
    online = network(0)
    for number in range(9):
        online = moved(online, number)
        link.advance(number, {"online": online})
    assert len(link.sent) < 5 and max(link.sent) == 8
    assert site.receive(link) == [WHOLE] and identical(site.held, link.held["online"])
    sizes = {number: messages["online"].size for number, messages in link.sent.items()}
    link.forget("elsewhere")
    whole = link.messages("elsewhere")
    for last in range(4, 8):
        link.acknowledged["site"] = last
        missed = range(last + 1, 9)
        steps = sum(sizes.get(number, 10**9) for number in missed)
        shorter = steps <= whole["online"][WHOLE].size
        assert sorted(link.messages("site")["online"]) == ([f"{n:04d}" for n in missed] if shorter else [WHOLE])


def test_a_site_that_could_not_decode_gets_a_whole_network_once():
    link, site = start(), Site()
    link.advance(0, {"online": moved(network(0), 1)})
    site.held = moved(site.held, 9)  # a damaged memory
    with pytest.raises(ChecksumError):
        site.receive(link)
    link.forget("site")
    assert site.receive(link) == [WHOLE] and identical(site.held, link.held["online"])
    link.advance(1, {"online": moved(network(0), 2)})
    assert site.receive(link) == ["0001"]


def test_where_the_start_is_not_known_at_the_sites():
    link = start(known=False)
    link.advance(0, {"online": moved(network(0), 1)})
    assert list(link.messages("site")["online"]) == [WHOLE]


def test_a_round_that_is_repeated_and_one_that_is_missing():
    link, site = start(), Site()
    link.advance(0, {"online": moved(network(0), 1)})
    messages = link.messages("site")["online"]
    site.receive(link)
    again = follow(TINY, site.held, 0, messages)  # the server died and asks again
    assert identical(again, site.held)
    with pytest.raises(ChecksumError, match="networks of round 0 differ"):
        follow(TINY, moved(site.held, 5), 0, messages)
    link.advance(1, {"online": moved(network(0), 2)})
    with pytest.raises(FCLSegError, match="start with round 1, but this site has round -1"):
        follow(TINY, network(0), INITIAL, link.messages("site")["online"])
    with pytest.raises(FCLSegError, match="round 7 cannot follow round 1"):
        link.advance(7, {"online": network(0)})


def test_a_checkpoint_keeps_everything():
    one, two = start(), start()
    online = network(0)
    for number in range(3):
        online = moved(online, number)
        one.advance(number, {"online": online})
    one.acknowledge("a")
    one.forget("b")
    two.restore(*one.state())
    for link in (one, two):
        link.advance(3, {"online": moved(online, 77)})
    for site in "abc":
        left, right = one.messages(site)["online"], two.messages(site)["online"]
        assert left.keys() == right.keys() and all(np.array_equal(left[key], right[key]) for key in left)
    assert identical(one.held["online"], two.held["online"])


def test_the_server_loses_nothing():
    """F after n rounds is F_0 plus all mean updates, although sites started every round from the rounded H."""
    link, online, total = start(), network(0), np.zeros((50, 40))
    for number in range(20):
        held = link.advance(number, {"online": online})["online"]
        update = network(500 + number, 0.01)["w"]
        total += update
        means = {"online": {**held, "w": held["w"] + update}, "target": network(1)}
        link.carry_over({"online": online, "target": network(2)}, means)
        assert identical(means["target"], network(1))  # does not come down: nothing of it was lost
        online = means["online"]
        assert online["bn.running_var"].min() >= 0
    assert online["w"] == pytest.approx(network(0)["w"] + total, abs=1e-5)


def test_what_an_upload_is_coded_against():
    held = {"online": network(0), "predictor": {"w": np.zeros(3, np.float32)}}
    assert reference("predictor", held, held["predictor"]) is held["predictor"]
    assert reference("target", held, network(5)) is held["online"]
    assert reference("classifier", held, {"v": np.zeros(2, np.float32)}) is None
