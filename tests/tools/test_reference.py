"""The documents say what the code says: the real tree, and what each check must refuse."""
import importlib.machinery
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL, HAWSER = (os.path.abspath(path) for path in (sys.argv.pop(1), sys.argv.pop(1)))
LOADER = importlib.machinery.SourceFileLoader("reference", TOOL)
SPEC = importlib.util.spec_from_loader("reference", LOADER)
reference = importlib.util.module_from_spec(SPEC)
LOADER.exec_module(reference)


def option(name, text, **fields):
    return {"name": name, "letter": None, "argument": None, "choices": [], "commas": False, "default": None, "help": text,
            **fields}


TOY = {"name": "toy", "operands": "FILE", "description": "Plays with FILE.  Nothing else.\n\n  red    as it is, and as\n"
       "         nothing else\n", "examples": "hawser toy x", "options": [
           option("listen", "where to listen", letter="l", argument="ADDR", commas=True, default="here"),
           option("kind", "which one [default: what fits]", choices=["red", "blue"]),
           option("one", "of many", choices=["a" * 40, "b" * 40]),
           option("a-flag", "is set")],
       "environment": [{"name": "TOY_LEVEL", "help": "how loud"}, {"name": "TOY_A, TOY_B", "help": "both"}]}


class Trees(unittest.TestCase):
    def tree(self, **files):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for name, text in files.items():
            path = pathlib.Path(folder.name, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return reference.Tree(folder.name)


class RealTree(unittest.TestCase):
    def test_the_documents_agree_with_the_code(self):
        result = subprocess.run([sys.executable, "-B", TOOL, HAWSER, "--check"], check=False,
                                capture_output=True, text=True)
        self.assertEqual((0, ""), (result.returncode, result.stdout + result.stderr))

    def test_wrong_usage_is_told(self):
        result = subprocess.run([sys.executable, "-B", TOOL], check=False, capture_output=True)
        self.assertEqual(2, result.returncode)


class Commands(unittest.TestCase):
    def test_options_become_rows_with_their_defaults(self):
        page = "\n".join(reference.command_page(TOY))
        self.assertIn("| `--listen ADDR`, `-l` | here | where to listen; repeat it, or separate with "
                      "commas |", page)
        self.assertIn("| `--kind red\\|blue` | what fits | which one |", page)
        self.assertIn(f"| `--one NAME` |  | of many; NAME: {'a' * 40}, {'b' * 40} |", page)
        self.assertIn("| `--a-flag` |  | is set |", page)

    def test_variables_description_and_examples_are_there(self):
        page = "\n".join(reference.command_page(TOY))
        self.assertIn("`TOY_LEVEL`, `TOY_A`, `TOY_B`", page)
        self.assertIn("\n```\nPlays with FILE. Nothing else.\n\n  red    as it is, and as\n         nothing else\n```\n", page)
        self.assertIn("```\nhawser toy x\n```", page)

    def test_a_generated_part_replaces_the_old_one_alone(self):
        page = f"before\n{reference.BEGIN}\nold\n{reference.END}\nafter\n"
        self.assertEqual(f"before\n{reference.BEGIN}\n\nnew\n\n{reference.END}\nafter\n",
                         reference.with_part(page, "new"))
        with self.assertRaises(SystemExit):
            reference.with_part("no markers", "new")


class Metrics(Trees):
    def test_both_kinds_of_tables_are_read(self):
        tree = self.tree(**{
            "src/a.h": '#define LIST(X) \\\n    X(calls, "rpc_calls", "", HW_COUNTER, "calls " \\\n'
                       '      "made") \\\n    X(up, "kv_etcd_up", HW_GAUGE, "up")\n',
            "src/b.c": 'static const struct hw_counter_def defs[] = {\n'
                       '    [ONE] = {"llm_time", "time", "ns",\n             HW_COUNTER},\n};\n'
                       'bool f(void) { return kind == HW_COUNTER; }\n'})
        self.assertEqual([("rpc_calls", "", True, "calls made"), ("kv_etcd_up", "", False, "up"),
                          ("llm_time", "ns", True, "time")], reference.counters_of(tree))
        part = reference.metrics_part(reference.counters_of(tree), [("llm_rows", "vllm:rows", "rows")])
        self.assertIn("| `hawser_llm_rows` | `vllm:rows` | rows |", part)
        self.assertIn("| `hawser_llm_time_total` | ns | counter | time |", part)
        self.assertIn("| `hawser_kv_etcd_up` |  | gauge | up |", part)

    def test_a_counter_that_is_not_understood_is_told(self):
        tree = self.tree(**{"src/a.c": "struct hw_counter_def d = {NAME, HELP, UNIT, HW_COUNTER};\n"})
        with self.assertRaises(SystemExit):
            reference.counters_of(tree)
        with self.assertRaises(SystemExit):
            reference.metrics_part([("odd_name", "", True, "x")], [])


    def test_tables_of_histograms_are_read(self):
        tree = self.tree(**{
            "src/a.c": 'static const struct hw_buckets_def d[] = {\n'
                       '    {"llm_rows", "vllm:rows", "rows of a "\n     "step", HW_EDGES(edges), 1},\n'
                       '    {"llm_bytes", NULL, "bytes", HW_EDGES(edges), 1}};\n'})
        self.assertEqual([("llm_bytes", "", "bytes"), ("llm_rows", "vllm:rows", "rows of a step")],
                         reference.histograms_of(tree))
        odd = self.tree(**{"src/a.c": "struct hw_buckets_def d = {NAME, NULL, HELP, HW_EDGES(e), 1};\n"})
        with self.assertRaises(SystemExit):
            reference.histograms_of(odd)


class Knobs(Trees):
    CODE = {"src/venus/client/perf.c": 'getenv("VENUS_PERF"); [A] = "no_a", [B] = "no_b"',
            "src/x.c": 'hw_env_bool("VENUS_ON", true, &on); getenv(variable); f("X_INDIRECT");\n'
                       '/* getenv("IN_COMMENT") */ setenv("VK_SET", p, 1);\n',
            "tools/t": "echo ${HAWSER_TOOL:-}\n"}
    PAGE = "".join(f"| `{name}` | |\n" for name in (
        "VENUS_PERF", "VENUS_ON", "X_INDIRECT", "VK_SET", "HAWSER_TOOL", "no_a", "no_b"))
    COMMANDS = [{"name": "toy", "environment": [{"name": "VENUS_ON", "help": "a switch"}]}]

    def problems(self, page=PAGE, speed="`no_a`, `no_b`"):
        tree = self.tree(**self.CODE, **{reference.KNOBS: page, reference.SPEED: speed})
        return list(reference.find_knobs(tree, self.COMMANDS))

    def test_a_page_with_all_variables_is_accepted(self):
        self.assertEqual([], self.problems())

    def test_each_variable_and_switch_is_missed(self):
        for name in ("VENUS_PERF", "VENUS_ON", "X_INDIRECT", "HAWSER_TOOL", "no_a"):
            with self.subTest(name):
                left_out = self.PAGE.replace(f"| `{name}` | |\n", "")
                self.assertTrue(any(name in problem for problem in self.problems(left_out)))

    def test_a_name_that_nobody_reads_is_refused(self):
        for name in ("VENUS_GONE", "IN_COMMENT", "no_c"):
            with self.subTest(name):
                problems = self.problems(self.PAGE + f"| `{name}` | |\n")
                self.assertTrue(any(name in problem for problem in problems))

    def test_a_switch_needs_its_worth(self):
        self.assertTrue(any("no_b" in problem for problem in self.problems(speed="`no_a`")))


class Tables(Trees):
    CODE = ("enum { P_BASE = 8, P_OP_ONE = 1, /* x */ P_OP_TWO, P_OP_END = 256 };\n"
            "enum kind { P_OP_TEN = P_BASE + 2, P_OP_MAX = 99 };\n")
    TEXT = "<!-- checked: numbers src/a.h {}P_OP_ -->\n\n| n | name |\n|---|---|\n{}\n"

    def problems(self, *rows, enum=""):
        table = "".join(f"| {number} | {name} | text |\n" for number, name in rows)
        tree = self.tree(**{"src/a.h": self.CODE, "docs/p.md": self.TEXT.format(enum, table)})
        return list(reference.find_tables(tree))

    def test_numbers_are_held_to_the_enums(self):
        self.assertEqual([], self.problems((1, "ONE"), (2, "TWO"), (10, "TEN")))
        self.assertEqual([], self.problems((10, "TEN"), enum="kind "))
        self.assertEqual(1, len(self.problems((1, "ONE"), (2, "TWO"))))
        self.assertEqual(2, len(self.problems((1, "ONE"), (3, "TWO"), (10, "TEN"))))
        self.assertEqual(1, len(self.problems((1, "ONE"), (2, "TWO"), (10, "TEN"), (4, "NEW"))))

    def test_columns_are_held_to_the_header(self):
        for rows, count in (("a b c", 0), ("a c b", 1), ("a b", 1)):
            with self.subTest(rows):
                table = "".join(f"| `{name}` | |\n" for name in rows.split())
                tree = self.tree(**{
                    "src/a.c": 'static const char header[] =\n    "a,b,"\n    "c";\n',
                    "docs/p.md": f"<!-- checked: columns src/a.c -->\n\n| c | |\n|---|---|\n{table}\n"})
                self.assertEqual(count, len(list(reference.find_tables(tree))))


class Links(Trees):
    def problems(self, text):
        tree = self.tree(**{"docs/a.md": text, "docs/b.md": "# One `two` (three)\n\n## X\n\n## X\n",
                            "src/x.c": ""})
        return list(reference.find_links(tree))

    def test_what_is_there_is_accepted(self):
        for target in ("b.md", "b.md#one-two-three", "b.md#x-1", "../src", "../src/x.c", "#here",
                       "https://x.example/y"):
            with self.subTest(target):
                self.assertEqual([], self.problems(f"# Here\n\nsee [it]({target})\n"))

    def test_what_is_not_there_is_refused(self):
        for target in ("c.md", "b.md#two", "b.md#x-2", "#there", "../src/y.c", "guide/README.md"):
            with self.subTest(target):
                self.assertEqual(1, len(self.problems(f"# Here\n\nsee [it]({target})\n")))

    def test_code_is_no_link(self):
        self.assertEqual([], self.problems("`[it](c.md)`\n\n```\n[it](c.md)\n```\n"))


class Names(Trees):
    def problems(self, line):
        tree = self.tree(**{"ARCHITECTURE.md": f"{line}\n", "src/rpc/a.c": "int rpc_call(void);\n",
                            "src/rpc/b.c": "static int plain(void);\n"})
        return list(reference.find_names(tree))

    def test_what_exists_is_accepted(self):
        for line in ("`rpc_call()`", "`plain()` in `src/rpc/b.c`", "`src/rpc/`", "`src/rpc/*.c`",
                     "the prefix `rpc_`, `rpc_ca*`", "rpc_gone and gone() in prose"):
            with self.subTest(line):
                self.assertEqual([], self.problems(line))

    def test_what_does_not_is_refused(self):
        for line in ("`rpc_gone`", "`gone()`", "`src/rpc/c.c`", "`src/wire/`", "```\nsrc/gone.c\n```",
                     "| `plain()` | `src/rpc/a.c` |"):
            with self.subTest(line):
                self.assertEqual(1, len(self.problems(line)))


class Mentions(Trees):
    def test_a_page_that_the_source_names_exists(self):
        tree = self.tree(**{"src/a.c": "/* see docs/b.md */\n",
                            "src/b.c": "/* see docs/gone.md */\n", "docs/b.md": "# B\n"})
        self.assertEqual(["src/b.c: names docs/gone.md, which is not there"],
                         list(reference.find_mentions(tree)))


if __name__ == "__main__":
    unittest.main()
