/* llm/convert/quantise.h - a GGUF file written again with its matrices in other types.
 *
 * Weights are read from the mapped file, some rows at a time; what is held beside it does not
 * depend on the model's size.  The same file and type give the same bytes with any number of
 * threads.
 *
 * Trust: the file is hostile; it is opened as llm/model/file.h does.
 * Threads: any; it starts its own.  Lifetime: nothing is held between calls. */
#ifndef HAWSER_LLM_CONVERT_QUANTISE_H
#define HAWSER_LLM_CONVERT_QUANTISE_H

#include "base/attr.h"
#include "llm/convert/recipe.h"
#include "llm/model/file.h"

struct llm_quantise {
    const struct llm_recipe *recipe;
    bool overwrite;                                              /* what is at the path */
    unsigned threads;                                            /* 0: the cores there are */
    void (*progress)(void *user, uint64_t done, uint64_t total); /* bytes of the result; or NULL */
    void *user;
};

/* Bytes of the result's weights. */
uint64_t llm_quantise_bytes(const struct llm_quantise *q, const struct llm_file *file);

/* 0; -EOPNOTSUPP (why: the file has no metadata to copy, or a tensor that would be rounded a second
 * time); -EPROTO (a weight that is no finite number); -EEXIST; -ENOSPC; -ENOMEM, -EIO and the
 * errors of open and rename.  On an error nothing is left behind. */
int llm_quantise_write(const struct llm_quantise *q, const struct llm_file *file, const char *path,
                       char *why) MUST_CHECK;

#endif
