/* Descriptors that clients send; see external.h. */
#include "venus/server/memory/external.h"

#include "venus/common/chain.h"

#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of the command under way, in the arena: ours to write. */
static VkImportMemoryFdInfoKHR *find_import(const VkMemoryAllocateInfo *info)
{
    VkImportMemoryFdInfoKHR *import =
        (void *)(uintptr_t)vn_chain_find(info->pNext, VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR);
    return import && import->handleType ? import : NULL;
}

/* Where a chain has more than one, a driver may take another than the first. */
static bool has_several(const VkMemoryAllocateInfo *info)
{
    const VkStructureType type = VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR;
    const VkImportMemoryFdInfoKHR *first = vn_chain_find(info->pNext, type);
    return first && vn_chain_find(first->pNext, type);
}

/* Drivers of hardware export devices or dma-bufs, which have no type; software ones files in memory
 * that cannot shrink. */
static bool is_memory(int fd, VkDeviceSize bytes)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &st))
        return false;
    switch (st.st_mode & S_IFMT) {
    case 0:
    case S_IFCHR:
        return true;
    case S_IFREG:
        return seals >= 0 && (seals & F_SEAL_SHRINK) && (VkDeviceSize)st.st_size >= bytes;
    default:
        return false;
    }
}

bool vns_external_give(const VkMemoryAllocateInfo *info, int fd)
{
    VkImportMemoryFdInfoKHR *import = find_import(info);
    if (has_several(info))
        return false;
    if (!import)
        return true;
    if (import->handleType != VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT || fd < 0 ||
        !is_memory(fd, info->allocationSize))
        return false;
    import->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return import->fd >= 0;
}

/* Where a driver fails the copy should be ours still, and Mesa 25.0 closes it: then its number may
 * be another's by now.  A device that many open is not known by its number, so that copy is left.
 */
void vns_external_given(const VkMemoryAllocateInfo *info, VkResult result, int fd)
{
    const VkImportMemoryFdInfoKHR *import = find_import(info);
    struct stat own, copy;
    if (!import || result >= 0 || fstat(fd, &own) || fstat(import->fd, &copy))
        return;
    if (own.st_dev == copy.st_dev && own.st_ino == copy.st_ino && !S_ISCHR(own.st_mode))
        close(import->fd);
}

/* Drivers export devices, or what has no type: files that the kernel makes for synchronisation. */
bool vns_external_give_sync(bool sync_file, int fd, int *copy)
{
    struct stat st;
    if (fd < 0)
        return sync_file && *copy == -1;
    if (fstat(fd, &st) || ((st.st_mode & S_IFMT) && !S_ISCHR(st.st_mode)))
        return false;
    *copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return *copy >= 0;
}
