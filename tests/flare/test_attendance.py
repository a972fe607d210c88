"""Drawing C_r, and sites that stop answering."""

from fclseg.engine.attendance import Attendance, reasons

SITES = [f"site-{number}" for number in range(1, 11)]


def test_a_draw_depends_on_seed_and_round_alone():
    first, second = Attendance(SITES, 0.5, seed=1), Attendance(SITES[::-1], 0.5, seed=1)
    draws = [first.draw(number) for number in range(20)]
    assert draws == [second.draw(number) for number in range(20)]
    assert all(len(draw) == 5 == len(set(draw)) for draw in draws)
    assert len({tuple(draw) for draw in draws}) > 10
    assert {site for draw in draws for site in draw} == set(SITES)
    assert draws != [Attendance(SITES, 0.5, seed=2).draw(number) for number in range(20)]


def test_the_number_of_sites_is_rounded_up():
    assert [len(Attendance(SITES, fraction, 0).draw(0)) for fraction in (0.01, 0.1, 0.3, 0.31, 1.0)] == [1, 1, 3, 4, 10]


def test_a_silent_site_is_replaced_until_it_is_heard():
    attendance = Attendance(SITES, 0.5, seed=1)
    full = attendance.draw(3)
    attendance.fell_silent(full[0])
    without = attendance.draw(3)
    assert full[0] not in without and len(without) == 5 and set(full[1:]) <= set(without)
    assert attendance.heard(full[0]) and not attendance.heard(full[0])
    assert attendance.draw(3) == full


def test_when_all_are_silent_nobody_is_drawn():
    attendance = Attendance(SITES[:2], 1.0, seed=0)
    for site in SITES[:2]:
        attendance.fell_silent(site)
    assert attendance.draw(0) == []


def test_an_error_names_the_first_sites_and_counts_the_others():
    failures = {f"site-{number:03d}": f"reason {number}" for number in range(100, 0, -1)}
    text = reasons(failures)
    assert text.startswith("site-001: reason 1; site-002: reason 2; ") and text.endswith("; and 95 other sites")
    assert "site-005" in text and "site-006" not in text
    assert reasons({"a": "x"}) == "a: x"
    assert reasons({}) == "no site is present"
