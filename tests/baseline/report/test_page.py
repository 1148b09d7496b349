"""The page of all results: what is missing, energy, strangers' text, a real browser."""

import base64
import html.parser
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from actorQ.core import errors
from baseline.report import page as report_page
from baseline.report import sections
from baseline.study import paper
from tests.baseline.report import test_experiments as published

ROOT = pathlib.Path(__file__).resolve().parents[3]
# The smallest PNG: one pixel.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
VOID = {"meta", "link", "img", "br", "hr"}
BROWSERS = (
    "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome",
    "google-chrome-stable", "chrome",
)
# Runs in the browser, in a copy of the page, and prints how the browser understood the page.
PROBE = """<script>addEventListener("load", () => {
  const images = [...document.images], root = document.documentElement;
  for (const details of document.querySelectorAll("details")) details.open = true;
  const ids = [...document.querySelectorAll("[id]")].map(one => one.id);
  const found = {
    images: images.length,
    broken: images.filter(one => !one.complete || !one.naturalWidth).length,
    wrongSizes: images.filter(one => one.naturalWidth != one.getAttribute("width")).length,
    loaded: performance.getEntriesByType("resource").filter(
      one => !one.name.startsWith("data:")).length,
    width: innerWidth, overflow: root.scrollWidth - root.clientWidth,
    sections: document.querySelectorAll("main > section").length,
    tables: document.querySelectorAll("table").length,
    dangling: [...document.querySelectorAll('a[href^="#"]')].filter(
      one => !ids.includes(one.getAttribute("href").slice(1))).length,
    title: document.title,
  };
  document.body.textContent = "PROBE" + JSON.stringify(found) + "PROBE";
});</script>"""


