"""Fields of other servers' interfaces that are honoured here."""

import unittest

from rig import Case, call, service

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
