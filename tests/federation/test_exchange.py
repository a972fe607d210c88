import pytest

from fclseg.errors import FCLSegError
from fclseg.methods.exchange import ALWAYS, CALIBRATION, NEVER, ROWS, crosses, get_row


def test_when_a_flow_crosses():
    assert all(crosses(ALWAYS, number, 10) for number in range(30))
    assert not any(crosses(NEVER, number, 10) for number in range(30))
    assert [number for number in range(30) if crosses(CALIBRATION, number, 10)] == [0, 10, 20]


def test_ptnu_and_dp_are_read_from_the_plan():
    assert [job for job, row in ROWS.items() if row.predicts_target] == [
        "fclopt_ptnu",
        "fclopt_dp",
        "fclopt_dp_tiny",
        "mean_teacher_dp",
    ]
    assert [job for job, row in ROWS.items() if row.predicts_distance] == [
        "fclopt_dp",
        "fclopt_dp_tiny",
        "mean_teacher_dp",
    ]


def test_rows_have_different_names_and_each_component_once():
    assert len({row.title for row in ROWS.values()}) == len(ROWS)
    for job, row in ROWS.items():
        assert get_row(job) is row
        assert len({flow.component for flow in row.flows}) == len(row.flows)
    with pytest.raises(FCLSegError, match="there is no job 'fedsgd'"):
        get_row("fedsgd")
