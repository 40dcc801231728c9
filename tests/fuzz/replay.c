/* fuzz/replay.c - runs a fuzz target over files, without a fuzzer: main for sanitizer builds
 * without libFuzzer.
 *
 * Each argument is a file or a folder of files.  A corpus without a file is an error: a test that
 * ran nothing has shown nothing. */
#include <dirent.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_BYTES_MAX = 1 << 20 }; /* committed inputs are small; this is libFuzzer's own limit */

/* 0, or -1 with a message. */
static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return -1;
    }
    uint8_t *whole = malloc(INPUT_BYTES_MAX);
    size_t size = whole ? fread(whole, 1, INPUT_BYTES_MAX, file) : 0;
    fclose(file);
    /* A block of exactly this size, so that a sanitizer sees one byte too far. */
    uint8_t *data = malloc(size ? size : 1);
    if (!whole || !data) {
        free(whole);
        free(data);
        fprintf(stderr, "%s: out of memory\n", path);
        return -1;
    }
    memcpy(data, whole, size);
    free(whole);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    return 0;
}

/* Number of files run, or -1 with a message. */
static int replay_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    if (!dir) {
        perror(folder);
        return -1;
    }
    int count = 0;
    for (struct dirent *entry; count >= 0 && (entry = readdir(dir));) {
        char path[PATH_MAX];
        if (entry->d_name[0] == '.')
            continue;
        int length = snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (length >= (int)sizeof(path) || replay_file(path) < 0)
            count = -1;
        else
            count++;
    }
    closedir(dir);
    return count;
}

static int replay(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0) {
        perror(path);
        return -1;
    }
    if (S_ISDIR(st.st_mode))
        return replay_folder(path);
    return replay_file(path) < 0 ? -1 : 1;
}

int main(int argc, char **argv)
{
    int total = 0;
    for (int i = 1; i < argc; i++) {
        int count = replay(argv[i]);
        if (count < 0)
            return EXIT_FAILURE;
        total += count;
    }
    fprintf(stderr, "%d inputs\n", total);
    return total > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
