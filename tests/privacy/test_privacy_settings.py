"""For each protection, the stricter value of the job and the site applies."""

import pytest

from fclseg.engine.run_settings import RunSettings
from fclseg.errors import FCLSegError
from fclseg.hospital.policy import Policy
from fclseg.privacy.protections import NAMES, PrivacySettings
from fclseg.study.job_options import JobOptions

WEAKER = {"perturb": 0.2, "mix": 2, "prototypes": 4, "feature_noise": 0.1, "clip": 2.0, "sigma": 0.5}
STRICTER = {"perturb": 0.4, "mix": 4, "prototypes": 1, "feature_noise": 0.3, "clip": 1.0, "sigma": 2.0}


@pytest.mark.parametrize("name", NAMES)
def test_the_stricter_value_wins_whoever_asks_for_it(name):
    weak, strict = (PrivacySettings(**{name: values[name]}) for values in (WEAKER, STRICTER))
    assert weak.stricter(strict) == strict.stricter(weak) == strict
    assert PrivacySettings().stricter(weak) == weak.stricter(PrivacySettings()) == weak
    assert weak.shown() == {name: WEAKER[name]}


def test_each_is_chosen_on_its_own():
    mixed = PrivacySettings(perturb=0.4, clip=2.0).stricter(PrivacySettings(perturb=0.2, clip=1.0, sigma=0.5))
    assert mixed == PrivacySettings(perturb=0.4, clip=1.0, sigma=0.5)


def test_a_job_and_a_policy_have_all_of_them():
    job = RunSettings.read({"job": "fcl", **WEAKER}, {})
    policy = Policy.read(STRICTER)
    assert job.privacy == PrivacySettings(**WEAKER) and policy.privacy == PrivacySettings(**STRICTER)
    assert JobOptions.make({"perturb": 0.4}, []).identity() == {"job_settings": {"perturb": 0.4}}
    assert RunSettings.read({"job": "fcl"}, {}).privacy.shown() == {} and Policy().privacy.shown() == {}


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"perturb": 1.0}, "'perturb' as 1.0: give a number"),
        ({"perturb": -0.1}, "'perturb'"),
        ({"mix": 0}, "'mix'"),
        ({"mix": 17}, "whole number from 1 to 16"),
        ({"prototypes": 0}, "'prototypes'"),
        ({"feature_noise": float("inf")}, "'feature_noise'"),
        ({"clip": 0.0}, "'clip'"),
        ({"sigma": 1.0}, "'sigma' but no 'clip'"),
    ],
)
def test_values_that_protect_nothing_are_refused(values, complaint):
    with pytest.raises(FCLSegError, match=f"^the job has {complaint}|{complaint}"):
        RunSettings.read({"job": "fcl", **values}, {})
    with pytest.raises(FCLSegError, match=complaint):
        Policy.read(values)


def test_a_job_without_features_has_none_to_protect():
    with pytest.raises(FCLSegError, match="job 'fclopt' sends no features that 'mix' could protect"):
        RunSettings.read({"job": "fclopt", "mix": 2}, {})
    RunSettings.read({"job": "fclopt", "clip": 1.0, "sigma": 0.1}, {})


@pytest.mark.parametrize("values", [{"epsilon": 0}, {"delta": 1.0}, {"delta": 0}, {"epsilon": "8"}])
def test_a_budget_is_a_number(values):
    with pytest.raises(FCLSegError, match="the site's policy has"):
        Policy.read(values)
