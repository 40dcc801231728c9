/* cli/model_convert.h - the parts of `hawser model` that write one model file from another.
 *
 * Threads: one. */
#ifndef HAWSER_CLI_MODEL_CONVERT_H
#define HAWSER_CLI_MODEL_CONVERT_H

#include "command/command.h"

struct model_convert {
    const char *from, *to; /* import: to may be NULL, for a file named as the folder */
    const char *type;      /* NULL: not given */
    bool force;
    unsigned threads; /* 0: the cores there are */
};

enum cmd_exit model_quantise(const struct model_convert *convert);
enum cmd_exit model_import(const struct model_convert *convert);

#endif
