"""The last sentences of a study say what its figures say, and call nothing a gain that the test does not."""

from full_study import write_study

from fclseg.study.plain_words import plain_words


def with_tests(document, tests):
    """The study with these corrected p of FedBYOL by number of labels, and no others; its Dice is .1 above the rest."""
    for entry in document["entries"]:
        p = tests.get(entry["labels"]) if (entry["row"], entry["mode"]) == ("fedbyol", "full") else None
        entry["comparison"] = None if p is None else {"pairs": 8, "difference": 0.1, "p": p, "p_holm": p}
        entry["summary"]["mean"] = (0.31 if p is None else 0.41) + 0.1 * (entry["labels"] == 2)
    return document


def test_a_gain_is_one_only_if_it_is_established(tmp_path):
    document = write_study(tmp_path)
    done, gained, following = plain_words(with_tests(document, {1: 0.01, 2: 0.2}))
    assert done.startswith("Done: 4 hospitals with 40 patients")
    assert (
        "FedBYOL instead of Random init raises Dice (1 is perfect) with 1 labelled patient from 0.31 to 0.41" in gained
    )
    assert "0.41 (p = 0.01) and with 2 labelled patients from 0.41 to 0.51 (not established), by 8 pair" in gained
    assert "fclseg study local --data FOLDER --sites-by centre --methods random,fedbyol,fclopt_dp" in following
    _, gained, _ = plain_words(with_tests(document, {1: 0.2}))
    assert "8 paired comparisons establish no difference" in gained and "raises" not in gained


def test_together_labels_are_at_each_hospital_and_phantoms_are_called_phantoms(tmp_path):
    document = with_tests(write_study(tmp_path), {1: 0.01}) | {"table": "federated"}
    document["settings"]["data"]["name"] = "phantom-acdc-unseen-3x6-seed0"
    done, gained, following = plain_words(document)
    assert "4 phantom hospitals" in done and "with 1 labelled patient at each hospital from" in gained
    assert "fclseg study federated" in following


def test_what_labels_add_to_a_network_that_needs_none(tmp_path):
    document = with_tests(write_study(tmp_path), {1: 0.01})
    for entry in document["entries"]:
        if (entry["row"], entry["mode"], entry["labels"]) == ("fclopt_dp", "full", 1):
            first = entry | {"labels": 0, "summary": entry["summary"] | {"mean": 0.75}}
    document["entries"] = [first, *document["entries"]]
    title = next(row["title"] for row in document["rows"] if row["key"] == "fclopt_dp")
    assert f"{title}: 0.75 with no label, 0.31 with 1, 0.41 with 2" in plain_words(document)[1]


def test_a_table_without_figures_says_nothing(tmp_path):
    assert plain_words(write_study(tmp_path) | {"entries": []}) == []
