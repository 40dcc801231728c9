#!/usr/bin/env python3
"""From the Vulkan registry and spec/policy.json to C.

    main.py --xml vk.xml --policy policy.json --out FOLDER   the marshalling code
            --tests FOLDER     also the code that tests it: fillers and a fake driver
            --manifest FILE    the wire manifest, or - for stdout
            --coverage FILE    docs/reference/vulkan-coverage.md, or - for stdout
            --compare FILE     fails when a line of an older manifest changed or is gone
"""
import argparse
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import manifest                       # noqa: E402
from client import Client             # noqa: E402
from commands import Commands         # noqa: E402
from emit import Out                  # noqa: E402
from physical import Physical         # noqa: E402
from plan import Plan                 # noqa: E402
from policy import Policy             # noqa: E402
from registry import Registry         # noqa: E402
from selftest import SelfTest         # noqa: E402
from structs import Structs           # noqa: E402

SHARDS = 4  # files of each kind, so that two cores share the compiling
BANNER = "/* Generated from the Vulkan registry by gen/main.py. */"


def write(folder, name, text):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(f"{BANNER}\n{text.rstrip()}\n")


def guard(name, includes, body):
    mark = "VN_" + name.upper().replace(".", "_")
    lines = [f"#ifndef {mark}", f"#define {mark}", ""]
    lines += [f'#include "{i}"' for i in includes]
    return "\n".join(lines + ["", body, "", "#endif"])


def source(includes, parts):
    return "\n".join([f'#include "{i}"' for i in includes] + [""] + parts)


def shards(folder, stem, includes, parts):
    """Spreads functions over SHARDS files of about the same size, in a stable order."""
    bins = [[] for _ in range(SHARDS)]
    sizes = [0] * SHARDS
    for part in parts:
        i = sizes.index(min(sizes))
        bins[i].append(part)
        sizes[i] += part.count("\n") + 1
    for i, content in enumerate(bins):
        write(folder, f"{stem}_{i}.gen.c", source(includes, content))


def aliases(plan, names, stems):
    """Macros that give a function or struct the names that its subject has besides its own, so
    that what is written for one registry compiles with a later one, where the name was promoted."""
    rows = []
    for alias in sorted(plan.r.aliases):
        target = plan.r.resolve(alias)
        if target in names:
            rows += [f"#define {stem}{alias} {stem}{target}" for stem in stems]
    return rows


def slots(plan, every, declare):
    """Members of a table, one a command; each alias is another name of the same member."""
    others = {}
    for alias in sorted(plan.r.aliases):
        others.setdefault(plan.r.resolve(alias), []).append(alias)
    for c in every:
        own = declare(c, c.name)
        if c.name in others:
            yield f"    union {{ {' '.join([own] + [declare(c, n) for n in others[c.name]])} }};"
        else:
            yield f"    {own}"


def write_structs(folder, structs):
    plan = structs.p
    protos = sorted(structs.protos) + aliases(
        plan, plan.ins | plan.outs, [f"vn_{verb}_" for verb in ("enc", "dec", "store", "load")])
    protos = "\n".join(protos)
    write(folder, "vn_structs.gen.h",
          guard("structs.gen.h", ["venus/common/chain.h", "venus/common/rules.h"], protos))
    shards(folder, "vn_enc", ["vn_structs.gen.h"], structs.enc)
    shards(folder, "vn_dec", ["vn_structs.gen.h"], structs.dec)
    write(folder, "vn_chain.gen.c", source(["vn_structs.gen.h"], [structs.chains()]))


def write_commands(folder, commands):
    every = commands.all()
    o = Out()
    for c in every:
        o(f"#define VN_CMD_{c.name} 0x{c.id:08x}u")
    o()
    for c in every:
        o(commands.args(c))
        o()
    o("struct vn_driver {")
    for line in slots(commands.p, every, lambda c, name: f"PFN_{c.name} {name};"):
        o(line)
    o("};")
    o()
    o("struct vn_hooks {")
    for line in slots(commands.p, every, lambda c, name:
                      f"void (*{name})(struct vn_exec *x, struct vn_args_{c.name} *a);"):
        o(line)
    o("};")
    o()
    o("/* Fills the table with what get finds, by any of a command's names; NULL for the rest. */")
    o("void vn_driver_load(struct vn_driver *driver, "
      "PFN_vkVoidFunction (*get)(void *data, const char *name), void *data);")
    for c in every:
        for proto in commands.protos(c):
            o(proto)
    for line in aliases(commands.p, set(commands.p.commands), [
            "VN_CMD_", "vn_args_", "vn_enc_cmd_", "vn_dec_reply_", "vn_dec_args_",
            "vn_enc_reply_", "vn_exec_", "vn_"]):
        o(line)
    write(folder, "vn_commands.gen.h",
          guard("commands.gen.h", ["venus/common/client_iface.h", "venus/common/commands.h",
                                   "venus/common/exec.h", "vn_structs.gen.h"], o.text()))
    shards(folder, "vn_request", ["vn_commands.gen.h"],
           [commands.enc_cmd(c) for c in every] +
           [commands.dec_reply(c) for c in every if commands.has_reply(c)])
    shards(folder, "vn_exec", ["vn_commands.gen.h"],
           [text for c in every for text in (commands.dec_args(c), commands.exec(c))] +
           [commands.enc_reply(c) for c in every if commands.has_reply(c)])
    write(folder, "vn_dispatch.gen.c", source(["vn_commands.gen.h"], [dispatch(every)]))
    write(folder, "vn_driver.gen.c", source(["vn_commands.gen.h"], [driver(commands.p, every)]))


