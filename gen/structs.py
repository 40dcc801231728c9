"""Functions for structs: vn_enc_T and vn_dec_T for requests, vn_{enc,dec}_{skel,out}_T for what
the driver fills, vn_store_T and vn_load_T for structs of a fixed size, and the chain switches."""
from emit import Emit, Out


class Structs:
    def __init__(self, plan):
        self.p, self.e = plan, Emit(plan)
        self.protos, self.enc, self.dec = [], [], []
        for name in sorted(plan.ins | plan.outs):
            self._struct(name)
        for name in sorted(plan.outs):
            self._output(name)

    def _add(self, to, head, body):
        o = Out()
        o.function(head)
        body(o)
        o.end()
        self.protos.append(head + ";")
        to.append(o.text())

    def _struct(self, name):
        struct = self.p.r.structs[name]
        if self.p.fixed(name) is not None and not struct.stype:
            self._fixed(name)
            return
        if name not in self.p.ins and not (name in self.p.outs and self.p.plain(name)):
            return
        own = "self_" if struct.stype else ""
        self._add(self.enc, f"void vn_enc_{own}{name}(struct wire_enc *e, const {name} *s)",
                  lambda o: self._enc(o, struct))
        self._add(self.dec, f"void vn_dec_{own}{name}(struct vn_decoder *d, {name} *s)",
                  lambda o: self._dec(o, struct))
        if struct.stype and name in self.p.ins and name in self.p.direct:
            self._whole(struct)

    def _fixed(self, name):
        fields = self.p.fields(name)
        self._add(self.enc, f"void vn_store_{name}(uint8_t *p, const {name} *s)",
                  lambda o: self.e.store_fields(o, fields, 0, "s->"))

        def load(o):
            if not self.e.uses_decoder(fields):
                o("(void)d;")
            self.e.load_fields(o, fields, 0, "s->")
        self._add(self.dec,
                  f"void vn_load_{name}(struct vn_decoder *d, const uint8_t *p, {name} *s)", load)

    def _whole(self, struct):
        parent = self.p.policy.entry("parents", struct.name).get("with")

        def enc(o):
            if parent:
                o(f"const {struct.name} *outer = {parent}(s);")
            o(f"vn_enc_self_{struct.name}(e, s);")
            o("vn_enc_chain(e, s->pNext);")
            if parent:
                o(f"(void){parent}(outer);")

        def dec(o):
            o(f"s->sType = {struct.stype};")
            o(f"vn_dec_self_{struct.name}(d, s);")
            o("s->pNext = vn_dec_chain(d);")
        name = struct.name
        self._add(self.enc, f"void vn_enc_{name}(struct wire_enc *e, const {name} *s)", enc)
        self._add(self.dec, f"void vn_dec_{name}(struct vn_decoder *d, {name} *s)", dec)

    def _enc(self, o, struct):
        fields = self.p.fields(struct.name)
        self._enc_values(o, fields)
        self.e.enc_rest(o, fields, "s->", struct)

    def _enc_values(self, o, fields):
        size = sum(self.p.field_fixed(f) or 0 for f in fields)
        if size:
            o(f"uint8_t *p = wire_enc_space(e, {size});")
            o("if (!p)")
            o("    return;")
            self.e.store_fields(o, fields, 0, "s->")
        elif all(self.p.field_fixed(f) is not None or f.kind == "chain" for f in fields):
            o("(void)e, (void)s;")

    def _dec(self, o, struct):
        fields = self.p.fields(struct.name)
        self._dec_values(o, fields)
        self.e.dec_rest(o, fields, "s->", struct)
        check = self.p.policy.entry("checks", struct.name).get("with")
        if check:
            o(f"d->poisoned |= !{check}(s);")

    def _dec_values(self, o, fields):
        size = sum(self.p.field_fixed(f) or 0 for f in fields)
        if size:
            o(f"const uint8_t *p = wire_get_bytes(&d->in, {size});")
            o("if (!p)")
            o("    return;")
            self.e.load_fields(o, fields, 0, "s->")
        elif all(self.p.field_fixed(f) is not None or f.kind == "chain" for f in fields):
            o("(void)d, (void)s;")

    # What the driver fills.

    def _output(self, name):
        struct = self.p.r.structs[name]
        if not self.p.plain(name):
            self._arrays(struct)
        if name in self.p.direct:
            self._output_whole(struct)

    def _arrays(self, struct):
        """A struct with room for arrays: the skeleton says how much, the output fills it."""
        name, fields = struct.name, self.p.fields(struct.name)
        arrays = [f for f in fields if f.kind == "ptr"]

        def enc_skel(o):
            for f in arrays:
                o(f"if (vn_put_present(e, s->{f.name}))")
                o(f"    wire_put_u64(e, s->{f.counts[0]});")

        def dec_skel(o):
            for f in arrays:
                size = "1" if f.elem.kind == "void" else f"sizeof(*s->{f.name})"
                count = struct.member(f.counts[0])
                o.open("if (vn_dec_present(d, false))")
                o(f"s->{count.name} = ({count.type})wire_get_u64(&d->in);")
                o(f"s->{f.name} = vn_dec_output(d, s->{count.name}, {size});")
                o.close()

        def enc_out(o):
            self._enc_values(o, fields)
            self.e.enc_rest(o, fields, "s->", struct)

        def dec_out(o):
            for f in arrays:
                o(f"uint64_t room_{f.name} = s->{f.counts[0]};")
            self._dec_values(o, fields)
            self.e.dec_rest(o, [f for f in fields if f.kind != "ptr"], "s->", struct)
            for f in arrays:
                self._read_array(o, f, f"s->{f.name}", f"s->{f.counts[0]}", f"room_{f.name}")
        self._add(self.enc, f"void vn_enc_skel_self_{name}(struct wire_enc *e, const {name} *s)",
                  enc_skel)
        self._add(self.dec, f"void vn_dec_skel_self_{name}(struct vn_decoder *d, {name} *s)",
                  dec_skel)
        self._add(self.enc, f"void vn_enc_out_self_{name}(struct wire_enc *e, const {name} *s)",
                  enc_out)
        self._add(self.dec, f"void vn_dec_out_self_{name}(struct vn_decoder *d, {name} *s)",
                  dec_out)

    def _read_array(self, o, f, lv, count, room):
        o.open(f"if ({lv} && {count} > {room})")
        o("vn_decoder_fail(d, -EPROTO);")
        o("return;")
        o.close()
        if f.elem.kind in ("scalar", "void"):
            o(f"vn_read_words(d, {lv}, {count}, {self.e.word_bytes(f.elem)});")
            return
        size = self.p.elem_fixed(f.elem)
        o.open(f"if (vn_dec_present(d, false) && {lv})")
        self.e.dec_elements(o, f.elem.type, size, lv, count, "i")
        o.close()

    def _output_whole(self, struct):
        name = struct.name
        chain = any(f.kind == "chain" for f in self.p.fields(name))
        plain = self.p.plain(name)
        fixed = self.p.fixed(name) if not struct.stype else None
        own = "self_" if struct.stype else ""

        def enc_skel(o):
            if not plain:
                o(f"vn_enc_skel_self_{name}(e, s);")
            if chain:
                o("vn_enc_skel_chain(e, s->pNext);")

        def dec_skel(o):
            if struct.stype:
                o(f"s->sType = {struct.stype};")
            if not plain:
                o(f"vn_dec_skel_self_{name}(d, s);")
            if chain:
                o("s->pNext = vn_dec_skel_chain(d);")

        def enc_out(o):
            if fixed is not None:
                o(f"uint8_t *p = wire_enc_space(e, {fixed});")
                o("if (p)")
                o(f"    vn_store_{name}(p, s);")
            else:
                o(f"vn_enc_{own if plain else 'out_self_'}{name}(e, s);")
            if chain:
                o("vn_enc_out_chain(e, s->pNext);")

        def dec_out(o):
            if fixed is not None:
                o(f"const uint8_t *p = wire_get_bytes(&d->in, {fixed});")
                o("if (p)")
                o(f"    vn_load_{name}(d, p, s);")
            else:
                o(f"vn_dec_{own if plain else 'out_self_'}{name}(d, s);")
            if chain:
                o("vn_dec_out_chain(d, (void *)s->pNext);")
        skeleton = [(self.enc, "enc_skel", "struct wire_enc *e", "const ", enc_skel),
                    (self.dec, "dec_skel", "struct vn_decoder *d", "", dec_skel)]
        output = [(self.enc, "enc_out", "struct wire_enc *e", "const ", enc_out),
                  (self.dec, "dec_out", "struct vn_decoder *d", "", dec_out)]
        # Without room for arrays and without a chain, the server need not know how it was filled.
        for to, verb, coder, const, body in (skeleton if chain or not plain else []) + output:
            self._add(to, f"void vn_{verb}_{name}({coder}, {const}{name} *s)", body)

    # Chains.

    def nodes(self, out):
        chosen = self.p.outs if out else self.p.ins
        return [self.p.r.structs[n] for n in sorted(chosen)
                if self.p.r.structs[n].stype and self.p.r.structs[n].extends]

    def chains(self):
        o = Out()
        self._node_size(o)
        ins, outs = self.nodes(False), self.nodes(True)
        self._enc_node(o, "vn_enc_node", [(s, f"vn_enc_self_{s.name}") for s in ins])
        self._enc_node(o, "vn_enc_skel_node",
                       [(s, None if self.p.plain(s.name) else f"vn_enc_skel_self_{s.name}")
                        for s in outs])
        self._enc_node(o, "vn_enc_out_node", [(s, self._out_function("enc", s)) for s in outs])
        self._dec_node(o, "vn_dec_node", [(s, f"vn_dec_self_{s.name}") for s in ins])
        self._dec_node(o, "vn_dec_skel_node",
                       [(s, None if self.p.plain(s.name) else f"vn_dec_skel_self_{s.name}")
                        for s in outs])
        self._dec_out_node(o, outs)
        return o.text()

    def _out_function(self, verb, struct):
        own = "self_" if self.p.plain(struct.name) else "out_self_"
        return f"vn_{verb}_{own}{struct.name}"

    def _node_size(self, o):
        o.function("static size_t node_size(uint32_t stype)")
        o.open("switch (stype)")
        for struct in sorted({s.name: s for s in self.nodes(False) + self.nodes(True)}.items()):
            o(f"case {struct[1].stype}:")
            o(f"    return sizeof({struct[0]});")
        o("default:")
        o("    return 0;")
        o.close()
        o.end()

    def _enc_node(self, o, function, rows):
        o.function(f"bool {function}(struct wire_enc *e, const VkBaseInStructure *node)")
        if not any(call for _s, call in rows):
            o("(void)e;")
        o.open("switch ((uint32_t)node->sType)")
        for struct, call in sorted(rows, key=lambda row: row[1] is None):
            o(f"case {struct.stype}:")
            if call:
                o(f"    {call}(e, (const {struct.name} *)(const void *)node);")
                o("    return true;")
        if any(not call for _s, call in rows):
            o("    return true;")
        o("default:")
        o("    return false;")
        o.close()
        o.end()

    def _dec_node(self, o, function, rows):
        o.function(f"VkBaseOutStructure *{function}(struct vn_decoder *d, uint32_t stype)")
        o("size_t size = node_size(stype);")
        o("VkBaseOutStructure *node = size ? vn_dec_alloc(d, 1, size) : NULL;")
        o("if (!node)")
        o("    return NULL;")
        o("node->sType = (VkStructureType)stype;")
        o.open("switch (stype)")
        for struct, call in sorted(rows, key=lambda row: row[1] is None):
            o(f"case {struct.stype}:")
            if call:
                o(f"    {call}(d, ({struct.name} *)(void *)node);")
                o("    return node;")
        if any(not call for _s, call in rows):
            o("    return node;")
        o("default:")
        o("    return NULL;")
        o.close()
        o.end()

    def _dec_out_node(self, o, outs):
        o.function("bool vn_dec_out_node(struct vn_decoder *d, VkBaseOutStructure *node)")
        if not outs:
            o("(void)d;")
        o.open("switch ((uint32_t)node->sType)")
        for struct in outs:
            call = self._out_function("dec", struct)
            o(f"case {struct.stype}:")
            o(f"    {call}(d, ({struct.name} *)(void *)node);")
            o("    return true;")
        o("default:")
        o("    return false;")
        o.close()
        o.end()
