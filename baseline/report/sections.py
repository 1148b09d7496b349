"""The report's sections on the baseline study: what was done, its origin, tables, plots."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import glob
import os
import re
from typing import NamedTuple

from baseline.report import markup
from baseline.report import origins
from baseline.study import paper

_LEVEL = 4  # Of headings in a section's files.
_MANY = 6  # Plots from which on those of one kind are hidden until someone asks for them.
# What is drawn, by the file's place: {} is what the group found. Tools give the names.
_CAPTIONS = (
    (r"ptq/plots/overview_(\w+)", "{}: mean return against bits after training, all agents. Star: "
     "the best width; dotted line: the fewest bits that are not shown to cost more than 2 %."),
    (r"ptq/plots/(.+)", "{}: mean return against bits after training."),
    (r"qat/plots/overview_(\w+)", "{}: mean return against bits, trained for them (QAT) and "
     "quantized after training (PTQ)."),
    (r"qat/plots/(.+)", "{}: mean return against bits, QAT and PTQ."),
    (r"findings/width_error_(\w+)", "Error E against the width of the weights, over {}."),
    (r"findings/weights-(.+)", "{}: how the weights spread, narrowest agent to widest."),
    (r"atari/learning_curve", "Training of the Atari agent: running mean of its score."),
    (r"mixed_precision/auto/.*timing", "Run time in fp32 over run time with the precision that was "
     "chosen by itself, by policy and threads; diamonds: the paper's."),
    (r"mixed_precision_timing", "Run time in fp32 over run time in half precision, by policy and "
     "threads; diamonds: the paper's."),
    (r"mixed_precision_parity", "Losses of the same 200 steps in fp32 and half precision, "
     "by policy."),
    (r"deployment/deployment", "Latency of the fp32 file over that of the int8 file of the same "
     "runtime, by policy; diamonds: the paper's."),
    (r"/convergence_?([^/]*)", "Return against time, fp32 and quantized actors: {}"),
    (r"/speedup", "Speed-up of time to reward by task, ours and the paper's."),
    (r"/breakdown(?:_torch)?_?([^/]*)", "Where an actor's time goes, phase by phase: {}"),
    (r"/throughput[\w-]*", "Steps per second against the number of actors."),
    (r"/(staleness)", "Final reward and staleness against the actors' update period."),
    (r"/(communication)", "Final reward and message size against the bits on the wire."),
    (r"/(learner_precision)", "Final reward and learner steps per second against the learner's "
     "precision."),
    (r"/(learner_parity)", "Losses of the same steps in float32 and bfloat16."),
    (r"/cluster_(\w+)", "Simulated environment steps per second against actors, {} downloads."),
)


class Section(NamedTuple):
    """A section of the page.

    Attributes:
      anchor: id on the page.
      title: heading.
      body: HTML.
      there: whether it has results.
    """

    anchor: str
    title: str
    body: str
    there: bool


class Subject(NamedTuple):
    """What a section is about.

    Attributes:
      anchor: id on the page.
      title: heading.
      about: what was done, for someone who has never seen this project.
      command: that makes the results.
    """

    anchor: str
    title: str
    about: str
    command: str


PTQ = Subject(
    "ptq", "Quantization after training (PTQ)",
    "Agents that others trained in full precision were rounded to fewer bits and played again. "
    "Each row of a table is one agent in one environment; both precisions start every episode from "
    "the same state, so that luck cancels. Negative E means that the rounded agent did better. "
    "The paper's agents play other games: compare the means, not the rows.",
    "baseline/results/reproduce.sh AGENTS",
)
_OTHER_PTQ = {
    "table_activations": "The same with activations quantized, too",
    "table_channel": "The same with a scale for each output of a layer",
}
_BESIDE_PTQ = {
    "findings": "Do wider weights lose more?", "integer": "As integers on ONNX Runtime",
    "atari": "The Atari agent",
}
QAT = Subject(
    "qat", "Training for few bits (QAT)",
    "Quantization-aware training goes on training with rounded weights and activations, so that "
    "the agent learns to live with them. Beside it stands PTQ of the fp32 agent of the same seed. "
    "Fewest bits: the narrowest width at which, as at all wider ones, at most 2 % of the reward is "
    "lost.",
    "baseline/results/reproduce_qat.sh",
)
MIXED_PRECISION = Subject(
    "mixed_precision", "Mixed-precision training",
    "Networks compute forward and backward in 16 bits while the weights are kept and updated in "
    "fp32. The paper trains DQN on Pong with three sizes of policy: the larger the network, the "
    "more there is to gain.",
    "baseline/results/reproduce_mixed_precision.sh",
)
# Folders within a section's.
_BELOW = {
    "mixed_precision/auto": "With the precision chosen by itself, the default",
    "mixed_precision/actorq": "ActorQ's learner in bfloat16",
    "mixed_precision/acrobot": "Returns of whole trainings on Acrobot-v1",
}
DEPLOYMENT = Subject(
    "deployment", "Deployment to a small device",
    "Policies that fly from point to point are written as 8-bit files that a small computer plays "
    "with a runtime alone. The paper measured on a Raspberry Pi 3b, we on one core of the machine "
    "below: compare the ratios.",
    "baseline/results/reproduce_deployment.sh",
)


def ptq(results: str) -> Section:
    """Returns the section on PTQ.

    Args:
      results: folder of the baseline's results.

    Raises:
      errors.UserError: a file is damaged.
    """
    folder = os.path.join(results, "ptq")
    body = ""
    if files(folder, "md", "png"):
        body = tables([os.path.join(folder, "table.md")], lambda text: "every width" in text)
        body += plots(files(os.path.join(folder, "plots"), "png"))
        others = [path for path in files(folder, "md") if os.path.basename(path) != "table.md"]
        body += "".join(
            markup.fold(_OTHER_PTQ.get(markup.stem(path), titled(path)), tables([path]))
            for path in others
        )
    for name, title in _BESIDE_PTQ.items():
        beside = os.path.join(results, name)
        if files(beside, "md", "png"):
            body += markup.heading(title, 3) + origin(PTQ, [beside])
            text = tables(files(beside, "md"), lambda text: "Agents" in text)
            body += markup.fold("Tables, agent by agent", text) if name == "integer" else text
            body += plots(files(beside, "png"))
    return section(PTQ, [folder], body)


def qat(results: str) -> Section:
    """Returns the section on QAT; see `ptq`."""
    folder = os.path.join(results, "qat")
    main = os.path.join(folder, "table.md")
    others = [path for path in files(folder, "md") if path != main]
    body = tables([main], lambda text: text != "QAT against PTQ") + tables(others)
    return section(QAT, [folder], body + plots(files(os.path.join(folder, "plots"), "png")))


def mixed_precision(results: str) -> Section:
    """Returns the section on mixed precision; see `ptq`."""
    return everything(MIXED_PRECISION, os.path.join(results, "mixed_precision"))


def deployment(results: str) -> Section:
    """Returns the section on deployment; see `ptq`."""
    return everything(DEPLOYMENT, os.path.join(results, "deployment"))


def everything(subject: Subject, folder: str) -> Section:
    """Returns a section with all tables and plots of a folder and the folders in it.

    Raises:
      errors.UserError: a file is damaged.
    """
    body = tables(files(folder, "md")) + plots(files(folder, "png"))
    for below in sorted(glob.glob(os.path.join(glob.escape(folder), "*", ""))):
        if text := tables(files(below, "md")) + plots(files(below, "png")):
            name = os.path.basename(below.rstrip(os.sep))
            title = _BELOW.get(f"{subject.anchor}/{name}", titled(name))
            body += markup.heading(title, 3) + text
    return section(subject, [folder], body)


def section(subject: Subject, folders: Sequence[str], body: str) -> Section:
    """Returns a section: subject and origin before the body, or one line if there is none.

    Raises:
      errors.UserError: a file of the folders is damaged.
    """
    about = f"<p>{markup.escape(subject.about)}</p>\n"
    if not body:
        return Section(subject.anchor, subject.title, about + missing(subject.command), False)
    body = about + origin(subject, folders) + body
    return Section(subject.anchor, subject.title, body, True)


def origin(subject: Subject, folders: Sequence[str]) -> str:
    """Returns where some folders' files come from; the subject's command if they note none.

    Raises:
      errors.UserError: a file is damaged.
    """
    found = origins.of_folders(folders)
    return found._replace(commands=found.commands or (subject.command,)).html()


def missing(command: str) -> str:
    """Returns the line that stands for results that do not exist."""
    code = f"<code>{markup.escape(command)}</code>"
    return f'<p class="none">No results yet: {code} makes them.</p>\n'


def tables(paths: Iterable[str], folded: Callable[[str], bool] = lambda heading: False) -> str:
    """Returns Markdown files as HTML, those that do not exist left out.

    Args:
      paths: of the files.
      folded: takes a heading; whether its text is hidden until someone asks for it.

    Raises:
      errors.UserError: a file cannot be read.
    """
    return "".join(
        markup.document(markup.read_text(path), _LEVEL, folded)
        for path in paths
        if os.path.isfile(path)
    )


def plots(paths: Sequence[str]) -> str:
    """Returns figures; of many, those that are of one agent only are hidden at first.

    Raises:
      errors.UserError: a file is no PNG.
    """
    overview = [path for path in paths if _is_overview(path)] if len(paths) > _MANY else paths
    rest = [path for path in paths if path not in overview]
    shown = "".join(markup.figure(path, caption(path)) for path in overview)
    if not rest:
        return shown
    hidden = "".join(markup.figure(path, caption(path)) for path in rest)
    return shown + markup.fold(f"{len(rest)} more plots, one by one", hidden)


def caption(path: str) -> str:
    """Returns what a plot shows, by its place and name."""
    place = path.replace(os.sep, "/").removesuffix(".png")
    for pattern, text in _CAPTIONS:
        if match := re.search(f"{pattern}$", place):
            name = match[1] if match.groups() and match[1] else ""
            name = name or os.path.basename(os.path.dirname(path))
            first, space, rest = name.replace("_", " ").partition(" ")
            return text.format((first.upper() if first in paper.MEANS else first) + space + rest)
    return titled(path)


def files(folder: str, *endings: str) -> list[str]:
    """Returns a folder's files in the order of their names.

    Args:
      folder: that need not exist.
      *endings: of the files, such as 'md' and 'png'.
    """
    found = sorted(glob.glob(os.path.join(glob.escape(folder), "*")))
    return [path for path in found if path.endswith(tuple(f".{ending}" for ending in endings))]


def _is_overview(path: str) -> bool:
    return os.path.basename(path).startswith(("overview_", "width_error_", "speedup"))


def titled(path: str) -> str:
    """Returns a file's name as words."""
    words = markup.stem(path).replace("_", " ")
    return words[:1].upper() + words[1:]
