#!/usr/bin/env python3
"""Grammars of JSON schemas: what random walks write is valid, what is in the language is accepted.

    schema_test.py WALK      WALK: the program of walk_grammar.c
"""
import json
import re
import subprocess
import sys
import urllib.parse

WALKS = 25


class Walker:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, encoding="utf-8")

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        return self.process.wait()


TYPES = {"string": str, "boolean": bool, "null": type(None), "array": list, "object": dict}
FORMATS = {
    "date": r"\d{4}-\d\d-\d\d", "uuid": r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "time": r"\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", "ipv4": r"\d{1,3}(\.\d{1,3}){3}",
    "date-time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)",
}


def is_type(value, name):
    if name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if name == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


def valid(value, schema, root):
    """A small checker of the keywords that the grammars support."""
    if schema is True:
        return True
    if "$ref" in schema:
        target = root
        for part in urllib.parse.unquote(schema["$ref"]).split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            target = target[int(part) if isinstance(target, list) else part]
        if not valid(value, target, root):
            return False
    for each in schema.get("allOf", []):
        if not valid(value, {"additionalProperties": True, **each} if "$ref" not in each else each, root):
            return False
    if "const" in schema and value != schema["const"] or "enum" in schema and value not in schema["enum"]:
        return False
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema and not any(valid(value, each, root) for each in schema[keyword]):
            return False
    types = schema.get("type", [])
    types = types if isinstance(types, list) else [types]
    if types and not any(is_type(value, name) for name in types):
        return False
    if isinstance(value, str):
        return (schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 1 << 30)
                and re.search(schema.get("pattern", ""), value) is not None
                and re.fullmatch(FORMATS.get(schema.get("format"), "(?s).*"), value) is not None)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return (schema.get("minimum", value) <= value <= schema.get("maximum", value)
                and value > schema.get("exclusiveMinimum", float("-inf"))
                and value < schema.get("exclusiveMaximum", float("inf")))
    if isinstance(value, list):
        items = schema.get("prefixItems") or [schema.get("items", True)] * len(value)
        return (schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", 1 << 30)
                and len(items) == len(value)
                and all(valid(item, each, root) for item, each in zip(value, items)))
    if isinstance(value, dict):
        return valid_object(value, schema, root)
    return True


def valid_object(value, schema, root):
    properties = schema.get("properties", {})
    if any(name not in value for name in schema.get("required", [])):
        return False
    extra = schema.get("additionalProperties", True)
    for name, member in value.items():
        if name in properties:
            if not valid(member, properties[name], root):
                return False
        elif extra is False or isinstance(extra, dict) and not valid(member, extra, root):
            return False
    return True


def no_duplicates(pairs):
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise ValueError("a name twice")
    return dict(pairs)


PERSON = {"type": "object", "additionalProperties": False, "required": ["name", "age"], "properties": {
    "name": {"type": "string", "minLength": 1, "maxLength": 5}, "nick": {"type": ["string", "null"]},
    "age": {"type": "integer", "minimum": 0, "maximum": 130}, "tags": {
        "type": "array", "items": {"enum": ["a", "b\"", 3, None]}, "maxItems": 3}}}
TREE = {"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "required": ["v"], "properties": {
    "v": {"type": "boolean"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}}}}
# Names that a pointer within a URI has to escape, and how it does.
NAMES = {"a b": "a%20b", "\u00e9": "%C3%A9", "a/b": "a~1b", "~1": "~01", "%41": "%2541", "\"": "%22", "a b/": "a b~1",
         "m~n": "m%7E0n", "x" * 300: "x" * 300}
