"""Troubleshooting is searched by the words of a message: each message that it quotes is in the source.

A message stands in a heading or between backticks.  What differs from case to case (numbers, addresses, names,
dots) splits it; the pieces of three words or more must be in a string of the source."""
import pathlib
import re
import unittest

TREE = pathlib.Path(__file__).resolve().parents[2]
PAGE = TREE / "docs/guide/troubleshooting.md"
SOURCES = ("src/**/*.[ch]", "tools/find-vulkan")
# Not ours to word: the C library's, OpenSSL's, etcd's, other programs'; and words that a format puts in.
FOREIGN = re.compile("|".join(map(re.escape, (
    "Connection refused", "No such file or directory", "Permission denied", "Name or service not known",
    "Address already in use", "Too many open files", "Function not implemented", "self-signed certificate",
    "unable to get local issuer certificate", "alert bad certificate", "alert certificate required",
    "authentication failed, invalid user ID or password", "Failed to detect any valid GPUs",
    "unable to allocate Vulkan0 buffer", "No memory type found for flags", "Segmentation fault", "callers were", "(kvd) is gone"))))
# Headings that are no messages.
SUBJECTS = {"The server cannot be reached", "Keys and tokens", "Starting a server", "While a program runs",
            "A network that comes and goes", "A program or a machine that stands still",
            "The program sees no device, or not this one"}
VARYING = re.compile(r"%[-+ #0]*[\d.*]*(?:hh|h|ll|l|z|j|t)?[a-zA-Z]|\.\.\.|\b[A-Z]+\b|[\w.]*\d[\w.]*|[^a-zA-Z ,'()-]+")
COMMAND = re.compile(r"^(hawser|ss|sysctl|ulimit|vulkaninfo|chmod|chown) |^-|[=/$]")


def source_strings():
    """All string literals, neighbours joined, what varies cut out."""
    text = "\n".join(path.read_text() for kind in SOURCES for path in sorted(TREE.glob(kind)))
    text = re.sub(r'"\s*(?:PRI\w+\s*)?"', "", text)
    return pieces_of(text.replace('\\"', '"'))


def pieces_of(text):
    return "\0".join(" ".join(piece.split()) for piece in VARYING.split(text))


def messages(page):
    text = re.sub(r"```.*?```", "", page, flags=re.S)
    for line in text.splitlines():
        if line.startswith("#") and line.lstrip("# ") not in SUBJECTS | {"Troubleshooting", "Models", "KV store"}:
            yield line.lstrip("# ")
    for quoted in re.findall(r"`([^`]+)`", re.sub(r"^#.*", "", text, flags=re.M)):
        if quoted.count(" ") >= 2 and not COMMAND.search(quoted):
            yield quoted


def unknown(message, strings):
    """The pieces of a message that the source does not have."""
    rest = FOREIGN.sub("...", " ".join(message.split()))
    for piece in pieces_of(rest).split("\0"):
        piece = piece.strip(" ,'()-")
        if piece.count(" ") >= 2 and piece not in strings:
            yield piece


class Messages(unittest.TestCase):
    def test_each_message_that_troubleshooting_quotes_is_in_the_source(self):
        strings = source_strings()
        found = list(messages(PAGE.read_text()))
        self.assertGreater(len(found), 50)
        missing = [f"{piece!r} of {message!r}" for message in found for piece in unknown(message, strings)]
        self.assertEqual(missing, [], "no such words in the source")

    def test_a_message_that_nobody_prints_is_found(self):
        strings = pieces_of('"has its limit of %u clients (--max-clients)"')
        self.assertEqual(list(unknown("the server has its limit of 2 clients", pieces_of('"the server has its limit of %u x"'))), [])
        self.assertEqual(list(unknown("the server has its limit of 2 clients", strings)), ["the server has its limit of"])


if __name__ == "__main__":
    unittest.main()
