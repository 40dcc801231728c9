"""No knob changes what a program reads; and the trace that shows what is read back."""

import os
import pathlib
import re
import subprocess

import support
from support import HAWSER, TIMEOUT, GpuCase, clean_environment

PROGRAM = pathlib.Path(os.environ["VKT_PROGRAMS"], "vkt-memory")
WAIT = re.compile(r"trace wait: eligible=(\d+) bytes=(\d+) largest=\d+ skipped_dirty=0 "
                  r"skipped_large=(\d+) skipped_handle=(\d+) cap=(\w+)")


class Knobs(GpuCase):
    def setUp(self):
        super().setUp()
        self.server = self.serve()
        self.exact = {case: self.run_case(case).stdout for case in ("coherent", "non_coherent")}

    def run_case(self, case, **env):
        """A program that the GPU writes mapped memory of, and that prints what it reads there."""
        done = subprocess.run([HAWSER, "run", "--servers", self.server.addresses[0], "--", PROGRAM,
                               case], env=clean_environment(env), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=TIMEOUT, check=False)
        self.assertTrue(done.stdout, done.stderr)
        return done

    def check_exact(self, **env):
        """Without a word, too: these values are valid."""
        for case, expected in self.exact.items():
            done = self.run_case(case, **env)
            self.assertEqual((done.stdout, done.stderr), (expected, ""), env)

    def waits(self, **env):
        done = self.run_case("coherent", VENUS_TRACE_MEM="1", VENUS_LOG_LEVEL="NONE", **env)
        found = WAIT.findall(done.stderr)
        self.assertTrue(found, done.stderr)
        return done, found

    def test_nothing_on_wait(self):
        self.check_exact(VENUS_INVALIDATE_ON_WAIT="0")

    def test_a_cap(self):
        """Memory past the cap is demand-paged where that can be."""
        self.check_exact(VENUS_INVALIDATE_MAX_BYTES="16")
        _, waits = self.waits(VENUS_INVALIDATE_MAX_BYTES="16")
        self.assertLessEqual({(eligible, handle, cap) for eligible, _, _, handle, cap in waits},
                             {("1", "0", "16")})
        self.check_exact(VENUS_INVALIDATE_MAX_BYTES="16", VENUS_TRACK="compare")

    def test_handles(self):
        self.check_exact(VENUS_INVALIDATE_HANDLES="0xffffff")
        done, _ = self.waits()
        handle = re.search(r"trace map: handle=(0x[0-9a-f]+) size=16384", done.stderr)[1]
        self.check_exact(VENUS_INVALIDATE_HANDLES=handle)

    def test_extremes(self):
        """Of every other knob of the driver and of both ends' network."""
        for env in ({"VENUS_SOCKET_BUFFER_BYTES": "1"}, {"VENUS_SOCKET_BUFFER_BYTES": "1GiB"},
                    {"VENUS_UPLOAD_STRIPES": "8", "VENUS_UPLOAD_CACHE": "1"},
                    {"VENUS_COMPRESS": "1", "VENUS_TRACK": "mprotect"},
                    {"VENUS_FETCH": "all", "VENUS_SYNC": "1"},
                    {"VENUS_FETCH": "none", "VENUS_INVALIDATE_MAX_BYTES": "0"},
                    {"VENUS_HOST_VISIBLE_DEVICE_MEMORY": "1", "VENUS_EARLY_FENCE": "0"},
                    {"VENUS_PERF": "no_pipelining,no_coalescing"},
                    {"VENUS_PERF": "no_whole_pages,no_quiet_batches,no_transport_tuning"}):
            with self.subTest(**env):
                self.check_exact(**env)

    def test_an_extension_that_must_be_asked_for(self):
        """It is offered where the server's driver has it, and nothing else changes."""
        def offered(**env):
            return set(self.run_program("offers", "extensions", servers=[self.server], env=env))

        there = subprocess.run(["sh", "-c", 'eval "$("$0" --software --env)" && exec "$1" extensions',
                                os.environ["HAWSER_FIND_VULKAN"], support.PROGRAMS / "venus-offers"],
                               env=clean_environment(), capture_output=True, text=True, timeout=TIMEOUT, check=True)
        usual = offered()
        self.assertNotIn("VK_EXT_descriptor_buffer", usual)
        self.assertEqual(offered(VENUS_DESCRIPTOR_BUFFER="1") - usual,
                         {"VK_EXT_descriptor_buffer"} & set(there.stdout.split()))
        self.assertEqual(offered(VENUS_DESCRIPTOR_BUFFER="perhaps"), usual)

    def test_handles_that_are_none(self):
        done = self.run_case("coherent", VENUS_INVALIDATE_HANDLES="zz")
        self.assertEqual(done.stdout, self.exact["coherent"])
        self.assertIn("VENUS_INVALIDATE_HANDLES=zz: expected handles", done.stderr)

    def test_a_trace_changes_nothing_and_counts(self):
        done, waits = self.waits()
        self.assertEqual(done.stdout, self.exact["coherent"])
        self.assertTrue(all(int(count) > 0 for _, count, _, _, _ in waits))

    def test_a_summary_every_hundred(self):
        done = self.run_case("persistent", VENUS_TRACE_MEM="1")
        for what in (r"vkQueueSubmit: calls=100 avg_us=\S+ max_us=\S+",
                     r"vkWaitForFences: calls=100 avg_us=\S+ avg_bytes=\d+ max_us=\S+"):
            self.assertRegex(done.stderr, "trace " + what)

    def test_the_traffic_in_the_seeds_words(self):
        done = self.run_case("persistent", VENUS_TRACE_NET="1")
        times = r"avg_us=[\d.]+ max_us=[\d.]+ avg_bytes=\d+$"
        self.assertRegex(done.stderr, r"(?m)trace unix .*: send calls=.* " + times)
        self.assertRegex(done.stderr, r"(?m)trace unix .*: recv replies=.* " + times)


if __name__ == "__main__":
    support.main()