# A schema, JSON that it must accept, JSON that it must refuse.
CASES = [
    ({"type": "string"}, ["", "a\nb\"\\ \u00e9 \ud83c\udf89"], [1, None]),
    ({"type": "integer"}, [0, -5, 123456], [1.5, "1"]),
    ({"type": "number"}, [0, -1.5, 2e10], ["1"]),
    ({"type": "boolean"}, [True, False], [0]),
    ({"type": "null"}, [None], [0]),
    ({"const": {"a": [1]}}, [], ["a"]),
    ({"enum": ["x", 1, None]}, ["x", 1, None], ["y", 2]),
    (PERSON, [{"name": "Bo", "age": 5}, {"name": "Bo", "nick": None, "age": 130, "tags": ["a", 3]}],
     [{}, {"name": "Bo"}, {"name": "", "age": 5}, {"name": "Bo", "age": 131},
      {"age": 5, "name": "Bo", "x": 1}, {"name": "Bo", "age": 5, "tags": ["a", "a", "a", "a"]}]),
    (TREE, [{"v": True, "next": {"v": False, "next": None}}], [{"v": 1}, {"v": True, "next": {}}]),
    ({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 4}, [[1, 2], [1, 2, 3, 4]],
     [[], [1], [1, 2, 3, 4, 5], [1, "a"]]),
    ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]}, [[1, "a"]], [["a", 1], [1]]),
    ({"type": "array"}, [[], [1, {"a": []}]], [1]),
    ({"type": "object"}, [{}, {"a": {"b": [None]}}], [[]]),
    ({"type": "object", "properties": {"a": {"type": "integer"}, "ab": {"type": "integer"}},
      "additionalProperties": {"type": "boolean"}}, [{"a": 1}, {"a": 1, "ab": 2, "abc": True, "b": False}, {"": True}],
     [{"a": True}, {"b": 1}]),
    ({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "c": True}},
     [{}, {"b": 1}, {"a": 1, "c": []}, {"c": 1}], [{"a": "x"}, {"d": 1}]),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, [{}, {"x": 1}], [{"x": "y"}]),
    ({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                {"properties": {"b": {"type": "string"}}, "required": ["b"]}]}, [{"a": 1, "b": "x"}], [{"a": 1}]),
    ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, [1, "a"], [None]),
    ({"type": "string", "pattern": "^[a-z]{2,3}-\\d+(x|yz)?$"}, ["ab-1", "abc-22yz"], ["a-1", "ab-", "ab-1z"]),
    ({"type": "string", "pattern": "a.c"}, ["abc", "xxabcxx"], ["ab"]),
    ({"type": "string", "pattern": "^\"\\\\$"}, ["\"\\"], ["\""]),
    ({"type": "string", "format": "date"}, ["2025-07-26"], ["2025-13-26", "x"]),
    ({"type": "string", "format": "time"}, ["23:59:59Z"], ["24:00:00Z"]),
    ({"type": "string", "format": "date-time"}, ["2025-07-26T01:02:03.5+02:00"], ["2025-07-26"]),
    ({"type": "string", "format": "uuid"}, ["123e4567-e89b-12d3-a456-426614174000"], ["123"]),
    ({"type": "string", "format": "ipv4"}, ["192.168.1.255"], ["256.1.1.1"]),
    ({"type": "string", "format": "email"}, ["a@b.c", "x"], [1]),
    ({"type": "string", "format": "uri", "minLength": 2}, ["xy"], ["x"]),
    ({"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"type": "integer"}},
     [{"a": 1}, {}], [{"a": "x"}]),
    ({"properties": {"k\"\u00e9\n": {"const": 1}}}, [{"k\"\u00e9\n": 1}], [{"k": 1}]),
    (True, [1, {"a": 1}, "x"], []),
    ({}, [1, [None]], []),
]
for low, high in [(0, 9), (1, 10), (5, 5), (17, 342), (99, 101), (-5, 5), (-342, -17), (100, 99999), (0, 0), (-1, 0)]:
    CASES.append(({"type": "integer", "minimum": low, "maximum": high},
                  [low, high, (low + high) // 2], [low - 1, high + 1, high * 10 + 1000]))
for low, high in [(0, 1), (0, 100), (1, 10), (5, 5), (-1, 1), (-342, -17), (-1, 0), (0, 0), (-90, 90)]:
    CASES.append(({"type": "number", "minimum": low, "maximum": high}, [low, high, (low + high) / 2, high + 0.0],
                  [low - 1, high + 1, high + 0.5, low - 0.5, high + 0.000001, low - 0.000001]))
CASES.append(({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, [0.5, 0.001, 0.999], [0, 1, 0.0, 1.0, -0.5]))
CASES.append(({"type": "number", "exclusiveMinimum": 0}, [0.5, 1, 123.25, 99999], [0, -1, 0.0]))
CASES.append(({"type": "number", "exclusiveMaximum": 0}, [-0.5, -1, -123.25], [0, 1, 0.5]))
CASES.append(({"type": "number", "minimum": -3, "exclusiveMinimum": -3}, [-2.75, 0, 7.5], [-3, -3.0, -3.5]))
CASES.append(({"type": "number", "maximum": 20}, [20, 20.0, 19.99, -1000.5, 0], [21, 20.01, 100]))
CASES.append(({"minimum": 3}, [3, 3.5, 100], [2, 2.99]))
CASES.append(({"type": "integer", "minimum": 37}, [37, 38, 99, 100, 123456], [36, 0, -40, 3]))
CASES.append(({"type": "integer", "maximum": -37}, [-37, -100, -99], [-36, 0, 37]))
CASES.append(({"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 6}, [4, 5], [3, 6]))
CASES.append(({"type": "integer", "maximum": 20}, [20, 0, 19, -1000], [21, 100]))
CASES += [
    *(({"$ref": f"#/$defs/{way}", "$defs": {name: {"type": "integer"}, "A": {"type": "null"}, "x" * 299: True}},
       [1], ["1", None]) for name, way in NAMES.items()),
    ({"allOf": [{"$ref": "#/$defs/a", "required": ["x"]}, {"properties": {"y": {"type": "integer"}}, "required": ["y"]}],
      "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"type": "object", "properties": {"x": {"type": "integer"}}}}},
     [{"x": 1, "y": 2}], [{"x": 1}, {"y": 2}]),
    ({"$ref": "#%2F$defs%2Fone/0", "$defs": {"one": [{"type": "integer"}, True]}}, [1], ["1"]),
]

# Limits beside each other; what generators of schemas write.
ONE = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
LIST = {"type": "object", "properties": {"next": {"$ref": "#/$defs/L", "type": "object"}}, "additionalProperties": False}
CASES += [
    ({"properties": {"a": {"type": "integer"}, "b": True, "c": True}, "required": ["a"], "additionalProperties": False,
      "anyOf": [{"required": ["b"]}, {"required": ["c"]}]}, [{"a": 1, "b": 2}, {"a": 1, "c": 2}, {"a": 1, "b": 0, "c": 0}],
     [{}, {"a": 1}, {"b": 1}, {"b": 1, "c": 1}]),
    ({"allOf": [{**ONE, "additionalProperties": True}, {"properties": {"b": {}, "c": {}}, "anyOf": [{"required": ["b"]}, {"required": ["c"]}]}]},
     [{"a": 1, "b": 1}, {"a": 1, "c": 1}], [{"b": 1}, {"a": 1}]),
    ({"type": "string", "minLength": 5, "anyOf": [{"maxLength": 7}, {"maxLength": 6}]}, ["abcde", "abcdefg"], ["a", "abcdefgh"]),
    ({"type": ["string", "null"], "anyOf": [{"type": "null"}, {"type": "string", "maxLength": 2}]}, ["a", None], ["abc", 1]),
    ({"allOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"a": {"maxLength": 2}}}]}, [{"a": "xy"}], [{"a": "xyz"}]),
    ({"$ref": "#/$defs/a", "maxLength": 2, "$defs": {"a": {"type": "string", "minLength": 1}}}, ["a", "ab"], ["", "abc"]),
    ({"type": "integer", "enum": [1, "x", 2.5, 3]}, [1, 3], ["x", 2.5, 2]), ({"type": ["null", "string"], "enum": ["a", None, 1]}, ["a", None], [1]),
    ({"const": "x", "type": "string", "title": "T", "default": "x"}, ["x"], ["y"]), ({"exclusiveMinimum": 5}, [6, 5.5], [3, 5]),
    ({"exclusiveMaximum": 5}, [4, -7], [5, 6]), ({"uniqueItems": False}, [[1, 1]], [1]),
    ({"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}], "default": None, "title": "Day", "description": "d"},
     ["2025-07-26", None], [1]),
    ({"$ref": "#/$defs/E", "description": "d", "default": "a", "$defs": {"E": {"enum": ["a", "b"], "type": "string", "title": "E"}}},
     ["a", "b"], ["c"]),
    ({"title": "T", "allOf": [{"$ref": "#/definitions/N"}], "definitions": {"N": {"type": "object", "properties": {
        "next": {"title": "Next", "allOf": [{"$ref": "#/definitions/N"}]}}}}}, [{}, {"next": {"next": {}}}], [{"next": 1}]),
    ({"$ref": "#/$defs/L", "$defs": {"L": LIST}}, [{}, {"next": {"next": {}}}], [1, {"next": 1}]),
    ({"type": "object", "anyOf": [{"$ref": "#/$defs/L"}, ONE], "$defs": {"L": {**LIST, "properties": {
        "next": {"type": "object", "anyOf": [{"$ref": "#/$defs/L"}, ONE]}}}}}, [{}, {"next": {"next": {"a": 1}}}, {"a": 2}], [{"next": 1}]),
    ({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"k": {"type": "string", "const": "circle"},
      "r": {"type": "number", "exclusiveMinimum": 0}}, "required": ["k", "r"], "additionalProperties": False},
     [{"k": "circle", "r": 1.5}], [{"k": "x", "r": 1.5}, {"k": "circle"}]),
    ({"enum": [0.1, 2.5, -1e300, 3.0]}, [0.1, 2.5, 3.0], [0.2, 1]),
    # What several parts say of members that none of them names.
    ({"allOf": [{"properties": {"a": {"maximum": 9}, "c": True}, "additionalProperties": {"type": ["integer", "null"]}},
                {"properties": {"b": True, "c": {"const": "c"}}, "additionalProperties": {"type": "integer", "minimum": 3}}]},
     [{"x": 3, "y": 44}, {}, {"a": 4, "c": "c", "b": None}], [{"x": 2}, {"x": None}, {"a": 2}, {"a": 10}, {"b": "b"}, {"c": 3}]),
    ({"allOf": [{"properties": {"a": True}, "additionalProperties": True}, {"properties": {"a": {"type": "null"}},
      "additionalProperties": False}]}, [{}, {"a": None}], [{"a": 1}, {"b": 1}]),
    ({"properties": {"a": True}, "additionalProperties": False, "allOf": [{"additionalProperties": {"type": "integer"}},
      {"additionalProperties": True}]}, [{}, {"a": 3}], [{"b": 1}]),
]

REFUSED = [
    ({"not": {}}, "not"), ({"propertyNames": {"pattern": "a"}}, "propertyNames"), ({"type": "frog"}, "type"),
    ({"type": "array", "uniqueItems": True}, "uniqueItems"), ({"patternProperties": {}}, "patternProperties"),
    ({"type": "number", "minimum": 0.5}, "minimum"), ({"$ref": "http://x"}, "$ref"),
    ({"type": "number", "minimum": 1, "exclusiveMaximum": 1}, "minimum"),
    ({"type": "number", "minimum": 2, "maximum": 1}, "minimum"), ({"$ref": "#/x"}, "$ref"),
    *(({"$ref": f"#/$defs/{bad}", "$defs": {"a": True, "%": True, "~": True, "": True}}, "$ref")
      for bad in ("%", "a%2", "%zz", "%00", "a%00", "~", "~2", "%7E")),
    *(({"$ref": f"#/$defs/l/{bad}", "$defs": {"l": [True]}}, "$ref") for bad in ("", "x", "1", "-", "0x0", " 0", "+0")),
    ({"type": "integer", "multipleOf": 2}, "multipleOf"), ({"if": {}}, "if"), ({"enum": []}, "enum"),
    ({"type": "string", "pattern": "(?=x)"}, "pattern"), ({"type": "string", "pattern": "[a"}, "pattern"),
    ({"type": "string", "pattern": "^[a-"}, "pattern"),
    *(({"properties": {name: True}, "additionalProperties": True}, "additionalProperties") for name in ("\"", "a\x01", "\\")),
    ({"type": "object", "required": ["x"]}, "required"), ({"type": "array", "minItems": 9999}, "minItems"),
    ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "allOf"), (3, "type"),
    ({"allOf": [{"$ref": "#/$defs/a"}, {"type": "null"}], "$defs": {"a": {"$ref": "#/$defs/a"}}}, "allOf"),
    # Limits that stand beside others are merged or named.
    ({"$ref": "#/$defs/a", "maxLength": 2, "$defs": {"a": {"maxLength": 3}}}, "$ref"), ({"allOf": [False]}, "type"),
    ({"type": "integer", "enum": [1, 3], "minimum": 2}, "minimum"), ({"const": "abc", "maxLength": 2}, "maxLength"),
    ({"const": 1, "enum": [1]}, "enum"), ({"type": "string", "const": 1}, "const"), ({"type": "string", "enum": [1]}, "enum"),
    ({"type": "string", "minLength": 5, "anyOf": [{"minLength": 6}, {"maxLength": 9}]}, "anyOf"), ({"allOf": 3}, "allOf"),
    ({"type": "object", "anyOf": [{"properties": {}}, {"type": "null"}]}, "anyOf"), ({"uniqueItems": True}, "uniqueItems"),
    ({"allOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"a": {"type": "null"}}}]}, "allOf"),
    ({"anyOf": [{"minLength": 2}], "oneOf": [{"maxLength": 3}, {"minLength": 3}]}, "oneOf"),
    ({"properties": {"a": True}, "required": "a"}, "required"), ({"exclusiveMinimum": 0.5}, "exclusiveMinimum"),
    ({"allOf": [{"$ref": "#/$defs/a"}] * 400, "$defs": {"a": {"properties": {f"p{i}": True for i in range(4000)}}}}, "allOf"),
    ({"allOf": [{"$ref": 3}]}, "$ref"), ({"minProperties": 1}, "minProperties"), ({"type": "string", "minLength": 2, "maxLength": 1}, "maxLength"),
]

# GBNF, texts of the language, texts that are not.
GRAMMARS = [
    ('root ::= "yes" | "no"', ["yes", "no"], ["", "ye", "yesno"]),
    ('root ::= [a-c]+ # letters\n', ["a", "abcabc"], ["", "d"]),
    ('root ::= ("a" | "b"\n  | "c")* end\nend ::= "."?', ["", "abc.", "."], ["..", "a.b"]),
    ('root ::= [^a-z\\n] . "\\x41\\u00e9\\U0001F389"', ["1\u4f60A\u00e9\U0001F389"], ["ax", "\nxA\u00e9\U0001F389"]),
    ('root ::= "a"{2} [0-9]{1,3} "b"{2,}', ["aa1bb", "aa123bbbb"], ["a1bb", "aa1234bb", "aa1b"]),
    ('root ::= item{0,2}\nitem ::= "x" | "yy"', ["", "x", "xyy", "yyyy"], ["xxx", "y"]),
    ('root ::= "[" (root ("," root)*)? "]"', ["[]", "[[],[[]]]"], ["[", "[]]", "[,]"]),
    ('root ::= ""* "b"', ["b"], ["", "bb"]),
    ('root ::= a* "!"\na ::= "x"?', ["!", "xx!"], ["", "y!"]),
    ('root ::= expr\nexpr ::= term ("+" term)*\nterm ::= [0-9]+ | "(" expr ")"', ["1+(2+3)", "((4))"], ["1+", "(1"]),
    ('root ::= [\u00e0-\u4f60]+', ["\u00e9\u4f60\u0400"], ["a", "\u4f61"]),
    ('root ::= "" | "a-b" [\\]\\-^]', ["", "a-b]", "a-b-", "a-b^"], ["a-b"]),
]
BAD_GRAMMARS = [
    ('x ::= "a"', "no rule 'root'"), ('root ::= y', "no rule 'y'"), ('root ::= root "a" | "b"', "left-recursive"),
    ('root ::= a\na ::= b? c\nb ::= "x"\nc ::= a "y"', "left-recursive"), ('root ::= "a', "ends within"),
    ('root ::= [a', "ends within"), ('root ::= ("a"', ") is expected"), ('root ::= *', "repetition of nothing"),
    ('root ::= "a"{3,2}', "less than"), ('root ::= "a"{99999}', "4096"), ('root = "a"', "::="),
    ('root ::= "a"\nroot ::= "b"', "twice"), ('root ::= <x>', "tokens"), ('root ::= "\\q"', "escape"),
    ('root ::= [z-a]', "range"), ('root ::= ' + '(' * 100 + '"a"' + ')' * 100, "nested"),
    ('root ::= ' + ' '.join(['"a"{4000}'] * 200), "too large"), ('root ::= []', "without a character"),
]


def check_schema(walker, schema, good, bad, number, problems):
    forms = [json.dumps(value, ensure_ascii=False) for value in good]
    answer = walker.ask(schema=schema, texts=forms + [json.dumps(value) for value in bad])
    if answer.get("accepted") != [True] * len(good) + [False] * len(bad):
        problems.append((schema, forms + bad, answer))
    answer = walker.ask(schema=schema, seed=number, count=WALKS)
    # A random walk seldom finds the way out of a pattern that is open at its ends.
    if len(answer.get("texts", [])) < (1 if "pattern" in str(schema) else WALKS // 2):
        problems.append((schema, "enough walks that end", answer))
    for text in answer.get("texts", []):
        try:
            value = json.loads(text, object_pairs_hook=no_duplicates)
        except ValueError as error:
            problems.append((schema, str(error), text))
            continue
        if not valid(value, schema, schema):
            problems.append((schema, "a valid value", text))


def main(argv):
    walker = Walker(argv[1])
    problems = []
    for number, (schema, good, bad) in enumerate(CASES):
        check_schema(walker, schema, good, bad, number, problems)
    for schema, keyword in REFUSED:
        answer = walker.ask(schema=schema, texts=[])
        if f'"{keyword}"' not in answer.get("error", ""):
            problems.append((schema, keyword, answer))
    for grammar, good, bad in GRAMMARS:
        answer = walker.ask(grammar=grammar, texts=good + bad)
        if answer.get("accepted") != [True] * len(good) + [False] * len(bad):
            problems.append((grammar, good + bad, answer))
        texts = walker.ask(grammar=grammar, seed=1, count=WALKS)["texts"]
        if not all(walker.ask(grammar=grammar, texts=texts)["accepted"]):
            problems.append((grammar, "walks are accepted", texts))
    for grammar, says in BAD_GRAMMARS:
        answer = walker.ask(grammar=grammar, texts=[])
        if "error" not in answer or says and says not in answer["error"]:
            problems.append((grammar, says, answer))
    if walker.close() != 0:
        problems.append(("the program", "status 0", "another"))
    for name, want, got in problems[:20]:
        print(f"{name!r}\n  want {want!r}\n  got  {str(got)[:600]}")
    print(f"{len(CASES)} schemas, {len(GRAMMARS)} grammars: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
