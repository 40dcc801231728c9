/* command/llm_client.h - a client of a served model: no model file, one exchange a text.
 *
 * The vocabulary, the chat template and the context come from the worker.  Text goes out as tokens
 * arrive; a stop string is never shown, not even in part.
 *
 * Trust: the worker is a peer; what it sends is checked by the layers below.  On a terminal control
 * characters of the text become '?'.
 * Threads: one at a time; text goes out on the connection's thread.  Lifetime: open/close. */
#ifndef HAWSER_COMMAND_LLM_CLIENT_H
#define HAWSER_COMMAND_LLM_CLIENT_H

#include "command/command.h"
#include "command/connect.h"
#include "llm/chat/answer.h"
#include "llm/client/connection.h"
#include "llm/tokenizer/vocab.h"

#include <signal.h>
#include <stdio.h>

struct llm_client {
    const char *command; /* "llm", for messages */
    struct llm_connection *conn;
    struct llm_served_model model;
    uint8_t *header;
    struct llm_file *file;
    struct llm_vocab *vocab;
    char address[RPC_ADDR_HOST_CHARS + 16]; /* canonical */
    char why[LLM_WHY_CHARS];
};

/* A text to generate. */
struct llm_client_text {
    const uint32_t *tokens;
    uint32_t token_count;
    uint32_t most; /* tokens; 0: until the context is full */
    struct llm_sampling sampling;
    bool ignore_end;
    const struct cmd_list *stops; /* strings; NULL: none */
    bool begins;                  /* nothing is shown before it: a leading space is dropped */
    const char *before;           /* shown before the first token; NULL: nothing */
    FILE *out;                    /* NULL: nowhere; one that cannot be written ends the text */
    struct llm_answer *answer;    /* tells reasoning apart, which is shown on a terminal only, dim;
                                     NULL: there is none */
    const volatile sig_atomic_t *interrupted; /* NULL: nobody interrupts; else ends the text when
                                               * it is not 0 */
};

struct llm_client_figures {
    struct llm_generate_end end;
    bool stopped, interrupted;   /* by a stop string; by the user */
    uint64_t first_ns, total_ns; /* since the request */
    uint32_t first_count;        /* tokens that came with the first */
    uint64_t sent, received;     /* bytes of the connection */
    char *text;                  /* what was shown but reasoning; heap */
    size_t text_len;
};

/* Only connects.  address NULL: the first that answers of those that the environment names.
 * canonical (may be NULL): the address as rpc/transport/addr.h writes it.  CMD_DONE, or the exit
 * status after a message. */
enum { LLM_CLIENT_ADDRESS_CHARS = RPC_ADDR_HOST_CHARS + 16 };
enum cmd_exit llm_client_connect(const char *command, const struct cmd_connect_options *connect,
                                 const char *address, char canonical[LLM_CLIENT_ADDRESS_CHARS],
                                 struct llm_connection **out);

/* address NULL: the default one.  model NULL: the first that is served.  CMD_DONE, or the exit
 * status after a message. */
enum cmd_exit llm_client_open(struct llm_client *c, const char *command,
                              const struct cmd_connect_options *connect, const char *address,
                              const char *model);
void llm_client_close(struct llm_client *c);

/* Text to tokens, control tokens by their names, with the first token that the model asks for.
 * *tokens is the caller's to free.  CMD_DONE, or the exit status after a message. */
enum cmd_exit llm_client_encode(const struct llm_client *c, const char *text, size_t bytes,
                                uint32_t **tokens, uint32_t *count);

/* Generates; returns at the end of the text.  CMD_DONE, or the exit status after a message; the
 * figures are filled in both cases, as far as the text came. */
enum cmd_exit llm_client_generate(struct llm_client *c, const struct llm_client_text *text,
                                  struct llm_client_figures *figures);
/* Generated text, as it comes: on a terminal '?' stands for what would drive it.  *before: the last
 * byte, '\0' at first, since a character may come in two parts. */
void cmd_put_generated(FILE *out, bool is_terminal, char *before, const char *bytes, size_t len);
void llm_client_figures_fini(struct llm_client_figures *figures);
/* A few lines, or a JSON object. */
void llm_client_print_figures(const struct llm_client *c, const struct llm_client_figures *f,
                              bool json, FILE *out);

#endif
