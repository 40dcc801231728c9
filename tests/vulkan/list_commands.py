#!/usr/bin/env python3
"""list_commands.py REGISTRY OUTPUT: the device commands of each version and extension, for info.c.

Writes lines {"VK_VERSION_1_1", "vkTrimCommandPool"}, for 1.0 to 1.3 and every device extension that
a program without a window, on any platform, can enable.  Commands that need a second extension are left out.
"""
import re
import sys
import xml.etree.ElementTree as ElementTree

VERSIONS = ("VK_VERSION_1_0", "VK_VERSION_1_1", "VK_VERSION_1_2", "VK_VERSION_1_3")
DISPATCHED = {"VkDevice", "VkQueue", "VkCommandBuffer"}  # commands of a device begin with one
API = "vulkan"
NAME = re.compile(r"VK_\w+")


def is_ours(element, attribute):
    return API in element.get(attribute, API).split(",")


def device_commands(registry):
    """Names whose first parameter belongs to a device."""
    found, aliases = set(), {}
    for command in registry.iterfind("commands/command"):
        if command.get("alias"):
            aliases[command.get("name")] = command.get("alias")
        elif is_ours(command, "api") and command.findtext("param/type") in DISPATCHED:
            found.add(command.findtext("proto/name"))
    return found | {name for name, of in aliases.items() if of in found}


def required(block):
    """Commands that come without a condition."""
    for require in block.iterfind("require"):
        if is_ours(require, "api") and not {"feature", "extension", "depends"} & set(require.keys()):
            yield from (command.get("name") for command in require.iterfind("command"))


class Extensions:
    def __init__(self, registry):
        self.all = {extension.get("name"): extension
                    for extension in registry.iterfind("extensions/extension")
                    if API in extension.get("supported", "").split(",")}

    def needs(self, name):
        extension = self.all[name]
        return NAME.findall(extension.get("requires", "") + " " + extension.get("depends", ""))

    def is_windowless(self, name, seen=()):
        """No instance extension has to be enabled for it, but those that 1.1 took in."""
        if name not in self.all or name in seen:
            return True
        extension = self.all[name]
        if extension.get("type") == "instance":
            return extension.get("promotedto", "").startswith("VK_VERSION")
        return all(self.is_windowless(other, (*seen, name)) for other in self.needs(name))

    def usable(self):
        return [extension for name, extension in self.all.items()
                if extension.get("type") == "device" and not extension.get("platform")
                and self.is_windowless(name)]


def main(path, output):
    registry = ElementTree.parse(path).getroot()
    commands = device_commands(registry)
    blocks = [block for block in registry.iterfind("feature")
              if block.get("name") in VERSIONS and is_ours(block, "api")]
    blocks += Extensions(registry).usable()
    with open(output, "w", encoding="ascii") as file:
        for block in blocks:
            names = [name for name in required(block) if name in commands]
            for name in names or [""]:  # one without commands is enabled all the same
                file.write(f'{{"{block.get("name")}", "{name}"}},\n')


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
