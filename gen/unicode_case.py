#!/usr/bin/env python3
"""How characters change case and which are printable, as C, from python3's Unicode data.

    unicode_case.py OUTPUT

Two macros: LLM_CASE_ROWS, a row for each character that has case: {code, {upper}, {lower}, {title}},
each of up to three code points; LLM_PRINTABLE_RANGES, one {first, last} for each range of characters
that repr() shows as they are.
"""
import sys


def is_cased(char):
    return (char.isupper() or char.islower() or char.istitle() or char.upper() != char
            or char.lower() != char)


def points(text):
    return "{" + ", ".join(f"0x{ord(char):x}" for char in text) + "}"


def printable_ranges():
    first = None
    for code in range(sys.maxunicode + 2):
        shown = code <= sys.maxunicode and chr(code).isprintable()
        if shown and first is None:
            first = code
        elif not shown and first is not None:
            yield first, code - 1
            first = None


def main():
    cased = [chr(code) for code in range(sys.maxunicode + 1) if is_cased(chr(code))]
    with open(sys.argv[1], "w", encoding="ascii") as out:
        out.write("#define LLM_CASE_ROWS \\\n")
        for char in cased:
            out.write(f"    {{0x{ord(char):x}, {points(char.upper())}, {points(char.lower())}, "
                      f"{points(char.title())}}}, \\\n")
        out.write("\n#define LLM_PRINTABLE_RANGES \\\n")
        for first, last in printable_ranges():
            out.write(f"    {{0x{first:x}, 0x{last:x}}}, \\\n")
        out.write("\n")


if __name__ == "__main__":
    main()
