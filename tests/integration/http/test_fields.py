"""Fields of other servers' interfaces that are honoured here."""

import unittest

from rig import Case, Stream, call, service

GREEDY = {"prompt": "And God said", "temperature": 0}


def complete(front, **fields):
    status, _, answer = call(front.url, "/v1/completions", {**GREEDY, **fields})
    assert status == 200, answer
    return answer


class Fields(Case):
    def test_a_token_that_the_client_names_ends_a_text(self):
        with service() as front:
            whole = complete(front, max_tokens=8)["choices"][0]["text"]
            tokens = call(front.url, "/tokenize", {"prompt": whole, "add_special_tokens": False})[2]["tokens"]
            answer = complete(front, max_tokens=8, stop_token_ids=[tokens[3], 7])
            choice = answer["choices"][0]
            self.assertEqual(choice["finish_reason"], "stop")
            self.assertEqual(answer["usage"]["completion_tokens"], 3)
            self.assertTrue(whole.startswith(choice["text"]))

    def test_a_text_that_a_stop_string_ends_tells_what_was_cached(self):
        with service() as front:
            prompt = "And God said unto Noah, The end of all flesh is come before me. " * 8
            whole = complete(front, prompt=prompt, max_tokens=12)["choices"][0]["text"]
            cached = complete(front, prompt=prompt, max_tokens=12)["usage"]["prompt_tokens_details"]["cached_tokens"]
            self.assertGreater(cached, 0)
            ask = {**GREEDY, "prompt": prompt, "max_tokens": 400, "stop": whole[len(whole) // 2:]}
            usage = call(front.url, "/v1/completions", ask)[2]["usage"]
            self.assertEqual(usage["prompt_tokens_details"]["cached_tokens"], cached)
            last = list(Stream(front.url, "/v1/completions", {**ask, "stream_options": {"include_usage": True}}))[-1]
            self.assertEqual(last["usage"], usage)

    def test_an_end_token_ends_no_text_that_ignores_it(self):
        with service() as front:
            end = {"1535": 100}
            answer = complete(front, max_tokens=6, logit_bias=end)
            self.assertEqual(answer["choices"][0]["finish_reason"], "stop")
            answer = complete(front, max_tokens=6, logit_bias=end, ignore_eos=True)
            self.assertEqual(answer["choices"][0]["finish_reason"], "length")
            self.assertEqual(answer["usage"]["completion_tokens"], 6)


if __name__ == "__main__":
    unittest.main()
