"""C text for the fields of a plan: how each is stored, loaded, put and got.

Emit knows values, pointers and arrays; structs.py and commands.py put them together.
`pre` is what stands before a member's name ("s->", "a->", or nothing for parameters).
"""
import re

INLINE_LEAVES = 8  # structs of more scalars than this get functions of their own
WORD = re.compile(r"(?<![\w>.])([A-Za-z_]\w*)")


class Out:
    """Lines of C with their indentation."""

    def __init__(self):
        self.lines, self.depth = [], 0

    def __call__(self, text=""):
        for line in text.split("\n"):
            self.lines.append("    " * self.depth + line if line else "")

    def open(self, text=""):
        self((text + " {") if text else "{")
        self.depth += 1

    def close(self, text="}"):
        self.depth -= 1
        self(text)

    def function(self, head):
        """A definition whose body the caller writes, up to end()."""
        self(head)
        self("{")
        self.depth += 1

    def end(self):
        self.close()
        self()

    def text(self):
        return "\n".join(self.lines)


def plus(off, size):
    """Adds to an offset, which is a number or an expression of a loop."""
    return off + size if isinstance(off, int) else f"{off} + {size}"


class Emit:
    def __init__(self, plan):
        self.p, self.r = plan, plan.r

    # Expressions.

    def members_of(self, owner):
        return getattr(owner, "members", None) or owner.params

    def count(self, expr, pre, owner, index="i", guard=False):
        """A length of the registry as a C expression of type uint64_t."""
        siblings = {m.name: m for m in self.members_of(owner)}
        heads = []

        def name(match):
            word = match.group(1)
            if word not in siblings:
                return word
            m = siblings[word]
            rest = expr[match.end():]
            if m.ptr and not rest.startswith(("->", "[")):
                heads.append(pre + word)
                return f"*{pre}{word}"
            if m.ptr:
                heads.append(pre + word)
            return pre + word

        text = WORD.sub(name, expr).replace("[]", f"[{index}]")
        if guard and heads:
            return f"({heads[0]} ? {text} : 0)"
        return text if re.fullmatch(r"\w+|\w+->\w+", text) else f"({text})"

    def leaves(self, name):
        total = 0
        for f in self.p.fields(name):
            if f.kind == "array":
                return INLINE_LEAVES + 1
            if f.elem and f.elem.kind == "struct":
                total += self.leaves(f.elem.type)
            elif f.kind != "drop":
                total += 1
        return total

    # Values of a fixed size, at p + off.

    def store(self, o, elem, off, lv):
        if elem.kind == "handle":
            o(f"wire_store64(p + {off}, vn_id({lv}));")
        elif elem.kind == "scalar":
            o(self.store_scalar(elem.wire, off, lv))
        elif self.leaves(elem.type) > INLINE_LEAVES:
            o(f"vn_store_{elem.type}(p + {off}, &{lv});")
        else:
            self.store_fields(o, self.p.fields(elem.type), off, lv + ".")

    @staticmethod
    def store_scalar(wire, off, lv):
        if wire == "u8":
            return f"p[{off}] = (uint8_t){lv};"
        if wire[0] == "f":
            return f"vn_store_{wire}(p + {off}, {lv});"
        return f"wire_store{wire[1:]}(p + {off}, (uint{wire[1:]}_t){lv});"

    def store_fields(self, o, fields, off, pre):
        """Stores what has a fixed size; returns the offset behind it."""
        for f in fields:
            size = self.p.field_fixed(f)
            if not size:
                continue
            lv = pre + f.name
            if f.kind == "array":
                self.store_array(o, f, off, lv)
            elif f.kind == "objhandle":
                o(f"wire_store64(p + {off}, vn_id((const void *)(uintptr_t){lv}));")
            elif f.when and f.elem.kind == "handle":
                o(f"wire_store64(p + {off}, {f.when} ? vn_id({lv}) : 0);")
            elif f.when:
                o(self.store_scalar(f.elem.wire, off, f"({f.when} ? {lv} : 0)"))
            elif f.packed:
                o(self.store_scalar(f.elem.wire, off, f"sizeof(*{pre}{f.packed})"))
            else:
                self.store(o, f.elem, off, lv)
            off = plus(off, size)
        return off

    def store_array(self, o, f, off, lv):
        if f.elem.kind == "scalar" and f.elem.wire == "u8":
            o(f"memcpy(p + {off}, {lv}, {self.p.dims(f.m)});")
            return
        place, at = self.loops(o, f, off)
        self.store(o, f.elem, place, lv + at)
        for _ in f.m.dims:
            o.close()

    def loops(self, o, f, off):
        """Opens a loop a dimension; returns the place of an element and its subscript."""
        size, total, place, at = self.p.elem_fixed(f.elem), self.p.dims(f.m), [], ""
        for d, i in zip(f.m.dims, "ij"):
            total //= int(d) if d.isdigit() else self.r.constants[d]
            o.open(f"for (uint32_t {i} = 0; {i} < {d}; {i}++)")
            place.append(f"{total * size} * {i}" if total * size != 1 else i)
            at += f"[{i}]"
        return " + ".join([str(off)] * bool(off) + place), at

    def load(self, o, elem, off, lv, needed=False):
        if elem.kind == "handle":
            how = "vn_dec_handle_needed" if needed else "vn_dec_handle"
            o(f"{lv} = {how}(d, wire_load64(p + {off}), {elem.objtype});")
        elif elem.kind == "scalar":
            o(self.load_scalar(elem, off, lv))
        elif self.leaves(elem.type) > INLINE_LEAVES:
            o(f"vn_load_{elem.type}(d, p + {off}, &{lv});")
        else:
            self.load_fields(o, self.p.fields(elem.type), off, lv + ".")

    @staticmethod
    def load_scalar(elem, off, lv):
        if elem.wire == "u8":
            return f"{lv} = ({elem.type})p[{off}];"
        if elem.wire[0] == "f":
            return f"{lv} = vn_load_{elem.wire}(p + {off});"
        return f"{lv} = ({elem.type})wire_load{elem.wire[1:]}(p + {off});"

    def load_fields(self, o, fields, off, pre, needed=False):
        for f in fields:
            size = self.p.field_fixed(f)
            if not size:
                continue
            lv = pre + f.name
            if f.kind == "array" and f.elem.kind == "scalar" and f.elem.wire == "u8":
                o(f"memcpy({lv}, p + {off}, {self.p.dims(f.m)});")
            elif f.kind == "array":
                place, at = self.loops(o, f, off)
                self.load(o, f.elem, place, lv + at)
                for _ in f.m.dims:
                    o.close()
            elif f.packed:  # what the peer says is not looked at
                o(f"{lv} = ({f.elem.type})sizeof(*{pre}{f.packed});")
            elif f.kind == "objhandle":
                o(f"{lv} = (uintptr_t)vn_dec_handle(d, wire_load64(p + {off}), "
                  f"(uint32_t){pre}{f.m.objecttype});")
            else:
                self.load(o, f.elem, off, lv, needed and not (f.m.optional or f.m.unchecked))
            off = plus(off, size)
        return off

    def uses_decoder(self, fields):
        """Whether loading the fields needs the decoder, for its handles."""
        for f in fields:
            if f.kind == "objhandle" or (f.elem and f.elem.kind == "handle"):
                return True
            if f.kind in ("value", "array") and f.elem.kind == "struct":
                if self.leaves(f.elem.type) > INLINE_LEAVES:
                    return True
                if self.uses_decoder(self.p.fields(f.elem.type)):
                    return True
        return False

    # Putting what varies in size.

    def enc_rest(self, o, fields, pre, owner):
        for f in fields:
            if self.p.field_fixed(f) is not None or f.kind == "chain":
                continue
            if f.kind == "chars":
                o(f"vn_put_chars(e, {pre}{f.name}, sizeof({pre}{f.name}));")
            elif f.kind == "value" and f.when:
                o(f"vn_enc_{f.elem.type}(e, {f.when} ? &{pre}{f.name} : &(const {f.elem.type}){{0}});")
            elif f.kind == "value":
                o(f"vn_enc_{f.elem.type}(e, &{pre}{f.name});")
            elif f.kind == "array":
                o(f"for (uint32_t i = 0; i < {f.m.dims[0]}; i++)")
                o(f"    vn_enc_{f.elem.type}(e, &{pre}{f.name}[i]);")
            elif f.kind == "select":
                self.enc_select(o, f, pre, owner)
            elif f.role == "in":
                self.enc_pointer(o, f, pre, owner)

    def enc_select(self, o, f, pre, owner):
        o.open(f"switch ({pre}{f.m.selector})")
        for selections, case in f.cases:
            self.case_labels(o, selections)
            self.enc_case(o, case, f"{pre}{f.name}.", owner)
            o("break;")
            o.depth -= 1
        o("default:")
        o("    break;")
        o.close()

    @staticmethod
    def case_labels(o, selections):
        for selection in selections:
            o(f"case {selection}:")
        o.depth += 1

    def enc_case(self, o, case, pre, owner):
        if self.p.field_fixed(case):
            o.open()
            o(f"uint8_t *q = wire_enc_space(e, {self.p.field_fixed(case)});")
            o("if (!q)")
            o("    return;")
            sub = Out()
            self.store_fields(sub, [case], 0, pre)
            for line in sub.lines:
                o(re.sub(r"\bp( \+ |\[)", r"q\1", line))
            o.close()
        else:
            self.enc_rest(o, [case], pre, owner)

    def enc_pointer(self, o, f, pre, owner):
        lv = pre + f.name
        src = f"{f.when} ? {lv} : NULL" if f.when else lv
        count = self.count(f.counts[0], pre, owner) if f.counts else "1"
        if f.elem.kind == "string":
            o(f"vn_put_cstrs(e, {src}, {count});" if f.counts else f"vn_put_cstr(e, {src});")
        elif f.m.ptr == 2:
            self.enc_pointers(o, f, src, lv, count, pre, owner)
        elif f.elem.kind in ("scalar", "void"):
            o(f"vn_put_words(e, {src}, {count}, {self.word_bytes(f.elem)});")
        elif f.elem.kind == "handle":
            o(f"vn_put_handles(e, {src}, {count});")
        else:
            self.enc_structs(o, f, src, lv, count, pre)

    @staticmethod
    def word_bytes(elem):
        """The bytes of an element that is copied as it is."""
        return int((elem.wire or "u8")[1:]) // 8

    def enc_structs(self, o, f, src, lv, count, pre):
        t, size = f.elem.type, self.p.elem_fixed(f.elem)
        single = not f.counts
        if size is not None:
            o.open()
            o(f"const {t} *v = {src};")
            o(f"uint8_t *q = vn_put_room(e, v, {count}, {size});")
            o.open(f"for (uint64_t i = 0; q && i < {count}; i++, q += {size})")
            if f.clean:
                o(f"{t} clean = {f.clean}({f.clean_first or 's'}, v[i]);")
                o(f"vn_store_{t}(q, &clean);")
            elif f.stride:
                o(f"vn_store_{t}(q, VN_STRIDED(v, i, {pre}{f.stride}));")
            else:
                o(f"vn_store_{t}(q, &v[i]);")
            o.close()
            o.close()
            return
        present = src if single else self.guarded(src, count)
        o(f"if (vn_put_present(e, {present}))" + (" {" if f.clean and single else ""))
        if f.clean and single:
            o(f"    {t} clean = {f.clean}({f.clean_first or 's'}, *{lv});")
            o(f"    vn_enc_{t}(e, &clean);")
            o("}")
        elif f.clean:
            o(f"    for (uint64_t i = 0; i < {count}; i++) {{")
            o(f"        {t} clean = {f.clean}({f.clean_first or 's'}, {lv}[i]);")
            o(f"        vn_enc_{t}(e, &clean);")
            o("    }")
        elif single:
            o(f"    vn_enc_{t}(e, {lv});")
        else:
            o(f"    for (uint64_t i = 0; i < {count}; i++)")
            o(f"        vn_enc_{t}(e, &{lv}[i]);")

    @staticmethod
    def guarded(src, count):
        if count == "1":
            return src
        return f"{count} ? ({src}) : NULL" if " ? " in src else f"{count} ? {src} : NULL"

    def enc_pointers(self, o, f, src, lv, count, pre, owner):
        """An array of pointers, each to one element or to an array."""
        inner = self.count(f.counts[1], pre, owner) if f.counts[1] != "1" else "1"
        o(f"if (vn_put_present(e, {self.guarded(src, count)}))")
        o.depth += 1
        o.open(f"for (uint64_t i = 0; i < {count}; i++)")
        if f.elem.kind == "scalar":
            o(f"vn_put_words(e, {lv}[i], {inner}, {self.word_bytes(f.elem)});")
        elif self.p.elem_fixed(f.elem) is not None:
            size = self.p.elem_fixed(f.elem)
            o(f"uint8_t *q = vn_put_room(e, {lv}[i], {inner}, {size});")
            o(f"for (uint64_t j = 0; q && j < {inner}; j++, q += {size})")
            o(f"    vn_store_{f.elem.type}(q, &{lv}[i][j]);")
        else:
            o(f"if (vn_put_present(e, {self.guarded(lv + '[i]', inner)}))")
            o(f"    for (uint64_t j = 0; j < {inner}; j++)")
            o(f"        vn_enc_{f.elem.type}(e, &{lv}[i][j]);")
        o.close()
        o.depth -= 1

    # Getting it.

    def needed(self, f, pre):
        if f.m.optional or f.lenient:
            return "false"
        if f.when:
            return f.when.replace("s->", pre)
        if f.stride:
            return "true"
        return "false" if f.m.unchecked else "true"

    def dec_rest(self, o, fields, pre, owner):
        for f in fields:
            if self.p.field_fixed(f) is not None or f.kind == "chain":
                continue
            if f.kind == "chars":
                o(f"vn_get_chars(d, {pre}{f.name}, sizeof({pre}{f.name}));")
            elif f.kind == "value":
                o(f"vn_dec_{f.elem.type}(d, &{pre}{f.name});")
            elif f.kind == "array":
                o(f"for (uint32_t i = 0; i < {f.m.dims[0]}; i++)")
                o(f"    vn_dec_{f.elem.type}(d, &{pre}{f.name}[i]);")
            elif f.kind == "select":
                self.dec_select(o, f, pre, owner)
            elif f.role == "in":
                self.dec_pointer(o, f, pre, owner)

    def dec_select(self, o, f, pre, owner):
        o.open(f"switch ({pre}{f.m.selector})")
        for selections, case in f.cases:
            self.case_labels(o, selections)
            if self.p.field_fixed(case):
                o.open()
                o(f"const uint8_t *q = wire_get_bytes(&d->in, {self.p.field_fixed(case)});")
                o("if (!q)")
                o("    return;")
                sub = Out()
                self.load_fields(sub, [case], 0, f"{pre}{f.name}.")
                for line in sub.lines:
                    o(re.sub(r"\bp( \+ |\[)", r"q\1", line))
                o.close()
            else:
                self.dec_rest(o, [case], f"{pre}{f.name}.", owner)
            o("break;")
            o.depth -= 1
        o("default:")
        o("    break;")
        o.close()

    def dec_pointer(self, o, f, pre, owner):
        lv, needed = pre + f.name, self.needed(f, pre)
        count = self.count(f.counts[0], pre, owner, guard=True) if f.counts else "1"
        if f.elem.kind == "string":
            o(f"{lv} = vn_get_cstrs(d, {count}, {needed});" if f.counts
              else f"{lv} = vn_get_cstr(d, {needed});")
        elif f.m.ptr == 2:
            self.dec_pointers(o, f, lv, count, needed, pre, owner)
        elif f.elem.kind in ("scalar", "void"):
            o(f"{lv} = vn_get_words(d, {count}, {self.word_bytes(f.elem)}, {needed});")
        elif f.elem.kind == "handle":
            o(f"{lv} = vn_get_handles(d, {count}, {f.elem.objtype}, {needed});")
        else:
            self.dec_structs(o, f, lv, count, needed)

    def dec_structs(self, o, f, lv, count, needed):
        t, size = f.elem.type, self.p.elem_fixed(f.elem)
        least = size or self.p.least(t)
        o.open()
        o(f"{t} *v = vn_dec_array(d, {count}, {least}, sizeof(*v), {needed});")
        self.dec_elements(o, t, size, "v", count, "i")
        o(f"{lv} = v;")
        o.close()

    def dec_elements(self, o, t, size, v, count, i):
        if count == "1" and size is None:
            o(f"if ({v})")
            o(f"    vn_dec_{t}(d, {v});")
        elif size is None:
            o(f"for (uint64_t {i} = 0; {v} && {i} < {count}; {i}++)")
            o(f"    vn_dec_{t}(d, &{v}[{i}]);")
        else:
            o(f"const uint8_t *q = {v} ? wire_get_bytes(&d->in, {size} * (size_t){count}) : NULL;")
            o(f"for (uint64_t {i} = 0; q && {i} < {count}; {i}++, q += {size})")
            o(f"    vn_load_{t}(d, q, &{v}[{i}]);")

    def dec_pointers(self, o, f, lv, count, needed, pre, owner):
        t, size = f.elem.type, self.p.elem_fixed(f.elem)
        inner = self.count(f.counts[1], pre, owner, guard=True) if f.counts[1] != "1" else "1"
        o.open()
        o(f"const {t} **v = vn_dec_array(d, {count}, 1, sizeof(*v), {needed});")
        o.open(f"for (uint64_t i = 0; v && i < {count}; i++)")
        if f.elem.kind == "scalar":
            o(f"v[i] = vn_get_words(d, {inner}, {self.word_bytes(f.elem)}, true);")
        else:
            least = size or self.p.least(t)
            o(f"{t} *w = vn_dec_array(d, {inner}, {least}, sizeof(*w), true);")
            self.dec_elements(o, t, size, "w", inner, "j")
            o("v[i] = w;")
        o.close()
        o(f"{lv} = v;")
        o.close()
