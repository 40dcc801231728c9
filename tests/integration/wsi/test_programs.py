#!/usr/bin/env python3
"""Programs with windows: what they show must be the same on a remote GPU as on one of this machine.

    test_programs.py TEST    one of those below; HAWSER, FIND_VULKAN and WSI_* name the programs
    test_programs.py vulkaninfo --write    writes docs/reference/vulkan-left-out.md, too

Both GPUs are Mesa's software driver, and so are both pictures exact.  Status 77: something that
the test needs is not here, and the last line says what.
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap

import display
from compositor import Compositor

ROOT = pathlib.Path(__file__).resolve().parents[3]
HAWSER = os.environ["HAWSER"]
SKIPPED = 77
RUN_SECONDS = 240  # the slowest needs five on an idle machine

# GL on Vulkan: Mesa's zink, which presents with a swapchain.
ZINK = {"MESA_LOADER_DRIVER_OVERRIDE": "zink", "LIBGL_ALWAYS_SOFTWARE": "1"}


class Skip(Exception):
    pass


def need(program):
    path = shutil.which(program)
    if not path:
        raise Skip(f"no {program}")
    return path


def software_environment():
    os.environ.setdefault("HAWSER_SOFTGPU_DIR", os.environ["WSI_SOFTGPU_DIR"])
    done = subprocess.run([os.environ["FIND_VULKAN"], "--software", "--", "env", "-0"],
                          capture_output=True, check=False)
    if done.returncode != 0:
        raise Skip("no software GPU")
    entries = (entry.partition("=") for entry in done.stdout.decode().split("\0") if entry)
    return {name: value for name, _, value in entries if not name.startswith("VENUS_")}


class Server:
    def __init__(self, env):
        self.folder = tempfile.mkdtemp(prefix="hawser-")
        self.address = f"unix:{self.folder}/gpu"
        ready, told = os.pipe()
        self.process = subprocess.Popen(
            [HAWSER, "serve", "--no-devices", "--listen", self.address, "--ready-fd", str(told)],
            env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[told])
        os.close(told)
        with os.fdopen(ready, "rb") as end:
            if not end.read():
                raise AssertionError("the server did not start")

    def kill(self):
        """The server and its session, at once and without a goodbye."""
        pid = self.process.pid
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
        for child in [pid, *map(int, children.split())]:
            os.kill(child, signal.SIGKILL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(RUN_SECONDS)
        shutil.rmtree(self.folder, ignore_errors=True)


class Place:
    """Where a test runs programs: natively or remotely, on one display.

    Both have the environment of the software GPU, so that both find the same libraries."""

    def __init__(self, screen, env, server):
        self.screen, self.server = screen, server
        self.env = {**env, "DISPLAY": screen.name, "XDG_RUNTIME_DIR": screen.folder}

    def command(self, *program):
        return [HAWSER, "run", "--servers", self.server.address, "--", *program]

    def run(self, *program, remote, **extra):
        done = subprocess.run(self.command(*program) if remote else program,
                              env={**self.env, **extra}, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=RUN_SECONDS, check=False)
        words = done.stderr.decode(errors="replace")
        if done.returncode != 0:
            place = "remotely" if remote else "natively"
            raise AssertionError(f"{program[0]} ended {place} with {done.returncode}: {words}")
        return done.stdout.decode(errors="replace"), words

    def shown_by(self, *program, remote, **extra):
        """The screen after the program: what was in its windows stays."""
        carpet = subprocess.Popen([os.environ["WSI_CARPET"]], env=self.env, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE)
        try:
            if carpet.stdout.readline() != b"ready\n":
                raise AssertionError("nothing covers the screen")
            before = self.screen.picture()
            self.run(*program, remote=remote, **extra)
            after = self.screen.picture()
            if before == after:
                raise AssertionError(f"{program[0]} left nothing on the screen")
            return after
        finally:
            carpet.communicate()


# --- tests ---------------------------------------------------------------------------------------


def test_vkcube(place):
    """Each frame differs from the last, so an equal picture is an equal frame.  Native Mesa drops
    frames that are on their way when a program ends, now one and now three, so it may have to draw
    more of them, and more than once."""
    vkcube = need("vkcube")
    frames = 30
    remote = place.shown_by(vkcube, "--c", str(frames), remote=True)
    native = (place.shown_by(vkcube, "--c", str(frames + more), remote=False)
              for more in [*range(5)] * 8)
    assert any(picture == remote for picture in native), "no native picture is the remote one"


def wayland_pictures(place, compositor, frames, remote):
    place.run(need("vkcube-wayland"), "--c", str(frames), remote=remote,
              WAYLAND_DISPLAY=compositor.path)
    return compositor.pictures()


def test_wayland(place):
    """Every picture of a program is shown, once, and to the last pixel as natively; a window that
    changes its size goes on in the new one."""
    frames = 20
    with Compositor() as compositor:
        native = wayland_pictures(place, compositor, frames, remote=False)
        remote = wayland_pictures(place, compositor, frames, remote=True)
    assert len(set(remote)) == len(remote) == frames, remote
    # Native Mesa may drop what is on its way when a program ends.
    assert len(native) > frames // 2 and remote[:len(native)] == native, (native, remote)
    with Compositor(resize_after=5, size=(300, 200)) as compositor:
        resized = wayland_pictures(place, compositor, frames, remote=True)
    sizes = [picture[:2] for picture in resized]
    assert sizes[0] == (500, 500) and sizes[-1] == (300, 200), sizes
    assert sizes == sorted(sizes, reverse=True), sizes


def test_weston(place):
    """The real thing: its frames are paced by it."""
    vkcube, weston = need("vkcube-wayland"), need("weston")
    name = "hawser-weston"
    process = subprocess.Popen(
        [weston, "--backend=headless-backend.so", "--no-config", "--use-pixman", "--idle-time=0",
         f"--socket={name}"], env=place.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE)
    try:
        path = pathlib.Path(place.env["XDG_RUNTIME_DIR"], name)
        said = b""
        while not path.exists():  # it writes more lines once it listens
            line = process.stderr.readline()
            if not line:
                raise Skip(f"weston does not start: {said.decode()[-200:]}")
            said += line
        for remote in (False, True):
            place.run(vkcube, "--c", "30", remote=remote, WAYLAND_DISPLAY=name)
    finally:
        process.terminate()
        process.communicate()


def test_gl(place):
    if "WSI_GL" not in os.environ:
        raise Skip("no GL or no Xlib when this was built")
    program = os.environ["WSI_GL"]
    said, renderer = place.run(program, remote=False, **ZINK)
    if "skip: " in said or "zink" not in renderer:
        raise Skip(f"no GL on Vulkan: {said} {renderer}")
    native = place.shown_by(program, remote=False, **ZINK)
    remote = place.shown_by(program, remote=True, **ZINK)
    assert native == remote, "the pictures differ"
    far_said, far_renderer = place.run(program, remote=True, **ZINK)
    assert "zink" in far_renderer, far_renderer
    assert said == far_said, f"natively {said}, remotely {far_said}"


def test_own(place):
    """What Mesa's software driver has not, or dies of."""
    said, _ = place.run(os.environ["WSI_REMOTE"], "alias_of_image", remote=True)
    assert said == "shown 1\n", said
    said, _ = place.run(os.environ["WSI_REMOTE"], "presents_are_waited_for", remote=True)
    assert said == ("present id 1\npresent wait 1\nan id that is past VK_SUCCESS\n"
                    "an id to come VK_TIMEOUT\n"), said
    if "VK_KHR_present_wait2" in verdicts()[1]:
        said, _ = place.run(os.environ["WSI_REMOTE"], "presents_are_waited_for2", remote=True)
        assert said == ("present id 1\npresent wait 1\nsurface ids 1\nsurface waits 1\n"
                        "an id that is past VK_SUCCESS\nan id to come VK_TIMEOUT\n"), said


