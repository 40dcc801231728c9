"""The page of the service: what a browser gets, what it shows, and what a program gets instead."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from rig import (MODEL, NAME, TIMEOUT, Case, Process, Stream, call, service, state, wait_for, wait_ready,
                 worker)

HTML = {"Accept": "text/html,application/xhtml+xml"}
KEY = "a-key-of-sixteen-or-more"


class Page(Case):
    def keys(self):
        path = f"{self.dir}/keys"
        with open(path, "w", encoding="ascii", opener=private) as file:
            file.write(KEY + "\n")
        return path

    def dump(self, url):
        """What a browser makes of the page, as HTML."""
        with tempfile.TemporaryDirectory() as home:
            done = subprocess.run(
                ["chromium", "--headless", "--no-sandbox", "--disable-gpu",
                 f"--user-data-dir={home}", "--virtual-time-budget=4000", "--dump-dom", url + "/"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=4 * TIMEOUT,
                check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_a_browser_gets_a_page_that_needs_nothing_else_and_the_state_counts(self):
        with service() as front:
            status, headers, page = call(front.url, "/", headers=HTML)
            self.assertEqual(status, 200)
            self.assertTrue(headers["Content-Type"].startswith("text/html"))
            self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
            self.assertEqual([], re.findall(r"(?:https?:)?//\w+\.\w+|src=|@import", page))
            text = call(front.url, "/")
            self.assertTrue(text[1]["Content-Type"].startswith("text/plain"))
            before = call(front.url, "/state")[2]
            self.assertEqual([w["state"] for w in before["workers"]], ["up"])
            self.assertIsNone(before["first_token"]["p50"])
            call(front.url, "/v1/completions", {"prompt": "And God said", "max_tokens": 9})
            after = call(front.url, "/state")[2]
            self.assertEqual(after["requests"]["answered"], 1)
            self.assertEqual(after["tokens"]["generated"], 9)
            self.assertEqual(after["first_token"]["count"], 1)
            self.assertGreater(after["first_token"]["p50"], 0)

    def test_the_socket_to_the_own_worker_is_in_the_runtime_folder(self):
        temporary, runtime = pathlib.Path(self.dir, "tmp"), pathlib.Path(self.dir, "run")
        temporary.mkdir()
        places = {"TMPDIR": str(temporary), "HAWSER_RUNTIME_DIR": str(runtime)}
        with worker("--http", "127.0.0.1:0", env=places) as front:
            wait_ready(front.url)
            self.assertEqual([p.name for p in runtime.glob("*.sock")], [f"http-{front.process.pid}.sock"])
            self.assertEqual(list(temporary.iterdir()), [])
        self.assertEqual(list(runtime.glob("*.sock")), [])

    def test_a_key_guards_the_state_and_not_the_page(self):
        with service("--api-key-file", self.keys()) as front:
            self.assertEqual(call(front.url, "/", headers=HTML)[0], 200)
            self.assertEqual(call(front.url, "/")[0], 401)
            self.assertEqual(call(front.url, "/state", headers=HTML)[0], 401)
            bearer = {"Authorization": f"Bearer {KEY}"}
            self.assertEqual(call(front.url, "/state", headers=bearer)[0], 200)

    @unittest.skipUnless(shutil.which("chromium"), "no chromium")
    def test_a_browser_shows_the_worker_and_its_model(self):
        with service() as front:
            text = Stream(front.url, "/v1/completions", {"prompt": "And God said", "max_tokens": 400})
            chunks = iter(text)
            next(chunks)
            maps = wait_for(lambda: call(front.url, "/state?map=1")[2]["workers"][0].get("kv_maps"))
            self.assert_map(maps)
            self.assertNotIn("kv_maps", call(front.url, "/state")[2]["workers"][0])
            list(chunks)
            page = self.dump(front.url)
            self.assertRegex(page, r'id="pulse"[^>]*>The worker is up\.')
            self.assertRegex(page, r'<select id="model"><option')
            self.assertRegex(page, r'class="state up"')
            self.assertNotRegex(page, r'<aside [^>]*hidden')
            self.assertRegex(page, r'aria-label="KV of kjv: [0-9,]+ pages here, 0 evicted"')
            self.assertRegex(page, r'class="facts rope">[0-9.,]+&nbsp;messages/s&nbsp;out')

    @unittest.skipUnless(shutil.which("chromium"), "no chromium")
    def test_a_browser_says_why_a_worker_is_down_and_names_the_maps_of_two_models(self):
        with service("--model", f"another={MODEL}") as one, \
                Process("gateway", "--servers", f"{one.address},unix:{self.dir}/none", "--http", "127.0.0.1:0") as front:
            wait_for(lambda: state(front.url).count(": up,") == 1)
            wait_for(lambda: call(front.url, "/state?map=1")[2]["workers"][0].get("kv_maps"))
            page = self.dump(front.url)
            self.assertRegex(page, r'id="pulse"[^>]*>1 of 2 workers are up\.')
            self.assertRegex(page, r'class="facts why">cannot reach unix:.*No such file')
            self.assertEqual(set(re.findall(r"<figcaption>(\w+): ", page)), {NAME, "another"})

    @unittest.skipUnless(shutil.which("chromium"), "no chromium")
    def test_a_browser_asks_for_the_key(self):
        with service("--api-key-file", self.keys()) as front:
            page = self.dump(front.url)
            self.assertRegex(page, r'id="pulse"[^>]*>The server asks for an API key: enter it below\.')
            self.assertRegex(page, r'<label id="keyed">API key ')
            self.assertRegex(page, r'<aside [^>]*hidden')  # no state yet, so no empty headings

    def assert_map(self, maps):
        (m,) = maps
        self.assertEqual((m["model"], m["layers"], m["rows"], m["columns"]), (NAME, 6, 6, m["pages"]))
        self.assertEqual(len(m["resident"]), m["rows"] * m["columns"])
        self.assertEqual(set(m["missing"]), {0})
        # A text has the same pages in each layer, from the first one on.
        layers = [m["resident"][i * m["columns"]:][:m["columns"]] for i in range(m["rows"])]
        self.assertEqual(layers, [sorted(layers[0], reverse=True)] * m["rows"])


def private(path, flags):
    return os.open(path, flags, 0o600)


if __name__ == "__main__":
    unittest.main()
