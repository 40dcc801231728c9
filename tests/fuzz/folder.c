#include "folder.h"

#include "fuzz.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char path[] = "/tmp/hawser-fuzz-XXXXXX";

const char *folder_file(const char *name)
{
    static char file[512];
    require(snprintf(file, sizeof file, "%s/%s", folder_path(), name) < (int)sizeof file);
    return file;
}

static void remove_all(void)
{
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        unlink(folder_file(entry->d_name));
    if (folder)
        closedir(folder);
    rmdir(path);
}

const char *folder_path(void)
{
    static bool is_made;
    if (!is_made) {
        is_made = true;
        require(mkdtemp(path) != NULL && atexit(remove_all) == 0);
    }
    return path;
}

void folder_put(const char *name, const uint8_t *data, size_t size)
{
    const char *file = folder_file(name);
    unlink(file); /* some file systems write an old file to disk before it is written anew */
    FILE *out = fopen(file, "w");
    require(out && fwrite(data, 1, size, out) == size && fclose(out) == 0);
}

void folder_take(const char *name, const uint8_t **data, size_t *size)
{
    const uint8_t *nul = memchr(*data, 0, *size);
    size_t bytes = nul ? (size_t)(nul - *data) : *size, taken = bytes + (nul != NULL);
    folder_put(name, *data, bytes);
    *data += taken;
    *size -= taken;
}
