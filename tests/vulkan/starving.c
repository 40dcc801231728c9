/* starving.c - a library for LD_PRELOAD that lets the session's own allocations fail, and neither
 * those of the server nor those of the GPU's driver. */
#include "starving.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

static struct starving *control; /* NULL: none */
static uintptr_t text, text_end; /* of the program's own code */

static int note_program(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size, (void)user;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && part->p_flags & PF_X) {
            text = info->dlpi_addr + part->p_vaddr;
            text_end = text + part->p_memsz;
        }
    }
    return 1; /* the program comes first */
}

__attribute__((constructor)) static void start(void)
{
    const char *path = getenv(STARVING_FILE);
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *map = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    dl_iterate_phdr(note_program, NULL);
    control = map == MAP_FAILED ? NULL : map;
}

/* Threads have the name of the one that made them. */
static bool is_session(void)
{
    char name[16];
    return prctl(PR_GET_NAME, name) == 0 && strcmp(name, "hawser-session") == 0;
}

static bool fails(const void *caller)
{
    uintptr_t at = (uintptr_t)caller;
    if (!control || at < text || at >= text_end || atomic_load(&control->left) < 0 || !is_session())
        return false;
    errno = ENOMEM;
    return starving_next(control);
}

EXPORTED void *malloc(size_t n)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(n);
}

EXPORTED void *calloc(size_t n, size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(n, size);
}

EXPORTED void *realloc(void *p, size_t n)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(p, n);
}

EXPORTED void *mmap64(void *addr, size_t len, int prot, int flags, int fd, off64_t off)
{
    if (fails(__builtin_return_address(0)))
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, off);
}
