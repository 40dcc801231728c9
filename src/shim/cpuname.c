/* shim/cpuname.c - preload library: tells LLVM a CPU name without SVE.
 *
 * LLVM derives the instruction set from the CPU's name.  Where a virtual machine masks SVE but
 * leaves the part number readable, a JIT (Mesa's lavapipe) emits instructions that trap.  This
 * library takes the place of llvm::sys::getHostCPUName() and names the closest core without SVE.
 * find-vulkan preloads it only where a probe died of SIGILL, and only on arm64. */
#include <stddef.h>

/* llvm::StringRef: two words, returned in registers like this struct. */
struct string_ref {
    const char *data;
    size_t length;
};

/* The C++ ABI's name for llvm::sys::getHostCPUName(). */
struct string_ref _ZN4llvm3sys14getHostCPUNameEv(void);

__attribute__((visibility("default"))) struct string_ref _ZN4llvm3sys14getHostCPUNameEv(void)
{
    static const char name[] = "neoverse-n1";
    return (struct string_ref){name, sizeof(name) - 1};
}
