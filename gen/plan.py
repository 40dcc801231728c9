"""The wire plan: which commands and structs travel, and the layout of each.

A struct or command becomes a list of fields in wire order: values first (so that counts and
selectors are known before what they govern), then pointers, then the pNext chain.  What cannot
be planned carries its reason; nothing is left out silently.
"""
import re
from dataclasses import dataclass, field

from registry import BYTES, Member

ALLOCATOR = "VkAllocationCallbacks"
OPERATIONS = 256  # VN_OP_END of protocol.h: ids below are not Vulkan's


class Unsupported(Exception):
    """Why a struct or command cannot travel."""


@dataclass
class Elem:
    """One value: a scalar, handle, struct, byte, or string."""
    kind: str   # scalar handle struct void string
    type: str
    wire: str = ""   # of a scalar
    objtype: str = ""


@dataclass
class Field:
    m: Member
    kind: str   # value array chars ptr select chain stype drop objhandle
    elem: Elem = None
    counts: list = field(default_factory=list)   # of each pointer level; [] is one element
    when: str = ""
    lenient: bool = False
    clean: str = ""
    clean_first: str = ""
    cases: list = field(default_factory=list)    # of a union: (selections, Field)
    role: str = "in"   # in out count create
    stride: str = ""   # of an array: the field that tells its elements' distance
    packed: str = ""   # of such a field: the array

    @property
    def name(self):
        return self.m.name

    @property
    def is_pointer(self):
        return self.kind == "ptr"


def fnv1a(text):
    value = 0x811C9DC5
    for byte in text.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def wire_name(name):
    """Without the suffix that promotion removes, so that ids outlive promotion."""
    return re.sub(r"(KHR|EXT)$", "", name)


def holds(condition, verdicts):
    """Whether what a command or an extension needs besides can be there: A+B,(C,D)..."""
    if not condition:
        return True
    text = re.sub(r"VK_\w+", lambda match: str(not is_omitted(match.group(), verdicts)),
                  re.sub(r"::\w+", "", condition))
    if not re.fullmatch(r"(True|False|[()+,\s])+", text):
        raise SystemExit(f"a condition that cannot be read: {condition}")
    return bool(eval(text.replace("+", " and ").replace(",", " or ")))


def is_omitted(name, verdicts):
    """Of an extension; versions of Vulkan have no verdict."""
    return name in verdicts and verdicts[name][0] == "omit"


def verdicts_of(plan):
    """Extension -> (verdict, reason); left out is one with a command that cannot travel, too, and
    one that needs what is left out."""
    found = dict(plan.extensions)
    for extension in plan.r.extensions.values():
        lost = [n for n in extension.commands if plan.r.resolve(n) in plan.omitted]
        if found[extension.name][0] == "allow" and lost:
            found[extension.name] = "omit", plan.omitted[plan.r.resolve(lost[0])]
    while True:
        lost = [e for e in plan.r.extensions.values()
                if found[e.name][0] == "allow" and not holds(e.depends, found)]
        if not lost:
            return found
        for extension in lost:
            needed = [n for n in re.findall(r"VK_\w+", extension.depends) if is_omitted(n, found)]
            found[extension.name] = "omit", f"needs {', '.join(needed)}, which is left out"


