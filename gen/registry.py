"""The Vulkan registry as Python objects: what vk.xml says, without opinion.

Only api="vulkan" is kept; duplicates for other APIs, disabled extensions and the bodies of aliases
are dropped.  Names that an alias gives to a type or command are in Registry.aliases.
"""
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field

# Types that come from C or from vk_platform.h, as what they are on the wire.
C_TYPES = {
    "char": "u8", "int8_t": "u8", "uint8_t": "u8", "int16_t": "u16", "uint16_t": "u16",
    "int": "u32", "int32_t": "u32", "uint32_t": "u32", "int64_t": "u64", "uint64_t": "u64",
    "size_t": "u64", "float": "f32", "double": "f64",
}
BYTES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "f32": 4, "f64": 8}


@dataclass
class Member:
    """A struct member or a command parameter."""
    name: str
    type: str
    const: bool = False
    ptr: int = 0
    dims: list = field(default_factory=list)   # of a fixed array, as C expressions
    lens: list = field(default_factory=list)   # of each pointer level, as the registry has them
    optional: bool = False
    unchecked: bool = False  # when it may be absent is said in prose only
    selector: str = ""
    selection: list = field(default_factory=list)
    objecttype: str = ""
    stride: str = ""   # the member that tells the distance of an array's elements
    bits: bool = False
    values: str = ""

    def declare(self, name=None):
        const = "const " if self.const else ""
        stars = {0: " ", 1: " *", 2: " *const *" if self.const else " **"}[self.ptr]
        dims = "".join(f"[{d}]" for d in self.dims)
        return f"{const}{self.type}{stars}{name or self.name}{dims}"


@dataclass
class Struct:
    name: str
    union: bool
    members: list
    returned: bool
    extends: list

    @property
    def stype(self):
        first = self.members[0] if self.members else None
        return first.values if first and first.name == "sType" else ""

    def member(self, name):
        return next((m for m in self.members if m.name == name), None)


@dataclass
class Command:
    name: str
    ret: str
    params: list
    origin: str = ""  # the version or extension that first names it


@dataclass
class Extension:
    name: str
    kind: str
    platform: str
    provisional: bool
    commands: list
    types: list
    version: int = 0
    depends: str = ""   # what else must be there, as an expression of names
    needs: dict = field(default_factory=dict)   # command -> what else must be there for it


@dataclass
class Block:
    """The texel block of a format, as copies between memory and images have it."""
    bytes: int
    extent: list    # in texels
    planes: list    # (bytes, width divisor, height divisor) of each
    depth: int      # bytes of that aspect; 0: there is none
    stencil: int


class Registry:
    def __init__(self, path):
        root = ET.parse(path).getroot()
        self.aliases = {}
        self.scalars = dict(C_TYPES)
        self.enums = {}      # enum type -> names of its values
        self.handles = {}    # handle type -> (object type, dispatchable)
        self.structs = {}
        self.opaque = set()  # types whose layout the registry does not tell
        self.commands = {}
        self.features = []
        self.extensions = {}
        self.formats = {}    # value of VkFormat -> versions and extensions that have it
        self.blocks = {}     # value of VkFormat -> Block
        self.version = self._version(root)
        self.constants = _constants(root)
        self._read_enums(root)
        self._read_types(root)
        self._read_commands(root)
        self._read_features(root)
        self._read_extensions(root)
        self._read_blocks(root)

    def resolve(self, name):
        while name in self.aliases:
            name = self.aliases[name]
        return name

    def named(self):
        """As Vulkan's versions are written."""
        minor = max(int(name.rsplit("_", 1)[1]) for name, _c, _t in self.features)
        return f"1.{minor}.{self.version}"

    def scalar(self, name):
        """The wire kind of a scalar type, or None."""
        return self.scalars.get(self.resolve(name))

    @staticmethod
    def _version(root):
        for node in root.findall("types/type"):
            name = node.find("name")
            if name is not None and name.text == "VK_HEADER_VERSION" and _applies(node):
                return int("".join(node.itertext()).split()[-1])
        return 0

    def _read_enums(self, root):
        self.wide = set()
        for node in root.findall("enums"):
            if node.get("type") not in ("enum", "bitmask"):
                continue
            names = [v.get("name") for v in node.findall("enum") if not v.get("alias")]
            self.enums[node.get("name")] = names
            if node.get("name") == "VkFormat":
                self.formats = {name: ["VK_VERSION_1_0"] for name in names}
            if node.get("bitwidth") == "64":
                self.wide.add(node.get("name"))

    def _read_types(self, root):
        for node in root.findall("types/type"):
            if not _applies(node):
                continue
            name = node.get("name") or (node.findtext("name") or "")
            if node.get("alias"):
                self.aliases[name] = node.get("alias")
                continue
            reader = getattr(self, "_read_" + str(node.get("category")), None)
            if reader:
                reader(node, name)
            elif name not in self.scalars:
                self.opaque.add(name)

    def _read_basetype(self, node, name):
        text = "".join(node.itertext())
        inner = node.findtext("type")
        if inner in self.scalars and "*" not in text:
            self.scalars[name] = self.scalars[inner]
        else:
            self.opaque.add(name)

    _read_bitmask = _read_basetype

    def _read_enum(self, _node, name):
        self.scalars[name] = "u64" if name in self.wide else "u32"

    def _read_funcpointer(self, _node, name):
        self.opaque.add(name)

    def _read_handle(self, node, name):
        dispatchable = node.findtext("type") == "VK_DEFINE_HANDLE"
        self.handles[name] = (node.get("objtypeenum"), dispatchable)

    def _read_struct(self, node, name, union=False):
        members = [_member(m) for m in node.findall("member") if _applies(m)]
        extends = [x for x in (node.get("structextends") or "").split(",") if x]
        self.structs[name] = Struct(name, union, members, node.get("returnedonly") == "true",
                                    extends)

    def _read_union(self, node, name):
        self._read_struct(node, name, union=True)

    def _read_commands(self, root):
        for node in root.findall("commands/command"):
            if not _applies(node):
                continue
            if node.get("alias"):
                self.aliases[node.get("name")] = node.get("alias")
                continue
            proto = node.find("proto")
            params = [_member(p) for p in node.findall("param") if _applies(p)]
            name = proto.findtext("name")
            self.commands[name] = Command(name, proto.findtext("type"), params)

    def _read_features(self, root):
        for node in root.findall("feature"):
            if not _applies(node):
                continue
            name = re.sub(r"VK_(BASE|COMPUTE|GRAPHICS)_VERSION", "VK_VERSION", node.get("name"))
            commands, types = _required(node)
            self._provide_formats(node, name)
            self.features.append((name, commands, types))
            self._claim(name, commands)

    def _read_extensions(self, root):
        for node in root.findall("extensions/extension"):
            if "vulkan" not in (node.get("supported") or "").split(","):
                continue
            name = node.get("name")
            commands, types = _required(node)
            self._provide_formats(node, name)
            self.extensions[name] = Extension(
                name, node.get("type") or "", node.get("platform") or "",
                node.get("provisional") == "true", commands, types, _spec_version(node),
                node.get("depends") or "", _needs(node))
        for extension in self.extensions.values():
            self._claim(extension.name, extension.commands)

    def _provide_formats(self, node, origin):
        for value in node.findall("require/enum"):
            if value.get("extends") == "VkFormat" and _applies(value):
                name = value.get("alias") or value.get("name")
                self.formats.setdefault(name, []).append(origin)

    def _read_blocks(self, root):
        nodes = {node.get("name"): node for node in root.findall("formats/format")}
        for name, node in nodes.items():
            bits = {c.get("name"): c.get("bits") for c in node.findall("component")}
            planes = [(int(nodes[p.get("compatible")].get("blockSize")),
                       int(p.get("widthDivisor")), int(p.get("heightDivisor")))
                      for p in node.findall("plane")]
            extent = [int(x) for x in (node.get("blockExtent") or "1,1,1").split(",")]
            # Depth of 24 bits is copied as a word; stencil is copied as bytes.
            depth = {"16": 2, "24": 4, "32": 4}.get(bits.get("D"), 0)
            self.blocks[name] = Block(int(node.get("blockSize")), extent, planes, depth,
                                      1 if "S" in bits else 0)

    def _claim(self, origin, commands):
        for name in commands:
            command = self.commands.get(self.resolve(name))
            if command and not command.origin:
                command.origin = origin