def dispatch(every):
    """Commands sorted by id, and where each value of the top byte begins."""
    rows = sorted(every, key=lambda c: c.id)
    o = Out()
    o("static const struct {")
    o("    uint32_t id;")
    o("    int (*exec)(struct vn_exec *x, struct vn_decoder *d);")
    o("} commands[] = {")
    for c in rows:
        o(f"    {{0x{c.id:08x}, vn_exec_{c.name}}},")
    o("};")
    o()
    first = [sum(1 for c in rows if c.id >> 24 < top) for top in range(257)]
    o("/* The first command whose id has this top byte. */")
    o("static const uint16_t first[] = {")
    for i in range(0, 257, 16):
        o("    " + ", ".join(map(str, first[i:i + 16])) + ",")
    o("};")
    o()
    o.function("int vn_dispatch(struct vn_exec *x, uint32_t command, struct vn_decoder *d)")
    o("uint32_t top = command >> 24;")
    o.open("for (uint32_t i = first[top]; i < first[top + 1]; i++)")
    o("if (commands[i].id == command)")
    o("    return commands[i].exec(x, d);")
    o.close()
    o("return -ENOSYS;")
    o.end()
    return o.text()


def driver(plan, every):
    others = {}
    for alias in sorted(plan.r.aliases):
        others.setdefault(plan.r.resolve(alias), []).append(alias)
    o = Out()
    o("/* A command's own name before its others. */")
    o("static const struct {")
    o("    const char *name;")
    o("    size_t at;")
    o("} functions[] = {")
    for c in every:
        for name in [c.name] + others.get(c.name, []):
            o(f'    {{"{name}", offsetof(struct vn_driver, {c.name})}},')
    o("};")
    o()
    o("void vn_driver_load(struct vn_driver *driver,")
    o("                    PFN_vkVoidFunction (*get)(void *data, const char *name), void *data)")
    o("{")
    o("    memset(driver, 0, sizeof(*driver));")
    o("    for (size_t i = 0; i < ARRAY_LEN(functions); i++) {")
    o("        PFN_vkVoidFunction f;")
    o("        memcpy(&f, (char *)driver + functions[i].at, sizeof(f));")
    o("        if (!f)")
    o("            f = get(data, functions[i].name);")
    o("        memcpy((char *)driver + functions[i].at, &f, sizeof(f));")
    o("    }")
    o("}")
    return o.text()


def write_client(folder, client):
    heads = "\n".join([client.head(c) + ";" for c in client.entries()]
                      + [client.refusal_head(c) + ";" for c in client.refusals()])
    heads += f"\n\nenum {{ VN_COMMAND_ROWS = {len(client.rows())}, " \
        f"VN_EXTENSION_ROWS = {len(client.p.r.extensions)} }};"
    heads += "\n\n/* The generated entrypoint of a command, or NULL: it is hand-written. */\n" \
        "PFN_vkVoidFunction vn_client_entry(const char *name);"
    write(folder, "vn_client.gen.h", guard("client.gen.h", ["vn_commands.gen.h"], heads))
    shards(folder, "vn_client", ["vn_client.gen.h"],
           [client.entry(c) for c in client.entries()]
           + [client.refusal(c) for c in client.refusals()])
    write(folder, "vn_table.gen.c",
          source(["vn_commands.gen.h"], [client.info(), "", client.extensions()]))
    write(folder, "vn_entries.gen.c", source(["vn_client.gen.h"], [client.entry_table()]))


def write_physical(folder, plan):
    write(folder, "vn_physical.gen.c",
          source(["venus/common/physical.h"], [Physical(plan).text()]))


def put(path, text):
    if path == "-":
        sys.stdout.write(text)
    else:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--xml", required=True)
    parser.add_argument("--policy", required=True)
    for option in ("--out", "--tests", "--manifest", "--coverage", "--compare"):
        parser.add_argument(option)
    args = parser.parse_args(argv)
    plan = Plan(Registry(args.xml), Policy(args.policy))
    if plan.omitted and args.coverage:  # of the registry that a maintainer looks at
        sys.stderr.write("note: of Vulkan's registry the driver cannot send and does not offer: "
                         + "; ".join(sorted(set(plan.omitted.values()))) + "\n")
    commands = Commands(plan)
    if args.out:
        os.makedirs(args.out, exist_ok=True)
        write_structs(args.out, Structs(plan))
        write_commands(args.out, commands)
        write_client(args.out, Client(plan, commands))
        write_physical(args.out, plan)
    if args.tests:
        os.makedirs(args.tests, exist_ok=True)
        SelfTest(plan, commands).write(args.tests, write, shards, guard, source)
    if args.manifest:
        put(args.manifest, manifest.manifest(plan))
    if args.coverage:
        put(args.coverage, manifest.coverage(plan))
    if args.compare:
        return manifest.compare(plan, args.compare)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
