"""Default entrypoints of the client, and the table of what every command is."""
from commands import names, params
from emit import Out
from plan import verdicts_of

GENERATED = ("record", "create", "create-sync", "destroy", "post", "call")


class Client:
    def __init__(self, plan, commands):
        self.p, self.c = plan, commands

    def entries(self):
        """Commands that get an entrypoint: all that the first parameter can lead to a client."""
        return [c for c in self.c.all() if c.kind in GENERATED]

    def refusals(self):
        return [self.p.r.commands[name] for name in sorted(self.p.refused)]

    def head(self, c):
        return self.refusal_head(c.c)

    @staticmethod
    def refusal_head(command):
        return f"VKAPI_ATTR {command.ret} VKAPI_CALL vn_{command.name}({params(command)})"

    def refusal(self, command):
        """Of a feature that is not offered: no valid program comes here."""
        o = Out()
        o.function(self.refusal_head(command))
        o(", ".join(f"(void){p.name}" for p in command.params) + ";")
        if command.ret != "void":
            o("return VK_ERROR_FEATURE_NOT_PRESENT;" if command.ret == "VkResult" else "return 0;")
        o.end()
        return o.text()

    def entry(self, c):
        o = Out()
        o.function(self.head(c))
        getattr(self, "_" + c.kind.replace("-", "_"))(o, c)
        o.end()
        return o.text()

    @staticmethod
    def queries(c):
        """Which queries a recorded command changes; all of the pool where it does not say."""
        pools = [p.name for p in c.c.params if p.type == "VkQueryPool"]
        if not pools or c.effects == ["noted"]:
            return None
        given = {p.name for p in c.c.params}
        if {"firstQuery", "queryCount"} <= given:
            return f"{pools[0]}, firstQuery, queryCount, false"
        return f"{pools[0]}, {'query, 1' if 'query' in given else '0, UINT32_MAX'}, true"

    def _record(self, o, c):
        queries = self.queries(c)
        if queries:
            o(f"vn_client_queries({c.c.params[0].name}, {queries});")
        bits = [f"VN_{x.upper().replace('-', '_')}" for x in c.effects if x != "noted"]
        o(f"struct wire_enc *e = vn_client_record({c.c.params[0].name}, "
          f"{' | '.join(bits) or '0'});")
        o.open("if (e)")
        o(f"vn_enc_cmd_{c.name}(e, {names(c.c)});")
        o(f"vn_client_recorded({c.c.params[0].name});")
        o.close()
        if c.ret != "void":
            o("return e ? VK_SUCCESS : VK_ERROR_OUT_OF_HOST_MEMORY;")

    def _begin(self, o, c, failed):
        o(f"struct vn_client *c = vn_client_of({c.c.params[0].name});")
        self._encode(o, c, failed)

    def _encode(self, o, c, failed):
        o("struct wire_enc *e = c->ops->begin(c);")
        if failed.count(";") > 1:
            o("if (!e) {")
            for line in failed.rstrip(";").split("; "):
                o(f"    {line};")
            o("}")
        else:
            o("if (!e)")
            o(f"    {failed}")
        o(f"vn_enc_cmd_{c.name}(e, {names(c.c)});")

    def _fail(self, c):
        if c.ret == "void":
            return "return;"
        return "return VK_ERROR_DEVICE_LOST;" if c.ret == "VkResult" else "return 0;"

    def _wait(self, o, c):
        """Calls, decodes the reply, and returns what the command returns."""
        o("struct vn_decoder d;")
        if c.ret == "VkResult":  # what is more than a message costs the program this call only
            o("VkResult asked = c->ops->call(c, e, &d);")
            o("if (asked != VK_SUCCESS)")
            o("    return asked;")
        else:
            o("if (c->ops->call(c, e, &d) != VK_SUCCESS)")
            o(f"    {self._fail(c)}")
        result = f"{c.ret} ret = " if c.ret != "void" else ""
        if self.c.has_reply(c):
            o(f"{result}vn_dec_reply_{c.name}(&d, {names(c.c)});")
        if c.ret == "void":
            o("(void)c->ops->finish(c, &d);")
        elif c.ret == "VkResult":
            o("return c->ops->finish(c, &d) == VK_SUCCESS ? ret : VK_ERROR_DEVICE_LOST;")
        else:
            o("return c->ops->finish(c, &d) == VK_SUCCESS ? ret : 0;")

    def _call(self, o, c):
        self._begin(o, c, self._fail(c))
        self._wait(o, c)

    def _post(self, o, c):
        ended = self.p.policy.entry("ends", c.name).get("param")
        if ended:
            o(f"vn_client_ending({c.c.params[0].name}, 1, &{ended});")
        self._begin(o, c, self._fail(c))
        o.open("if (!c->sync)")
        if c.ret == "void":
            o("if (c->ops->post(c, e) != VK_SUCCESS)")
            o("    c->ops->lose(c); /* nobody else could be told */")
            o("return;")
        else:
            o("return c->ops->post(c, e);")
        o.close()
        self._wait(o, c)

    def _created(self, c):
        (f,) = c.with_role("create")
        return f, self.c.count_of(c, f, "")

    def _create(self, o, c, sync=False):
        f, count = self._created(c)
        before = self.p.policy.entry("before", c.name).get("call")
        if before:
            o(before)
        first = c.c.params[0].name
        o(f"if (!vn_client_new({first}, {f.elem.objtype}, {count}, {f.name}))")
        o("    return VK_ERROR_OUT_OF_HOST_MEMORY;")
        o(f"struct vn_client *c = vn_client_of({first});")
        undo = f"vn_client_undo(c, {count}, {f.name});"
        self._encode(o, c, f"{undo} return VK_ERROR_DEVICE_LOST;")
        if not sync:
            when = self.p.policy.entry("sync_when", c.name).get("when")
            o.open("if (!c->sync" + (f" && !{when})" if when else ")"))
            o("VkResult posted = c->ops->post(c, e);")
            o("if (posted != VK_SUCCESS)")
            o(f"    {undo}")
            o("return posted;")
            o.close()
        o("struct vn_decoder d;")
        o("VkResult asked = c->ops->call(c, e, &d), ret = asked;")
        o.open("if (asked == VK_SUCCESS)")
        o(f"ret = vn_dec_reply_{c.name}(&d, {names(c.c)});")
        o("if (c->ops->finish(c, &d) != VK_SUCCESS)")
        o("    ret = VK_ERROR_DEVICE_LOST;")
        o.close()
        o("if (asked != VK_SUCCESS || ret == VK_ERROR_DEVICE_LOST)")
        o(f"    {undo}")
        o("return ret;")

    def _create_sync(self, o, c):
        self._create(o, c, sync=True)

    def _destroy(self, o, c):
        f = c.destroyed
        count = self.c.count_of(c, f, "")
        fail = "return;" if c.ret == "void" else "return VK_SUCCESS;"
        if not f.counts:
            o(f"if (!{f.name})")
            o(f"    {fail}")
        if self.p.is_recorded(f.elem.type):
            o(f"vn_client_ending({c.c.params[0].name}, {count}, "
              f"{'&' if not f.counts else ''}{f.name});")
        o(f"struct vn_client *c = vn_client_of({c.c.params[0].name});")
        o("struct wire_enc *e = c->ops->begin(c);")
        o.open("if (e)")
        o(f"vn_enc_cmd_{c.name}(e, {names(c.c)});")
        o("(void)c->ops->post(c, e);")
        o.close()
        o(f"vn_client_free(c, {count}, {'&' if not f.counts else ''}{f.name});")
        if c.ret != "void":
            o("return VK_SUCCESS;")

    # Tables.

    def rows(self):
        """(name, canonical name, class) of every command that a client knows, aliases too."""
        kinds = {c.name: c.kind for c in self.c.all()}
        # What cannot travel has no entrypoint, so that its version is not offered.
        kinds.update({name: "local" for name in [*self.p.local, *self.p.omitted]})
        kinds.update({name: "refuse" for name in self.p.refused})
        rows = [(name, name, kind) for name, kind in kinds.items()]
        for alias in self.p.r.aliases:
            target = self.p.r.resolve(alias)
            if target in kinds:
                rows.append((alias, target, kinds[target]))
        return sorted(rows)

    def info(self):
        o = Out()
        o("#define ORIGINS(...) ((const char *const[]){__VA_ARGS__, NULL})")
        o("const struct vn_command_info vn_command_table[] = {")
        for name, target, kind in self.rows():
            number = f"VN_CMD_{target}" if target in self.p.commands else "0"
            origins = ", ".join(f'"{x}"' for x in self._origins(name))
            o(f'    {{"{name}", "{target}", ORIGINS({origins}), {number}, '
              f'VN_CLASS_{kind.upper().replace("-", "_")}, {self._level(target)}}},')
        o("};")
        o(f"const size_t vn_command_count = {len(self.rows())};")
        return o.text()

    def extensions(self):
        o = Out()
        verdicts = sorted(verdicts_of(self.p).items())
        o("const struct vn_extension_info vn_extension_table[] = {")
        for name, (verdict, _reason) in verdicts:
            device = self.p.r.extensions[name].kind == "device"
            flags = ", ".join(str(x).lower() for x in (
                self.p.r.extensions[name].version, device, verdict == "allow", verdict == "local"))
            knob = self.p.policy.knob(name)
            knob = f'"{knob}"' if knob else "NULL"
            o(f'    {{"{name}", {flags}, {knob}}},')
        o("};")
        o(f"const size_t vn_extension_count = {len(verdicts)};")
        return o.text()

    def _origins(self, name):
        found = [feature for feature, commands, _types in self.p.r.features if name in commands]
        return found[:1] + [e.name for e in self.p.r.extensions.values() if name in e.commands]

    def _level(self, target):
        first = self.p.r.commands[target].params[0].type
        if first not in self.p.r.handles:
            return "VN_LEVEL_GLOBAL"
        return {"VkInstance": "VN_LEVEL_INSTANCE",
                "VkPhysicalDevice": "VN_LEVEL_PHYSICAL_DEVICE"}.get(first, "VN_LEVEL_DEVICE")

    def entry_table(self):
        o = Out()
        o("/* In the order of vn_command_table. */")
        o("static const PFN_vkVoidFunction entries[] = {")
        for _name, target, kind in self.rows():
            made = kind in GENERATED or kind == "refuse"
            o(f"    (PFN_vkVoidFunction)vn_{target}," if made else "    NULL,")
        o("};")
        o()
        o.function("PFN_vkVoidFunction vn_client_entry(const char *name)")
        o("const struct vn_command_info *info = vn_command_find(name);")
        o("return info ? entries[info - vn_command_table] : NULL;")
        o.end()
        return o.text()
