"""A worker dies, hangs or is drained in the middle of streams: each client gets the very text that
it gets when nothing happens."""

import itertools
import os
import queue
import random
import re
import signal
import threading
import unittest

from relays import FrameRelay, Gate
from rig import (TIMEOUT, Case, Process, Relay, Stream, call, counter, free_port, gateway, hawser, in_threads, state,
                 text_of, wait_for, worker)

SANITIZED = "HAWSER_SANITIZED" in os.environ  # computes tokens ten times slower
STREAMS = 6
TOKENS, PARTS = 60, 20  # of each text; messages with tokens, or rows, before something happens


def ask(i, **fields):
    """Half of them greedy, half at a temperature with their own seed; prompts of several lengths."""
    return {"prompt": "And it came to pass " * (1 + i % 3), "max_tokens": TOKENS, "seed": 100 + i,
            "temperature": 0.8 if i % 2 else 0, **fields}


class Failover(Case):
    def setUp(self):
        super().setUp()
        self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        self.workers = [worker(listen=address) for address in self.addresses]
        self.addCleanup(lambda: [w.stop() for w in self.workers])
        self.gates = [Gate(self, w.address, Gate.PUSH) for w in self.workers]
        self.front = gateway(self.gates)
        self.addCleanup(self.front.stop)
        self.url = self.front.url
        self.undisturbed = in_threads([lambda i=i: self.whole(i) for i in range(STREAMS)])

    def whole(self, i):
        status, _, body = call(self.url, "/v1/completions", ask(i))
        self.assertEqual(status, 200, body)
        choice = body["choices"][0]
        return choice["text"], choice["finish_reason"]

    def streamed(self, i):
        parts, reason = [], None
        for chunk in Stream(self.url, "/v1/completions", ask(i)):
            parts.append(text_of([chunk]))
            reason = chunk["choices"][0]["finish_reason"] or reason
        return "".join(parts), reason

    def embed(self):
        inputs = [[5 + i] * 128 for i in range(8)]
        status, _, body = call(self.url, "/v1/embeddings", {"input": inputs})
        self.assertEqual(status, 200, body)
        return [d["embedding"] for d in body["data"]]

    def score(self):
        inputs = [[5 + i] * 300 for i in range(3 if SANITIZED else 8)]
        status, _, body = call(self.url, "/v1/completions",
                               {"prompt": inputs, "echo": True, "max_tokens": 1, "logprobs": 2, "temperature": 0})
        self.assertEqual(status, 200, body)
        return [c["logprobs"] for c in body["choices"]]

    def disturb(self, act, *beside):
        """Runs all streams; act() is called with them, and waits for what it needs."""
        moved = counter(self.url, "hawser_http_texts_moved_total")
        results = in_threads([lambda i=i: self.streamed(i) for i in range(STREAMS)] + [act, *beside])
        self.assertEqual(results[:STREAMS], self.undisturbed)
        self.assertGreater(counter(self.url, "hawser_http_texts_moved_total"), moved)
        self.assertEqual(counter(self.url, "hawser_http_texts_failed_total"), 0)
        return results[STREAMS + 1:]

    def disturb_one(self, disturb, *beside):
        """disturb(i) comes when the gateway has a part of a text from worker i, and cannot get all of it."""
        held = queue.Queue()
        for gate in self.gates:
            gate.close(PARTS, held)

        def act():
            i = self.gates.index(held.get(timeout=TIMEOUT))
            self.gates[i].lose()
            self.gates[1 - i].open()
            disturb(i)

        return self.disturb(act, *beside)

    def restart(self, i):
        self.workers[i].stop(signal.SIGKILL)
        self.workers[i] = worker(listen=self.addresses[i])

    def test_a_worker_is_killed(self):
        beside = self.embed(), self.score()
        killed = []

        def kill(i):
            killed.append(i)
            self.workers[i].send(signal.SIGKILL)

        self.assertEqual(self.disturb_one(kill, self.embed, self.score), [*beside])
        self.assertIn("down", state(self.url))
        # It comes back and one dies again.
        self.restart(killed[0])
        wait_for(lambda: state(self.url).count(": up,") == 2)
        self.disturb_one(kill)

    def test_a_worker_hangs(self):
        self.disturb_one(lambda i: self.workers[i].send(signal.SIGSTOP))
        # What it had still in its hands comes too late and harms nobody.
        for w in self.workers:
            w.send(signal.SIGCONT)
        wait_for(lambda: state(self.url).count(": up,") == 2)
        self.assertEqual(in_threads([lambda i=i: self.whole(i) for i in range(STREAMS)]),
                         self.undisturbed)

    def test_a_worker_is_drained(self):
        """One whose step cannot end before: the rows of its stage are kept."""
        with worker("--layers", "3-5") as stage:
            gate, held = Gate(self, stage.address, Gate.REPLY, Gate.ROW_BYTES), queue.Queue()

            def drain():
                held.get(timeout=TIMEOUT)
                self.assertRegex(self.expect(hawser("drain", staged.address), 0).stdout, "drains: [1-9]")
                gate.open()

            with worker("--layers", f"0-2@local,3-5@{gate.address}", env={"HAWSER_STAGE_TIMEOUT_S": str(TIMEOUT)}) \
                    as staged, gateway([staged, self.workers[1]]) as front:
                self.url = front.url
                gate.close(PARTS, held)
                self.disturb(drain)
                wait_for(lambda: ": draining," in state(self.url))
                self.assertEqual(self.whole(1), self.undisturbed[1])

    def test_a_stage_of_a_worker_is_lost(self):
        """The front of it says so: its texts go on elsewhere, and it gets others when it is whole."""
        def stage():
            return worker("--layers", "3-5", listen=f"unix:{self.dir}/stage")

        def drain(*args):
            self.expect(hawser("drain", self.workers[1].address, *args), 0)
            wait_for(lambda: (": draining," in state(self.url)) != bool(args))

        lost = stage()
        self.addCleanup(lambda: lost.stop())
        with worker("--layers", f"0-2@local,3-5@{lost.address}") as staged, \
                gateway([staged, self.workers[1]]) as front:
            self.url = front.url
            drain()
            streams = [iter(Stream(self.url, "/v1/completions", ask(i))) for i in range(STREAMS)]
            texts = [text_of([next(stream)]) for stream in streams]
            lost.send(signal.SIGSTOP)

            def kill():
                wait_for(lambda: re.search(": up, [1-9]|: incomplete", state(self.url)))
                lost.send(signal.SIGKILL)
                wait_for(lambda: ": incomplete, 0 texts" in state(self.url))
                self.assertEqual(call(self.url, "/healthz")[0], 503)
                drain("--undo")

            self.assertEqual(in_threads([lambda: self.whole(1), kill])[0], self.undisturbed[1])
            self.assertEqual([text + text_of(stream) for text, stream in zip(texts, streams)],
                             [text for text, _ in self.undisturbed])
            self.assertIn(": incomplete,", state(self.url))
            drain()
            lost.stop()
            lost = stage()
            self.assertEqual(self.whole(1), self.undisturbed[1])

    def test_all_workers_are_lost_and_one_comes_back(self):
        def kill(_):
            for w in self.workers:
                w.send(signal.SIGKILL)
            self.restart(1)
        self.disturb_one(kill)

    def test_no_worker_comes_back(self):
        held = queue.Queue()
        with gateway(self.gates, "--worker-wait", "500ms") as front:
            for gate in self.gates:
                gate.close(PARTS, held)
            stream = iter(Stream(front.url, "/v1/completions", ask(0)))
            held.get(timeout=TIMEOUT)
            for w in self.workers:
                w.send(signal.SIGKILL)
            with self.assertRaisesRegex(AssertionError, "no worker could go on"):
                list(stream)
            wait_for(lambda: call(front.url, "/healthz")[0] == 503)
            status, _, body = call(front.url, "/v1/completions", ask(0))
            self.assertEqual(status, 503, body)