def _constants(root):
    """Whole-number constants, for the sizes of fixed arrays."""
    found = {}
    for node in root.findall("enums"):
        if node.get("type") in ("enum", "bitmask"):
            continue
        for value in node.findall("enum"):
            if (value.get("value") or "").isdigit():
                found[value.get("name")] = int(value.get("value"))
    for node in root.iter("require"):  # constants of extensions
        for value in node.findall("enum"):
            if not value.get("extends") and (value.get("value") or "").isdigit():
                found[value.get("name")] = int(value.get("value"))
    for node in root.findall("enums/enum"):
        if node.get("alias") in found:
            found[node.get("name")] = found[node.get("alias")]
    return found


def _applies(node):
    return "vulkan" in (node.get("api") or "vulkan").split(",")


def _required(node):
    commands, types = [], []
    for require in node.findall("require"):
        if _applies(require):
            commands += [c.get("name") for c in require.findall("command") if _applies(c)]
            types += [t.get("name") for t in require.findall("type") if _applies(t)]
    return commands, types


def _needs(node):
    """Commands that an extension has only together with others, as expressions of their names."""
    found = {}
    for require in node.findall("require"):
        condition = require.get("depends") or require.get("extension") or require.get("feature")
        for command in require.findall("command"):
            if condition and _applies(require):
                found[command.get("name")] = condition
    return found


def _spec_version(node):
    for value in node.findall("require/enum"):
        if (value.get("name") or "").endswith("_SPEC_VERSION"):
            return int(value.get("value") or 0)
    return 0


def _split_len(node):
    text = node.get("altlen") or node.get("len") or ""
    return [part.strip() for part in text.split(",")] if text else []


def _member(node):
    """Reads "const T* const* name[N]:bits" out of mixed text and elements."""
    type_node, name_node = node.find("type"), node.find("name")
    before = (node.text or "") + (type_node.tail or "")
    tail = name_node.tail or ""
    at = tail
    for child in list(node)[list(node).index(name_node) + 1:]:
        if child.tag == "enum":
            at += (child.text or "") + (child.tail or "")
    dims = re.findall(r"\[\s*(\w+)\s*\]", at)
    return Member(
        name=name_node.text, type=type_node.text, const="const" in before,
        ptr=before.count("*"), dims=dims, lens=_split_len(node),
        optional=(node.get("optional") or "false").split(",")[0] == "true",
        unchecked=node.get("noautovalidity") == "true",
        selector=node.get("selector") or "",
        selection=[s for s in (node.get("selection") or "").split(",") if s],
        objecttype=node.get("objecttype") or "", stride=node.get("stride") or "",
        bits=":" in tail,
        values=node.get("values") or "")
