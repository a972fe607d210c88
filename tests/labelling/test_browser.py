"""A person's work in a real browser: label three slices, reload, find them saved; a second window; a tablet."""

import os
import time

import nibabel as nib
import numpy as np
import pytest
import torch
from browser import browser, missing

from fclseg.anatomy.folders import read_folder
from fclseg.data.check import check_folder
from fclseg.labelling.serve import serving
from fclseg.phantom.dataset import write_phantom

PORT = int(os.environ.get("FCLSEG_TEST_PORT", "27000"))
SHOTS = os.environ.get("FCLSEG_SCREENSHOTS")
READY = "return window.fclseg && fclseg.editor.volume && fclseg.editor.volume.outlined"
SAVED = "return document.getElementById('saved').textContent === 'saved'"

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(
        missing() is not None, reason=f"{missing()} is not installed, so there is no browser to test with"
    ),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Three patients without labels."""
    folder = tmp_path_factory.mktemp("browser") / "data"
    write_phantom(folder, "acdc", patients=3, seed=4, frames=2)
    for label in folder.rglob("*_gt.nii.gz"):
        label.unlink()
    return folder


@pytest.fixture
def server(data, tmp_path):
    torch.set_num_threads(1)
    with serving(data, tmp_path / "labels", who="anna", port=PORT, tell=lambda text: None) as made:
        yield made


def shot(window, name):
    if SHOTS:
        window.screenshot(f"{SHOTS}/{name}.png")


def place(window):
    return tuple(window.run("return [fclseg.editor.volume.index, fclseg.editor.slice]"))


def plane(window):
    """The outlines on the page as an array [row, column]."""
    shape = window.run("return [fclseg.editor.volume.height, fclseg.editor.volume.width]")
    return np.array(window.run("return Array.from(fclseg.editor.labels)"), np.uint8).reshape(shape)


def edge(window, value):
    """A point on the right outline of a structure's region, in pixels of the window, and the zoom."""
    script = """const {view, editor} = fclseg, {width, height} = editor.volume;
        let best = null;
        editor.labels.forEach((label, i) => { if (label === arguments[0]) {
            const x = i % width, y = Math.floor(i / width);
            if (!best || x > best[0]) best = [x, y]; } });
        const box = view.canvas.getBoundingClientRect(), at = view.toScreen([best[0] + 0.5, best[1]]);
        return [box.x + at[0], box.y + at[1], view.zoom];"""
    return window.run(script, value)


def written(server, at):
    """The slice in the file, as [row, column]."""
    session = server.answers.session
    volume = session.volumes[at[0]]
    stored = np.asarray(nib.load(session.folder.label_file(volume)).dataobj)
    return volume.storage.inside(stored)[:, :, at[1]].T


def test_three_slices_are_labelled_and_found_again(server):
    with browser(PORT + 1) as window:
        window.open(server.link)
        window.until(READY)
        window.until("return fclseg.world().outlined[0] === fclseg.world().outlined[1]")
        window.until("return fclseg.world().next.length > 3")
        window.until("return document.getElementById('numbers').textContent.includes('LV EF')")
        done = {}

        first, before = place(window), plane(window)  # drag the outer wall outwards
        x, y, zoom = edge(window, 2)
        window.stroke([(x, y), (x + 2 * zoom, y), (x + 5 * zoom, y)])
        window.until(SAVED)
        dragged = plane(window)
        assert (dragged == 2).sum() > (before == 2).sum() and ((dragged == 3) == (before == 3)).all()
        shot(window, "desktop")
        window.press("z", "Control")
        assert (plane(window) == before).all()
        window.press("y", "Control")
        assert (plane(window) == dragged).all()
        done[first] = dragged
        window.press("Enter")
        window.until(
            "return fclseg.editor.volume.index !== arguments[0] || fclseg.editor.slice !== arguments[1]", *first
        )

        window.until(READY)  # brush the left ventricle, erase some of it
        second = place(window)
        window.press("b")
        window.press("3")
        x, y, zoom = edge(window, 3) if (plane(window) == 3).any() else (700, 400, 3)
        window.stroke([(x, y), (x + 3 * zoom, y + 3 * zoom)])
        window.until(SAVED)
        painted = plane(window)
        window.press("e")
        window.stroke([(x + 3 * zoom, y + 3 * zoom), (x + 3 * zoom, y + 4 * zoom)])
        window.until(SAVED)
        done[second] = plane(window)
        assert (painted == 3).sum() > (done[second] == 3).sum() > 0
        window.press("Enter")
        window.until(
            "return fclseg.editor.volume.index !== arguments[0] || fclseg.editor.slice !== arguments[1]", *second
        )

        window.until(READY)  # no ventricle
        third = place(window)
        window.press("n")
        window.until(
            "return fclseg.editor.volume.index !== arguments[0] || fclseg.editor.slice !== arguments[1]", *third
        )
        done[third] = np.zeros_like(done[second]) if done[second].shape else None
        assert len(done) == 3

        window.open(f"http://127.0.0.1:{PORT}/")  # reload
        window.until(READY)
        for at, expected in done.items():
            window.run("fclseg.go(arguments[0], arguments[1])", *at)
            window.until(
                "return fclseg.editor.volume.index === arguments[0] && fclseg.editor.slice === arguments[1]", *at
            )
            assert window.run("return fclseg.editor.record.state") == "done"
            if at != third:
                np.testing.assert_array_equal(plane(window), expected)
            np.testing.assert_array_equal(written(server, at), plane(window))
        assert not plane(window).any()
        assert [line for line in window.complaints() if "favicon" not in line] == []
    report = check_folder(server.answers.session.out)
    assert report.problems == [] and sum(patient.slices for patient in report.patients) == 3
    assert all(volume.anatomy.name == "acdc" for volume in read_folder(server.answers.session.out))


