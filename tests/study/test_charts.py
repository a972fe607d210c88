"""Charts: where points land, what is left out, and that names cannot break the page."""

import re
from math import nan
from xml.etree import ElementTree

import pytest

from fclseg.charts import Effect, Series, forest, line_chart, nice_ticks, stacked_bars
from fclseg.study.report.curves import traffic


def drawing(figure) -> ElementTree.Element:
    return ElementTree.fromstring(str(figure)).find("svg")


@pytest.mark.parametrize("low", [0.0, -3.2, 0.17, 1e-6, 900.0])
@pytest.mark.parametrize("size", [1e-4, 0.3, 7.0, 12345.0])
def test_ticks_cover_the_range_with_few_round_numbers(low, size):
    ticks = nice_ticks(low, low + size)
    assert ticks[0] <= low + 1e-9 * size and ticks[-1] >= low + size - 1e-9 * size
    assert 3 <= len(ticks) <= 8
    step = ticks[1] - ticks[0]
    assert f"{step:.0e}"[0] in "125"


def test_ticks_of_a_single_value():
    assert nice_ticks(2.0, 2.0)[0] < 2.0 < nice_ticks(2.0, 2.0)[-1]


def test_higher_values_are_drawn_higher_and_gaps_are_left_out():
    series = [Series("a", [0, 1, 2, 3], [1.0, None, nan, 3.0])]
    line = drawing(line_chart("t", series, "x", "y")).find("g/polyline").get("points")
    (x0, y0), (x1, y1) = [tuple(map(float, point.split(","))) for point in line.split()]
    assert x0 < x1 and y0 > y1, "the y axis of a drawing points down"


def test_error_bars_reach_one_sd_up_and_down():
    root = drawing(line_chart("t", [Series("a", [1, 2], [0.5, 0.6], [0.1, None])], "x", "y", categories=True))
    bars = [line for line in root.iter("line") if line.get("class") == "error"]
    dots = [float(dot.get("cy")) for dot in root.iter("circle")]
    assert len(bars) == 1 and len(dots) == 2
    ends = [float(bars[0].get(name)) for name in ("y1", "y2")]
    assert sum(ends) / 2 == pytest.approx(dots[0], abs=0.1)
    per_dice = (dots[0] - dots[1]) / 0.1
    assert abs(ends[0] - ends[1]) == pytest.approx(0.2 * per_dice, abs=0.3)


def test_stacked_bars_add_up():
    root = drawing(stacked_bars("t", [1, 2], {"up": [1.0, 0.0], "down": [3.0, 2.0]}, "round", "MB"))
    heights = [float(bar.get("height")) for bar in root.iter("rect")]
    assert len(heights) == 3, "an empty part is not drawn"
    assert heights[1] == pytest.approx(3 * heights[0], abs=0.3)
    assert heights[2] == pytest.approx(2 * heights[0], abs=0.3)


def test_traffic_is_the_mean_of_the_sites_that_took_part():
    def counts(payload, wire):
        return {"up": {"payload": payload, "wire": wire}, "down": {"payload": {}, "wire": 0}}

    sites = {"a": counts({"online": 4e6}, 5e6), "b": counts({"online": 2e6}, 3e6), "idle": counts({}, 100)}
    payload, wire = traffic([{"bytes": sites}])
    assert payload == {"↑ online": [3.0]} and wire == [4.0]


def test_forest_puts_zero_between_better_and_worse():
    effects = [Effect("better", 0.1, 0.05, 0.15), Effect("worse", -0.1, None, None)]
    root = drawing(forest("t", effects, "x"))
    better, worse = [float(dot.get("cx")) for dot in root.iter("circle")]
    zero = next(float(line.get("x1")) for line in root.iter("line") if line.get("class") == "axis")
    assert worse < zero < better
    assert len([line for line in root.iter("line") if line.get("class") == "error"]) == 1


def test_nothing_to_draw_is_no_figure_and_names_are_escaped():
    assert not line_chart("t", [Series("a", [1], [None])], "x", "y") and not forest("t", [], "x")
    assert not stacked_bars("t", [], {}, "x", "y")
    text = str(line_chart("<b>&", [Series("<script>", [1, 2], [1, 2])], "x", "y"))
    assert "<script>" not in text and "<b>" not in text and re.search("&lt;script&gt;", text)
