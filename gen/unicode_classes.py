#!/usr/bin/env python3
"""Ranges of code points by class, as C, from the Unicode data that comes with python3.

    unicode_classes.py OUTPUT

One line a range: {first, last, class}.  Classes are those that the pre-tokenizers of byte-level
BPE ask for: letters (upper and title case, lower case, others), marks (M*), numbers (N*),
punctuation (P*), symbols (S*) and white space.
"""
import sys
import unicodedata

# The White_Space property, which unicodedata does not carry.
SPACES = {0x20, 0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000,
          *range(0x09, 0x0E), *range(0x2000, 0x200B)}
BY_CATEGORY = {"Lu": "LLM_CHAR_UPPER", "Lt": "LLM_CHAR_UPPER", "Ll": "LLM_CHAR_LOWER",
               "L": "LLM_CHAR_LETTER", "M": "LLM_CHAR_MARK", "N": "LLM_CHAR_NUMBER",
               "P": "LLM_CHAR_PUNCTUATION", "S": "LLM_CHAR_SYMBOL"}


def classify(code):
    if code in SPACES:
        return "LLM_CHAR_SPACE"
    category = unicodedata.category(chr(code))
    return BY_CATEGORY.get(category) or BY_CATEGORY.get(category[0])


def ranges():
    first, current = 0, classify(0)
    for code in range(1, sys.maxunicode + 2):
        found = classify(code) if code <= sys.maxunicode else None
        if found != current:
            if current:
                yield first, code - 1, current
            first, current = code, found


def main():
    with open(sys.argv[1], "w", encoding="ascii") as out:
        for first, last, name in ranges():
            out.write(f"{{0x{first:x}, 0x{last:x}, {name}}},\n")


if __name__ == "__main__":
    main()
