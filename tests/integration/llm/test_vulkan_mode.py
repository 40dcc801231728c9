"""hawser llm --mode vulkan: its bytes with a local driver and over Hawser's own, on the software GPU."""

import unittest

from test_modes import DONE, HAWSER, Modes, Run, Server, hawser

STEPS = 4


class VulkanMode(Modes):
    def arguments(self, *args):  # pylint: disable=arguments-differ
        return ("llm", "--model", self.model, "--mode", "vulkan", "--prompt_tokens", 5,
                "--decode_steps", STEPS, "--ignore-end", "--trace", *args)

    def gpu_server(self):
        server = Server("--listen", "127.0.0.1:0", "--software", devices=True)
        self.addCleanup(self.stop, server)
        return server.addresses[0]

    @staticmethod
    def remotely(address, *args, env=None):
        return hawser("run", "--servers", address, "--", *args, env=env, errors="replace")

    def test_a_local_driver_sends_nothing(self):
        run = Run(self.expect(hawser(*self.arguments(), errors="replace"), DONE))
        self.assertEqual(run.number("NETWORK_BYTES"), 0)
        self.assertEqual(run.list("STEP_BYTES_UP"), [0] * STEPS)
        self.assertIn("SERVER_GPU_KERNEL_MS", run.values)

    def test_hawsers_driver_tells_its_bytes(self):
        local = Run(self.expect(hawser(*self.arguments(), errors="replace"), DONE))
        run = Run(self.expect(self.remotely(self.gpu_server(), HAWSER, *self.arguments()), DONE))
        self.assertEqual(run.values["TOKENS"], local.values["TOKENS"])
        up, down = run.list("STEP_BYTES_UP"), run.list("STEP_BYTES_DOWN")
        self.assertTrue(all(step > 0 for step in up + down), (up, down))
        self.assertNotIn("BYTES_weights", run.values)  # the driver does not know what its bytes are
        # The weights travelled before the steps; random ones hardly compress.
        self.assertGreater(run.number("NETWORK_BYTES"),
                           sum(up + down) + self.model.stat().st_size / 2)

    def test_knobs_do_not_change_the_text(self):
        """Those of the seeds' measurements, and a cap that leaves out all there is."""
        local = Run(self.expect(hawser(*self.arguments(), errors="replace"), DONE))
        address = self.gpu_server()
        for env in ({"VENUS_LOG_LEVEL": "NONE", "VENUS_INVALIDATE_MAX_BYTES": "256KiB",
                     "VENUS_INVALIDATE_ON_WAIT": "1"},
                    {"VENUS_INVALIDATE_MAX_BYTES": "0"},
                    {"VENUS_INVALIDATE_ON_WAIT": "0", "VENUS_TRACK": "compare"}):
            run = Run(self.expect(self.remotely(address, HAWSER, *self.arguments(), env=env), DONE))
            self.assertEqual(run.values["TOKENS"], local.values["TOKENS"], env)

    def test_an_experiment_writes_them_down(self):
        table = self.dir / "r.csv"
        result = self.remotely(self.gpu_server(), HAWSER, "experiment", "--model",
                               self.model, "--modes", "local,vulkan", "--phase", "decode",
                               "--prompt_tokens", 5, "--decode_steps", STEPS, "--trials", 1,
                               "--output", table, "--report", self.dir / "r.html")
        self.expect(result, DONE)
        names, *lines = (line.split(",") for line in table.read_text().splitlines())
        rows = {row["mode"]: row for row in (dict(zip(names, line)) for line in lines)}
        self.assertEqual(rows["local"]["net_bytes"], "0")
        self.assertEqual(rows["local"]["server_gpu_kernel_ms"], "none")
        self.assertGreater(float(rows["vulkan"]["net_bytes"]), self.model.stat().st_size / 2)
        self.assertGreater(float(rows["vulkan"]["server_gpu_kernel_ms"]), 0)
        self.assertEqual(rows["vulkan"]["weights"], "none")  # the driver cannot tell them
        table = next(line for line in result.stdout.splitlines() if line.startswith("decode  vulkan"))
        self.assertEqual(table.split()[-6:-4], ["-", "-"], table)  # upload, before the prompt


if __name__ == "__main__":
    unittest.main()