class Plan:
    """Everything that travels, for one registry and one policy."""

    def __init__(self, registry, policy):
        self.r, self.policy = registry, policy
        self._fields, self._problems, self._sizes = {}, {}, {}
        self._judge_extensions()
        self.commands = {}    # name -> CommandPlan, on the wire
        self.local = {}       # name -> reason
        self.refused = {}     # name -> reason
        self.omitted = {}     # name -> reason
        self._choose_commands()
        self._close()
        self._number()

    # What the policy and the registry allow.

    def _judge_extensions(self):
        self.extensions = {e.name: self.policy.extension(e) for e in self.r.extensions.values()}
        self.allowed = set()    # names of commands and types, aliases resolved
        self.elsewhere = set()  # the same of extensions that live at the client
        for _name, commands, types in self.r.features:
            self.allowed |= {self.r.resolve(x) for x in commands + types}
        for extension in self.r.extensions.values():
            verdict = self.extensions[extension.name][0]
            commands = [c for c in extension.commands
                        if holds(extension.needs.get(c), self.extensions)]
            names = {self.r.resolve(x) for x in commands + extension.types}
            if verdict == "allow":
                self.allowed |= names
            elif verdict == "local":
                self.elsewhere |= names

    def _choose_commands(self):
        for command in self.r.commands.values():
            if command.name in self.elsewhere and command.name not in self.allowed:
                self.local[command.name] = "lives at the client"
                continue
            if command.name not in self.allowed:
                continue
            kind, reason = self.policy.command_class(command, _default_class(command))
            if kind in ("local", "refuse"):
                (self.local if kind == "local" else self.refused)[command.name] = reason
                continue
            try:
                self.commands[command.name] = CommandPlan(self, command, kind, reason)
            except Unsupported as why:
                self.omitted[command.name] = str(why)

    def _number(self):
        seen = {}
        for command in self.commands.values():
            command.id = fnv1a(wire_name(command.name))
            if command.id in seen:
                # Two commands that differ in their suffix: only the one without is free of it.
                command.id = fnv1a(command.name)
            if command.id < OPERATIONS:
                raise SystemExit(f"the id of {command.name} is one of our own operations'")
            if command.id in seen:
                raise SystemExit(f"ids of {command.name} and {seen[command.id]} collide")
            seen[command.id] = command.name

    # Structs.

    def problem(self, name, out=False):
        """Why a struct cannot travel, or None."""
        key = (name, out)
        if key not in self._problems:
            self._problems[key] = None  # a struct that points to itself is judged by the rest
            try:
                self._problems[key] = self._find_problem(name, out)
            except Unsupported as why:
                self._problems[key] = str(why)
        return self._problems[key]

    def _find_problem(self, name, out):
        reason = self.policy.struct_omitted(name)
        if reason:
            return reason
        for f in self.fields(name):
            for g in [f] + [c for _s, c in f.cases]:
                if out and g.elem and g.elem.kind == "handle":
                    return f"{name}.{g.name}: the driver would return a handle"
                if out and g.is_pointer and g.m.const:
                    return f"{name}.{g.name}: the driver would return a pointer"
                if out and g.elem and g.elem.kind == "struct" and \
                        self.r.structs[g.elem.type].stype:
                    return f"{name}.{g.name}: a chain inside an output"
                if g.elem and g.elem.kind == "struct":
                    inner = self.problem(g.elem.type, out)
                    if inner:
                        return inner
        return None

    def fields(self, name):
        if name not in self._fields:
            struct = self.r.structs[name]
            via = self.policy.entry("unions", name).get("via")
            members = [struct.member(via)] if via else struct.members
            self._fields[name] = _wire_order([f for m in members for f in self.field(struct, m)])
            self.pack(struct.name, self._fields[name])
        return self._fields[name]

    def pack(self, owner, fields):
        """Elements that the program keeps at a distance travel side by side: the encoder steps over
        the program's array by its stride, and the decoder's stride is the size of an element."""
        by_name = {f.name: f for f in fields}
        for f in fields:
            if not f.m.stride:
                continue
            if f.kind != "ptr" or f.elem.kind != "struct" or f.m.stride not in by_name or \
                    self.elem_fixed(f.elem) is None or f.clean:
                raise Unsupported(f"{owner}.{f.name}: a stride that is not understood")
            f.stride, by_name[f.m.stride].packed = f.m.stride, f.name
        for f in fields:
            if re.search(r"[sS]trides?$", f.name) and not f.packed and \
                    not self.policy.is_plain_stride(f"{owner}.{f.name}"):
                raise Unsupported(f"{owner}.{f.name}: a stride of nobody knows what")

    def elem(self, type_name, where):
        name = self.r.resolve(type_name)
        wire = self.r.scalar(name)
        if wire:
            return Elem("scalar", name, wire)
        if name in self.r.handles:
            if self.policy.entry("handles", name).get("as") == "local":
                raise Unsupported(f"{where}: {name} lives at the client")
            return Elem("handle", name, objtype=self.r.handles[name][0])
        if name == "void":
            return Elem("void", name)
        if name in self.r.structs:
            return Elem("struct", name)
        raise Unsupported(f"{where}: {name} has no layout in the registry")

    def field(self, struct, m):
        """The fields of one member: one, or none for what is not there at all."""
        where = f"{struct.name}.{m.name}"
        if m.name == "sType" and m.values:
            return [Field(m, "stype")]
        if m.name == "pNext" and m.type == "void":
            return [Field(m, "chain")]
        if m.bits:
            raise Unsupported(f"{where}: a bit field")
        override = self.policy.entry("members", where).get("as")
        dropped = self.r.handles.get(self.r.resolve(m.type)) and \
            self.policy.entry("handles", self.r.resolve(m.type)).get("as") == "drop"
        if override in ("drop", "zero") or dropped:
            return [Field(m, "drop")]
        if m.type == "VkBaseInStructure" or m.type == "VkBaseOutStructure":
            raise Unsupported(f"{where}: a chain")
        made = self._pointer(struct, m, where, override) if m.ptr else self._value(struct, m, where)
        ignored = self.policy.entry("ignored", where)
        clean = self.policy.entry("clean", where)
        made.when, made.lenient = ignored.get("when", ""), bool(ignored.get("lenient"))
        made.clean, made.clean_first = clean.get("with", ""), clean.get("first", "")
        return [made]

    def _value(self, struct, m, where):
        if m.objecttype:
            return Field(m, "objhandle", Elem("scalar", m.type, "u64"))
        elem = self.elem(m.type, where)
        if elem.kind == "void":
            raise Unsupported(f"{where}: void")
        if m.dims:
            chars = m.type == "char" and len(m.dims) == 1
            return Field(m, "chars" if chars else "array", elem)
        if elem.kind == "struct" and self.r.structs[elem.type].union:
            return self._union(struct, m, elem, where)
        return Field(m, "value", elem)

    def _union(self, struct, m, elem, where):
        union = self.r.structs[elem.type]
        via = self.policy.entry("unions", union.name).get("via")
        if via:
            return Field(m, "value", elem)  # fields() of the union holds the one member
        if not m.selector or not all(x.selection for x in union.members):
            raise Unsupported(f"{where}: the union {union.name} has no selector and no rule")
        cases = [(x.selection, f) for x in union.members for f in self.field(union, x)]
        return Field(m, "select", elem, cases=cases)

    def _pointer(self, struct, m, where, override):
        lens = self.policy.entry("lens", where).get("len") or m.lens
        is_struct = hasattr(struct, "extends")
        if is_struct and not m.const and override != "in" and not struct.returned \
                and not self._is_output(struct.name):
            raise Unsupported(f"{where}: an output inside an input")
        if m.ptr > 2:
            raise Unsupported(f"{where}: pointers three deep")
        elem = self.elem(m.type, where)
        if m.type == "char" and lens and lens[-1] == "null-terminated":
            return Field(m, "ptr", Elem("string", "char"), lens[:-1])
        if m.ptr == 2 and len(lens) != 2:
            raise Unsupported(f"{where}: the length of what it points to is unknown")
        if elem.kind == "void" and not lens:
            raise Unsupported(f"{where}: untyped memory of unknown size")
        counts = [] if lens == ["1"] else list(lens)
        if m.ptr == 2 and elem.kind == "void":
            raise Unsupported(f"{where}: untyped memory of unknown size")
        return Field(m, "ptr", elem, counts)

    def _is_output(self, name):
        """Filled by the driver though not marked so: an output of a command, or chained to one."""
        if not hasattr(self, "_outputs"):
            self._outputs = {self.r.resolve(p.type) for c in self.r.commands.values()
                             for p in c.params if p.ptr and not p.const}
        struct = self.r.structs[name]
        return name in self._outputs or any(
            self.r.resolve(x) in self._outputs and self.r.structs[self.r.resolve(x)].returned
            for x in struct.extends)

    # Reachability.

    def _close(self):
        """ins, outs: structs that travel in requests and in replies.  direct: not only chained."""
        self.ins, self.outs, self.direct = set(), set(), set()
        for command in self.commands.values():
            for f in command.fields:
                if f.elem and f.elem.kind == "struct":
                    self._reach(f.elem.type, self.outs if f.role == "out" else self.ins)
        self.direct = self.ins | self.outs
        for chosen in (self.ins, self.outs):
            self._reach_chained(chosen, out=chosen is self.outs)
        self.skipped = {}  # chained structs that are allowed and yet do not travel
        for struct in self.r.structs.values():
            if struct.extends and struct.name in self.allowed and \
                    struct.name not in self.ins | self.outs:
                self.skipped[struct.name] = self.problem(struct.name) or \
                    "extends nothing that travels"

    def _reach(self, name, chosen):
        if name in chosen:
            return
        chosen.add(name)
        for f in self.fields(name):
            for g in [c for _s, c in f.cases] or [f]:  # a union is only its members
                if g.elem and g.elem.kind == "struct":
                    self.direct = self.direct | {g.elem.type}
                    self._reach(g.elem.type, chosen)

    def _reach_chained(self, chosen, out):
        while True:
            more = [s for s in self.r.structs.values()
                    if s.name not in chosen and s.stype and s.name in self.allowed
                    and any(self.r.resolve(x) in chosen for x in s.extends)
                    and not self.problem(s.name, out)]
            if not more:
                return
            for struct in more:
                before = set(chosen)
                self._reach(struct.name, chosen)
                self.direct |= chosen - before - {struct.name}

    def is_recorded(self, handle):
        """Whether a recorded command can name a handle of this type, or what it holds."""
        if not hasattr(self, "_recorded"):
            found, reached = set(), set()
            fields = [f for c in self.commands.values() if c.kind == "record" for f in c.fields]
            while fields:
                f = fields.pop()
                fields += [case for _s, case in f.cases]
                if f.elem and f.elem.kind == "handle":
                    found.add(f.elem.type)
                elif f.elem and f.elem.kind == "struct" and f.elem.type not in reached:
                    chained = [s.name for s in self.r.structs.values() if s.name in self.ins
                               and f.elem.type in [self.r.resolve(x) for x in s.extends]]
                    for name in {f.elem.type, *chained} - reached:
                        reached.add(name)
                        fields += self.fields(name)
            self._recorded = found
        holds = self.policy.entry("holders", handle).get("of")
        return handle in self._recorded or holds in self._recorded

    # Sizes.

    def dims(self, m):
        total = 1
        for d in m.dims:
            total *= int(d) if d.isdigit() else self.r.constants[d]
        return total

    def elem_fixed(self, elem):
        if elem.kind == "scalar":
            return BYTES[elem.wire]
        if elem.kind == "handle":
            return 8
        if elem.kind == "struct":
            return self.fixed(elem.type)
        return None

    def field_fixed(self, f):
        """Bytes of a field whose size is always the same, or None."""
        if f.kind in ("stype", "drop"):
            return 0
        if f.kind == "objhandle":
            return 8
        if f.kind == "value":
            return self.elem_fixed(f.elem)
        if f.kind == "array":
            one = self.elem_fixed(f.elem)
            return None if one is None else one * self.dims(f.m)
        return None

    def fixed(self, name):
        if name not in self._sizes:
            sizes = [self.field_fixed(f) for f in self.fields(name)]
            self._sizes[name] = None if None in sizes else sum(sizes)
        return self._sizes[name]

    def elem_min(self, elem):
        fixed = self.elem_fixed(elem)
        if fixed is not None:
            return max(fixed, 1)
        return 1 if elem.kind in ("void", "string") else self.least(elem.type)

    def least(self, name):
        """The fewest bytes that a struct takes; at least 1."""
        total = 0
        for f in self.fields(name):
            fixed = self.field_fixed(f)
            if fixed is not None:
                total += fixed
            elif f.kind == "value":
                total += self.elem_min(f.elem)
            elif f.kind == "array":
                total += self.elem_min(f.elem) * self.dims(f.m)
            elif f.kind == "chain":
                total += 4
            elif f.kind != "select":
                total += 1
        return max(total, 1)

    def plain(self, name):
        """No pointers inside, so that replies read and write it like requests do."""
        for f in self.fields(name):
            if f.kind in ("ptr", "select"):
                return False
            if f.kind in ("value", "array") and f.elem.kind == "struct":
                inner = self.r.structs[f.elem.type]
                if inner.stype or not self.plain(f.elem.type):
                    return False
        return True


