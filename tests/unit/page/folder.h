/* folder.h - a private folder of a test's own.
 *
 * Threads: one. */
#ifndef HAWSER_TESTS_UNIT_PAGE_FOLDER_H
#define HAWSER_TESTS_UNIT_PAGE_FOLDER_H

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FOLDER_CHARS = 32 };

/* Short: a socket's path has 107 characters. */
static inline void folder_make(char path[FOLDER_CHARS])
{
    strcpy(path, "/tmp/hawser-page-XXXXXX");
    assert_non_null(mkdtemp(path));
}

/* How many entries it has. */
static inline int folder_entries(const char *path)
{
    int count = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(dir);
    return count;
}

/* Fails unless the test left it empty. */
static inline void folder_remove(const char *path)
{
    assert_int_equal(folder_entries(path), 0);
    assert_int_equal(rmdir(path), 0);
}

#endif