def number(window, name):
    script = """const rows = [...document.querySelectorAll("#numbers tr")];
        return rows.map((row) => [...row.cells].map((one) => one.textContent));"""
    return next(int(text.split()[0]) for label, text in window.run(script) if label == name)


def volume_of(window, value, without=None):
    """Millilitres of a structure in the frame on the page, counted there, without one slice."""
    script = """const {width, height, slices, spacing, labels} = fclseg.editor.volume, area = width * height;
        let count = 0;
        labels.forEach((label, i) => { count += label === arguments[0] && Math.floor(i / area) !== arguments[1]; });
        return count * spacing[0] * spacing[1] * spacing[2] / 1000;"""
    return window.run(script, value, without)


def test_numbers_follow_an_excluded_slice_and_another_phase(server):
    with browser(PORT + 1) as window:
        window.open(server.link)
        window.until(READY)
        window.until("return fclseg.world().patients[0].ready")
        ed, es = (one["volume"] for one in window.run("return fclseg.world().patients[0].frames"))
        middle = window.run("return Math.floor(fclseg.editor.volume.slices / 2)")
        window.run("fclseg.go(arguments[0], arguments[1])", ed, middle)
        window.until(
            "return fclseg.editor.volume.index === arguments[0] && fclseg.editor.slice === arguments[1]", ed, middle
        )
        whole, less = volume_of(window, 3), volume_of(window, 3, middle)
        assert number(window, "LV EDV") == round(whole) > round(less)
        window.press("x")
        window.until(
            "return !document.getElementById('excluded').hidden && document.getElementById('left-out').textContent"
        )
        assert number(window, "LV EDV") == round(less)
        shot(window, "excluded")
        window.press("x")
        window.until("return !document.getElementById('left-out').textContent")
        assert number(window, "LV EDV") == round(whole)

        window.run("fclseg.go(arguments[0])", es)  # a person says that the frame called ES is ED, and the other ES
        window.until("return fclseg.editor.volume.index === arguments[0]", es)
        small = volume_of(window, 3)
        for volume, phase in ((es, "ED"), (ed, "ES")):
            window.run("fclseg.go(arguments[0])", volume)
            window.until("return fclseg.editor.volume.index === arguments[0]", volume)
            window.run("document.getElementById('phase').click()")
            choose = "[...document.querySelectorAll('dialog button')].find((b) => b.textContent.includes(arguments[0]))"
            window.run(f"{choose}.click()", f"({phase})")
            window.until("return document.getElementById('place').textContent.startsWith(arguments[0])", phase)
        window.until("return document.querySelector('#numbers .odd')")  # the ejection fraction cannot be negative
        assert (number(window, "LV EDV"), number(window, "LV ESV")) == (round(small), round(whole))
        assert [line for line in window.complaints() if "favicon" not in line] == []