class EndRelay(FrameRelay):
    """Up to the end of a text."""
    END_BYTES = 32  # it is shorter; a worker's description of itself is longer

    def ends(self, kind, frame, pushed):
        return pushed and kind == self.REPLY and len(frame) < self.END_BYTES


class TokenRelay(FrameRelay):
    """Before the first token, so many times."""
    times = 8

    def ends(self, _kind, _frame, pushed):
        return pushed and self.cuts < self.times


class LostEnds(Case):
    def test_connections_are_cut_but_the_worker_lives(self):
        """More often than a text may kill workers."""
        with worker() as real:
            relay = TokenRelay(self, real.address)
            with gateway([relay]) as front, gateway([real]) as undisturbed:
                got, want = (call(url, "/v1/completions", ask(1))[2] for url in (front.url, undisturbed.url))
                self.assertEqual(got["choices"], want["choices"])
                self.assertEqual(relay.cuts, relay.times)

    def test_a_worker_under_two_names(self):
        """It counts once."""
        with worker() as real:
            relay = Relay(self, real.address)
            with Process("gateway", "--servers", f"{relay.address},{real.address}", "--http", "127.0.0.1:0") as front:
                wait_for(lambda: "it is the same process as worker" in state(front.url))
                self.assertEqual(state(front.url).count(": up,"), 1)
                self.assertEqual(call(front.url, "/v1/completions", ask(1))[0], 200)

    def test_all_tokens_but_no_end(self):
        """The worker is lost between the last token and the word that it was the last one."""
        with worker() as real:
            relay = EndRelay(self, real.address)
            with gateway([relay]) as front, gateway([real]) as undisturbed:
                for most in (1, 8):
                    asked = ask(1, max_tokens=most)
                    got, want = (call(url, "/v1/completions", asked)[2]["choices"]
                                 for url in (front.url, undisturbed.url))
                    self.assertEqual(got, want)
                    self.assertEqual(got[0]["finish_reason"], "length")
                self.assertEqual(relay.cuts, 2)


