/* llm/convert/import.h - a GGUF file from a folder as models are published: config.json,
 * tokenizer.json and safetensors.
 *
 * Matrices keep their type (F32, F16 or BF16), vectors become F32.  Weights are read from mapped
 * files, some rows at a time; everything is checked against the architecture before the first byte
 * is written.
 *
 * Trust: the folder is hostile.  Threads: any.  Lifetime: nothing is held between calls. */
#ifndef HAWSER_LLM_CONVERT_IMPORT_H
#define HAWSER_LLM_CONVERT_IMPORT_H

#include "base/attr.h"
#include "llm/model/why.h"

#include <stdbool.h>
#include <stdint.h>

struct llm_import {
    const char *folder, *path;
    bool overwrite;                                              /* what is at the path */
    void (*progress)(void *user, uint64_t done, uint64_t total); /* bytes; or NULL */
    void *user;
};

struct llm_imported {
    const char *arch;
    uint64_t bytes; /* of weights */
    uint32_t tensors;
};

/* 0; -ENOENT (a file of the folder is missing: why names it); -EPROTO (damaged, or shapes that
 * contradict config.json); -EOPNOTSUPP (why names the architecture, tensor or feature); -EEXIST;
 * -ENOSPC; -ENOMEM, -EIO and errors of open and rename.  On an error nothing is left behind. */
int llm_import_write(const struct llm_import *import, struct llm_imported *out,
                     char *why) MUST_CHECK;

#endif
