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
from actorQ.experiments import kinds
from actorQ.experiments import results
from actorQ.experiments.run_logs import times
from baseline.report import actorq as report_actorq
from baseline.report import blocks
from baseline.report import case_claims
from baseline.report import claims
from baseline.report import experiments
from baseline.report import origins
from baseline.report import page as report_page
from baseline.report import result_files
from baseline.report import sections
from baseline.study import paper

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
# Runs in the browser, in a copy of the page: what it made of it.
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
    """Tags that are open, ids, and what the page points to."""

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
    """Checks that a page is whole: balanced, nothing from elsewhere, links that lead somewhere."""
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
    assert {"summary", "reading", "ptq", "qat", "mixed_precision", "deployment"} <= set(outline.ids)
    assert {"time_to_reward", "energy", "benchmarks", "cluster"} <= set(outline.ids)
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
    # Wide tables scroll by themselves: the page does not.
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
    # Every section is there and says with which command it comes to be.
    assert page.count("No results yet: <code>") == 14
    assert "There is no folder" in missing.error("report")


def energy_result(name, task="dm_control,cartpole_balance", bits=32, **values):
    rewards = results.Rewards([90.0], [1.0], [1.0], [5.0], [0.5])
    missed = values.get("time_to_target_s") is None
    measured = results.Measured(**{
        **dict(
            outcome="missed" if missed else "reached", target=941.22, time_to_target_s=None,
            evaluation_to_target_s=None, censored_at_s=90.0 if missed else None,
            final_returns=[1.0], rewards=rewards, evaluation_s=1.0, learner_steps=1.0,
            actor_steps=1.0, learner_steps_per_s=None, actor_steps_per_s=None, data_used=None,
            staleness_steps=None, message_bytes=None, fp32_bytes=None, energy=None,
        ),
        **values,
    })
    return results.Result(
        "time_to_reward", "laptop", False, name, kinds.TRAINING, task, bits,
        int(name[-1]), None, {}, f"python -m actorQ.launcher --seed={name[-1]}", "c" * 40,
        {"processor": "Fast CPU", "cores": 2}, "2026-11-21 10:00:00 +0000", 1, 1.0, None, measured,
    )


def energy(kwh, grams):
    return results.Energy(9.0, 9.0, kwh / 1e3, grams / 1e3)


def publish(folder, *found, experiment="time_to_reward"):
    for result in found:
        run = folder / experiment / "runs" / result.name
        run.mkdir(parents=True)
        results.write(result, str(run))


def test_energy_is_the_median_with_censored_seeds_as_bounds(tmp_path):
    publish(
        tmp_path,
        energy_result("fp32-s0", energy=energy(40, 10), time_to_target_s=80.0),
        energy_result("fp32-s1", energy=energy(60, 20)),
        energy_result("fp32-s2", energy=energy(50, 12)),
        *(
            energy_result(f"int8-s{seed}", bits=8, energy=energy(wh, 5), time_to_target_s=20.0)
            for seed, wh in enumerate((10, 20, 30))
        ),
        energy_result("other-s0", task="gym,Acrobot-v1", time_to_target_s=1.0),  # fp32 alone.
    )
    (row,) = experiments.compared(str(tmp_path))
    assert (row.seeds, row.reached) == (3, "fp32 1 of 3, int8 3 of 3")
    # The second of three seeds, which missed the reward: a bound.
    assert row.watt_hours == (times.Reach(50, 0, False), times.Reach(20, 0, True))
    assert experiments.energy_table([row]).rows == [[
        "time_to_reward", "cartpole_balance", "941.22", "fp32 1 of 3, int8 3 of 3",
        "> 50", "20", "> 2.50", "> 12", "5", "> 2.40",
    ]]
    (claim,) = case_claims.energy([row])
    assert (claim.published, claim.ours) == ("1.9x to 3.76x", "> 2.40x (modelled)")
    assert (claim.verdict, claim.reason) == (claims.REACHED, "")
    assert experiments.energy_table([row._replace(grams=None)]).rows == []
    page = report_page.build(str(tmp_path / "none"), str(tmp_path), "command")
    check(page)
    # Found where the experiment's own files note it.
    assert "Modelled, not measured" in page and "Fast CPU, 2 cores" in page


def test_only_seeds_that_both_sides_have_are_compared(tmp_path):
    """As in the experiment's own tables: a third seed of fp32, and of int8, are left out."""
    publish(
        tmp_path,
        *(
            energy_result(f"fp32-s{seed}", energy=energy(wh, wh), time_to_target_s=seconds)
            for seed, wh, seconds in ((0, 30, 60.0), (1, 40, 80.0), (2, 90, 90.0))
        ),
        energy_result("int8-s0", bits=8, energy=energy(10, 10), time_to_target_s=20.0),
        energy_result("int8-s1", bits=8, time_to_target_s=40.0),  # Without energy.
        energy_result("int8-s3", bits=8, energy=energy(1, 1), time_to_target_s=1.0),
        # No seed is shared.
        energy_result("fp32-s4", task="gym,Acrobot-v1", time_to_target_s=1.0),
        energy_result("int8-s5", task="gym,Acrobot-v1", bits=8, time_to_target_s=1.0),
    )
    (row,) = experiments.compared(str(tmp_path))
    assert row.task == "dm_control,cartpole_balance"
    assert [reach.seconds for reach in row.seconds] == [70, 30]
    assert (row.seeds, row.reached) == (2, "fp32 2 of 2, int8 2 of 2")
    assert [reach.seconds for reach in row.watt_hours] == pytest.approx([30, 10])
    assert [reach.seconds for reach in row.grams] == pytest.approx([30, 10])


