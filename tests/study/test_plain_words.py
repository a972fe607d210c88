"""The last sentences of a study say what its figures say, and call nothing a gain that the test does not."""

from full_study import write_study

from fclseg.study.plain_words import plain_words


def with_test(document, p):
    """The study with one comparison: FedBYOL with one labelled patient."""
    for entry in document["entries"]:
        chosen = entry["row"] == "fedbyol" and entry["labels"] == 1 and entry["mode"] == "full"
        entry["comparison"] = {"pairs": 8, "difference": 0.1, "p": p, "p_holm": p} if chosen else None
        entry["summary"]["mean"] = 0.41 if chosen else 0.31
    return document


def test_a_gain_is_one_only_if_it_is_established(tmp_path):
    document = write_study(tmp_path)
    done, gained, following = plain_words(with_test(document, 0.01))
    assert "4 hospitals with 40 patients" in done
    assert "with 1 labelled patient, FedBYOL raises Dice from 0.31 to 0.41" in gained and "p = 0.01" in gained
    assert "fclseg study local --data FOLDER --sites-by centre --methods random,fedbyol,fclopt_dp" in following
    _, gained, _ = plain_words(with_test(document, 0.2))
    assert "do not establish a difference" in gained and "raises" not in gained


def test_a_table_without_figures_says_nothing(tmp_path):
    assert plain_words(write_study(tmp_path) | {"entries": []}) == []
