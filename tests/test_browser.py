"""The report in a real browser: everything is drawn, nothing sticks out, no script fails."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from surestep.experiments.figures import Scale
from surestep.experiments.report import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here (apt-get install chromium)")

# Runs in a page around the report, which it shows in a frame of a given width, and leaves what it sees in the title.
PROBE = """<!doctype html><meta charset="utf-8"><title>waiting</title>
<iframe id="frame" style="width: {width}px; height: 900px; border: 0"></iframe>
<script>
const errors = [];
const frame = document.getElementById("frame");
frame.onload = async () => {{
  const page = frame.contentDocument;
  for (const part of page.querySelectorAll("details")) part.open = true;
  const images = [...page.images];
  for (const image of images) await image.decode().catch(error => errors.push(String(error)));
  const size = element => parseFloat(frame.contentWindow.getComputedStyle(element).fontSize);
  document.title = JSON.stringify({{
    errors,
    images: images.length,
    drawn: images.filter(image => image.naturalWidth > 0 && image.getBoundingClientRect().width > 200).length,
    described: images.filter(image => image.alt).length,
    page: page.documentElement.scrollWidth,
    widest: Math.max(...images.map(image => image.getBoundingClientRect().right)),
    smallest: Math.min(...[...page.querySelectorAll("p, td, figcaption")].map(size)),
    links: [...page.querySelectorAll("nav a")].every(a => page.querySelector(a.getAttribute("href"))),
  }});
}};
window.onerror = message => errors.push(message);
frame.srcdoc = {text};
</script>
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("report")
    return write_report([2], Scale("tiny", 100, 3.0, 1.0, 2), folder).read_text()


@pytest.mark.parametrize("width", [1280, 390], ids=["laptop", "phone"])
def test_the_report_in_a_browser(report: str, width: int, tmp_path: Path):
    probe = tmp_path / "probe.html"
    probe.write_text(PROBE.format(width=width, text=json.dumps(report).replace("</", "<\\/")))
    done = subprocess.run(
        [
            str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
            f"--window-size={width + 40},1000", "--virtual-time-budget=20000", "--dump-dom", probe.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    (title,) = re.findall(r"<title>(.*?)</title>", done.stdout)[:1]
    seen = json.loads(title.replace("&quot;", '"').replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert seen["errors"] == []
    assert seen["images"] == seen["drawn"] == seen["described"] == 10
    assert seen["page"] <= width  # nothing makes the page scroll sideways
    assert seen["widest"] <= width
    assert seen["smallest"] >= 14  # pixels: legible
    assert seen["links"]
