"""Functions for commands: vn_enc_cmd_vkX and vn_dec_reply_vkX at the client, vn_exec_vkX at the
server, with the arguments between decoding and calling in struct vn_args_vkX."""
from emit import Emit, Out


def c_param(m):
    """A parameter as a declaration; arrays are pointers, as C takes them."""
    return m.declare().split("[")[0].replace(f" {m.name}", f" *{m.name}") if m.dims \
        else m.declare()


def params(command):
    return ", ".join(c_param(p) for p in command.params)


def names(command, pre=""):
    return ", ".join(pre + p.name for p in command.params)


class Commands:
    def __init__(self, plan):
        self.p, self.e = plan, Emit(plan)

    def all(self):
        return [self.p.commands[n] for n in sorted(self.p.commands)]

    def count_of(self, c, f, pre, guard=False):
        return self.e.count(f.counts[0], pre, c.c, guard=guard) if f.counts else "1"

    def two_call(self, c, f):
        """The parameter that counts an array of the driver, when the program gives the room."""
        count = c.by_name.get(f.counts[0]) if f.counts else None
        return count if count and count.role == "count" else None

    def needs_skeleton(self, f):
        name = f.elem.type
        return f.elem.kind == "struct" and (
            not self.p.plain(name) or any(g.kind == "chain" for g in self.p.fields(name)))

    def has_reply(self, c):
        return c.ret != "void" or bool(c.with_role("out", "count", "create"))

    # Headers.

    def args(self, c):
        o = Out()
        o(f"struct vn_args_{c.name} {{")
        for p in c.c.params:
            o(f"    {c_param(p)};")
        if c.ret != "void":
            o(f"    {c.ret} ret;")
        for f in self.recorded(c):
            o(f"    uint64_t *ids_{f.name};")
        for f in c.with_role("count"):
            o(f"    uint64_t room_{f.name};")
        o("};")
        return o.text()

    def recorded(self, c):
        """Parameters whose ids begin or end with the command."""
        return c.with_role("create") + ([c.destroyed] if c.destroyed else [])

    def enc_head(self, c):
        return f"void vn_enc_cmd_{c.name}(struct wire_enc *e, {params(c.c)})"

    def reply_head(self, c):
        return f"{c.ret} vn_dec_reply_{c.name}(struct vn_decoder *d, {params(c.c)})"

    def protos(self, c):
        replies = [self.reply_head(c) + ";", f"void vn_enc_reply_{c.name}(struct wire_enc *e, "
                   f"const struct vn_args_{c.name} *a);"]
        return [self.enc_head(c) + ";",
                f"void vn_dec_args_{c.name}(struct vn_decoder *d, struct vn_args_{c.name} *a);",
                *(replies if self.has_reply(c) else []),
                f"int vn_exec_{c.name}(struct vn_exec *x, struct vn_decoder *d);"]

    # Requests.

    def enc_cmd(self, c):
        o = Out()
        o.function(self.enc_head(c))
        unused = self.unused(c)
        if unused:
            o(", ".join(f"(void){n}" for n in unused) + ";")
        size = sum(self.p.field_fixed(f) or 0 for f in c.fields)
        varies = any(self.p.field_fixed(f) is None for f in c.fields)
        o(f"uint8_t *p = wire_enc_space(e, {size + 8});")
        o("if (!p)")
        o("    return;")
        o(f"wire_store32(p, VN_CMD_{c.name});")
        if varies:
            o("size_t hole = wire_enc_len(e) - " + f"{size + 4};")
        else:
            o(f"wire_store32(p + 4, {size});")
        self.e.store_fields(o, c.fields, 8, "")
        for f in c.with_role("count"):
            filled = [g for g in c.fields if self.two_call(c, g) is f]
            size = " + ".join("1" if g.elem.kind == "void" else f"sizeof(*{g.name})" for g in filled)
            o(f"uint64_t room_{f.name} = {' || '.join(g.name for g in filled)} ? "
              f"vn_room(*{f.name}, {size}) : 0;")
            o(f"wire_put_u64(e, room_{f.name});")
        self.e.enc_rest(o, c.fields, "", c.c)
        for f in c.fields:
            if f.role == "create":
                self.enc_ids(o, c, f)
            elif f.role == "out":
                self.enc_room(o, c, f)
        if varies:
            o("wire_fill_len(e, hole);")
        o.end()
        return o.text()

    def unused(self, c):
        out = [f.name for f in c.fields if f.kind == "drop"] + ([c.implicit] if c.implicit else [])
        used_first = {f.clean_first for f in c.fields if f.clean}
        for f in c.with_role("out"):
            if not self.two_call(c, f) and not self.needs_skeleton(f) and not self.inout(c, f):
                out.append(f.name)
        return [n for n in out if n not in used_first]

    def inout(self, c, f):
        return bool(self.p.policy.entry("inout", f"{c.name}.{f.name}"))

    def room_of(self, c, f):
        """Elements of an output that the server makes room for, at the client."""
        count = self.two_call(c, f)
        return f"room_{count.name}" if count else self.count_of(c, f, "")

    def enc_ids(self, o, c, f):
        count = self.room_of(c, f)
        if self.two_call(c, f):
            o(f"if (vn_put_present(e, {f.name}))")
            o(f"    for (uint64_t i = 0; i < {count}; i++)")
            o(f"        wire_put_u64(e, vn_id({f.name}[i]));")
        else:
            o(f"vn_put_handles(e, {f.name}, {count});")

    def enc_room(self, o, c, f):
        """What the server must know to make room for an output."""
        t = f.elem.type
        if self.inout(c, f):
            o(f"vn_put_words(e, {f.name}, {self.count_of(c, f, '')}, 1);")
        elif self.needs_skeleton(f) and f.counts:
            o(f"if (vn_put_present(e, {f.name}))")
            o(f"    for (uint64_t i = 0; i < {self.room_of(c, f)}; i++)")
            o(f"        vn_enc_skel_{t}(e, &{f.name}[i]);")
        elif self.needs_skeleton(f):
            o(f"if (vn_put_present(e, {f.name}))")
            o(f"    vn_enc_skel_{t}(e, {f.name});")
        elif self.two_call(c, f):
            o(f"vn_put_present(e, {f.name});")

    # Requests, decoded.

    def dec_args(self, c):
        o = Out()
        o.function(
            f"void vn_dec_args_{c.name}(struct vn_decoder *d, struct vn_args_{c.name} *a)")
        if c.implicit:
            o(f"a->{c.implicit} = vn_dec_command_buffer(d);")
        size = sum(self.p.field_fixed(f) or 0 for f in c.fields)
        if size:
            o(f"const uint8_t *p = wire_get_bytes(&d->in, {size});")
            o("if (!p)")
            o("    return;")
            self.e.load_fields(o, c.fields, 0, "a->", needed=True)
            self.keep_id(o, c)
        for f in c.with_role("count"):
            o(f"a->room_{f.name} = wire_get_u64(&d->in);")
            o(f"a->{f.name} = vn_dec_alloc(d, 1, sizeof(*a->{f.name}));")
            o(f"if (a->{f.name})")
            o(f"    *a->{f.name} = ({f.elem.type})a->room_{f.name};")
        self.dec_in(o, c)
        if c.with_role("out"):
            o("d->output = 0;")
        for f in c.fields:
            if f.role == "create":
                self.dec_ids(o, c, f)
            elif f.role == "out":
                self.dec_room(o, c, f)
        o.end()
        return o.text()

    def keep_id(self, o, c):
        f = c.destroyed
        if not f or f.kind != "value":
            return
        at = 0
        for g in c.fields:
            if g is f:
                break
            at += self.p.field_fixed(g) or 0
        o(f"a->ids_{f.name} = vn_dec_alloc(d, 1, sizeof(uint64_t));")
        o(f"if (a->ids_{f.name})")
        o(f"    *a->ids_{f.name} = wire_load64(p + {at});")

    def dec_in(self, o, c):
        for f in c.fields:
            if f is c.destroyed and f.kind == "ptr":
                count = self.count_of(c, f, "a->")
                o.open()
                o("struct wire_dec again = d->in;")
                o("bool poisoned = d->poisoned;")
                self.e.dec_rest(o, [f], "a->", c.c)
                o("d->poisoned = poisoned;")
                o("struct wire_dec behind = d->in;")
                o("d->in = again;")
                o(f"a->ids_{f.name} = vn_get_words(d, {count}, 8, false);")
                o("d->in = behind;")
                o.close()
            else:
                self.e.dec_rest(o, [f], "a->", c.c)

    def dec_ids(self, o, c, f):
        count = self.count_of(c, f, "a->", guard=True)
        lv = f"a->{f.name}"
        if self.two_call(c, f):
            o.open("if (vn_dec_present(d, false))")
            o(f"a->ids_{f.name} = vn_dec_alloc(d, {count}, sizeof(uint64_t));")
            o(f"for (uint64_t i = 0; a->ids_{f.name} && i < {count}; i++)")
            o(f"    a->ids_{f.name}[i] = wire_get_u64(&d->in);")
            o(f"{lv} = vn_dec_alloc(d, {count}, sizeof(*{lv}));")
            o.close()
        else:
            o(f"a->ids_{f.name} = vn_get_words(d, {count}, 8, true);")
            o(f"{lv} = vn_dec_alloc(d, {count}, sizeof(*{lv}));")

    def dec_room(self, o, c, f):
        lv, t = f"a->{f.name}", f.elem.type
        count = self.count_of(c, f, "a->", guard=True)
        size = "1" if f.elem.kind == "void" else f"sizeof(*{lv})"
        room = self.p.policy.entry("rooms", f"{c.name}.{f.name}").get("bytes")
        room = self.e.count(room, "a->", c.c) if room else ""
        if self.inout(c, f):
            o(f"{lv} = vn_get_u8s_in(d, {count}, {room or count});")
            return
        if room:
            o(f"{lv} = vn_dec_output(d, vn_larger({count}, {room}), 1);")
            return
        if self.needs_skeleton(f):
            # What is not optional must be there, or the driver would follow NULL.
            needed = "true" if not f.m.optional and not f.counts else "false"
            o.open(f"if (vn_dec_present(d, {needed}))")
            o(f"{lv} = vn_dec_output(d, {count}, {size});")
            o(f"for (uint64_t i = 0; {lv} && i < {count}; i++)")
            o(f"    vn_dec_skel_{t}(d, &{lv}[i]);")
            o.close()
        elif self.two_call(c, f):
            o("if (vn_dec_present(d, false))")
            o(f"    {lv} = vn_dec_output(d, {count}, {size});")
        else:
            o(f"{lv} = vn_dec_output(d, {count}, {size});")

    # Replies.

    def enc_reply(self, c):
        o = Out()
        o.function(
            f"void vn_enc_reply_{c.name}(struct wire_enc *e, const struct vn_args_{c.name} *a)")
        if c.ret != "void":
            wire = self.p.r.scalar(c.ret)
            o(f"wire_put_{wire}(e, ({'uint64_t' if wire == 'u64' else 'uint32_t'})a->ret);")
        for f in c.with_role("count"):
            o(f"wire_put_u64(e, a->{f.name} ? *a->{f.name} : 0);")
        for f in c.with_role("create"):
            count = self.count_of(c, f, "a->", guard=True)
            o(f"for (uint64_t i = 0; a->{f.name} && i < {count}; i++)")
            o(f"    wire_put_u8(e, a->{f.name}[i] != VK_NULL_HANDLE);")
        outs = c.with_role("out")
        if outs and c.ret == "VkResult":
            o("if (a->ret < 0)")
            o("    return;")
        for f in outs:
            self.enc_output(o, c, f)
        o.end()
        return o.text()

    def enc_output(self, o, c, f):
        lv, count = f"a->{f.name}", self.count_of(c, f, "a->")
        if f.elem.kind in ("scalar", "void"):
            o(f"vn_put_words(e, {lv}, {count}, {self.e.word_bytes(f.elem)});")
        elif f.counts:
            o(f"if (vn_put_present(e, {count} ? {lv} : NULL))")
            o(f"    for (uint64_t i = 0; i < {count}; i++)")
            o(f"        vn_enc_out_{f.elem.type}(e, &{lv}[i]);")
        else:
            o(f"if (vn_put_present(e, {lv}))")
            o(f"    vn_enc_out_{f.elem.type}(e, {lv});")

    def dec_reply(self, c):
        o = Out()
        o.function(self.reply_head(c))
        outs, counts, creates = (c.with_role(r) for r in ("out", "count", "create"))
        used = self.reply_uses(c)
        idle = [p.name for p in c.c.params if p.name not in used]
        if idle:
            o(", ".join(f"(void){n}" for n in idle) + ";")
        if c.ret != "void":
            o(f"{c.ret} ret = ({c.ret})wire_get_{self.p.r.scalar(c.ret)}(&d->in);")
        for f in counts:
            self.dec_count(o, c, f)
        needed = "ret == VK_SUCCESS" if c.ret == "VkResult" else "false"
        for f in creates:
            o(f"for (uint64_t i = 0; {f.name} && i < {self.count_of(c, f, '')}; i++)")
            o(f"    {f.name}[i] = vn_dec_created(d, {f.name}[i], {needed});")
        if outs and c.ret == "VkResult":
            o("if (ret < 0)")
            o("    return ret;")
        for f in outs:
            self.dec_output(o, c, f)
        if c.ret != "void":
            o("return ret;")
        o.end()
        return o.text()

    def reply_uses(self, c):
        text = []
        for f in c.with_role("out", "count", "create"):
            text.append(f.name)
            text += [p.name for p in c.c.params if f.counts and p.name in
                     f.counts[0].replace("->", " ").replace("/", " ").split()]
        return set(text)

    def dec_count(self, o, c, f):
        filled = [g.name for g in c.fields if self.two_call(c, g) is f]
        o(f"uint64_t room_{f.name} = {' || '.join(filled)} ? *{f.name} : UINT32_MAX;")
        o(f"*{f.name} = vn_dec_room(d, wire_get_u64(&d->in), room_{f.name});")

    def dec_output(self, o, c, f):
        count = self.count_of(c, f, "")
        if f.elem.kind in ("scalar", "void"):
            o(f"vn_read_words(d, {f.name}, {count}, {self.e.word_bytes(f.elem)});")
        elif f.counts:
            o(f"if (vn_dec_present(d, false) && {f.name})")
            o(f"    for (uint64_t i = 0; i < {count}; i++)")
            o(f"        vn_dec_out_{f.elem.type}(d, &{f.name}[i]);")
        else:
            o(f"if (vn_dec_present(d, false) && {f.name})")
            o(f"    vn_dec_out_{f.elem.type}(d, {f.name});")

    # Execution.

    def exec(self, c):
        o = Out()
        o.function(f"int vn_exec_{c.name}(struct vn_exec *x, struct vn_decoder *d)")
        o(f"struct vn_args_{c.name} a = {{0}};")
        o(f"vn_dec_args_{c.name}(d, &a);")
        creates = c.with_role("create")
        for f in creates:
            count = self.ids_count(c, f)
            o(f"vn_exec_check(x, d, a.ids_{f.name} ? {count} : 0, a.ids_{f.name});")
        o("int rc = vn_exec_ready(x, d);")
        o("if (rc)")
        o("    return rc;")
        result = "a.ret = " if c.ret != "void" else ""
        first = c.c.params[0]
        handle = f"a.{first.name}" if self.p.r.resolve(first.type) in self.p.r.handles else "NULL"
        o("const struct vn_driver *driver = "
          f"d->poisoned ? NULL : vn_exec_driver(x, {handle});")
        o.open("if (d->poisoned)")
        self.skip(o, c)
        o.close(f"}} else if (x->hooks->{c.name}) {{")
        o(f"    x->hooks->{c.name}(x, &a);")
        o(f"}} else if (driver && driver->{c.name}) {{")
        o(f"    {result}driver->{c.name}({names(c.c, 'a.')});")
        o("} else {")
        o("    return -ENOSYS;")
        o("}")
        self.limit_outputs(o, c)
        for f in creates:
            o(f"if (a.{f.name})")
            o(f"    rc = vn_exec_created(x, {f.elem.objtype}, {self.ids_count(c, f)}, "
              f"a.ids_{f.name}, a.{f.name});")
        if c.destroyed:
            f = c.destroyed
            o(f"vn_exec_destroyed(x, {f.elem.objtype}, {self.ids_count(c, f)}, a.ids_{f.name});")
        if c.ret == "VkResult":
            o("if (!d->poisoned)")
            o(f"    vn_exec_result(x, VN_CMD_{c.name}, a.ret);")
        if self.has_reply(c):
            o("if (x->reply)")
            o(f"    vn_enc_reply_{c.name}(x->reply, &a);")
        o("return rc;")
        o.end()
        return o.text()

    def skip(self, o, c):
        """Instead of calling the driver: nothing is made and nothing is told."""
        if not c.destroyed:
            o(f"x->ops->skipped(x->objects, VN_CMD_{c.name});")
        if c.ret == "VkResult":
            o("a.ret = VK_ERROR_UNKNOWN;")
        for f in c.with_role("count"):
            o(f"*a.{f.name} = 0;")

    def limit_outputs(self, o, c):
        """What the driver may have left that must not be believed."""
        for f in c.with_role("count"):
            filled = " || ".join(f"a.{g.name}" for g in c.fields if self.two_call(c, g) is f)
            o(f"if (({filled}) && *a.{f.name} > a.room_{f.name})")
            o(f"    *a.{f.name} = ({f.elem.type})a.room_{f.name};")
        for f in c.with_role("create"):
            # A handle is undefined after a failure; arrays are set to null, as Vulkan promises.
            if c.ret == "VkResult" and not f.counts:
                o("if (a.ret < 0)")
                o(f"    *a.{f.name} = VK_NULL_HANDLE;")

    def ids_count(self, c, f):
        return self.count_of(c, f, "a.")
