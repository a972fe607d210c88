"""Files that are damaged or were written elsewhere: every reader gives a one-sentence error."""

import os

import pytest

from fclseg.anatomy.families.plain import anatomy_of
from fclseg.data.assignment import read_assignment
from fclseg.data.sites import Splits
from fclseg.documents import read_json, read_json_lines, understood
from fclseg.engine.place import read_site_file
from fclseg.engine.run_folder import RunFolder
from fclseg.errors import DataError, FCLSegError
from fclseg.files import whole_lines
from fclseg.hospital.admission import FOLDER, Admissions
from fclseg.study.cache import Cache
from fclseg.study.report.page import write_report

LONG_NUMBER = '{"a": ' + "9" * 5000 + "}\n"
NESTED = "[" * 200_000 + "]" * 200_000 + "\n"
DAMAGE = {
    "long number": LONG_NUMBER,
    "nested": NESTED,
    "cut short": '{"rou',
    "another kind": "[1, 2]\n",
    "no text": b"\xff\xfe\x00\x93\n",
    "nothing": "",
}


def one_sentence(read, *arguments):
    with pytest.raises(FCLSegError) as caught:
        read(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def write(path, content):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_the_sentence_says_what_is_wrong(tmp_path):
    path = tmp_path / "a.json"
    assert "a number that is too long" in one_sentence(read_json, write(path, LONG_NUMBER))
    assert "nested too deeply" in one_sentence(read_json, write(path, NESTED))
    assert "line 2" in one_sentence(read_json, write(path, '{"a": 1,\n "b" 2}'))
    assert "UTF-8" in one_sentence(read_json, write(path, b"\xff\xfe\x00"))
    assert "no such" in one_sentence(read_json, tmp_path / "absent").lower()
    assert read_json(write(path, b'\xef\xbb\xbf{"a": 1}')) == {"a": 1}, "Windows editors write a byte order mark"
    assert "not a JSON object" in one_sentence(read_json_lines, write(path, '{"a": 1}\n3\n'))


def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    for read in (read_json, whole_lines, read_site_file):
        assert "is not a regular file" in one_sentence(read, path)


def test_code_that_uses_a_document_is_told_apart_from_the_document(tmp_path):
    with pytest.raises(DataError, match=r"file: is damaged \('sites'\); restore it"), understood("file", "restore it"):
        {}["sites"]
    with pytest.raises(OSError), understood("file", "restore it"):
        (tmp_path / "absent").read_text()


READERS = {
    "splits.json": Splits.load,
    "sites.json": read_assignment,
    "sites.csv": read_assignment,
    "site.json": read_site_file,
    "labels.json": lambda path: anatomy_of(path.parent),
    "config.json": lambda path: RunFolder(path.parent).check({"a": 1}),
    "result.json": lambda path: RunFolder(path.parent).encoders,
    "failure.json": lambda path: RunFolder(path.parent).failure,
    f"{FOLDER}/run.json": lambda path: Admissions(path.parents[1]).all(),
    "study.json": lambda path: write_report(path.parent),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", READERS)
def test_every_reader_refuses_damage_in_one_sentence(tmp_path, name, damage):
    one_sentence(READERS[name], write(tmp_path / name, DAMAGE[damage]))


@pytest.mark.parametrize("damage", ["long number", "nested", "another kind", "no text"])
def test_the_report_of_a_run_with_damaged_rounds_is_one_sentence(tmp_path, damage):
    write(tmp_path / "rounds.jsonl", DAMAGE[damage])
    one_sentence(write_report, tmp_path)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_result_of_a_cell_counts_as_not_run(tmp_path, damage):
    cache = Cache(tmp_path)
    cache.put("ab", {"dice": 1})
    assert cache.get("ab") == {"dice": 1}
    write(cache.path("ab"), DAMAGE[damage])
    assert cache.get("ab") is None
