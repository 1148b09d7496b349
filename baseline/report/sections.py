"""The report's sections on the baseline study."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import os
import pathlib
from typing import NamedTuple

import yaml

from baseline.report import blocks
from baseline.report import headings
from baseline.report import markdown
from baseline.report import origins
from baseline.report import plots
from baseline.report import result_files


class Subject(NamedTuple):
    """The subject of a section.

    Attributes:
      anchor: The section's id on the page.
      title: The section's heading.
      about: The experiment, for readers who have never seen this project.
      command: The command that makes the results.
      folders: The folders of results that belong to a section on ActorQ.
    """

    anchor: str
    title: str
    about: str
    command: str
    folders: Sequence[str] = ()


_TEXTS = pathlib.Path(__file__).parent / "templates" / "sections.yaml"
SUBJECTS = {
    anchor: Subject(anchor, **texts)
    for anchor, texts in yaml.safe_load(_TEXTS.read_text(encoding="utf-8")).items()
}


class Section(NamedTuple):
    """A section of the page; without blocks, there are no results yet."""

    subject: Subject
    blocks: Sequence[blocks.Block]


_OTHER_PTQ = {
    "table_activations.md": "The same with activations quantized, too",
    "table_channel.md": "The same with a scale for each output of a layer",
}
_BESIDE_PTQ = {
    "findings": "Do wider weights lose more?", "integer": "As integers on ONNX Runtime",
    "atari": "The Atari agent",
}


def baseline_sections(results: str) -> list[Section]:
    """Returns the sections on the baseline study.

    Args:
      results: The folder of the baseline's results.

    Raises:
      errors.UserError: A file is damaged.
    """
    return [
        _ptq(results), _qat(results), _everything(SUBJECTS["mixed_precision"], results),
        _everything(SUBJECTS["deployment"], results),
    ]


def section(
    subject: Subject, folders: Sequence[str], content: Sequence[blocks.Block]
) -> Section:
    """Returns a section that begins with the origin of its results, if it has any.

    Raises:
      errors.UserError: A file of the folders is damaged.
    """
    return Section(subject, [_origin(subject, folders), *content] if content else [])


def tables(
    paths: Iterable[str], folded: Callable[[str], bool] = lambda heading: False
) -> list[blocks.Block]:
    """Returns those Markdown files that exist.

    Args:
      paths: The files' paths.
      folded: Takes a heading; returns whether its text is hidden until a reader opens it.

    Raises:
      errors.UserError: A file cannot be read.
    """
    return [
        block for path in paths if os.path.isfile(path)
        for block in markdown.document(path, folded)
    ]


def _ptq(results: str) -> Section:
    folder = os.path.join(results, "ptq")
    content: list[blocks.Block] = []
    if result_files.files(folder, "md", "png"):
        content += blocks.beside(
            tables([os.path.join(folder, "table.md")], lambda text: "every width" in text),
            plots.figures(result_files.files(os.path.join(folder, "plots"), "png")),
        )
        for path in result_files.files(folder, "md"):
            name = os.path.basename(path)
            if name != "table.md":
                title = _OTHER_PTQ.get(name, result_files.titled(path))
                content.append(blocks.Fold(title, tables([path])))
    for name, title in _BESIDE_PTQ.items():
        beside = os.path.join(results, name)
        if result_files.files(beside, "md", "png"):
            content += [blocks.Heading(title, 3), _origin(SUBJECTS["ptq"], [beside])]
            found = tables(result_files.files(beside, "md"), lambda text: "Agents" in text)
            if name == "integer":
                found = [blocks.Fold("Tables, agent by agent", found)]
            content += blocks.beside(found, plots.figures(result_files.files(beside, "png")))
    return section(SUBJECTS["ptq"], [folder], content)


def _qat(results: str) -> Section:
    folder = os.path.join(results, "qat")
    main = os.path.join(folder, "table.md")
    others = [path for path in result_files.files(folder, "md") if path != main]
    content = blocks.beside(
        [*tables([main], lambda text: text != "QAT against PTQ"), *tables(others)],
        plots.figures(result_files.files(os.path.join(folder, "plots"), "png")),
    )
    return section(SUBJECTS["qat"], [folder], content)


def _everything(subject: Subject, results: str) -> Section:
    """Returns a section with all tables and plots of a folder and of the folders in it."""
    folder = os.path.join(results, subject.anchor)
    content: list[blocks.Block] = []
    for path in (folder, *result_files.folders(folder)):
        place = (subject.anchor, os.path.basename(path))
        found = tables(result_files.files(path, "md"))
        shown = plots.figures(result_files.files(path, "png"))
        if path != folder and (found or shown):
            title, found = headings.titled(place, found, result_files.titled(path))
            content.append(blocks.Heading(title, 3))
        content += blocks.beside(found, shown)
    return section(subject, [folder], content)


def _origin(subject: Subject, folders: Sequence[str]) -> blocks.Origin:
    """Returns the origin of some folders' files, with the subject's command if they note none."""
    found = origins.of_folders(folders)
    return dataclasses.replace(found, commands=found.commands or (subject.command,))
