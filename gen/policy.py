"""spec/policy.json: what crosses the wire, and how, each decision with its reason."""
import json
import re

EFFECTS = ("noted", "writes-sets", "writes-images", "writes-addresses", "uses-addresses",
           "reads-all", "watched", "anything")
CLASSES = ("record", "create", "create-sync", "destroy", "post", "call", "snapshot", "custom",
           "local", "refuse")


class Policy:
    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.data = json.load(file)
        self._need_reasons()
        self._classes = [(re.compile(pattern), entry)
                         for pattern, entry in self.data.get("classes", {}).items()]

    def _need_reasons(self):
        for section, entries in self.data.items():
            if section == "about":
                continue
            rows = entries.items() if isinstance(entries, dict) else enumerate(entries)
            for key, entry in rows:
                if not entry.get("reason"):
                    raise SystemExit(f"policy: {section}: {key}: no reason is given")

    def entry(self, section, name):
        """An exact entry of a section, or {}."""
        return self.data.get(section, {}).get(name, {})

    def extension(self, extension):
        """(verdict, reason): verdict is allow, local or omit."""
        for rule in self.data.get("omit_extensions", []):
            if re.match(rule["match"], extension.name):
                return rule.get("as", "omit"), rule["reason"]
        if extension.platform:
            return "omit", f"of the platform {extension.platform}"
        if extension.provisional:
            return "omit", "provisional"
        return "allow", ""

    def knob(self, name):
        """The variable that must be set for an extension to be offered, or None."""
        for rule in self.data.get("omit_extensions", []):
            if re.match(rule["match"], name):
                return rule.get("knob")
        return None

    def struct_omitted(self, name):
        """The reason why a struct never travels, or None."""
        for rule in self.data.get("omit_structs", []):
            if re.match(rule["match"], name):
                return None if rule.get("as") == "allow" else rule["reason"]
        return None

    def feature_off(self, member):
        """The reason why a feature is not offered whatever the driver says, or None."""
        for rule in self.data.get("features_off", []):
            if re.match(rule["match"], member):
                return rule["reason"]
        return None

    def effects(self, name):
        """What a recorded command reads and writes, as words of EFFECTS; None: nobody said.
        Promotion changes a name, and not what the command does."""
        core = re.sub(r"(KHR|EXT)$", "", name)
        names = (name, core, core + "KHR", core + "EXT")
        for rule in self.data.get("effects", []):
            if any(re.fullmatch(rule["match"], x) for x in names):
                if not set(rule["does"]) <= set(EFFECTS):
                    raise SystemExit(f"policy: effects: {rule['match']}: no such effect")
                return rule["does"]
        return None

    def is_plain_stride(self, where):
        """Whether a stride is not that of an array of the program's that travels packed."""
        return any(re.fullmatch(rule["match"], where) for rule in self.data.get("strides", []))

    def command_class(self, command, default):
        """(class, reason) of a command; default decides where no pattern matches."""
        for pattern, entry in self._classes:
            if pattern.match(command.name):
                if entry["class"] not in CLASSES:
                    raise SystemExit(f"policy: {command.name}: no class {entry['class']}")
                return entry["class"], entry["reason"]
        return default
