"""The wire manifest, which shows every layout in a line, and the coverage document."""
import sys
import textwrap

from physical import Physical
from plan import verdicts_of, wire_name

NUMBER = {"VkResult": "result"}


def _elem(elem):
    if elem.kind == "scalar":
        return elem.wire
    if elem.kind == "handle":
        return "#" + wire_name(elem.type)
    if elem.kind == "void":
        return "u8"
    return "text" if elem.kind == "string" else wire_name(elem.type)


def _field(f, plan):
    if f.kind == "chain":
        return "chain"
    if f.kind == "objhandle":
        return f"{f.name}:#{{{f.m.objecttype}}}"
    if f.kind == "chars":
        return f"{f.name}:text[{plan.dims(f.m)}]"
    if f.kind == "array":
        return f"{f.name}:{_elem(f.elem)}[{plan.dims(f.m)}]"
    if f.kind == "select":
        cases = " | ".join(_field(c, plan) for _s, c in f.cases)
        return f"{f.name}:{{{f.m.selector}? {cases}}}"
    if f.kind == "ptr":
        counts = "".join(f"[{c}]" for c in f.counts)
        return f"{f.name}:*{_elem(f.elem)}{counts}"
    return f"{f.name}:{_elem(f.elem)}"


def _layout(fields, plan):
    return " ".join(_field(f, plan) for f in fields if f.kind not in ("stype", "drop"))


def _command(c, plan):
    request = [f for f in c.fields if f.role == "in"]
    parts = [_layout(request, plan)]
    for role in ("count", "create", "out"):
        parts += [f"{role} {_field(f, plan)}" for f in c.with_role(role)]
    answer = "" if c.ret == "void" else f" -> {NUMBER.get(c.ret, c.ret)}"
    implicit = " in-stream" if c.implicit else ""
    return f"{c.id:08x}{implicit} ({'; '.join(p for p in parts if p)}){answer}"


def lines(plan):
    """(kind, name) -> layout."""
    found = {("command", c.name): _command(c, plan) for c in plan.commands.values()}
    for name in plan.ins | plan.outs:
        where = "".join(mark for mark, names in (("i", plan.ins), ("o", plan.outs))
                        if name in names)
        found["struct", name] = (where, _layout(plan.fields(name), plan))
    return found


def manifest(plan):
    rows = []
    for (kind, name), layout in sorted(lines(plan).items()):
        if kind == "struct":
            layout = f"{layout[0]} {layout[1]}"
        rows.append(f"{kind} {name} {layout}".rstrip())
    head = ["# The layout of every command and structure on the wire: values, pointers, chain.",
            "# Written by gen/main.py --manifest from the floor registry; a change here is a",
            "# change of the protocol.  Structures: i in requests, o in replies."]
    return "\n".join(head + rows) + "\n"


def compare(plan, path):
    """A later registry may add lines and directions; what was there must stay as it was."""
    now, bad = lines(plan), 0
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith("#"):
                continue
            kind, name, rest = (line.rstrip("\n") + "  ").split(" ", 2)
            found = now.get((kind, plan.r.resolve(name)))
            bad += _differs(kind, name, rest.rstrip(), found)
    return 1 if bad else 0


def _differs(kind, name, was, found):
    if kind == "struct" and found:
        where, _space, layout = was.partition(" ")
        same = layout == found[1] and set(where) <= set(found[0])
    else:
        same = was == found
    if not same:
        sys.stderr.write(f"{kind} {name} changed:\n  was {was}\n  now {found}\n")
    return not same


def _wrap(text, indent=""):
    return textwrap.fill(text, 100, subsequent_indent=indent, break_long_words=False,
                         break_on_hyphens=False)


def _grouped(reasons):
    """Names by their reason, a paragraph each."""
    groups = {}
    for name, reason in reasons.items():
        groups.setdefault(reason, []).append(name)
    return [_wrap(f"- {reason}: {', '.join(sorted(names))}", "  ")
            for reason, names in sorted(groups.items())]


def coverage(plan):
    verdicts = verdicts_of(plan)
    asked = {n: f"{r}; `{plan.policy.knob(n)}=1` offers it"
             for n, (v, r) in verdicts.items() if v == "allow" and plan.policy.knob(n)}
    offered = sorted(n for n, (v, _r) in verdicts.items() if v == "allow" and n not in asked)
    local = sorted(n for n, (v, _r) in verdicts.items() if v == "local")
    omitted = sorted((n, r) for n, (v, r) in verdicts.items() if v == "omit")
    kinds = {}
    for c in plan.commands.values():
        kinds.setdefault(c.kind, []).append(c.name)
    out = ["# Vulkan coverage", "",
           "For users who wonder why a command or extension is missing, and for maintainers of the "
           "policy.",
           "It answers: what happens to each Vulkan command, and which extensions can be offered?",
           f"For registry {plan.r.named()}, written by `gen/main.py --coverage` from the "
           "registry and", "`spec/policy.json`; a test holds it to them. A device offers what its "
           "driver and this list", "both have.", "",
           "| | |", "|---|---|",
           f"| commands on the wire | {len(plan.commands)} |",
           f"| commands answered at the client | {len(plan.local)} |",
           f"| commands of features that are not offered | {len(plan.refused)} |",
           f"| structures in requests | {len(plan.ins)} |",
           f"| structures in replies | {len(plan.outs)} |",
           f"| extensions that may be offered | {len(offered)} |",
           f"| extensions that are offered when asked for | {len(asked)} |",
           f"| extensions that live at the client | {len(local)} |",
           f"| extensions left out | {len(omitted)} |", "",
           "## Commands, by what happens to them", ""]
    for kind in sorted(kinds):
        out.append(_wrap(f"- **{kind}** ({len(kinds[kind])}): "
                         + ", ".join(sorted(kinds[kind])), "  "))
    out += ["", "## Commands answered at the client", ""] + _grouped(plan.local)
    out += ["", "## Commands of features that are not offered", ""] + _grouped(plan.refused)
    out += ["", "## Structures of offered extensions that do not travel", ""]
    out += _grouped(plan.skipped)
    out += ["", "## Features that are not offered, whatever the driver says", ""]
    out += _grouped({f"{s.name}.{member}": reason
                     for s, member, reason in Physical(plan).features_off()})
    out += ["", "## Extensions left out", "", "| extension | reason |", "|---|---|"]
    out += [f"| {name} | {reason} |" for name, reason in omitted]
    out += ["", "## Extensions that are offered when asked for", ""] + _grouped(asked)
    out += ["", "## Extensions that live at the client", ""]
    out += _grouped({name: verdicts[name][1] for name in local})
    out += ["", "## Extensions that may be offered", "", _wrap(", ".join(offered)), ""]
    return "\n".join(out)