def test_the_later_of_two_windows_is_told(server):
    with browser(PORT + 1) as one, browser(PORT + 2) as other:
        for window in (one, other):
            window.open(server.link)
            window.until(READY)
        at = place(one)
        other.run("fclseg.go(arguments[0], arguments[1])", *at)
        other.until("return fclseg.editor.volume.index === arguments[0] && fclseg.editor.slice === arguments[1]", *at)
        one.press(".")
        one.until(SAVED)
        mine = plane(one)
        other.press(",")
        other.until("return !document.getElementById('banner').hidden")
        assert "changed meanwhile" in other.run("return document.getElementById('banner').textContent")
        other.run("document.querySelector('#banner button').click()")  # show that one
        other.until("return fclseg.editor.record.revision === 1")
        np.testing.assert_array_equal(plane(other), mine)


AT = "return fclseg.editor.volume.index === arguments[0] && fclseg.editor.slice === arguments[1]"


def look_at(window, index, number):
    window.run("fclseg.go(arguments[0], arguments[1])", index, number)
    window.until(AT, index, number)
    window.until(READY)


def test_a_stroke_does_not_reach_the_slice_that_opens_under_it(server):
    with browser(PORT + 1) as window:
        window.open(server.link)
        window.until(READY)
        index, number = place(window)
        beside = number + 1 if number + 1 < window.run("return fclseg.editor.volume.slices") else number - 1
        look_at(window, index, beside)
        neighbour = plane(window)
        look_at(window, index, number)
        x, y, zoom = edge(window, 2)
        window.stroke([(x, y), (x + 5 * zoom, y)], release=False)
        window.until("return fclseg.editor.preview")
        look_at(window, index, beside)
        window.release()
        window.until(SAVED.replace("=== 'saved'", "=== ''"))
        np.testing.assert_array_equal(plane(window), neighbour)
        held = "window.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', repeat: true}))"
        window.run(held)  # of a key that is held down only the first press accepts a slice
        assert window.run("return document.getElementById('saved').textContent") == ""
        window.press("Enter")
        window.until("return fclseg.world().labelled.length === 1")


def test_a_slow_save_is_not_overtaken_by_looking_elsewhere(server):
    answers, route = server.answers, ("POST", r"/api/slice/(\d+)/(\d+)")
    save = answers.routes[route]

    def slow(*given):
        time.sleep(2)
        return save(*given)

    answers.routes[route] = slow
    with browser(PORT + 1) as window:
        window.open(server.link)
        window.until(READY)
        window.until("return fclseg.world().outlined[0] === fclseg.world().outlined[1]")
        at = place(window)
        frames = "return fclseg.world().patients.flatMap((one) => one.frames)"
        other = window.run(f"{frames}.find((one) => one.volume !== arguments[0]).volume", at[0])
        window.press("3")  # the left ventricle, which every proposed slice has
        before = plane(window)
        window.press(".")
        mine = plane(window)
        assert (mine != before).any()
        window.run("fclseg.go(arguments[0]); fclseg.go(arguments[1], arguments[2])", other, *at)
        look_at(window, other, 2)
        look_at(window, *at)
        np.testing.assert_array_equal(plane(window), mine)
        window.press(".")
        window.until(SAVED)
        assert window.run("return document.getElementById('banner').hidden")
        assert window.run("return fclseg.editor.record.revision") == 2


def test_a_tablet_draws_with_a_finger(server):
    with browser(PORT + 1, 820, 1180, touch=True) as window:
        window.open(server.link)
        window.until(READY)
        at, before = place(window), plane(window)
        x, y, zoom = edge(window, 2)
        window.stroke([(x, y), (x + zoom, y), (x + 4 * zoom, y)], "touch")
        window.until(SAVED)
        after = plane(window)
        assert (after == 2).sum() > (before == 2).sum()
        shot(window, "tablet")
        window.run("document.getElementById('done').click()")
        window.until("return fclseg.editor.volume.index !== arguments[0] || fclseg.editor.slice !== arguments[1]", *at)
        np.testing.assert_array_equal(written(server, at), after)


def test_a_laptop_shows_all_tools_without_scrolling(server):
    with browser(PORT + 1, 1366, 768) as window:
        window.open(server.link)
        window.until(READY)
        window.until("return document.querySelectorAll('#numbers tr').length > 5")
        assert window.run("return innerHeight") < 768, "the browser's own bars take some of it"
        needed, there = window.run("const {scrollHeight, clientHeight} = tools; return [scrollHeight, clientHeight];")
        assert needed <= there
        window.run("document.getElementById('help').click()")
        assert window.run("return document.getElementById('dialog').scrollTop") == 0
