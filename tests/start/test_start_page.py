"""A person without a terminal: the start page in a real browser segments a folder, opens the label page, and quits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "labelling"))
from browser import browser, missing

from fclseg.phantom.dataset import write_phantom

PORT = int(os.environ.get("FCLSEG_TEST_PORT", "27000")) + 10
SHOTS = os.environ.get("FCLSEG_SCREENSHOTS")
CODE = "import sys; from fclseg.cli import main; sys.exit(main(sys.argv[1:]))"
FOUND = "[...document.querySelectorAll(arguments[0])].find((one) => one.textContent.includes(arguments[1]))"
SHOWN, CLICK = f"return {FOUND}?.hidden === false", f"{FOUND}.click()"

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(missing() is not None, reason=f"{missing()} is not installed, so there is no browser"),
]


def shot(window, name):
    if SHOTS:
        window.screenshot(f"{SHOTS}/{name}.png")


def test_a_folder_is_segmented_and_labelled_without_a_terminal(tmp_path):
    write_phantom(tmp_path / "patients", "acdc", patients=1, seed=4, frames=2)
    command = [sys.executable, "-c", CODE, "start", "--no-browser", "--home", str(tmp_path), "--port", str(PORT)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        link = process.stdout.readline().split()[-1]
        with browser(PORT + 1, 900, 800) as window:
            window.open(link)
            window.until(SHOWN, "#entries button", "patients")
            window.run(CLICK, "#entries button", "patients")
            window.until(SHOWN, "#entries button", "patient001")
            assert window.run("return document.getElementById('out').value") == str(tmp_path / "patients_results")
            shot(window, "start")
            window.run(CLICK, "#begin", "Begin")
            window.until(SHOWN, "#doing", "Segmenting")
            window.until(SHOWN, "#doing", "Ready")
            assert window.run(SHOWN, "#results", "Open the results")
            assert "patient001: LV end-diastolic volume" in window.run(
                "return document.getElementById('lines').textContent"
            )
            shot(window, "start_ready")
            assert (tmp_path / "patients_results" / "index.html").is_file()
            window.run(CLICK, "#back", "Back")
            window.run(CLICK, "#label", "Label")
            window.run(CLICK, "#begin", "Begin")
            window.until(SHOWN, "#link", "Open the label page")
            assert "/?token=" in window.run("return document.getElementById('link').href")
            window.run(CLICK, "#stop", "Stop")
            window.until(SHOWN, "#doing", "ended")
            assert window.complaints() == []
            window.run(CLICK, "#end", "Quit")
            window.until("return document.body.textContent.includes('You can close this window')")
        assert process.wait(600) == 0
    finally:
        process.kill()
        process.wait()
