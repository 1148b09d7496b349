"""Markdown files as blocks of the page."""

from baseline.report import blocks
from baseline.report import markdown


def test_markdown_is_split_at_headings():
    text = "before\n\n# One\n\n| A |\n| --- |\n| x |\n\n## Two\nend"
    assert [(part.heading, part.level) for part in markdown.parts(text)] == [
        ("", 0), ("One", 1), ("Two", 2),
    ]
    assert markdown.parts("") == []


def test_document_has_headings_folds_and_tables(tmp_path):
    path = tmp_path / "a.md"
    path.write_text("before\n\n# One\n\n| A |\n| --- |\n| x |\n\n## Two\nend")
    before, heading, table, fold = markdown.document(str(path), lambda text: text == "Two")
    assert before == blocks.Text("<p>before</p>\n") and heading == blocks.Heading("One", 4)
    assert '<div class="scroll"' in table.html and "<td>x</td>" in table.html
    assert fold == blocks.Fold("Two", [blocks.Text("<p>end</p>\n")])
