"""What a physical device is asked for its snapshot: chains, formats; and the features that are not
offered whatever the driver says."""
from emit import Out
from plan import verdicts_of

BASES = ("VkPhysicalDeviceProperties2", "VkPhysicalDeviceFeatures2",
         "VkPhysicalDeviceMemoryProperties2", "VkQueueFamilyProperties2", "VkFormatProperties2")
FEATURES = "VkPhysicalDeviceFeatures2"


class Physical:
    def __init__(self, plan):
        self.p = plan

    def extenders(self, base):
        """Structures that a driver may fill when they are chained to this one."""
        return sorted((s for s in self.p.r.structs.values()
                       if s.name in self.p.outs and s.stype
                       and base in map(self.p.r.resolve, s.extends)
                       and not self.p.policy.entry("snapshot_omit", s.name)),
                      key=lambda s: s.name)

    def text(self):
        parts = [self.chain(base) for base in BASES if base in self.p.r.structs]
        parts += [self.forget(), self.mask(), self.formats(), self.blocks()]
        return "\n".join(parts)

    def chain(self, base):
        struct, extenders = self.p.r.structs[base], self.extenders(base)
        o = Out()
        o(f"static const struct vn_chain_node nodes_{base}[] = {{")
        for s in [struct] + extenders:
            o(f"    {{{s.stype}, sizeof({s.name}), {str(not self.p.plain(s.name)).lower()}}},")
        o("};")
        o(f"const struct vn_chain vn_chain_{base} = "
          f"{{nodes_{base}, {len(extenders) + 1}}};")
        o()
        return o.text()

    def forget(self):
        """Arrays in outputs: their counts become 0."""
        o = Out()
        o.function("void vn_chain_forget_arrays(void *chain)")
        o.open("for (VkBaseOutStructure *node = chain; node; node = node->pNext)")
        found = sorted({s.name: s for base in BASES if base in self.p.r.structs
                        for s in self.extenders(base) if not self.p.plain(s.name)}.items())
        o.open("switch ((uint32_t)node->sType)")
        for name, struct in found:
            o(f"case {struct.stype}:")
            for f in self.p.fields(name):
                if f.kind == "ptr":
                    o(f"    (({name} *)(void *)node)->{f.counts[0]} = 0;")
            o("    break;")
        o("default:")
        o("    break;")
        o.close()
        o.close()
        o.end()
        return o.text()

    def features_off(self):
        """(struct, member, reason) of every feature that is not offered."""
        rows, verdicts = [], verdicts_of(self.p)
        for s in self.p.r.structs.values():
            if s.name in self.p.outs and FEATURES in map(self.p.r.resolve, s.extends):
                why = self.left_out(s.name, verdicts)
                rows += [(s, m.name, why or self.p.policy.feature_off(m.name)) for m in s.members
                         if m.type == "VkBool32" and (why or self.p.policy.feature_off(m.name))]
        return sorted(rows, key=lambda row: (row[0].name, row[1]))

    def left_out(self, name, verdicts):
        """Why none of the extensions is offered that have a struct, or None."""
        if any(name in map(self.p.r.resolve, types) for _name, _c, types in self.p.r.features):
            return None
        owners = [verdicts[e.name] for e in self.p.r.extensions.values()
                  if name in map(self.p.r.resolve, e.types)]
        omitted = all(verdict == "omit" for verdict, _reason in owners)
        return owners[0][1] if owners and omitted else None

    def mask(self):
        o, rows = Out(), self.features_off()
        o.function("void vn_mask_features(void *chain)")
        o.open("for (VkBaseOutStructure *node = chain; node; node = node->pNext)")
        o.open("switch ((uint32_t)node->sType)")
        for name in dict.fromkeys(s.name for s, _m, _r in rows):
            o(f"case {self.p.r.structs[name].stype}:")
            for s, member, _reason in rows:
                if s.name == name:
                    o(f"    (({name} *)(void *)node)->{member} = VK_FALSE;")
            o("    break;")
        o("default:")
        o("    break;")
        o.close()
        o.close()
        o.end()
        return o.text()

    def is_plain(self, origin):
        """Whether headers have what an extension brings."""
        extension = self.p.r.extensions.get(origin)
        return extension and not extension.platform and not extension.provisional

    def blocks(self):
        o, count = Out(), 0
        o("const struct vn_format_block vn_block_table[] = {")
        for name, origins in self.p.r.formats.items():
            b = self.p.r.blocks.get(name)
            if not b or not any(x.startswith("VK_VERSION_") or self.is_plain(x) for x in origins):
                continue
            planes = ", ".join(f"{{{size}, {w}, {h}}}" for size, w, h in b.planes) or "{0}"
            o(f"    {{{name}, {b.bytes}, {', '.join(map(str, b.extent))}, {b.depth}, {b.stencil}, "
              f"{{{planes}}}}},")
            count += 1
        if count == 0:
            o("    {0},")
        o("};")
        o(f"const size_t vn_block_count = {count};")
        return o.text()

    def formats(self):
        o = Out()
        o("const struct vn_format_info vn_format_table[] = {")
        count = 0
        for name, origins in self.p.r.formats.items():
            for origin in origins:
                if origin.startswith("VK_VERSION_"):
                    o(f"    {{{name}, {origin.replace('VK_', 'VK_API_')}, NULL}},")
                elif self.is_plain(origin):
                    o(f'    {{{name}, UINT32_MAX, "{origin}"}},')
                else:
                    continue
                count += 1
        if count == 0:
            o("    {VK_FORMAT_UNDEFINED, UINT32_MAX, NULL},")
        o("};")
        o(f"const size_t vn_format_count = {count};")
        return o.text()
