"""Code that tests the marshalling, from the same registry: fillers of every struct and command, a
fake driver, and one round trip a command.

The fake driver encodes what it was given once more; the test compares that with the request.
Spans come straight from the registry's members, not from the plan, so that a member which the
plan forgot is found."""
import re

from commands import names, params
from emit import Emit, Out


class SelfTest:
    def __init__(self, plan, commands):
        self.p, self.c, self.e = plan, commands, Emit(plan)

    def write(self, folder, write, shards, guard, source):
        heads, parts = [], []
        for name in sorted(self.p.ins):
            parts.append(self.fill_struct(name, heads))
        for name in sorted(self.p.outs):
            parts.append(self.fill_output(name, heads))
        for c in self.c.all():
            parts.append(self.fill_args(c, heads))
        shards(folder, "vn_fill", ["vn_fill.gen.h"], parts)
        heads += ["VkBaseOutStructure *vn_fill_node(struct filler *f, uint32_t stype);",
                  "VkBaseOutStructure *vn_fill_skel_node(struct filler *f, uint32_t stype);",
                  "void vn_fill_out_node(struct filler *f, VkBaseOutStructure *node);"]
        write(folder, "vn_fill.gen.h", guard("fill.gen.h", ["filler.h", "vn_commands.gen.h"],
                                             "\n".join(heads)))
        write(folder, "vn_fill_nodes.gen.c", source(["vn_fill.gen.h"], [self.nodes()]))
        write(folder, "vn_struct_tests.gen.c",
              source(["vn_fill.gen.h", "struct_tests.h"], [self.struct_tests()]))
        shards(folder, "vn_fake", ["vn_fake.gen.h", "vn_fill.gen.h"],
               [self.fake(c) for c in self.c.all()])
        write(folder, "vn_fake.gen.h", guard("fake.gen.h", ["fake.h"], "\n".join(
            f"VKAPI_ATTR {c.ret} VKAPI_CALL fake_{c.name}({params(c.c)});"
            for c in self.c.all())))
        write(folder, "vn_fake_driver.gen.c",
              source(["vn_fake.gen.h"], [self.driver()]))
        shards(folder, "vn_trip", ["vn_trip.gen.h", "vn_fill.gen.h"],
               [self.trip(c) for c in self.c.all()])
        write(folder, "vn_trip.gen.h", guard("trip.gen.h", ["trip.h"], "\n".join(
            f"void trip_{c.name}(struct trip *t);" for c in self.c.all())))
        write(folder, "vn_trips.gen.c", source(["vn_trip.gen.h"], [self.trips()]))

    # Values.

    def lengths(self, owner):
        """Members that count something -> the expression they count by."""
        found = {}
        for m in self.e.members_of(owner):
            lens = self.p.policy.entry("lens", f"{owner.name}.{m.name}").get("len") or m.lens
            for expr in lens:
                for word in re.findall(r"[A-Za-z_]\w*", expr.split("->")[0].split("[")[0]):
                    if m.ptr:
                        found.setdefault(word, expr)
            room = self.p.policy.entry("rooms", f"{owner.name}.{m.name}").get("bytes") or ""
            for word in re.findall(r"[a-z]\w*", room):
                found.setdefault(word, room)
        return found

    def value(self, o, f, lv, owner, pre):
        """Fills one member that is not a pointer."""
        if f.kind == "objhandle":
            o(f"{pre}{f.m.objecttype} = VK_OBJECT_TYPE_BUFFER;")
            o(f"{lv} = (uintptr_t)fill_handle(f, VK_OBJECT_TYPE_BUFFER);")
        elif f.kind == "chars":
            o(f"fill_chars(f, {lv}, sizeof({lv}));")
        elif f.kind == "array":
            self.array(o, f, lv)
        elif f.kind == "drop":
            if f.m.ptr:
                o(f"{lv} = fill_garbage(f);")
            elif f.m.type in self.p.r.handles:
                o(f"{lv} = fill_garbage(f);")
        elif f.kind == "select":
            self.select(o, f, lv, owner, pre)
        elif f.elem.kind == "handle":
            maker = "fill_handle" if pre == "a->" and not f.m.optional else "fill_maybe"
            o(f"{lv} = {maker}(f, {f.elem.objtype});")
        elif f.elem.kind == "struct":
            o(f"vn_fill_{f.elem.type}(f, &{lv});")
        else:
            self.scalar(o, f, lv, owner)

    def scalar(self, o, f, lv, owner):
        expr = self.lengths(owner).get(f.name)
        selects = [m for m in self.e.members_of(owner) if m.selector == f.name]
        if expr and "/ 4" in expr:
            o(f"{lv} = 4 * fill_count(f);")
        elif expr and "+ 31" in expr:
            o(f"{lv} = 1 << fill_count(f);")
        elif expr or f.name.endswith("Count"):  # a parameter may count by a member
            o(f"{lv} = fill_count(f);")
        elif selects:
            union = self.p.r.structs[self.p.r.resolve(selects[0].type)]
            picks = [s for m in union.members for s in m.selection]
            if picks:
                picks.append(f"({f.elem.type})0x7fffffff")  # of no member
                o(f"{lv} = ((const {f.elem.type}[]){{{', '.join(picks)}}})"
                  f"[fill_below(f, {len(picks)})];")
            else:
                o(f"{lv} = ({f.elem.type})fill_u64(f);")
        elif f.packed:
            o(f"{lv} = ({f.elem.type})(sizeof(*a->{f.packed}) + 4 * fill_below(f, 5));")
        elif f.elem.wire in ("f32", "f64"):
            o(f"{lv} = ({f.elem.type})fill_below(f, 1000) / 8;")
        elif self.p.r.enums.get(f.elem.type) and "Flag" not in f.elem.type:
            o(f"{lv} = ({f.elem.type})fill_below(f, {len(self.p.r.enums[f.elem.type])});")
        elif f.elem.type == "VkBool32":
            o(f"{lv} = fill_below(f, 2);")
        else:
            o(f"{lv} = ({f.elem.type})fill_u64(f);")

    def array(self, o, f, lv):
        at = lv + "[0]" * len(f.m.dims)
        if f.elem.kind == "scalar":
            o(f"fill_bytes(f, {lv}, sizeof({lv}));")
        elif f.elem.kind == "handle":
            o(f"for (uint32_t i = 0; i < {f.m.dims[0]}; i++)")
            o(f"    {lv}[i] = fill_handle(f, {f.elem.objtype});")
        else:
            o(f"for (uint32_t i = 0; i < sizeof({lv}) / sizeof({at}); i++)")
            o(f"    vn_fill_{f.elem.type}(f, &(&{at})[i]);")

    def select(self, o, f, lv, owner, pre):
        o.open(f"switch ({pre}{f.m.selector})")
        for selections, case in f.cases:
            self.e.case_labels(o, selections)
            if case.kind == "ptr":
                self.pointer(o, case, f"{lv}.{case.name}", owner, f"{lv}.")
            else:
                self.value(o, case, f"{lv}.{case.name}", owner, pre)
            o("break;")
            o.depth -= 1
        o("default:")
        o("    break;")
        o.close()

    def pointer(self, o, f, lv, owner, pre):
        count = self.e.count(f.counts[0], pre, owner, guard=True) if f.counts else "1"
        maybe = f.m.optional and not any(f.name in m.lens or f"{f.name}->" in " ".join(m.lens)
                                         for m in self.e.members_of(owner))
        maybe = "true" if maybe else "false"
        if f.elem.kind == "string":
            o(f"{lv} = fill_strings(f, {count});" if f.counts else f"{lv} = fill_string(f);")
            return
        if f.m.ptr == 2:
            self.pointers(o, f, lv, count, pre, owner)
            return
        o.open()
        if f.elem.kind in ("scalar", "void"):
            t = "uint8_t" if f.elem.kind == "void" else f.elem.type
            o(f"{t} *v = fill_array(f, {count}, sizeof(*v), {maybe});")
            o("if (fill_real(f, v))")
            o(f"    fill_bytes(f, v, {count} * sizeof(*v));")
        elif f.elem.kind == "handle":
            o(f"{f.elem.type} *v = fill_array(f, {count}, sizeof(*v), {maybe});")
            o(f"for (uint64_t i = 0; fill_real(f, v) && i < {count}; i++)")
            o(f"    v[i] = fill_handle(f, {f.elem.objtype});")
        else:
            size = pre + f.stride if f.stride else "sizeof(*v)"
            at = f"({f.elem.type} *)VN_STRIDED(v, i, {size})" if f.stride else "&v[i]"
            o(f"{f.elem.type} *v = fill_array(f, {count}, {size}, {maybe});")
            o(f"for (uint64_t i = 0; fill_real(f, v) && i < {count}; i++)")
            o(f"    vn_fill_{f.elem.type}(f, {at});")
        o(f"{lv} = v;")
        o.close()

    def pointers(self, o, f, lv, count, pre, owner):
        inner = self.e.count(f.counts[1], pre, owner, guard=True) if f.counts[1] != "1" else "1"
        o.open()
        maybe = str(f.m.optional).lower()
        o(f"const {f.elem.type} **v = fill_array(f, {count}, sizeof(*v), {maybe});")
        o.open(f"for (uint64_t i = 0; fill_real(f, v) && i < {count}; i++)")
        o(f"{f.elem.type} *w = fill_array(f, {inner}, sizeof(*w), false);")
        o("v[i] = w;")
        o.open(f"for (uint64_t j = 0; fill_real(f, w) && j < {inner}; j++)")
        if f.elem.kind == "scalar":
            o(f"w[j] = ({f.elem.type})fill_u64(f);")
        else:
            o(f"vn_fill_{f.elem.type}(f, &w[j]);")
        o.close()
        o.close()
        o(f"{lv} = v;")
        o.close()

    def ruled(self, name):
        return [f for f in self.p.fields(name) if f.when]

    def ignore(self, o, name, heads):
        """Garbage into what the rules call ignored, all judged before any is changed."""
        if not self.ruled(name):
            return
        head = f"void vn_fill_ignored_{name}(struct filler *f, {name} *s)"
        heads.append(head + ";")
        o.function(head)
        o("(void)f;")
        for f in self.ruled(name):
            o(f"bool reads_{f.name} = {f.when};")
        for f in self.ruled(name):
            o(f"if (!reads_{f.name})")
            if f.kind == "ptr" or f.elem.kind == "handle":
                o(f"    s->{f.name} = fill_garbage(f);")
            else:
                o(f"    memset(&s->{f.name}, 0xff, sizeof(s->{f.name}));")
        o.end()

    # Structs.

    def fill_struct(self, name, heads):
        struct, fields = self.p.r.structs[name], self.p.fields(name)
        o = Out()
        head = f"void vn_fill_self_{name}(struct filler *f, {name} *s)"
        heads += [head + ";", f"void vn_fill_{name}(struct filler *f, {name} *s);"]
        o.function(head)
        o("(void)f, (void)s;")
        for f in fields:
            if f.kind == "stype":
                o(f"s->sType = {struct.stype};")
            elif f.kind == "ptr":
                self.pointer(o, f, f"s->{f.name}", struct, "s->")
            elif f.kind != "chain":
                self.value(o, f, f"s->{f.name}", struct, "s->")
        check = self.p.policy.entry("checks", name).get("with")
        if check:
            o(check.replace("vn_", "fill_", 1) + "(s);")
        o.end()
        self.ignore(o, name, heads)
        self.chained(o, name, "vn_fill", "vn_fill_node", self.p.ins,
                     lambda: o(f"vn_fill_self_{name}(f, s);"))
        return o.text()

    def chained(self, o, name, function, node, chosen, body):
        """A function that fills a struct and chains others to it."""
        extenders = [s.stype for s in self.p.r.structs.values()
                     if s.name in chosen and s.stype
                     and name in [self.p.r.resolve(x) for x in s.extends]]
        has_chain = any(f.kind == "chain" for f in self.p.fields(name))
        o.function(f"void {function}_{name}(struct filler *f, {name} *s)")
        body()
        if has_chain and extenders:
            o("static const uint32_t stypes[] = {" + ", ".join(sorted(extenders)) + "};")
            o(f"s->pNext = fill_chain(f, stypes, {len(extenders)}, {node});")
        if function == "vn_fill" and self.ruled(name):
            o(f"vn_fill_ignored_{name}(f, s);")
        o.end()

    def fill_output(self, name, heads):
        """vn_fill_skel_T is the program's part of an output, vn_fill_out_T the driver's."""
        struct, fields = self.p.r.structs[name], self.p.fields(name)
        arrays = [f for f in fields if f.kind == "ptr"]
        o = Out()
        heads += [f"void vn_fill_skel_self_{name}(struct filler *f, {name} *s);",
                  f"void vn_fill_skel_{name}(struct filler *f, {name} *s);",
                  f"void vn_fill_out_self_{name}(struct filler *f, {name} *s);",
                  f"void vn_fill_out_{name}(struct filler *f, {name} *s);"]
        o.function(f"void vn_fill_skel_self_{name}(struct filler *f, {name} *s)")
        o("(void)f, (void)s;")
        if struct.stype:
            o(f"s->sType = {struct.stype};")
        for f in arrays:
            size = "1" if f.elem.kind == "void" else f"sizeof(*s->{f.name})"
            o(f"s->{f.counts[0]} = 1 + fill_count(f);")
            o(f"s->{f.name} = fill_below(f, 4) ? fill_alloc(f, s->{f.counts[0]}, {size}) : NULL;")
        o.end()
        self.chained(o, name, "vn_fill_skel", "vn_fill_skel_node", self.p.outs,
                     lambda: o(f"vn_fill_skel_self_{name}(f, s);"))
        o.function(f"void vn_fill_out_self_{name}(struct filler *f, {name} *s)")
        o("(void)f, (void)s;")
        counts = {f.counts[0] for f in arrays if f.counts}
        for f in fields:
            if f.kind in ("value", "array", "chars") and f.name not in counts:
                self.out_value(o, f, struct)
        for f in arrays:
            size = "1" if f.elem.kind == "void" else f"sizeof(*s->{f.name})"
            o(f"if (s->{f.name})")
            o(f"    fill_bytes(f, s->{f.name}, s->{f.counts[0]} * {size});")
            o("else")
            o(f"    s->{f.counts[0]} = fill_count(f);")
        o.end()
        o.function(f"void vn_fill_out_{name}(struct filler *f, {name} *s)")
        o(f"vn_fill_out_self_{name}(f, s);")
        if any(f.kind == "chain" for f in fields):
            o("for (VkBaseOutStructure *n = (void *)s->pNext; n; n = n->pNext)")
            o("    vn_fill_out_node(f, n);")
        o.end()
        return o.text()

    def out_value(self, o, f, struct):
        lv = f"s->{f.name}"
        if f.elem.kind != "struct":
            self.value(o, f, lv, struct, "s->")
        elif f.kind == "array":
            o(f"for (uint32_t i = 0; i < {f.m.dims[0]}; i++)")
            o(f"    vn_fill_out_self_{f.elem.type}(f, &{lv}[i]);")
        else:
            o(f"vn_fill_out_self_{f.elem.type}(f, &{lv});")

    def nodes(self):
        o = Out()
        for function, chosen, call in (("vn_fill_node", self.p.ins, "vn_fill_self_"),
                                       ("vn_fill_skel_node", self.p.outs, "vn_fill_skel_self_")):
            o.function(f"VkBaseOutStructure *{function}(struct filler *f, uint32_t stype)")
            o.open("switch (stype)")
            for struct in self.chainable(chosen):
                o.open(f"case {struct.stype}:")
                o(f"{struct.name} *s = fill_alloc(f, 1, sizeof(*s));")
                o(f"{call}{struct.name}(f, s);")
                if function == "vn_fill_node" and self.ruled(struct.name):
                    o(f"vn_fill_ignored_{struct.name}(f, s);")
                o("return (VkBaseOutStructure *)(void *)s;")
                o.close()
            o("default:")
            o("    return NULL;")
            o.close()
            o.end()
        o.function("void vn_fill_out_node(struct filler *f, VkBaseOutStructure *node)")
        o.open("switch ((uint32_t)node->sType)")
        for struct in self.chainable(self.p.outs):
            o(f"case {struct.stype}:")
            o(f"    vn_fill_out_self_{struct.name}(f, ({struct.name} *)(void *)node);")
            o("    break;")
        o("default:")
        o("    break;")
        o.close()
        o.end()
        return o.text()

    def chainable(self, chosen):
        return [self.p.r.structs[n] for n in sorted(chosen)
                if self.p.r.structs[n].stype and self.p.r.structs[n].extends]

    # Round trips of structs.

    def spans(self, struct):
        """Members that must come back as they were, judged from the registry alone."""
        rows = []
        for m in struct.members:
            where = f"{struct.name}.{m.name}"
            if m.ptr or m.name == "pNext" or self.p.policy.entry("ignored", where) or \
                    self.p.policy.entry("members", where) or struct.union:
                continue
            if self.has_pointers(m.type):
                continue
            rows.append(m.name)
        return rows

    def has_pointers(self, type_name):
        struct = self.p.r.structs.get(self.p.r.resolve(type_name))
        if not struct:
            return False
        return struct.union or any(m.ptr or self.has_pointers(m.type) for m in struct.members)

    def struct_tests(self):
        o = Out()
        tested = sorted(self.p.ins)
        for name in tested:
            rows = self.spans(self.p.r.structs[name])
            if rows:
                o(f"static const struct span spans_{name}[] = {{")
                for member in rows:
                    o(f'    {{"{member}", offsetof({name}, {member}), '
                      f"sizeof((({name} *)0)->{member})}},")
                o("};")
                o()
        o("const struct struct_test struct_tests[] = {")
        for name in tested:
            rows = self.spans(self.p.r.structs[name])
            spans = f"spans_{name}, {len(rows)}" if rows else "NULL, 0"
            o(f'    {{"{name}", sizeof({name}), {spans}}},')
        o("};")
        o(f"const size_t struct_test_count = {len(tested)};")
        o()
        for verb, args, cast in (("fill", "struct filler *c", ""),
                                 ("enc", "struct wire_enc *c", "const "),
                                 ("dec", "struct vn_decoder *c", "")):
            o.function(f"void struct_test_{verb}(size_t test, {args}, {cast}void *s)")
            o.open("switch (test)")
            for i, name in enumerate(tested):
                o(f"case {i}:")
                o.depth += 1
                self.test_call(o, verb, name)
                o("break;")
                o.depth -= 1
            o.close()
            o.end()
        return o.text()

    def test_call(self, o, verb, name):
        struct = self.p.r.structs[name]
        own = "self_" if struct.stype else ""
        if verb == "fill":
            o(f"vn_fill_self_{name}(c, s);")
            if self.ruled(name):
                o(f"vn_fill_ignored_{name}(c, s);")
        elif self.p.fixed(name) is None or struct.stype:
            o(f"vn_{verb}_{own}{name}(c, s);")
        elif verb == "enc":
            o.open()
            o(f"uint8_t *p = wire_enc_space(c, {max(self.p.fixed(name), 1)});")
            o(f"vn_store_{name}(p, s);")
            o.close()
        else:
            o.open()
            o(f"const uint8_t *p = wire_get_bytes(&c->in, {max(self.p.fixed(name), 1)});")
            o("if (p)")
            o(f"    vn_load_{name}(c, p, s);")
            o.close()

    # Commands.

    def fill_args(self, c, heads):
        o = Out()
        head = f"void vn_fill_args_{c.name}(struct filler *f, struct vn_args_{c.name} *a)"
        heads.append(head + ";")
        o.function(head)
        if c.implicit:
            o(f"a->{c.implicit} = (VkCommandBuffer)f->command_buffer;")
        for f in c.fields:
            lv = f"a->{f.name}"
            if f.role == "count":
                o(f"{lv} = fill_alloc(f, 1, sizeof(*{lv}));")
                o(f"*{lv} = fill_count(f);")
            elif f.kind == "ptr" and f.role == "in":
                self.pointer(o, f, lv, c.c, "a->")
            elif f.kind != "ptr":
                self.value(o, f, lv, c.c, "a->")
        for f in c.fields:
            if f.role in ("create", "out"):
                self.room(o, c, f)
        o.end()
        return o.text()

    def room(self, o, c, f):
        lv, count = f"a->{f.name}", self.c.count_of(c, f, "a->", guard=True)
        size = "1" if f.elem.kind == "void" else f"sizeof(*{lv})"
        maybe = "fill_below(f, 4) ? " if self.c.two_call(c, f) else ""
        o(f"{lv} = {maybe}fill_alloc(f, {count}, {size}){' : NULL' if maybe else ''};")
        if f.role == "create":
            o(f"for (uint64_t i = 0; {lv} && i < {count}; i++)")
            o(f"    {lv}[i] = fill_new(f, {f.elem.objtype});")
        elif f.elem.kind == "struct":
            o(f"for (uint64_t i = 0; {lv} && i < {count}; i++)")
            o(f"    vn_fill_skel_{f.elem.type}(f, &{lv}[i]);")
        elif self.c.inout(c, f):
            o(f"fill_bytes(f, {lv}, {count});")

    def fake(self, c):
        o = Out()
        o.function(f"VKAPI_ATTR {c.ret} VKAPI_CALL fake_{c.name}({params(c.c)})")
        o("struct filler *f = fake_called();")
        o("(void)f;")
        creates, outs, counts = (c.with_role(r) for r in ("create", "out", "count"))
        for f in creates:
            o(f"for (uint64_t i = 0; {f.name} && i < {self.c.count_of(c, f, '')}; i++)")
            o(f"    {f.name}[i] = fill_new(f, {f.elem.objtype});")
        o(f"vn_enc_cmd_{c.name}(fake_seen(), {names(c.c)});")
        if c.ret == "VkResult":
            o("VkResult result = fake_result();")
        for f in counts:
            arrays = " || ".join(g.name for g in c.fields if self.c.two_call(c, g) is f)
            o(f"*{f.name} = {arrays} ? fill_below(f, *{f.name} + 1) : fill_count(f);")
        if creates and c.ret == "VkResult":
            for f in creates:
                o(f"for (uint64_t i = 0; result < 0 && {f.name} && "
                  f"i < {self.c.count_of(c, f, '')}; i++)")
                o(f"    {f.name}[i] = VK_NULL_HANDLE;")
        for f in outs:
            self.fake_output(o, c, f)
        if c.ret == "VkResult":
            o("return result;")
        elif c.ret != "void":
            o(f"return ({c.ret})fill_u64(f);")
        o.end()
        return o.text()

    def fake_output(self, o, c, f):
        count = self.c.count_of(c, f, "")
        if f.elem.kind == "struct":
            o(f"for (uint64_t i = 0; {f.name} && i < {count}; i++)")
            o(f"    vn_fill_out_{f.elem.type}(f, &{f.name}[i]);")
        else:
            size = "1" if f.elem.kind == "void" else f"sizeof(*{f.name})"
            o(f"if ({f.name})")
            o(f"    fill_bytes(f, {f.name}, {count} * {size});")

    def driver(self):
        o = Out()
        o("const struct vn_driver fake_driver = {")
        for c in self.c.all():
            o(f"    .{c.name} = fake_{c.name},")
        o("};")
        return o.text()

    def trip(self, c):
        o = Out()
        o.function(f"void trip_{c.name}(struct trip *t)")
        o(f"struct vn_args_{c.name} a = {{0}};")
        o(f"vn_fill_args_{c.name}(&t->filler, &a);")
        o(f"vn_enc_cmd_{c.name}(&t->request, {names(c.c, 'a.')});")
        o("if (!trip_over(t))")
        o("    return;")
        if self.c.has_reply(c):
            result = "a.ret = " if c.ret != "void" else ""
            o(f"{result}vn_dec_reply_{c.name}(&t->client, {names(c.c, 'a.')});")
            o(f"vn_enc_reply_{c.name}(&t->again, &a);")
        o.end()
        return o.text()

    def trips(self):
        o = Out()
        o("const struct trip_test trip_tests[] = {")
        for c in self.c.all():
            o(f'    {{"{c.name}", trip_{c.name}}},')
        o("};")
        o(f"const size_t trip_test_count = {len(self.c.all())};")
        return o.text()
