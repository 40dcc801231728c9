#!/usr/bin/env python3
"""embed.py IN OUT NAME: a text file as a C array of bytes and its length."""
import sys

source, target, name = sys.argv[1:]
with open(source, "rb") as file:
    data = file.read()
with open(target, "w", encoding="ascii") as out:
    out.write("#include <stddef.h>\n\n")
    out.write(f"extern const char {name}[];\nextern const size_t {name}_len;\n\n")
    out.write(f"const size_t {name}_len = {len(data)};\nconst char {name}[] = {{")
    for at in range(0, len(data), 24):
        out.write("\n    " + "".join(f"{b if b < 128 else b - 256}," for b in data[at:at + 24]))
    out.write("\n};\n")
