#include "llm/convert/json_file.h"

#include "llm/model/why.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_all(int fd, const char *path, char **out, size_t *bytes, char *why)
{
    struct stat st;
    if (fstat(fd, &st))
        return llm_why(why, -errno, "cannot look at %s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_size > LLM_JSON_BYTES_MAX)
        return llm_why(why, -EPROTO, "%s is %s", path,
                       S_ISREG(st.st_mode) ? "larger than 256 MiB" : "no regular file");
    size_t size = (size_t)st.st_size, done = 0;
    char *text = malloc(size + 1);
    if (!text)
        return llm_why(why, -ENOMEM, "out of memory for %s", path);
    while (done < size) {
        ssize_t some = read(fd, text + done, size - done);
        if (some <= 0) {
            free(text);
            return llm_why(why, some ? -errno : -EIO, "cannot read %s", path);
        }
        done += (size_t)some;
    }
    text[size] = 0;
    *out = text;
    *bytes = size;
    return 0;
}

int llm_text_load(const char *folder, const char *name, char **out, size_t *bytes, char *why)
{
    char *path;
    if (asprintf(&path, "%s/%s", folder, name) < 0)
        return llm_why(why, -ENOMEM, "out of memory");
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), err;
    if (fd < 0) {
        err = llm_why(why, -errno, "cannot open %s: %s", path, strerror(errno));
    } else {
        err = read_all(fd, path, out, bytes, why);
        close(fd);
    }
    free(path);
    return err;
}

int llm_json_load(const char *folder, const char *name, json_t **out, char *why)
{
    char *text;
    size_t bytes;
    int err = llm_text_load(folder, name, &text, &bytes, why);
    if (err)
        return err;
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (!root)
        return llm_why(why, -EPROTO, "%s/%s: line %d: %s", folder, name, error.line, error.text);
    if (!json_is_object(root)) {
        json_decref(root);
        return llm_why(why, -EPROTO, "%s/%s is no JSON object", folder, name);
    }
    *out = root;
    return 0;
}
