#!/usr/bin/env python3
"""Runs test_html and checks that the page it writes is well-formed, complete and self-contained."""
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

XHTML = "{http://www.w3.org/1999/xhtml}"
SVG = "{http://www.w3.org/2000/svg}"


def check_page(path):
    """Returns what is wrong with the page, a line each."""
    root = ElementTree.parse(path).getroot()
    wrong = []
    expected = {SVG + "svg": 7, XHTML + "table": 1, SVG + "path": 11, SVG + "rect": 11}
    for tag, count in expected.items():
        found = len(list(root.iter(tag)))
        if found != count:
            wrong.append(f"{found} of {tag}, expected {count}")
    for element in root.iter():
        for name in ("src", "href", "onload"):
            if name in element.attrib:
                wrong.append(f"{element.tag} has {name}: the page is not self-contained")
        for name in ("x", "y", "cx", "cy", "width", "height", "x1", "x2", "y1", "y2"):
            if name in element.attrib and element.tag.startswith(SVG):
                if not -1 <= float(element.attrib[name]) <= 640:
                    wrong.append(f"{element.tag} {name}={element.attrib[name]} is outside the view")
    return wrong


def main():
    with tempfile.TemporaryDirectory() as folder:
        page = os.path.join(folder, "page.html")
        result = subprocess.run([sys.argv[1], page], check=False)
        if result.returncode != 0:
            return result.returncode
        wrong = check_page(page)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
