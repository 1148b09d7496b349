"""The page's own CSS: light and dark, for phones, for paper. Loads nothing."""

CSS = """
:root {
  color-scheme: light dark;
  --text: #1c2126; --quiet: #59636e; --page: #ffffff; --raised: #f4f6f8; --line: #d5dbe1;
  --link: #0b5cad; --good: #10692f; --part: #805300; --bad: #a8201a;
}
@media (prefers-color-scheme: dark) {
  :root {
    --text: #e4e8ec; --quiet: #a2acb6; --page: #14181c; --raised: #1e242a; --line: #39424b;
    --link: #7ab8ff; --good: #6fd08c; --part: #e8b45a; --bad: #ff8f88;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-padding-top: 1rem; }
body {
  margin: 0 auto; padding: 1rem 1.25rem 4rem; max-width: 76rem; background: var(--page);
  color: var(--text); overflow-wrap: break-word;
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
h1 { font-size: 1.9rem; line-height: 1.2; margin: 1.5rem 0 0.5rem; }
h2 { font-size: 1.45rem; line-height: 1.25; margin: 3rem 0 0.5rem; padding-top: 0.75rem;
  border-top: 2px solid var(--line); }
h3 { font-size: 1.15rem; margin: 2rem 0 0.5rem; }
h4, h5, h6 { font-size: 1rem; margin: 1.5rem 0 0.4rem; }
p, ul, dl { max-width: 46rem; }
li { margin: 0.2rem 0; overflow-wrap: anywhere; }
a { color: var(--link); }
code { font: 0.88em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
  background: var(--raised); padding: 0.1em 0.3em; border-radius: 3px; overflow-wrap: anywhere; }
nav ul { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: 0.2rem 1.1rem; }
dt { font-weight: 600; margin-top: 0.7rem; }
dd { margin: 0 0 0 1rem; }
.lead, .origin, figcaption { color: var(--quiet); }
.origin, figcaption { font-size: 0.88rem; }
.none { background: var(--raised); border-left: 4px solid var(--line); padding: 0.6rem 0.9rem; }
.scroll { overflow-x: auto; margin: 0.8rem 0 1.2rem; max-width: 100%; }
.scroll:focus-visible { outline: 2px solid var(--link); }
table { border-collapse: collapse; font-size: 0.86rem; line-height: 1.35;
  font-variant-numeric: tabular-nums; }
th, td { padding: 0.32rem 0.6rem; border-bottom: 1px solid var(--line); text-align: left;
  white-space: nowrap; }
thead th { background: var(--raised); border-bottom: 2px solid var(--line); vertical-align: bottom;
  white-space: normal; min-width: 3.5rem; }
td:first-child, th:first-child { position: sticky; left: 0; background: var(--page); }
thead th:first-child { background: var(--raised); }
.summary td { white-space: normal; vertical-align: top; }
.summary td:first-child { min-width: 13rem; }
.summary td:nth-child(3) { min-width: 9rem; }
.verdict { font-weight: 600; white-space: nowrap; }
.good { color: var(--good); } .part { color: var(--part); } .bad { color: var(--bad); }
.open { color: var(--quiet); }
.why { color: var(--quiet); font-size: 0.92em; }
figure { margin: 1rem 0 1.6rem; break-inside: avoid; }
img { max-width: 100%; height: auto; background: #ffffff; border-radius: 4px; display: block; }
figcaption { margin-top: 0.35rem; max-width: 46rem; }
details { margin: 0.5rem 0; border: 1px solid var(--line); border-radius: 4px;
  padding: 0.2rem 0.8rem; }
summary { cursor: pointer; padding: 0.35rem 0; font-weight: 600; }
footer { margin-top: 3rem; border-top: 1px solid var(--line); color: var(--quiet);
  font-size: 0.88rem; }
@media (max-width: 40rem) {
  body { padding: 0.5rem 0.8rem 3rem; }
  h1 { font-size: 1.5rem; } h2 { font-size: 1.25rem; }
  td:first-child, th:first-child { position: static; }
  /* The summary becomes a list of cards. */
  .summary, .summary tbody, .summary tr, .summary td { display: block; }
  .summary thead { display: none; }
  .summary tr { border-bottom: 2px solid var(--line); padding: 0.5rem 0; }
  .summary td { border: 0; padding: 0.1rem 0; }
  .summary td:first-child { font-weight: 600; }
  .summary td[data-name]::before { content: attr(data-name) ": "; color: var(--quiet); }
}
@media print {
  :root { color-scheme: light; --text: #000000; --quiet: #444444; --page: #ffffff;
    --raised: #f2f2f2; --line: #bbbbbb; --link: #000000; --good: #10692f; --part: #805300;
    --bad: #a8201a; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav { display: none; }
  .scroll { overflow: visible; }
  table { font-size: 6.5pt; }
  th, td { padding: 0.12rem 0.25rem; white-space: normal; }
  td:first-child, th:first-child { position: static; }
  tr { break-inside: avoid; }
  thead { display: table-header-group; }
  /* What is folded on a screen is open on paper. */
  details::details-content { content-visibility: visible; display: block; height: auto; }
}
""".strip()