class Queue(Case):
    def test_a_request_waits_for_places_beside_its_own_texts(self):
        """Longer than --worker-wait, which is for workers that take nothing."""
        with worker() as one, gateway([one], "--worker-wait", "10ms") as front:
            status, _, body = call(front.url, "/v1/embeddings", {"input": [[5] * 16] * (300 if SANITIZED else 1500)})
            self.assertEqual(status, 200, body)
            self.assertEqual(len({tuple(d["embedding"]) for d in body["data"]}), 1)


class Limits(Case):
    """Workers of one file that differ in what they take."""
    def test_a_text_that_one_has_no_memory_for_runs_at_another(self):
        """Also when the small one is asked first, and when it is the only one left."""
        with worker("--kv-memory", "1MiB") as small, worker() as large, \
                gateway([small, large]) as front, gateway([large]) as alone, gateway([small]) as least:
            asked = {"prompt": [5] * 400, "max_tokens": 8, "temperature": 0}
            status, _, body = call(least.url, "/v1/completions", asked)
            self.assertEqual(status, 400)
            self.assertIn("--kv-memory", body["error"]["message"])
            want = call(alone.url, "/v1/completions", asked)[2]["choices"]
            got = in_threads([lambda: call(front.url, "/v1/completions", asked)] * 6)
            self.assertEqual([(status, body.get("choices", body)) for status, _, body in got], [(200, want)] * 6)
            self.expect(hawser("drain", large.address), 0)
            wait_for(lambda: ": draining," in state(front.url))
            self.assertEqual(call(front.url, "/v1/completions", asked)[0], 400)

    def test_a_text_waits_for_the_one_that_has_the_memory(self):
        """It is down for a moment: that is no reason to call the request wrong."""
        asked = {"prompt": [5] * 400, "max_tokens": 8, "temperature": 0}
        large = worker(listen=f"unix:{self.dir}/large")
        self.addCleanup(lambda: large.stop())
        with worker("--kv-memory", "1MiB") as small, gateway([small, large]) as front:
            want = call(front.url, "/v1/completions", asked)[2]["choices"]
            large.stop(signal.SIGKILL)
            wait_for(lambda: "down" in state(front.url))

            def restart():
                nonlocal large
                wait_for(lambda: counter(front.url, "hawser_http_texts_waiting") == 1)
                large = worker(listen=f"unix:{self.dir}/large")

            got = in_threads([lambda: call(front.url, "/v1/completions", asked), restart])[0]
            self.assertEqual((got[0], got[2].get("choices", got[2])), (200, want))


