"""The results of tools/bench as text and as one HTML page without scripts, fonts or files beside it.

A result is {"name", "shows", "state": "done" | "failed" | "left out", "why", "command", "seconds",
"report", "page"}; a report is what `--json` of a benchmark prints (src/base/report/bench.h)."""
import datetime
from html import escape

STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2128;--dim:#5b6570;--line:#d9dee4;--band:#f5f7f9;
--good:#00775a;--bad:#b3261e;--bar:#0068b5}
@media(prefers-color-scheme:dark){:root{--bg:#14181d;--fg:#e3e8ee;--dim:#98a3ae;--line:#323a43;
--band:#1b2127;--good:#3cc79f;--bad:#ff8a80;--bar:#58aaf0}}
body{margin:0 auto;padding:1rem;max-width:64rem;background:var(--bg);color:var(--fg);
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.6rem;margin:.5rem 0}h2{font-size:1.2rem;margin:2.5rem 0 .25rem}
p{margin:.4rem 0;max-width:46rem}.dim{color:var(--dim);font-size:.85rem}a{color:var(--bar)}
code{font-size:.85rem;background:var(--band);padding:.1rem .3rem;overflow-wrap:anywhere}
.wide{overflow-x:auto;margin:.75rem 0}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .7rem .3rem 0;text-align:left;vertical-align:top;white-space:nowrap;
border-bottom:1px solid var(--line)}th{color:var(--dim);font-weight:600}.r{text-align:right}
td.text{white-space:normal;min-width:14rem}td.against{white-space:normal;min-width:7rem}
.good{color:var(--good)}.bad{color:var(--bad);font-weight:600}
.track{position:relative;width:9rem;height:.8rem;background:var(--band);margin-top:.4rem}
.track i{position:absolute;left:0;top:0;bottom:0;background:var(--good)}
.track.no i{background:var(--bad)}
.track b{position:absolute;left:50%;top:-.2rem;bottom:-.2rem;border-left:2px solid var(--fg)}
.bars{display:grid;grid-template-columns:max-content 1fr;gap:.15rem .6rem;font-size:.85rem;
max-width:46rem;margin:.75rem 0}.bars span{white-space:nowrap}.bars i{display:inline-block;height:.8rem;margin-right:.5rem;
background:var(--bar);vertical-align:middle}
details{margin:.5rem 0}summary{cursor:pointer;color:var(--dim)}
@media(max-width:40rem){.aside{display:none}}
@media print{tr{break-inside:avoid}}
"""

# Charts: a heading, and which rows of a benchmark are its bars.
CHARTS = {
    "ipc": [("Median map", lambda name: name.endswith(".map.median")),
            ("Median unmap", lambda name: name.endswith(".unmap.median"))],
    "experiment": [("Latency of a decode", lambda name: name.startswith("decode."))],
    "llm-serving": [("Tokens a second, all clients together", lambda name: True)],
    "blocks": [("GiB a second", lambda name: True)],
}
NAMES_SHOWN = 3


def number(value):
    """Four digits, and all digits of the whole part."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def figure(row):
    return "invalid" if row.get("valid") is False else number(row["value"])


def verdict(row):
    return row.get("met", "-")


def summary(result):
    """In a few words: how a benchmark went."""
    if result["state"] == "failed":
        return "failed"
    if result["state"] == "left out":
        return f"left out: {result['why']}"
    rows = result["report"]["rows"]
    judged = [row for row in rows if verdict(row) != "-"]
    met = sum(verdict(row) == "yes" for row in judged)
    invalid = sum(row.get("valid") is False for row in rows)
    said = f"{met} of {len(judged)} targets met" if judged else f"{len(rows)} rows, no targets"
    return said + (f", {invalid} invalid" if invalid else "")


def notes(report):
    """Rows that cannot be true, and rows that were not measured."""
    said = [f"invalid: {row['name']}: {row['reason']}"
            for row in report["rows"] if row.get("valid") is False]
    for left in report.get("left_out", []):
        names = left["rows"]
        more = " and others" if len(names) > NAMES_SHOWN else ""
        said.append(f"left out by {left['why']}: {len(names)} row{'s' * (len(names) != 1)}: "
                    f"{', '.join(names[:NAMES_SHOWN])}{more}")
    return said


# -- text --

def text(result):
    if result["state"] == "failed":
        return f"FAILED: {result['why']}"
    tested = [row for row in result["report"]["rows"] if "difference" in row]
    rows = [("name", "value", "unit", "baseline", "ratio", "target", "met") + ("difference",) * bool(tested)]
    for row in result["report"]["rows"]:
        rows.append((full_name(row, result["report"]["rows"]), figure(row), row["unit"], number(row["baseline"]),
                     number(row["ratio"]), row.get("target", "-"), verdict(row))
                    + (row.get("difference", "-"),) * bool(tested))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) if i in (0, 2) else cell.rjust(width)
                       for i, (cell, width) in enumerate(zip(row, widths))).rstrip()
             for row in rows]
    return "\n".join(lines + notes(result["report"]) + [result["why"]]).rstrip()


# -- HTML --

def cell(content, css=""):
    return f'<td class="{css}">{content}</td>' if css else f"<td>{content}</td>"


def verdict_cell(row):
    met = verdict(row)
    return cell(escape(met), "good" if met == "yes" else "bad" if met in ("NO", "invalid") else "")


def target_bar(row):
    """The mark in the middle is the target; the bar is the figure, up to twice the target."""
    judged = row["ratio"] if row["ratio"] is not None else row["value"]
    bound = float(row["target"].split()[1]) if verdict(row) != "-" else 0
    if judged is None or bound <= 0:
        return ""
    wide = min(judged / bound * 50, 100)
    css = "track" if verdict(row) == "yes" else "track no"
    return f'<div class="{css}"><i style="width:{wide:.1f}%"></i><b></b></div>'