def test_folders_within_a_folder_of_results_are_shown(tmp_path):
    for name in ("faults", "faults/again_30", "faults/runs", "network/first", "benchmarks/gym"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "table.md").write_text(f"text of {name}\n")
    (tmp_path / "network" / "first" / "plot.png").write_bytes(PNG)
    page = report_page.build(str(tmp_path / "none"), str(tmp_path), "command")
    check(page)
    assert "<h3>benchmarks: gym</h3>\n<details>" in page
    assert "<h3>faults</h3>\n<p>text of faults</p>" in page
    assert "<h3>faults: again 30</h3>\n<p>text of faults/again_30</p>" in page
    assert "<h3>network: first</h3>\n<p>text of network/first</p>\n<figure>" in page
    assert "<h3>network</h3>" not in page and "faults/runs" not in page


def test_one_seed_that_forgot_does_not_decide_the_claim_on_staleness(tmp_path):
    report = tmp_path / "staleness" / "report"
    report.mkdir(parents=True)
    rows = ["10,a,int8,990,990.00;991.00;989.00", "100,a,int8,810,430.00;1000.00;999.00"]
    (report / "staleness.csv").write_text("\n".join(
        ["value,task,precision,final_reward,final_reward_by_seed", *rows, "300,a,int8,,"]
    ))
    (claim,) = [
        claim for claim in report_actorq.claims(str(tmp_path), []) if claim.part == "staleness"
    ]
    assert (claim.ours, claim.verdict) == ("up to 1.01x", claims.MISSED)
    (report / "staleness.csv").write_text(
        "value,task,precision,final_reward_by_seed\n1,a,int8,1;x\n"
    )
    with pytest.raises(errors.UserError, match="final_reward_by_seed has to be a number, not 'x'"):
        report_actorq.claims(str(tmp_path), [])


def test_smoke_runs_and_damaged_results_do_not_count(tmp_path):
    smoke = energy_result("int8-s0", bits=8, time_to_target_s=1.0)
    publish(tmp_path, smoke, energy_result("fp32-s0", time_to_target_s=2.0))
    path = tmp_path / "time_to_reward" / "runs" / "int8-s0" / "result.json"
    path.write_text(path.read_text().replace('"smoke": false', '"smoke": true'))
    assert experiments.compared(str(tmp_path)) == []
    path.write_text("{")
    with pytest.raises(errors.UserError, match="result.json is damaged"):
        experiments.compared(str(tmp_path))


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
    publish(actorq, *(
        energy_result(f"{name}-s0", task=f"gym,{HOSTILE}", bits=bits, time_to_target_s=2.0,
                      energy=energy(1, 1))
        for name, bits in (("fp32", 32), ("int8", 8))
    ))
    page = report_page.build(str(tmp_path / "baseline"), str(actorq), HOSTILE)
    outline = check(page)
    assert "<script" not in page and "onerror=y>" not in page and "<b>bold" not in page
    assert [link for link in outline.links if "example" in link] == [
        "https://example.org", "https://example.org/x",
    ]
    assert "&lt;script&gt;alert(1)" in page and 'href="javascript' not in page


def test_origins_are_of_the_files_own_notes(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(
        {"command": "one", "git_commit": "a" * 40 + "+changes", "date": "2026-01-02",
         "machine": {"processor": "CPU", "cores": 2}}
    ))
    (tmp_path / "b.csv").write_text(f"x,commit\n1,{'b' * 40}\n2,{'b' * 40}\n")
    (tmp_path / "c.md").write_text(
        f"text\n\n`two --flag` on CPU, commit {'c' * 12}, 2026-01-01 10:00:00 +0000.\n"
    )
    (tmp_path / "d.json").write_text("[1]")
    found = origins.of_folders([str(tmp_path)])
    assert found.commands == ("one", "two --flag") and found.machines == ("CPU, 2 cores",)
    assert found.commits == ("a" * 12 + "+changes", "b" * 12, "c" * 12)
    assert found.period == ["2026-01-01 10:00:00 +0000", "2026-01-02"]
    assert blocks.Origin().period == []
    (tmp_path / "e.json").write_text("{")
    with pytest.raises(errors.UserError, match="e.json is damaged"):
        origins.of_folders([str(tmp_path)])
    with pytest.raises(errors.UserError, match="cells"):
        (tmp_path / "f.csv").write_text("a,b\n1\n")
        result_files.read_csv(str(tmp_path / "f.csv"))
