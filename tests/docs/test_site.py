"""The site builds without a dead link, dead anchor, or page outside the navigation."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from docs import generate

pytest.importorskip(
    "material",
    reason="the site's needs are not installed: pip install -r docs/requirements.txt"
    " -c constraints.txt",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    built = _build(generate.ROOT, folder)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def _build(root: pathlib.Path, out: pathlib.Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(out)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)


def test_first_page_is_the_readme(site):
    page = (site / "index.html").read_text(encoding="utf-8")
    assert "Reinforcement learning that is faster and cheaper" in page
    assert 'href="start/install/"' in page


def test_every_page_is_in_the_site(site):
    for path in (generate.ROOT / "docs").rglob("*.md"):
        name = path.relative_to(generate.ROOT / "docs").with_suffix("")
        assert (site / name / "index.html").is_file(), name


def test_pictures_and_raw_data_are_in_the_site(site):
    """Pages link to files outside docs/; no link of the built pages may lead to nothing."""
    count = 0
    for page in site.rglob("*.html"):
        for link in re.findall(r'(?:src|href)="([^"#?:]+)(?:[#?][^"]*)?"', page.read_text()):
            if page.name == "404.html" or link.startswith("/"):
                continue
            target = pathlib.Path(os.path.normpath(page.parent / link))
            assert target.exists(), f"{page}: {link}"
            count += target.suffix in (".png", ".gif", ".csv", ".json")
    assert count > 50


@pytest.fixture(name="small", scope="module")
def fixture_small(tmp_path_factory):
    """A copy of the repository with two pages, whose site builds."""
    root = tmp_path_factory.mktemp("repository")
    pages = {"how/learner.md": "# Learner\n\n[Good](../start/install.md#install)\n",
             "start/install.md": "# Install\n"}
    settings = (generate.ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[0]
    nav = "".join(f"\n  - {name}" for name in ["index.md", *pages])
    (root / "mkdocs.yml").write_text(f"{settings}\nnav:{nav}\n", encoding="utf-8")
    (root / "README.md").write_text("# Home\n", encoding="utf-8")
    for name, text in pages.items():
        (root / "docs" / name).parent.mkdir(parents=True)
        (root / "docs" / name).write_text(text, encoding="utf-8")
    shutil.copy(generate.ROOT / "docs" / "hooks.py", root / "docs")
    shutil.copytree(generate.ROOT / "docs" / "stylesheets", root / "docs" / "stylesheets")
    built = _build(root, root / "site")
    assert built.returncode == 0, built.stdout + built.stderr
    return root


@pytest.mark.parametrize("link", [
    "../start/no_such_page.md", "../start/install.md#no-such-anchor", "../../README.md#no-such",
    "../../actorQ/results/no_such.csv",
])
def test_a_dead_link_stops_the_build(small, link):
    (small / "docs/how/learner.md").write_text(f"# Learner\n\n[Dead]({link})\n", encoding="utf-8")
    built = _build(small, small / "site")
    assert built.returncode != 0
    assert "how/learner.md" in built.stderr and "1 warnings in strict mode" in built.stdout