class Contexts(Case):
    """Workers of one file that differ in --context."""
    def test_a_text_runs_where_it_fits(self):
        """Whichever worker is idler or was known first, and beside short ones."""
        with worker("--context", 128) as small, worker("--context", 512) as large, \
                gateway([small, large]) as front, gateway([large]) as alone:
            long, short = ({"prompt": [5] * count, "max_tokens": 8, "temperature": 0} for count in (200, 20))
            asked = [long] * 6 + [short] * 6
            want = [call(alone.url, "/v1/completions", a)[2]["choices"] for a in (long, short)]
            got = in_threads([lambda a=a: call(front.url, "/v1/completions", a) for a in asked])
            self.assertEqual([(status, body.get("choices", body)) for status, _, body in got],
                             [(200, want[a is short]) for a in asked])

            def context():
                return call(front.url, "/v1/models")[2]["data"][0]["max_model_len"]

            self.assertEqual(context(), 512)
            self.expect(hawser("drain", large.address), 0)
            wait_for(lambda: context() == 128)
            status, _, body = call(front.url, "/v1/completions", long)
            self.assertEqual((status, body["error"]["code"]), (400, "context_length_exceeded"))
            self.assertEqual(call(front.url, "/v1/completions", short)[0], 200)

    def test_a_drained_worker_completes_what_fits_no_other(self):
        with worker("--context", 128) as small, worker("--context", 512) as large, \
                gateway([small, large], "--worker-wait", "5s") as front, gateway([large]) as alone:
            asked = {"prompt": [5] * 200, "max_tokens": 300, "temperature": 0, "ignore_eos": True}
            want = call(alone.url, "/v1/completions", asked)[2]["choices"][0]["text"]
            stream = iter(Stream(front.url, "/v1/completions", asked))
            text = text_of([next(stream)])
            self.expect(hawser("drain", large.address), 0)
            self.assertEqual(text + text_of(stream), want)
            self.assertIn(": draining,", state(front.url))


class Soak(Case):
    # Under a sanitizer a death in the middle of many texts is what counts, not how many there are.
    CLIENTS, KILLS = (12, 1) if SANITIZED else (40, 3)

    def test_clients_while_workers_are_killed(self):
        """Zero lost or different answers."""
        workers = [worker("--kv-memory", "128MiB", listen=f"unix:{self.dir}/{i}") for i in range(2)]
        self.addCleanup(lambda: [w.stop() for w in workers])
        with gateway(workers) as front:
            asks = [ask(i, max_tokens=24) for i in range(20)]
            expected = [call(front.url, "/v1/completions", a)[2]["choices"][0]["text"] for a in asks]
            over = threading.Event()
            answers = []  # one for each; list.append is atomic

            def client(number):
                rng = random.Random(number)
                while not over.is_set():
                    i = rng.randrange(len(asks))
                    if rng.random() < 0.5:
                        text = text_of(Stream(front.url, "/v1/completions", asks[i]))
                    else:
                        status, _, body = call(front.url, "/v1/completions", asks[i])
                        self.assertEqual(status, 200, body)
                        text = body["choices"][0]["text"]
                    self.assertEqual(text, expected[i])
                    answers.append(number)

            def killer():
                for kill in itertools.count():
                    if kill >= self.KILLS and counter(front.url, "hawser_http_texts_moved_total"):
                        return
                    # A text ends that loses worker after worker without a token: it may be what
                    # kills them.  When as many answers as there are clients have come, each text
                    # has had tokens.
                    for count in range(len(answers) + 1, len(answers) + self.CLIENTS + 1):
                        wait_for(lambda: over.is_set() or len(answers) >= count)
                    workers[kill % 2].stop(signal.SIGKILL)
                    workers[kill % 2] = worker("--kv-memory", "128MiB",
                                               listen=f"unix:{self.dir}/{kill % 2}")
                    wait_for(lambda: state(front.url).count(": up,") == 2)

            def kill_and_end():
                try:
                    killer()
                finally:
                    over.set()

            def client_or_end(number):
                try:
                    client(number)
                finally:
                    over.set()

            in_threads([kill_and_end] +
                       [lambda n=n: client_or_end(n) for n in range(self.CLIENTS)])
            self.assertEqual(set(answers), set(range(self.CLIENTS)))
            self.assertEqual(counter(front.url, "hawser_http_texts_failed_total"), 0)
            wait_for(lambda: counter(front.url, "vllm:num_requests_running") == 0)


if __name__ == "__main__":
    signal.alarm(1200)
    unittest.main()
