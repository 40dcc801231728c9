#!/usr/bin/env python3
"""Chat templates as our interpreter and as jinja2 render them.

    jinja_test.py RENDER [--write]      RENDER: the program of render_template.c

Templates of templates/ with the conversations below are compared with templates/expected.json, and
with jinja2 where python3 has it (Debian: python3-jinja2).  Then random expressions and random
templates are compared with jinja2.  --write renews expected.json from jinja2.
"""
import datetime
import json
import os
import random
import subprocess
import sys
import warnings

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "templates")
RANDOM_CASES = int(os.environ.get("HAWSER_TEST_CASES", "600"))
EOPNOTSUPP, E2BIG = -95, -7

try:
    import jinja2
    import jinja2.ext
    import jinja2.sandbox
except ImportError:
    jinja2 = None


def make_environment():
    """What Hugging Face's transformers sets up, and lists that can grow, as llama.cpp allows."""
    class Generation(jinja2.ext.Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_pass"), [], [], body).set_lineno(line)

        def _pass(self, caller):
            return caller()

    class Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
        def is_safe_attribute(self, obj, attr, value):
            if isinstance(obj, list) and attr in ("append", "pop"):
                return True
            return super().is_safe_attribute(obj, attr, value)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    environment = Environment(trim_blocks=True, lstrip_blocks=True,
                              extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    return environment


ENVIRONMENT = make_environment() if jinja2 else None
warnings.simplefilter("ignore")  # of what random templates compile to


def theirs(template, variables):
    """The text, or None if jinja2 raises."""
    values = dict(variables)
    if "time_now" in values:
        now = datetime.datetime.fromtimestamp(values.pop("time_now"), datetime.timezone.utc)
        values["strftime_now"] = now.strftime
    try:
        text = ENVIRONMENT.from_string(template).render(**values)
        text.encode()
        return text
    except Exception:  # pylint: disable=broad-except
        return None


class Renderer:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, encoding="utf-8")

    def render(self, template, variables):
        request = {"template": template, "variables": variables}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        return self.process.wait()


def call(arguments, name="get_weather", ident="abcdefghi"):
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "The \"weather\" <now> &\nhere",
        "parameters": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "Größe 城市"},
            "days": {"type": "array", "items": {"type": "integer"}},
            "where": {"type": "object", "properties": {"y": {"type": "number"},
                                                       "X": {"type": ["string", "null"]}}}}}}},
    {"type": "function", "function": {"name": "noop", "description": "",
                                      "parameters": {"type": "object", "properties": {}}}},
]


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


SYSTEM = {"role": "system", "content": "  Be brief.\n"}
RESULT = {"role": "tool", "tool_call_id": "abcdefghi", "name": "get_weather", "content": "{\"t\": 21}"}
CONVERSATIONS = {
    "one": [user("Hi")],
    "system": [SYSTEM, user(" Hi \n")],
    "turns": [SYSTEM, user("Hi"), assistant(" Hello! "), user("Más 你好 🎉 <b>")],
    "answered": [user("a"), assistant("b"), user("c"), assistant("d")],
    "empty": [user(""), assistant(""), user("")],
    "parts": [user([{"type": "text", "text": "part one"}, {"type": "text", "text": " two"}])],
    "call": [user("w?"), assistant("", tool_calls=[call({"city": "Köln", "n": 3, "f": 1.5, "l": [1]})]),
             RESULT],
    "call-text": [SYSTEM, user("w?"), assistant(None, tool_calls=[call("{\"city\": \"Rom\"}")]), RESULT,
                  assistant("21."), user("thanks")],
    "calls": [user("w?"), assistant("now", tool_calls=[call({}), call({}, "noop", "bbbbbbbbb")]), RESULT,
              RESULT],
    "thought": [user("q"), assistant("<think>\nhm\n</think>\n\nanswer"), user("q2")],
    "reasoned": [user("q"), assistant("a", reasoning_content="because")],
    "wrong-order": [user("a"), user("b")],
    "nothing": [],
}
SETTINGS = {
    "": {},
    "tools": {"tools": TOOLS},
    "prompt": {"add_generation_prompt": True, "enable_thinking": False, "thinking": True},
    "all": {"tools": TOOLS, "add_generation_prompt": True, "time_now": 1753500000},
}


def family_cases():
    for name in sorted(os.listdir(HERE)):
        if not name.endswith(".jinja"):
            continue
        with open(os.path.join(HERE, name), encoding="utf-8") as file:
            template = file.read()
        for conversation, messages in CONVERSATIONS.items():
            for setting, values in SETTINGS.items():
                variables = {"messages": messages, "bos_token": "<s>", "eos_token": "</s>", **values}
                yield f"{name}:{conversation}:{setting}", template, variables


