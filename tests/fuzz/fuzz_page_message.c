/* What a worker and a scheduler take from each other: the first byte says which message it is.  A
 * command that is well formed is also obeyed, by tensors that do nothing. */
#include "page/message.h"
#include "page/tensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct page_command command;
static struct page_answer answer;
static struct page_info info;
static struct page_outcome outcome;
static uint8_t bytes[PAGE_COMMAND_BYTES_MAX];

static void must(bool so)
{
    if (!so)
        abort();
}

static struct page_tensors *tensors(void)
{
    static struct page_tensors *t;
    struct page_error why;
    struct page_tensors_config config = {.backend = &page_backend_null,
                                         .device = {.memory_bytes = UINT64_C(1) << 30},
                                         .layers = 2,
                                         .page_bytes = 1 << 20};
    if (!t)
        must(page_tensors_create(&config, &t, &why) == 0);
    return t;
}

/* What was decoded must encode to the same bytes: there is one way to say a thing. */
static void check_same(const struct wire_enc *e, const uint8_t *data, size_t size)
{
    must(wire_enc_error(e) == 0);
    must(wire_enc_len(e) == size && memcmp(wire_enc_data(e), data, size) == 0);
}

static void try_command(const uint8_t *data, size_t size)
{
    struct wire_enc e;
    if (page_command_decode(data, size, &command))
        return;
    wire_enc_init_fixed(&e, bytes, sizeof bytes);
    page_command_encode(&command, &e);
    check_same(&e, data, size);
    struct page_tensors *t = tensors();
    page_tensors_clear(t, &outcome);
    if (command.op == PAGE_OP_MAP && page_tensors_map(t, command.ids, command.count, &outcome) == 0)
        must(page_tensors_undo(t, &outcome) == 0 && page_tensors_mapped(t) == 0);
    if (command.op == PAGE_OP_UNMAP)
        must(page_tensors_unmap(t, command.ids, command.count, &outcome) != 0);
}

static void try_answer(const uint8_t *data, size_t size)
{
    uint32_t count = size ? data[0] : 0;
    struct wire_enc e;
    if (size == 0 || page_answer_decode(data + 1, size - 1, count, &answer))
        return;
    wire_enc_init_fixed(&e, bytes, sizeof bytes);
    page_answer_encode(&answer, &e);
    must(wire_enc_error(&e) == 0);
    must(page_answer_decode(wire_enc_data(&e), wire_enc_len(&e), count, &answer) == 0);
}

static void try_info(const uint8_t *data, size_t size)
{
    struct wire_enc e;
    if (page_info_decode(data, size, &info))
        return;
    wire_enc_init_fixed(&e, bytes, sizeof bytes);
    page_info_encode(&info, &e);
    check_same(&e, data, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] % 3 == 0)
        try_command(data + 1, size - 1);
    else if (data[0] % 3 == 1)
        try_answer(data + 1, size - 1);
    else
        try_info(data + 1, size - 1);
    return 0;
}