def _wire_order(fields):
    values = [f for f in fields if f.kind not in ("ptr", "chain", "select")]
    return (values + [f for f in fields if f.kind == "select"]
            + [f for f in fields if f.kind == "ptr"] + [f for f in fields if f.kind == "chain"])


def _default_class(command):
    outputs = any(p.ptr and not p.const for p in command.params)
    if command.ret == "void" and not outputs:
        return "post", "nothing comes back"
    return "call", "the program reads the answer"


class CommandPlan:
    """A command as fields, each with its role, and what happens to ids."""

    def __init__(self, plan, command, kind, reason):
        self.c, self.name, self.ret = command, command.name, command.ret
        self.kind, self.reason, self.id = kind, reason, 0
        if self.ret != "void" and not plan.r.scalar(self.ret):
            raise Unsupported(f"{self.name} returns {self.ret}")
        self.implicit = command.params[0].name if kind == "record" else ""
        self.effects = plan.policy.effects(self.name) if kind == "record" else []
        if self.effects is None:
            raise Unsupported(f"{self.name}: the policy does not say what it reads and writes")
        self.fields = _wire_order([f for p in command.params if p.name != self.implicit
                                   for f in self._param(plan, p)])
        plan.pack(self.name, self.fields)
        self.destroyed = self._destroyed(plan)
        self.by_name = {f.name: f for f in self.fields}

    def _param(self, plan, p):
        if plan.r.resolve(p.type) == ALLOCATOR:
            return [Field(p, "drop")]
        (f,) = plan.field(self.c, p)
        if f.elem and f.elem.kind == "struct":
            out = bool(p.ptr and not p.const)
            why = plan.problem(f.elem.type, out)
            if why:
                raise Unsupported(why)
        if f.kind == "ptr" and not p.const:
            f.role = self._role(plan, f)
        if p.dims and f.kind == "array":  # const float blendConstants[4]: a pointer, in C
            f.kind, f.counts = "ptr", list(p.dims)
        return [f]

    def _role(self, plan, f):
        if f.m.ptr > 1:
            raise Unsupported(f"{self.name}.{f.name}: a pointer into the driver's memory")
        if f.elem.kind == "handle":
            return "create"
        if any(f.name in other.lens for other in self.c.params if other is not f.m):
            return "count"
        if f.elem.kind == "string":
            raise Unsupported(f"{self.name}.{f.name}: a string of the driver")
        return "out"

    def _destroyed(self, plan):
        """The parameter whose ids end with this command."""
        if not re.match(r"vk(Destroy|Free)", self.name):
            return None
        handles = [f for f in self.fields if f.elem and f.elem.kind == "handle"]
        return handles[-1] if handles else None

    def with_role(self, *roles):
        return [f for f in self.fields if f.role in roles]