class Generator:
    """Random expressions and templates over a few variables."""

    VARIABLES = {"s": "Hello, wörld 你好", "t": "  a-b c\n", "e": "", "n": 7, "m": -3, "x": 2.5, "z": 0,
                 "yes": True, "no": False, "nil": None, "l": [3, "b", None, 1.5, [1, 2]],
                 "w": ["b", "A", "c", "a"], "i": [5, 1, 4, 1],
                 "d": {"b": 1, "a": [1, {"k": "v"}], "C": "x", "items": "own"},
                 "q": [{"r": "u", "c": "one"}, {"r": "a", "c": "two", "v": 3}]}
    STRINGS = ["''", "'a'", "' x '", "\"it's\"", "'a\\nb'", "'é'", "'l'", "'{}-{}'", "'{1}{{{0}'", "'1'", "'2.5'", "'b'"]
    FILTERS = ["trim", "length", "tojson", "tojson(indent=2)", "join(',')", "join", "upper", "lower",
               "title", "capitalize", "first", "last", "default('D')", "default('D', true)", "list",
               "string", "int", "float", "abs", "round", "round(1)", "sort", "reverse | list",
               "unique | list", "replace('l', 'LL')", "replace('a', '', 1)", "indent", "indent(2, true)",
               "map('string') | list", "map('upper') | join('|')", "select('string') | list",
               "reject('none') | list", "selectattr('v') | list", "selectattr('r', 'equalto', 'u') | list",
               "map(attribute='c') | list", "rejectattr('v', 'defined') | list", "items | list",
               "dictsort", "dictsort(reverse=true)", "sum", "min", "max", "count",
               "select | list", "tojson(sort_keys=true)", "sort(reverse=true)"]
    TESTS = ["defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number",
             "integer", "float", "boolean", "true", "false", "in l", "in s", "equalto 7", "eq('a')",
             "odd", "even", "divisibleby 3", "gt 2", "lt(5)", "upper", "lower", "sameas none", "callable",
             "ne 1"]
    METHODS = ["strip()", "lstrip()", "rstrip('o')", "strip(' a')", "split()", "split(',')", "split(' ', 1)",
               "startswith('H')", "endswith('\\n')", "replace('l', 'r')", "upper()", "lower()", "title()",
               "capitalize()", "items() | list", "keys() | list", "values() | list", "get('a')",
               "get('zz', 9)", "find('l')", "rfind('l')", "count('l')", "join(w)", "splitlines()",
               "index('b')", "rsplit(' ', 1)", "partition('-')", "isdigit()", "isupper()",
               "format(1, 2)", "format(x, l, a=d)", "removeprefix('He')", "b", "a", "items", "zz"]
    SUBSCRIPTS = ["[0]", "[-1]", "[1:]", "[:-1]", "[::-1]", "[1:3]", "['a']", "[5]", "[-2:]", "[::2]",
                  "[n]", "[0:n:2]", "['items']"]

    def __init__(self, seed):
        self.random = random.Random(seed)

    def atom(self):
        kind = self.random.randrange(10)
        if kind < 6:
            return self.random.choice(list(self.VARIABLES) + ["missing", "u", "v"])
        if kind < 8:
            return self.random.choice(self.STRINGS)
        return self.random.choice(["0", "1", "-2", "10", "3.5", "1e3", "0.1", "1e20", "true", "none", "[]",
                                   "[1, 'a']", "{}", "{'k': 1, 2: 'v'}", "(1, 2)", "(1,)", "0x1f", "1_000"])

    def expression(self, depth):
        pick = self.random.choice
        if depth == 0:
            return self.atom()
        inner = self.expression(depth - 1)
        kind = self.random.randrange(12)
        if kind < 3:
            operator = pick(["+", "-", "*", "/", "//", "%", "~", "and", "or", "==", "!=", "<", ">=", "in",
                             "not in"])
            return f"({inner} {operator} {self.expression(depth - 1)})"
        if kind < 6:
            return f"({inner} | {pick(self.FILTERS)})"
        if kind == 6:
            return f"({inner} is {pick(['', 'not '])}{pick(self.TESTS)})"
        if kind == 7:
            return f"({inner}).{pick(self.METHODS)}"
        if kind == 8:
            subscript = pick(self.SUBSCRIPTS)
            # jinja2 takes a slice of a wrong constant as undefined, and of a wrong variable as an error.
            return f"{pick('stelwiq')}{subscript}" if ":" in subscript else f"({inner}){subscript}"
        if kind == 9:
            return f"({inner} if {self.expression(depth - 1)} else {self.atom()})"
        if kind == 10:
            return f"(not {inner})"
        return f"[{inner}, {self.atom()}]"

    def space(self):
        return self.random.choice(["", " ", "\n", "  \n", "\n  ", "x", " y\n", "\t"])

    def tag(self, text):
        sign = self.random.choice
        return f"{{%{sign(['', '', '-', '+'])} {text} {sign(['', '', '-', '+'])}%}}"

    def body(self, depth):
        return "".join(self.space() + self.statement(depth) for _ in range(self.random.randint(1, 3))) \
            + self.space()

    def statement(self, depth):
        kind = self.random.randrange(9) if depth else 0
        small = self.expression(1)
        if kind <= 1:
            return f"{{{{{self.random.choice(['', '-'])} {self.expression(2)} {self.random.choice(['', '-'])}}}}}"
        if kind == 2:
            return self.tag(f"if {small}") + self.body(depth - 1) + self.tag("else") + self.body(depth - 1) \
                + self.tag("endif")
        if kind == 3:
            inside = self.random.choice(["", "", self.tag("break"), self.tag("continue")])
            condition = self.random.choice(["", f" if {self.atom()}"])
            return self.tag(f"for v in {self.random.choice(['l', 'w', 'd', 's', 'range(3)', 'q', 'e'])}{condition}") \
                + "{{ v }}{{ loop.index ~ loop.last }}" + self.body(depth - 1) + inside + self.tag("endfor")
        if kind == 4:
            # Not a variable of the request: jinja2 forgets its value in places before the set.
            return self.tag(f"set {self.random.choice('uv')} = {small}")
        if kind == 5:
            return self.tag("set v") + self.body(depth - 1) + self.tag("endset") + "{{ v }}"
        if kind == 6:
            return self.tag("macro f(a, b=n)") + "{{ a }}|{{ b }}" + self.body(depth - 1) + self.tag("endmacro") \
                + "{{ f(" + small + ") }}{{ f(b=s) }}"
        if kind == 7:
            return "{#" + self.random.choice(["", "-"]) + " note " + self.random.choice(["", "-"]) + "#}"
        return self.tag("set o = namespace(c=0)") + self.tag("for v in i") \
            + self.tag("set o.c = o.c + v") + self.tag("endfor") + "{{ o.c }}"


