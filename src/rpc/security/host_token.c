/* host_token.c - the token of this user on this host, which servers make and clients find. */
#include "rpc/security/security.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* XDG's folder for state.  A user without HOME has one in the system's list. */
static int find_path(char path[PATH_MAX])
{
    const char *state = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    char buffer[4096]; /* a line of that list */
    struct passwd entry, *user = NULL;
    int len;
    if (state && state[0] == '/') {
        len = snprintf(path, PATH_MAX, "%s/hawser/token", state);
    } else {
        if (!home || home[0] != '/') {
            (void)getpwuid_r(geteuid(), &entry, buffer, sizeof buffer, &user);
            home = user ? user->pw_dir : "";
        }
        len = snprintf(path, PATH_MAX, "%s/.local/state/hawser/token", home);
    }
    return len >= PATH_MAX || path[0] != '/' ? -ENOENT : 0;
}

/* Every folder above the file that is missing; XDG wants them private. */
static int make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int rc = mkdir(path, 0700) ? -errno : 0;
        bool there = rc == 0 || access(path, F_OK) == 0;
        *slash = '/';
        if (!there)
            return rc;
    }
    return 0;
}

/* Appears under its name as a whole, and never replaces one: servers may start at the same time. */
static int make_file(const char *path)
{
    char text[RPC_TOKEN_TEXT_CHARS], draft[PATH_MAX];
    if (snprintf(draft, sizeof draft, "%s.XXXXXX", path) >= (int)sizeof draft)
        return -ENAMETOOLONG;
    int rc = rpc_token_random(text);
    if (rc)
        return rc;
    int fd = mkostemp(draft, O_CLOEXEC); /* mode 0600 */
    if (fd < 0) {
        rc = -errno;
    } else {
        ssize_t n = write(fd, text, strlen(text));
        rc = n < 0 || fsync(fd) ? -errno : n < (ssize_t)strlen(text) ? -ENOSPC : 0;
        close(fd);
        if (rc == 0 && link(draft, path) && errno != EEXIST)
            rc = -errno;
        (void)unlink(draft);
    }
    OPENSSL_cleanse(text, sizeof text);
    return rc;
}

static int load(struct rpc_security *sec, const char *path, char why[RPC_WHY_CHARS])
{
    int rc = rpc_security_load_token(sec, "token", path, why);
    sec->host_token = rc == 0;
    return rc;
}

int rpc_security_find_host_token(struct rpc_security *sec, char why[RPC_WHY_CHARS])
{
    char path[PATH_MAX];
    if (find_path(path) || access(path, F_OK))
        return 0;
    return load(sec, path, why);
}

int rpc_security_make_host_token(struct rpc_security *sec, char why[RPC_WHY_CHARS])
{
    char path[PATH_MAX] = "";
    int rc = find_path(path);
    if (rc == 0 && access(path, F_OK)) {
        rc = make_folders(path);
        if (rc == 0)
            rc = make_file(path);
    }
    if (rc == 0)
        return load(sec, path, why);
    snprintf(
        why, RPC_WHY_CHARS,
        "cannot make this user's token %.100s: %s; set XDG_STATE_HOME to a folder of your own, "
        "or give --token-file",
        path, strerror(-rc));
    return rc;
}