def setting(row):
    """The first column of its own that a row has: it tells rows of one name apart."""
    shared = ("name", "value", "unit", "baseline", "ratio", "against", "target", "met", "valid",
              "reason", "difference")
    return next((f"{key} {value}" for key, value in row.items() if key not in shared), "again")


def full_name(row, rows):
    alike = sum(other["name"] == row["name"] for other in rows)
    return f"{row['name']} ({setting(row)})" if alike > 1 else row["name"]


def rows_table(rows):
    """The verdicts stand before the baselines, so that they are seen on a narrow screen, too."""
    judged = any(verdict(row) != "-" for row in rows)
    against = any("against" in row for row in rows)
    heads = ["name", "value", "", "ratio"] + ["target", "met", "the mark is the target"] * judged
    tested = any("difference" in row for row in rows)
    heads += ["baseline"] + ["against"] * against + ["difference"] * tested
    right = ("value", "baseline", "ratio")
    out = ['<div class="wide"><table><thead><tr>']
    out += [f'<th class="r">{head}</th>' if head in right else f"<th>{head}</th>" for head in heads]
    out.append("</tr></thead><tbody>")
    for row in rows:
        cells = [cell(escape(full_name(row, rows))),
                 cell(figure(row), "r bad" if row.get("valid") is False else "r"),
                 cell(escape(row["unit"])), cell(number(row["ratio"]), "r")]
        if judged:
            cells += [cell(escape(row.get("target", "-"))), verdict_cell(row),
                      cell(target_bar(row))]
        cells.append(cell(number(row["baseline"]), "r"))
        if against:
            cells.append(cell(escape(row.get("against", "-")), "against"))
        if tested:
            cells.append(cell(escape(row.get("difference", "-"))))
        out.append(f"<tr>{''.join(cells)}</tr>")
    return "\n".join(out) + "\n</tbody></table></div>\n"


def bars(title, rows):
    rows = [row for row in rows if row["value"] is not None]
    most = max((row["value"] for row in rows), default=0)
    if most <= 0:
        return ""
    lines = "".join(f"<span>{escape(row['name'])}</span><span><i style=\"width:"
                    f"{row['value'] / most * 60:.1f}%\"></i>{number(row['value'])} "
                    f"{escape(row['unit'])}</span>" for row in rows)
    return f'<p><strong>{escape(title)}</strong></p><div class="bars">{lines}</div>\n'


def section(result):
    out = [f'<h2 id="{result["name"]}">{escape(result["name"])}</h2>'
           f'<p>{escape(result["shows"])}</p>\n']
    if result["state"] == "left out":
        return out[0] + f'<p class="dim">Left out: {escape(result["why"])}.</p>\n'
    out.append(f'<p class="dim"><code>{escape(result["command"])}</code> '
               f'{result["seconds"]:.0f} s</p>\n')
    if result["state"] == "failed":
        return "".join(out) + f'<p class="bad">Failed: {escape(result["why"])}</p>\n'
    report = result["report"]
    rows = report["rows"]
    out += [f'<p class="{"bad" if note.startswith("invalid") else "dim"}">{escape(note)}</p>\n'
            for note in notes(report)]
    for title, wanted in CHARTS.get(result["name"], []):
        out.append(bars(title, [row for row in rows if wanted(row["name"])]))
    judged = [row for row in rows if verdict(row) != "-"]
    rest = [row for row in rows if verdict(row) == "-"]
    out += [rows_table(judged)] if judged else []
    if rest:
        out.append(f"<details><summary>{len(rest)} rows without a target</summary>"
                   f"{rows_table(rest)}</details>\n")
    if result["page"]:
        out.append(f'<p><a href="{result["page"]}">{result["page"]}</a> has more of it.</p>\n')
    if result["why"]:
        out.append(f'<p class="dim">It also said: {escape(result["why"])}</p>\n')
    return "".join(out)


def overview(results):
    out = ['<div class="wide"><table><thead><tr><th>benchmark</th><th class="aside">what it shows</th>'
           "<th>result</th></tr></thead><tbody>\n"]
    for result in results:
        said = summary(result)
        rows = result["report"]["rows"] if result["report"] else []
        bad = result["state"] == "failed" or any(verdict(row) in ("NO", "invalid") for row in rows)
        out.append(f'<tr><td><a href="#{result["name"]}">{result["name"]}</a></td>'
                   + cell(escape(result["shows"]), "text aside")
                   + cell(escape(said), "bad" if bad else "") + "</tr>\n")
    return "".join(out) + "</tbody></table></div>\n"


def html(results, quick, busy=None):
    reports = [result["report"] for result in results if result["report"]]
    first = reports[0] if reports else {"host": "unknown machine", "commit": "unknown"}
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    minutes = sum(result["seconds"] for result in results) / 60
    failed = sum(result["state"] == "failed" for result in results)
    said = f'<p class="bad">{escape(busy)}</p>' if busy else ""
    said += (f'<p class="bad">{failed} of {len(results)} benchmarks failed.</p>' if failed else "")
    return f"""<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width,initial-scale=1"/>
<title>Hawser benchmarks</title>
<style>{STYLE}</style>
</head>
<body>
<h1>Hawser benchmarks</h1>
<p class="dim">{escape(first["host"])}; commit {escape(first["commit"])}; {date}; \
{"a quick run" if quick else "a whole run"} of {minutes:.1f} minutes</p>
<p>Client and server ran on this one machine.  A ratio is a value beside its baseline, which was
measured in the same run.  A target is a bound of the ratio, or of the value where there is no
baseline.</p>
{said}
{overview(results)}
{"".join(section(result) for result in results)}
</body>
</html>
"""