def compare_families(renderer, expected, problems):
    count = 0
    for name, template, variables in family_cases():
        ours = renderer.render(template, variables).get("text")
        count += 1
        if ours != expected[name]:
            problems.append((name, expected[name], ours))
        if jinja2 and theirs(template, variables) != expected[name]:
            problems.append((name + " (jinja2)", expected[name], theirs(template, variables)))
    return count


def compare_random(renderer, problems, seed):
    """Both give the same text, or both refuse; ours may refuse what it says it does not support."""
    generator = Generator(seed)
    refused = 0
    for number in range(RANDOM_CASES):
        template = f"{{{{ {generator.expression(3)} }}}}" if number % 2 else generator.body(2)
        ours = renderer.render(template, generator.VARIABLES)
        want = theirs(template, generator.VARIABLES)
        if ours.get("code") in (EOPNOTSUPP, E2BIG):
            refused += 1
        elif ours.get("text") != want:
            problems.append((template, want, ours))
    if refused > RANDOM_CASES // 10:
        problems.append((f"{refused} of {RANDOM_CASES} random templates are not supported", "", ""))


def main(argv):
    path = os.path.join(HERE, "expected.json")
    if "--write" in argv:
        expected = {name: theirs(template, variables) for name, template, variables in family_cases()}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(expected, file, ensure_ascii=False, indent=1)
            file.write("\n")
    renderer = Renderer(argv[1])
    with open(path, encoding="utf-8") as file:
        expected = json.load(file)
    problems = []
    count = compare_families(renderer, expected, problems)
    if count < 200 or sum(text is not None for text in expected.values()) < 200:
        problems.append(("the cases", "at least 200", str(count)))
    seed = int(os.environ.get("HAWSER_TEST_SEED", "1"))
    if jinja2:
        compare_random(renderer, problems, seed)
    if renderer.close() != 0:
        problems.append(("the program", "status 0", "another"))
    for name, want, got in problems[:20]:
        print(f"{name}\n  want {want!r}\n  got  {got!r}")
    print(f"{count} family cases, {'jinja2 ' + jinja2.__version__ if jinja2 else 'no jinja2'}, seed {seed}: "
          f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
