#!/usr/bin/env python3
"""The generator held to committed files.

    test_gen.py mini              C from mini.xml is mini.txt
    test_gen.py floor VK_XML      the installed registry against spec/wire-manifest.txt and docs/
    test_gen.py later             a later registry may add, and nothing else
    test_gen.py effects VK_XML    what recorded commands do is said for each of them
    test_gen.py mini --write      writes mini.txt, to be read before it is committed
    test_gen.py floor VK_XML --write   writes the manifest, or of a later registry the document
"""
import difflib
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "../../.."))
GENERATOR = os.path.join(ROOT, "gen/main.py")
POLICY = os.path.join(ROOT, "spec/policy.json")
FLOOR = 239  # of VK_HEADER_VERSION in 1.3; the committed manifest is of this registry

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "gen"))


def generate(xml, policy, *options):
    command = [sys.executable, "-B", GENERATOR, "--xml", xml, "--policy", policy, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def require(holds, problem):
    if not holds:
        sys.exit(f"test_gen: {problem}")


def hold(path, text, write, how):
    """The text is what the file says, or the difference is shown."""
    if write:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return
    with open(path, encoding="utf-8") as file:
        old = file.read()
    if old != text:
        name = os.path.relpath(path, ROOT)
        sys.stdout.writelines(list(difflib.unified_diff(
            old.splitlines(True), text.splitlines(True), name, "generated"))[:200])
        sys.exit(f"test_gen: {name} is not what the generator says; if it should be: {how}")


def test_mini(write):
    with tempfile.TemporaryDirectory() as folder:
        mini = os.path.join(HERE, "mini.xml"), os.path.join(HERE, "mini.json")
        result = generate(*mini, "--out", folder, "--manifest", os.path.join(folder, "manifest"))
        require(result.returncode == 0, result.stderr)
        text = ""
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                text += f"==== {name}\n{file.read()}\n"
    hold(os.path.join(HERE, "mini.txt"), text, write, "test_gen.py mini --write")


def test_floor(xml, write):
    from plan import Plan
    from policy import Policy
    from registry import Registry
    plan = Plan(Registry(xml), Policy(POLICY))
    require_core(plan)
    if plan.r.version != FLOOR:
        # The files are of the floor; a later registry may only add to them.
        result = generate(xml, POLICY, "--compare", os.path.join(ROOT, "spec/wire-manifest.txt"))
        require(result.returncode == 0, result.stderr)
        hold_coverage(xml, plan.r.named(), write)
        return
    result = generate(xml, POLICY, "--manifest", "-")
    require(result.returncode == 0, result.stderr)
    hold(os.path.join(ROOT, "spec/wire-manifest.txt"), result.stdout, write,
         "test_gen.py floor VK_XML --write")
    require(not plan.omitted, f"left out without a policy: {plan.omitted}")


def hold_coverage(xml, version, write):
    """The page is of the newest registry; other registries say nothing of it."""
    page = os.path.join(ROOT, "docs/reference/vulkan-coverage.md")
    with open(page, encoding="utf-8") as file:
        if not write and f"For registry {version}," not in file.read():
            return
    result = generate(xml, POLICY, "--coverage", "-")
    require(result.returncode == 0, result.stderr)
    hold(page, result.stdout, write, "test_gen.py floor VK_XML --write")


def require_core(plan):
    """No command of a core version is left out, only answered at the client with a reason."""
    known = set(plan.commands) | set(plan.local) | set(plan.refused)
    lost = [name for _feature, commands, _types in plan.r.features for name in commands
            if plan.r.resolve(name) not in known]
    require(not lost, f"core commands that are left out: {lost}")


def edited(folder, *changes):
    with open(os.path.join(HERE, "mini.xml"), encoding="utf-8") as file:
        text = file.read()
    for old, new in changes:
        require(old in text, f"mini.xml has no {old}")
        text = text.replace(old, new, 1)
    path = os.path.join(folder, "later.xml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def test_later():
    policy = os.path.join(HERE, "mini.json")
    with tempfile.TemporaryDirectory() as folder:
        was = os.path.join(folder, "was.txt")
        require(generate(os.path.join(HERE, "mini.xml"), policy, "--manifest", was).returncode == 0,
                "mini.xml has no manifest")
        promoted = edited(
            folder,
            ("<name>vkGetThingAddressKHR</name>", "<name>vkGetThingAddress</name>"),
            ('<command name="vkCmdDrawKHR" alias="vkCmdDraw"/>',
             '<command name="vkCmdDrawKHR" alias="vkCmdDraw"/>'
             '<command name="vkGetThingAddressKHR" alias="vkGetThingAddress"/>'
             "<command><proto><type>void</type> <name>vkNew</name></proto>"
             "<param><type>VkDevice</type> <name>device</name></param></command>"),
            ('<command name="vkGetResults"/>',
             '<command name="vkGetResults"/><command name="vkNew"/>'))
        result = generate(promoted, policy, "--compare", was)
        require(result.returncode == 0, f"additions and a promotion are refused: {result.stderr}")
        for change in (
                ("<type>VkWideFlags</type> <name>wide</name>",
                 "<type>uint32_t</type> <name>wide</name>"),
                ("<name>width</name></member>", "<name>width</name></member>"
                 "<member><type>uint32_t</type> <name>height</name></member>"),
                ('<command name="vkGetResults"/>', "")):
            result = generate(edited(folder, change), policy, "--compare", was)
            require(result.returncode == 1 and "changed" in result.stderr,
                    f"a changed layout is not noticed: {change[1]}")


def test_effects(xml):
    from client import Client
    from plan import Plan
    from policy import Policy
    from registry import Registry
    policy = Policy(POLICY)
    for name, does in {
            "vkCmdCopyImage2": ["writes-images", "reads-all"],
            "vkCmdCopyImageToMemoryKHR": ["anything"],  # by address, in 1.4.363
            "vkCmdCopyQueryPoolResultsToMemoryKHR": ["anything"],
            "vkCmdDispatchIndirect2KHR": ["anything"],
            "vkCmdSetEvent2": ["watched"],
            "vkCmdSetViewport": [],
            "vkCmdCopyBuffer": ["noted"],
            "vkCmdCopyImageNew": None, "vkCmdDrawNew": None, "vkCmdSetNew": None}.items():
        require(policy.effects(name) == does, f"{name} does {policy.effects(name)}, not {does}")
    plan = Plan(Registry(xml), policy)
    with open(os.path.join(ROOT, "src/venus/client/record/command.c"), encoding="utf-8") as file:
        entries = {plan.r.resolve(name) for name in re.findall(r"VNC_ENTRY\((\w+)", file.read())}
    for c in plan.commands.values():
        require("noted" not in c.effects or c.name in entries,
                f"{c.name}: the policy says that the client notes what it does, but nothing does")
    # Which queries a command changes is found by its parameters: none may hide in a structure.
    hidden = [s.name for s in plan.r.structs.values()
              if s.name in plan.allowed and any(m.type == "VkQueryPool" for m in s.members)]
    require(not hidden, hidden)
    for name, queries in {"vkCmdResetQueryPool": "queryPool, firstQuery, queryCount, false",
                          "vkCmdWriteTimestamp": "queryPool, query, 1, true",
                          "vkCmdWriteAccelerationStructuresPropertiesKHR":
                              "queryPool, 0, UINT32_MAX, true",
                          "vkCmdCopyQueryPoolResults": None, "vkCmdDispatch": None}.items():
        require(Client.queries(plan.commands[name]) == queries, f"{name}: not {queries}")
    unsaid = [why for why in plan.omitted.values() if "what it reads and writes" in why]
    require(not unsaid, unsaid)
    with tempfile.TemporaryDirectory() as folder:
        new = edited(folder, ('<name>vkCmdBuild</name>', '<name>vkCmdNew</name>'),
                     ('<command name="vkCmdBuild"/>', '<command name="vkCmdNew"/>'))
        mini = os.path.join(HERE, "mini.json")
        result = generate(new, mini, "--coverage", "-")
        require("vkCmdNew: the policy does not say" in result.stderr,
                "a command of which nobody said what it does is taken")
        require(" vkCmdNew" not in generate(new, mini, "--manifest", "-").stdout,
                "such a command travels")
        generate(new, mini, "--out", folder)
        with open(os.path.join(folder, "vn_table.gen.c"), encoding="utf-8") as file:
            require('{"vkCmdNew", "vkCmdNew", ORIGINS("VK_KHR_build"), 0, VN_CLASS_LOCAL'
                    in file.read(), "the client does not know what it lacks")


def main(argv):
    write = "--write" in argv
    argv = [a for a in argv if a != "--write"]
    tests = {"mini": lambda: test_mini(write), "later": test_later,
             "floor": lambda: test_floor(argv[1], write),
             "effects": lambda: test_effects(argv[1])}
    of_registry = argv and argv[0] in ("floor", "effects")
    if not argv or argv[0] not in tests or bool(of_registry) != (len(argv) == 2):
        sys.exit(__doc__)
    tests[argv[0]]()


if __name__ == "__main__":
    main(sys.argv[1:])
