#!/usr/bin/env python3
"""Each check refuses every tree that it says it refuses, and accepts what it says it accepts."""
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import unittest

import lint


def findings(check, files):
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as file:
                file.write(text)
        return list(check.find(lint.Tree(root)))


class Checks(unittest.TestCase):
    def test_refuses(self):
        for name, check in lint.CHECKS.items():
            self.assertTrue(check.refuses, name)
            for files in check.refuses:
                with self.subTest(check=name, files=files):
                    self.assertEqual(1, len(findings(check, files)))

    def test_accepts(self):
        for name, check in lint.CHECKS.items():
            self.assertTrue(check.accepts, name)
            for files in check.accepts:
                with self.subTest(check=name):
                    self.assertEqual([], findings(check, files))

    def test_a_problem_is_an_exit_status(self):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "src/base"))
            with open(os.path.join(root, "src/base/a.c"), "w", encoding="utf-8") as file:
                file.write('#include "wire/b.h"\n')
            with contextlib.redirect_stdout(io.StringIO()) as out:
                self.assertEqual(1, lint.main(["lint.py", "layers", root]))
            self.assertIn("src/base/a.c:1: base may not include", out.getvalue())

    def test_an_empty_tree_is_not_clean(self):
        with tempfile.TemporaryDirectory() as root, contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(1, lint.main(["lint.py", "layers", root]))


class Format(unittest.TestCase):
    def run_format(self, text):
        here = os.path.dirname(os.path.abspath(__file__))
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "src/base"))
            with open(os.path.join(root, "src/base/a.c"), "w", encoding="utf-8") as file:
                file.write(text)
            with open(os.path.join(root, ".clang-format"), "w", encoding="utf-8") as file:
                file.write("BasedOnStyle: LLVM\n")
            command = [sys.executable, os.path.join(here, "format.py"), root]
            return subprocess.run(command, capture_output=True, check=False).returncode

    def test_format(self):
        good = self.run_format("int f(void);\n")
        if good == 77:
            self.skipTest("no clang-format")
        self.assertEqual(0, good)
        self.assertEqual(1, self.run_format("int  f( void );\n"))


if __name__ == "__main__":
    unittest.main()