class Outline(html.parser.HTMLParser):
    """The page's open tags, ids, links and sources."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.sources, self.tags = [], [], [], [], set()
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        assert len(values) == len(attributes), f"<{tag}> has an attribute twice"
        self.tags.add(tag)
        self.ids += [values["id"]] if "id" in values else []
        self.links += [values["href"]] if tag == "a" and "href" in values else []
        self.sources += [values["src"]] if "src" in values else []
        assert not [name for name in values if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, tag


def check(page):
    """Checks that tags are balanced, links lead somewhere and nothing is loaded from elsewhere."""
    outline = Outline(page)
    assert len(set(outline.ids)) == len(outline.ids)
    for link in outline.links:
        assert link.startswith("https://") or link.removeprefix("#") in outline.ids, link
    for source in outline.sources:
        assert source.startswith("data:image/png;base64,"), source[:80]
    assert not outline.tags & {"script", "iframe", "object", "form", "embed"}
    assert not re.search(r"@import|url\(", page)
    return outline


@pytest.fixture(name="page", scope="module")
def fixture_page():
    """The page of the committed results."""
    folders = [str(ROOT / name / "results") for name in ("baseline", "actorQ")]
    return report_page.build(*folders, "python -m baseline.report")


def test_page_of_the_committed_results_is_whole(page):
    outline = check(page)
    plots = list((ROOT / "baseline" / "results").glob("*/**/*.png"))
    assert len(outline.sources) >= len(plots)
    assert page.index('id="findings"') < page.index('aria-label="Sections"')
    assert page.count('<div class="beside">') > 5
    assert {"summary", "reading", "ptq", "qat", "mixed_precision", "deployment"} <= set(outline.ids)
    assert {"findings", "time_to_reward", "energy", "benchmarks", "cluster"} <= set(outline.ids)
    for algo in paper.MEANS:
        assert f"int8 costs {algo.upper()} agents" in page
    assert "cannot be said" in page and "prefers-color-scheme: dark" in page
    assert "@media print" in page and 'name="viewport"' in page


@pytest.mark.skipif(
    not any(map(shutil.which, BROWSERS)),
    reason=f"no browser is installed (looked for {', '.join(BROWSERS)})",
)
def test_page_in_a_real_browser_on_a_phone(page, tmp_path):
    browser = next(filter(None, map(shutil.which, BROWSERS)))
    path = tmp_path / "report.html"
    path.write_text(page.replace("</body>", PROBE + "</body>"))
    command = [
        browser, "--headless", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
        "--window-size=390,800", "--dump-dom", path.as_uri(),
    ]
    if os.geteuid() == 0:  # Chromium's sandbox refuses root; the page is our own.
        command.insert(1, "--no-sandbox")
    shown = subprocess.run(command, capture_output=True, text=True, timeout=90)
    found = json.loads(shown.stdout.split("PROBE")[1])
    outline = Outline(page)
    assert found["images"] == len(outline.sources) > 20
    assert (found["broken"], found["wrongSizes"], found["loaded"], found["dangling"]) == (0,) * 4
    # Wide tables scroll by themselves; the page does not.
    assert found["width"] <= 500 and found["overflow"] <= 0
    assert found["sections"] > 12 and found["tables"] > 20
    assert found["title"].startswith("Quantized reinforcement learning")


def test_command_writes_the_page(tmp_path, run_commands):
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
    out = tmp_path / "new" / "page.html"
    flags = [f"--actorq_results={tmp_path / 'a'}", f"--out={out}"]
    done, missing = run_commands("report", [
        [f"--baseline_results={tmp_path / name}", *flags] for name in ("b", "none")
    ])
    assert (done.code, done.err) == (0, "")
    assert done.out == f"{out}: 0.0 MB\n"
    page = out.read_text()
    check(page)
    # Every section exists and names the command that makes its results.
    assert page.count("No results yet: <code>") == 15
    assert "There is no folder" in missing.error("report")


def test_folders_within_a_folder_of_results_are_shown(tmp_path):
    for name in ("faults", "faults/again_30", "faults/runs", "network/first", "benchmarks/gym"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "table.md").write_text(f"text of {name}\n")
    (tmp_path / "network" / "first" / "plot.png").write_bytes(PNG)
    page = report_page.build(str(tmp_path / "none"), str(tmp_path), "command")
    check(page)
    heading = "<h3>The actor&#39;s loop on Acrobot-v1 and MountainCar-v0</h3>"
    assert f"{heading}\n<details>" in page
    assert "at full speed</h3>\n<p>text of faults</p>" in page
    assert "of 30 random faults</h3>\n<p>text of faults/again_30</p>" in page
    left = '<div class="beside"><div>\n<p>text of network/first</p>\n</div>'
    heading = "<h3>Slow networks, a policy of 3x2048 for 120 s</h3>"
    assert f'{heading}\n{left}\n<div class="plots">\n<figure>' in page
    assert "<h3>network</h3>" not in page and "faults/runs" not in page


def _text(markup):
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", markup)).split())


def _sections(page):
    """Returns the text of each section by its anchor."""
    found = re.findall(r'<section id="(\w+)"[^>]*>(.*?)</section>', page, re.DOTALL)
    return {anchor: _text(markup) for anchor, markup in found}


def _claims(page):
    """Returns anchor, claim, and our figure for each row of the summary."""
    summary = page[page.index('<section id="summary">') : page.index('<section id="reading">')]
    rows = re.findall(
        r'<td><a href="#(\w+)">(.*?)</a></td>.*?data-name="Ours">(.*?)</td>', summary, re.DOTALL
    )
    return [(anchor, *map(_text, cells)) for anchor, *cells in rows]


def test_every_claim_stands_once_and_leads_to_its_figure(page):
    claims = _claims(page)
    assert len({claim for _, claim, _ in claims}) == len(claims) > 30
    texts = _sections(page)
    for anchor, claim, ours in claims:
        # The largest ratio of the section on staleness is that of two of its figures.
        numbers = re.findall(r"\d+(?:\.\d+)?", ours) if anchor != "staleness" else []
        for number in numbers:
            shown = rf"(?<![\d.]){re.escape(number)}(?!\d)"
            assert re.search(shown, texts[anchor]), (claim, number)


def test_headings_of_the_committed_results_are_words_and_no_folders_names(page):
    found = [_text(one) for one in re.findall(r"<h3>(.*?)</h3>", page)]
    results = ROOT / "actorQ" / "results"
    folders = [*results.glob("*/"), *results.glob("*/*/")]
    bare = {": ".join(path.relative_to(results).parts).replace("_", " ") for path in folders}
    assert len(set(found)) == len(found) > 20
    assert not bare.intersection(found)
    folded = [_text(one) for one in re.findall(r"<summary>(.*?)</summary>", page)]
    files = [path.stem.replace("_", " ").capitalize() for path in results.glob("*/*.md")]
    assert not set(files).difference(["Inference"]).intersection(folded)


def test_main_experiment_is_judged_and_its_variations_stand_below_by_name(tmp_path):
    task = "dm_control,cartpole_balance"
    for experiment, fp32, int8 in (
        ("time_to_reward", 400.0, 100.0), ("wider_noise", 300.0, 200.0), ("mine", 100.0, 400.0)
    ):
        published.publish(tmp_path, *(
            published.energy_result(
                f"{name}-s{seed}", task=task, bits=bits, time_to_target_s=seconds + seed,
                energy=published.energy(seconds, seconds),
            )
            for name, bits, seconds in (("fp32", 32, fp32), ("int8", 8, int8))
            for seed in range(3)
        ), experiment=experiment)
    page = report_page.build(str(tmp_path / "none"), str(tmp_path), "command")
    check(page)
    texts = _sections(page)
    found = [(claim, ours) for _, claim, ours in _claims(page) if "Cartpole Balance" in claim]
    assert found == [
        ("int8 actors reach the reward of Cartpole Balance sooner", "3.97x (401.0 s to 101.0 s)"),
        ("int8 actors need less CO2 to the reward of Cartpole Balance", "4.00x (modelled)"),
    ]
    assert "mine" not in texts["summary"] and "wider_noise" not in texts["summary"]
    figures = (("mine", "101.0 401.0 0.25"), ("wider_noise", "301.0 201.0 1.50"))
    rows = [
        f"{name} cartpole_balance 941.22 fp32 3 of 3, int8 3 of 3 {seconds}"
        for name, seconds in figures
    ]
    assert " ".join(rows) in texts["variations"]
    above, _, below = texts["energy"].partition("With other settings")
    assert "time_to_reward" in above and "mine" in below and "wider_noise" not in above


def test_any_folder_of_mixed_precision_and_of_experiments_is_shown(tmp_path):
    folder = tmp_path / "baseline" / "mixed_precision"
    folder.mkdir(parents=True)
    (folder / "x_timing.md").write_text(
        "| a | b |\n| --- | --: |\n| 1 | <b> |\n\n"
        "`python -m baseline.mixed_precision --out x` on AMD, commit 0123456789ab, "
        "2026-11-21 15:09:44 +0000.\n"
    )
    (folder / "loss_parity.png").write_bytes(PNG)
    (folder / "auto").mkdir()
    (folder / "auto" / "y.md").write_text("text below\n")
    report = tmp_path / "actorq" / "new_thing" / "report"
    report.mkdir(parents=True)
    (report / "new_thing.md").write_text("# A new thing\n\ntext\n")
    (report / "new_thing.png").write_bytes(PNG)
    page = report_page.build(*(str(tmp_path / name) for name in ("baseline", "actorq")), "command")
    outline = check(page)
    assert len(outline.sources) == 2 and "others" in outline.ids
    words = " ".join(page.split())
    assert "Machine: AMD. Commit: 0123456789ab. Made: 2026-11-21 15:09:44 +0000." in words
    assert "Machine: not noted in these files. Commit: not noted in these files. Command" in words
    assert "Loss parity</figcaption>" in page and "A new thing" in page
    assert "<h3>With the precision chosen by itself, the default</h3>\n<p>text below</p>" in page
    (folder / "loss_parity.png").write_bytes(b"GIF")
    with pytest.raises(errors.UserError, match="loss_parity.png is damaged: it is no PNG"):
        sections.baseline_sections(str(tmp_path / "baseline"))


HOSTILE = '<script>alert(1)</script><img src=x onerror=y> "\' [a](javascript:b) ![i](http://c/d.png)'


def test_text_of_files_stays_text(tmp_path):
    mixed = tmp_path / "baseline" / "mixed_precision"
    mixed.mkdir(parents=True)
    (mixed / "a.md").write_text(
        f"# {HOSTILE}\n\n{HOSTILE}\n\n| {HOSTILE} |\n| --- |\n| {HOSTILE} |\n\n<b>bold</b>\n"
        "<https://example.org> [fine](https://example.org/x) [here](../README.md)\n"
    )
    (mixed / "a'\"<b>.png").write_bytes(PNG)
    (mixed / "facts.json").write_text(json.dumps(
        {"command": HOSTILE, "git_commit": HOSTILE, "date": HOSTILE,
         "machine": {"processor": HOSTILE, "cores": 1}}
    ))
    actorq = tmp_path / "actorq"
    others = actorq / "something_else"
    others.mkdir(parents=True)
    (others / "returns.csv").write_text(f"x,<td>\n1,{HOSTILE}\n")
    published.publish(actorq, *(
        published.energy_result(
            f"{name}-s0", task=f"gym,{HOSTILE}", bits=bits, time_to_target_s=2.0,
            energy=published.energy(1, 1),
        )
        for name, bits in (("fp32", 32), ("int8", 8))
    ))
    page = report_page.build(str(tmp_path / "baseline"), str(actorq), HOSTILE)
    outline = check(page)
    assert "<script" not in page and "onerror=y>" not in page and "<b>bold" not in page
    assert [link for link in outline.links if "example" in link] == [
        "https://example.org", "https://example.org/x",
    ]
    assert "&lt;script&gt;alert(1)" in page and 'href="javascript' not in page
