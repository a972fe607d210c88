"""The page of a study: what is bold, which picture comes first, and that it fits a phone."""

import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from full_study import write_study

from fclseg.study.report.page import prepare, render, write_report


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    return folder, write_study(folder)


def test_bold_is_what_is_established(study):
    folder, document = study
    entries = [entry for entry in document["entries"] if (entry["labels"], entry["mode"]) == (1, "full")]
    row = next(entry for entry in entries if entry["row"] == "fedbyol")
    for difference, p, bold in [(0.1, 0.04, True), (0.1, 0.06, False), (-0.1, 0.001, False), (0.1, None, False)]:
        row["comparison"] |= {"difference": difference, "p": p, "p_holm": p}
        others = [entry | {"comparison": None} for entry in entries if entry is not row]
        page = render([prepare(document | {"entries": [*others, row]}, folder)], [])
        table = page[page.index("<tbody>") : page.index("</tbody>")]
        assert len(re.findall('class="established"', table)) == bold


def test_pictures_begin_with_the_most_labels_and_the_best_row(study):
    folder, document = study
    strips = prepare(document, folder)["strips"]
    assert [(strip["labels"], strip["mode"]) for strip in strips[:3]] == [(8, "full"), (8, "frozen"), (4, "full")]
    first = strips[0]["pictures"]
    assert [picture["title"] for picture in first[:2]] == ["Image", "Ground truth"]
    scores = [picture["dice"] for picture in first[2:]]
    assert scores == sorted(scores, reverse=True) and len(scores) == 5
    best = max(
        (e for e in document["entries"] if (e["labels"], e["mode"]) == (8, "full")), key=lambda e: e["summary"]["mean"]
    )
    assert scores[0] == best["summary"]["mean"]


class Tables(HTMLParser):
    """The tables that a phone shows as lists: for each, the words of its head and the labels of each row's figures."""

    def __init__(self, page: str):
        super().__init__()
        self.heads, self.labels, self.inside, self.wanted = [], [], "", False
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        names = dict(attributes)
        if tag == "table":
            self.wanted = names.get("class") == "rows"
        if tag == "table" and self.wanted:
            self.heads.append([])
            self.labels.append([])
        if tag in ("thead", "tbody") and self.wanted:
            self.inside = tag
        if tag == "th" and self.inside == "thead":
            self.heads[-1].append("")
        if tag == "tr" and self.inside == "tbody":
            self.labels[-1].append([])
        if tag == "td" and self.inside == "tbody":
            self.labels[-1][-1].append(names.get("data-label"))

    def handle_endtag(self, tag):
        if tag in ("thead", "tbody"):
            self.inside = ""

    def handle_data(self, text):
        if self.inside == "thead" and self.heads and self.heads[-1]:
            self.heads[-1][-1] += text


def test_every_figure_of_a_table_has_the_label_of_its_column_on_a_phone(study):
    page = write_report(study[0] / "local").read_text()
    found = Tables(page)
    assert len(found.heads) > 2
    for head, rows in zip(found.heads, found.labels, strict=True):
        assert rows and all(row == head[1:] for row in rows), (head, rows)
    assert 'loading="lazy"' not in page, "a printer does not scroll"


BROWSER = shutil.which("chromium")
MEASURE = """onload=()=>{const d=document.getElementById("f").contentDocument;
for(const e of d.querySelectorAll("details"))e.open=true;const w=d.documentElement.clientWidth;const out=[];
for(const e of d.querySelectorAll("body *")){const r=e.getBoundingClientRect();
const s=e.ownerSVGElement&&e.closest("svg").getBoundingClientRect();
if(r.width&&(r.right>w+1||r.left<-1||(s&&e.tagName=="text"&&(r.right>s.right+1||r.left<s.left-1))))
out.push(e.tagName+" "+e.textContent.slice(0,30));
if(e.scrollWidth>e.clientWidth+1&&e.className=="scroll")out.push("scrolls");}
document.getElementById("w").textContent="outside: "+out.length+" "+out.slice(0,5).join(" | ")}"""


@pytest.mark.nightly
@pytest.mark.skipif(BROWSER is None, reason="needs a browser, which nothing else here does")
def test_nothing_is_clipped_at_390_pixels(study, tmp_path):
    """Measured in a real browser: no element outside the page, no text outside its chart, no table that scrolls."""
    page = write_report(study[0] / "local", command="fclseg report").absolute()
    (tmp_path / "phone.html").write_text(
        f'<iframe id="f" src="file://{page}" style="width:390px;height:800px;border:0"></iframe><p id="w"></p>'
        f"<script>{MEASURE}</script>"
    )
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    command += [f"--user-data-dir={tmp_path}/profile", "--no-first-run", "--disable-background-networking"]
    command += ["--dump-dom", f"file://{tmp_path}/phone.html"]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert re.findall('<p id="w">(.*?)</p>', answer.stdout, re.DOTALL) == ["outside: 0 "]
