#include "cli/model_convert.h"

#include "base/report/progress.h"
#include "base/units.h"
#include "llm/convert/import.h"
#include "llm/convert/quantise.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static void draw_progress(void *user, uint64_t done, uint64_t total)
{
    (void)total;
    hw_progress_update(user, done);
}

static enum cmd_exit unknown_type(const char *verb, const char *type)
{
    char known[256] = "";
    const char *name;
    for (size_t i = 0; (name = llm_recipe_name(i)); i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "", name);
    }
    return cmd_fail(CMD_USAGE, "model %s: --type %s is not known; there are %s", verb, type, known);
}

enum cmd_exit model_quantise(const struct model_convert *c)
{
    char why[LLM_WHY_CHARS], size[HW_FORMAT_CHARS];
    if (!c->type)
        return cmd_fail(CMD_USAGE, "model quantise: --type is missing");
    struct llm_quantise q = {.recipe = llm_recipe_find(c->type),
                             .overwrite = c->force,
                             .threads = c->threads,
                             .progress = draw_progress};
    struct llm_file *file;
    if (!q.recipe)
        return unknown_type("quantise", c->type);
    if (llm_file_open(c->from, &file, why))
        return cmd_fail(CMD_FAILED, "%s", why);
    struct hw_progress progress;
    uint64_t bytes = llm_quantise_bytes(&q, file);
    hw_progress_begin(&progress, "writing", bytes);
    q.user = &progress;
    int err = llm_quantise_write(&q, file, c->to, why);
    hw_progress_end(&progress);
    llm_file_close(file);
    if (err)
        return cmd_fail(CMD_FAILED, "model quantise: %s", why);
    printf("made %s: %s of %s\n", c->to, hw_format_size(size, bytes), c->type);
    return CMD_DONE;
}

/* FOLDER.gguf, beside the folder. */
static void name_beside(const char *folder, char path[PATH_MAX])
{
    size_t chars = strlen(folder);
    while (chars > 1 && folder[chars - 1] == '/')
        chars--;
    snprintf(path, PATH_MAX, "%.*s.gguf", (int)chars, folder);
}

enum cmd_exit model_import(const struct model_convert *c)
{
    char why[LLM_WHY_CHARS], size[HW_FORMAT_CHARS], beside[PATH_MAX];
    struct llm_imported made;
    struct hw_progress progress;
    if (c->type)
        return cmd_fail(CMD_USAGE, "model import: --type is not for import, which keeps the types; "
                                   "quantise the result");
    name_beside(c->from, beside);
    struct llm_import import = {.folder = c->from,
                                .path = c->to ? c->to : beside,
                                .overwrite = c->force,
                                .progress = draw_progress,
                                .user = &progress};
    hw_progress_begin(&progress, "writing", 0);
    int err = llm_import_write(&import, &made, why);
    hw_progress_end(&progress);
    if (err)
        return cmd_fail(CMD_FAILED, "model import: %s", why);
    printf("made %s: %s, %u tensors, %s\n", import.path, made.arch, made.tensors,
           hw_format_size(size, made.bytes));
    return CMD_DONE;
}
