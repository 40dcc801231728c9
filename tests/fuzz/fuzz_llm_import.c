/* A published model, as four files with a NUL behind each of the first three: config.json,
 * tokenizer.json, tokenizer_config.json and model.safetensors.  What is made of them can be opened.
 */
#include "folder.h"
#include "fuzz.h"

#include "llm/convert/import.h"
#include "llm/model/file.h"

#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[LLM_WHY_CHARS], to[64];
    folder_take("config.json", &data, &size);
    folder_take("tokenizer.json", &data, &size);
    folder_take("tokenizer_config.json", &data, &size);
    folder_put("model.safetensors", data, size);
    require(snprintf(to, sizeof to, "%s", folder_file("out.gguf")) < (int)sizeof to);
    struct llm_imported imported;
    struct llm_import import = {.folder = folder_path(), .path = to, .overwrite = true};
    struct llm_file *file;
    if (llm_import_write(&import, &imported, why) == 0) {
        require(llm_file_open(to, &file, why) == 0);
        require(llm_file_tensor_count(file) == imported.tensors);
        llm_file_close(file);
    }
    return 0;
}