def test_lost_server(place):
    program = subprocess.Popen(place.command(os.environ["WSI_REMOTE"], "lost_server"),
                               env=place.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        assert program.stdout.readline() == b"fault no fault is known\n"
        assert program.stdout.readline() == b"ready\n"
        place.server.kill()
        said, _ = program.communicate(timeout=RUN_SECONDS)
    finally:
        program.kill()
        program.wait()
    fault = f"fault the GPU at {place.server.address} is lost: [^\n]+\n"
    assert re.fullmatch("ended with VK_ERROR_DEVICE_LOST\n" + fault + "still shown 1\n"
                        "shown after destruction 1\n", said.decode()), said


# What vulkaninfo may say differently, and why; docs/design/presentation.md has the same list.
INFO_DIFFERS = {
    "VkPhysicalDeviceMemoryProperties": "device-local memory is not host-visible unless asked for",
    "VkPhysicalDeviceDescriptorBufferDensityMapPropertiesEXT": "offered when asked for only",
    "VkPhysicalDeviceDescriptorBufferFeaturesEXT": "the same",
    "VkPhysicalDeviceDescriptorBufferPropertiesEXT": "the same",
    "VkPhysicalDeviceDescriptorHeapFeaturesEXT": "left out",
    "VkPhysicalDeviceDescriptorHeapPropertiesEXT": "the same",
    "VkPhysicalDeviceDescriptorHeapTensorPropertiesARM": "the same",
    "VkPhysicalDeviceFaultFeaturesEXT": "of an extension that the client adds",
    "VkPhysicalDeviceMapMemoryPlacedFeaturesEXT": "the same",
    "VkPhysicalDeviceMapMemoryPlacedPropertiesEXT": "the same",
    "VkPhysicalDevicePresentIdFeaturesKHR": "the same",
    "VkPhysicalDevicePresentId2FeaturesKHR": "the same",
    "VkPhysicalDevicePresentWaitFeaturesKHR": "the same",
    "VkPhysicalDevicePresentWait2FeaturesKHR": "the same",
    "VkSurfaceCapabilitiesPresentId2KHR": "the same",
    "VkSurfaceCapabilitiesPresentWait2KHR": "the same",
}


def sections(text):
    """{heading: lines}.  A heading is a line above a rule, or one of a list with its count."""
    lines = text.splitlines()
    found = {}
    current = found.setdefault("", [])
    for number, line in enumerate(lines):
        rule = lines[number + 1].strip() if number + 1 < len(lines) else ""
        counted = re.match(r"(\w+ Extensions): count = ", line.strip())
        if counted or (line.strip() and len(rule) > 3 and set(rule) <= {"-", "="}):
            name = counted.group(1) if counted else line.strip().rstrip(":")
            current = found.setdefault(name, [])
        elif line.strip() and not set(line.strip()) <= {"-", "="}:
            current.append(line)
    return found


def extensions_of(lines):
    return {line.split()[0] for line in lines if line.strip().startswith("VK_")}


def is_explained(name, native, remote):
    """Whether the section may differ as it does."""
    if name in EXTENSIONS:
        return True  # see check_extensions
    own = {"VkPhysicalDeviceProperties": "apiVersion",  # a driver may be newer than this build's registry
           "VkPhysicalDeviceVulkan14Properties": "optimalTilingLayoutUUID"}.get(name)  # the client lays it out
    if own:
        def rest(lines):
            return [line for line in lines if own not in line]
        return rest(native) == rest(remote)
    return name in INFO_DIFFERS


EXTENSIONS = ("Instance Extensions", "Device Extensions")
LEFT_OUT = ROOT / "docs/reference/vulkan-left-out.md"
LEFT_OUT_HEAD = """# What lavapipe has and a remote device lacks

For users who miss an extension, and for maintainers of the policy. It answers: what does a program see
natively and not through the driver, and why? For Mesa {mesa} and Vulkan's registry {registry}.
`test_programs.py vulkaninfo` of `tests/integration/wsi` compares the two lists and holds this page to
them; with `--write` it writes the page. The reasons are those of `spec/policy.json`.

{sums}

| extension | reason |
|---|---|
"""


def verdicts():
    """(the registry's number, {extension: (verdict, reason)}) of this build."""
    sys.path.insert(0, str(ROOT / "gen"))
    from manifest import verdicts_of
    from plan import Plan
    from policy import Policy
    from registry import Registry
    policy = Policy(ROOT / "spec/policy.json")
    registry = Registry(os.environ["WSI_XML"])
    found = verdicts_of(Plan(registry, policy))
    for name in found:
        if policy.knob(name):
            reason = f"{found[name][1]}; `{policy.knob(name)}=1` offers it"
            found[name] = ("asked", reason)
    return registry, found


def check_extensions(native, remote, mesa, write):
    """What is left out has a reason, which is never that this build does not know it; what is there
    besides is the client's own.  The page is that of one driver and one registry."""
    registry, known = verdicts()
    theirs = set().union(*(extensions_of(native[name]) for name in EXTENSIONS))
    ours = set().union(*(extensions_of(remote[name]) for name in EXTENSIONS))
    left, added = sorted(theirs - ours), sorted(ours - theirs)
    for name in added:
        assert known[name][0] == "local", f"{name}: the driver does not have it"
    new_enough = registry.version >= 300
    for name in left:
        assert known.get(name, ("", ""))[0] in ("omit", "asked") or not new_enough, \
            f"{name} is left out, and the policy does not say why"
    sums = (f"Natively there are {len(theirs)} device and instance extensions; {len(left)} of them are left "
            f"out, and {len(added)} are there remotely only: {', '.join(f'`{x}`' for x in added)}.")
    page = LEFT_OUT_HEAD.format(mesa=mesa, registry=registry.named(), sums=textwrap.fill(sums, 110))
    page += "".join(f"| `{name}` | {known[name][1]} |\n" for name in left if name in known)
    if write:
        LEFT_OUT.write_text(page, encoding="utf-8")
    written = LEFT_OUT.read_text(encoding="utf-8")
    if f"Mesa {mesa} and Vulkan's registry {registry.named()}." in written:
        assert page == written, "docs/reference/vulkan-left-out.md is old: vulkaninfo --write"


def test_vulkaninfo(place, write=False):
    vulkaninfo = need("vulkaninfo")
    text = place.run(vulkaninfo, remote=False)[0]
    native = sections(text)
    remote = sections(place.run(vulkaninfo, remote=True)[0])
    mesa = re.search(r"driverInfo\s*= Mesa ([0-9.]+)", text)
    check_extensions(native, remote, mesa.group(1) if mesa else "of no known version", write)
    assert "Presentable Surfaces" in remote, sorted(remote)
    for name in sorted(native.keys() | remote.keys()):
        ours, theirs = native.get(name, []), remote.get(name, [])
        if ours != theirs and not is_explained(name, ours, theirs):
            lines = [f"- {line}" for line in ours if line not in theirs]
            lines += [f"+ {line}" for line in theirs if line not in ours]
            raise AssertionError("\n".join([f"section {name!r} differs", *lines[:40]]))


def main(argv):
    write = {"write": True} if argv[1:] == ["--write"] and argv[0] == "vulkaninfo" else {}
    test = globals().get("test_" + argv[0]) if len(argv) == 1 + len(write) else None
    if not test:
        sys.exit(__doc__)
    try:
        need("Xvfb")
        env = software_environment()
        with display.Display() as screen, Server(env) as server:
            test(Place(screen, env, server), **write)
    except Skip as reason:
        print(f"skip: {reason}")
        return SKIPPED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
