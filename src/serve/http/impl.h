/* serve/http/impl.h - what the files of the front share.
 *
 *   front.c      starting and stopping, and the thread that watches clients and the clock
 *   config.c     what the user gave for it, checked
 *   clients.h    connections of clients; budget.h: bytes that requests may take together
 *   lock.c       the lock, and what is done when it is given up
 *   exchange.c   one HTTP request: its body, its route, its answer
 *   answer/      JSON: completions, chats, chunks, usage, errors, embeddings; the text of an answer
 *   forms/       chats in other forms: the Responses API, Anthropic's Messages API
 *   generation.c a request for texts, from its tokens to its choices
 *   cors.c       pages of other origins in a browser
 *   state.c      the page for people, and figures for Prometheus
 *   workers/list.c       which workers there are
 *   workers/connect.c    connections to workers, one thread each
 *   workers/assign.c     whose text is next; gives texts to workers
 *   workers/sequence.c   one text: at a worker, going on at another
 *   workers/queue.c      texts that wait for a worker
 *   workers/router.c     which worker
 *   workers/models.c     what the workers serve; workers/model.c: one of it
 *   workers/worker.c     what is known of one worker
 *
 * Calls go down this list of workers/, and from the other files into it.
 *
 * Threads: `lock` guards everything below, but what says otherwise.  The order of locks: `lock`,
 * then those of llm/client/connection.h and of libmicrohttpd.  Calls that may wait for a worker's
 * socket (start, cancel) are queued as actions and run without the lock. */
#ifndef HAWSER_SERVE_HTTP_IMPL_H
#define HAWSER_SERVE_HTTP_IMPL_H

#include "base/clock.h"
#include "llm/chat/answer.h"
#include "llm/client/connection.h"
#include "llm/model/file.h"
#include "llm/tokenizer/vocab.h"
#include "serve/http/answer/text.h"
#include "serve/http/budget.h"
#include "serve/http/clients.h"
#include "serve/http/front.h"
#include "serve/http/keys.h"
#include "serve/http/request.h"
#include "serve/http/stats.h"
#include "wire/enc.h"

#include <microhttpd.h>
#include <pthread.h>
#include <sys/queue.h>
#include <time.h>

enum {
    HTTP_WORKERS_MAX = 64,
    HTTP_MODELS_MAX = 64,       /* of all workers together */
    HTTP_WORKER_TEXTS_MAX = 64, /* at one worker: what it takes of one client */
    HTTP_IMBALANCE_MAX = 4,     /* texts that a worker may have more than the idlest one and
                                 * still get another for the sake of its prefix */
    HTTP_LOSSES_MAX = 3,        /* workers that a text may lose without a token between: it may
                                 * be what kills them */
    HTTP_LOSSES_STEADY = 2,     /* from then on it goes to no worker that has just come back */
    HTTP_CHUNKS_BYTES_MAX = 64 << 20,  /* formatted at once: more than a context's text with its
                                        * logprobs */
    HTTP_BODIES_BYTES_MAX = 256 << 20, /* of requests that are being read, together */
    HTTP_PARSED_BYTES_MAX = 1 << 30,   /* of requests under way: a number of 2 bytes takes 40 */
    HTTP_BODY_BYTES_SMALL = 64 << 10,  /* of one: does not count among these */
    HTTP_SPARE_CONNECTIONS = 1024, /* beside those with a request: idle ones of browsers, pools */
    HTTP_PREFIX_TOKENS = 32,       /* a prefix is known by so many tokens, and multiples */
    HTTP_PREFIX_BLOCKS_MAX = 64,   /* beyond these a prompt's prefix is not distinguished */
    HTTP_PREFIX_ENTRIES = 1 << 14, /* 256 KiB; an older one gives way */
};

#define HTTP_DESCRIBE_NS HW_SEC     /* between two looks at a worker */
#define HTTP_HANG_NS (3 * HW_SEC)   /* without an answer to one: the worker hangs */
#define HTTP_STEP_NS (60 * HW_SEC)  /* in one step: its device hangs */
#define HTTP_FIRST_NS (2 * HW_SEC)  /* that the first requests wait for the first worker */
#define HTTP_STEADY_NS (5 * HW_SEC) /* that a text which lost workers waits for a steady one */
#define HTTP_RETRY_MIN_NS (100 * HW_MS)
#define HTTP_INSPECT_NS (500 * HW_MS) /* for an answer that only people need */
#define HTTP_WATCH_NS (5 * HW_SEC)    /* that somebody who looked is thought to look still */
#define HTTP_RETRY_MAX_NS HW_SEC
#define HTTP_HANDSHAKE_NS (500 * HW_MS) /* by rpc/patience.h */
#define HTTP_GOODBYE_NS (2 * HW_SEC)    /* that a front which stops waits for clients to read why */

/* What is done when the lock is given up, by whoever gives it up: it may wait for a worker's
 * socket, or it concerns other requests' texts. */
struct http_action {
    struct http_action *next;
    bool queued;
    void (*act)(struct http_front *f, struct http_action *a); /* under the lock; clears `queued` */
};

struct http_route;
struct http_exchange;

/* A model that some worker serves or has served; kept until the front stops. */
struct http_model {
    char name[LLM_SERVED_NAME_CHARS];
    char arch[32];
    uint8_t hash[LLM_SERVED_HASH_BYTES];
    uint32_t context; /* as the worker told that it is known from */
    time_t created;
    uint8_t *header; /* the file's, which `file` points into */
    struct llm_file *file;
    struct llm_vocab *vocab; /* NULL: no vocabulary, and no_vocab says why */
    char no_vocab[LLM_WHY_CHARS];
    struct llm_chat *chat; /* NULL: none, and no_chat says why */
    char no_chat[LLM_WHY_CHARS];
    struct http_model_stats stats;
    uint64_t full; /* the last walk (http_front) that found no place for a new text of it */
};

struct http_attempt;

enum http_worker_state { HTTP_WORKER_DOWN, HTTP_WORKER_UP };

struct http_worker {
    struct http_front *front;
    uint32_t index;
    struct rpc_addr addr;
    char name[RPC_ADDR_HOST_CHARS + 16];
    pthread_t thread;
    pthread_cond_t wake; /* its thread: look now, or stop */
    enum http_worker_state state;
    bool left;                   /* it is no worker any more: it gets no new text */
    bool tried;                  /* it was up, or could not be reached */
    uint64_t doubts;             /* texts that it lost: each asks for a look at once */
    uint64_t looked;             /* doubts when the last look began that found it well */
    uint64_t tells;              /* ends of texts that told that it drains or has no room */
    struct llm_connection *conn; /* while users > 0 or state is up */
    uint32_t users;              /* threads in a call of conn */
    pthread_cond_t unused;       /* users is 0 */
    struct llm_served served;    /* as it said last */
    struct http_model *models[LLM_SERVED_MODELS_MAX];
    struct llm_inspection *inspection; /* the last one, heap; NULL: nobody has looked */
    uint32_t texts;                    /* that run there for us */
    uint32_t others;                   /* that ran there for others when it was last asked */
    uint64_t busy_until;               /* it refused one for want of room */
    uint64_t took_ns;                  /* when it last got a text */
    uint64_t losses;                   /* connections that ended */
    uint64_t cuts;                     /* of these, not because the worker hung */
    uint64_t up_ns;                    /* when it last came up */
    char why[LLM_WHY_CHARS];           /* it is down */
};

/* How a text ended for its client. */
enum http_finish { HTTP_FINISH_NONE, HTTP_FINISH_STOP, HTTP_FINISH_LENGTH, HTTP_FINISH_ERROR };

/* A worker that a text was at.  Its process lives if the worker is found with the same incarnation
 * after another cut: then only the connection was lost. */
struct http_place {
    uint32_t worker;      /* its index */
    uint64_t incarnation; /* 0: it was lost otherwise */
    uint64_t cuts;
};

struct http_sequence;

struct http_sequence_ops {
    /* Under the lock. */
    void (*on_tokens)(struct http_sequence *s, const struct llm_generated *tokens, uint32_t count);
    /* The next tokens of the prompt, where it is scored. */
    void (*on_scores)(struct http_sequence *s, const struct llm_generated *tokens, uint32_t count);
    void (*on_end)(struct http_sequence *s, enum http_finish finish);
};

/* The texts of one request, which are all of one model and one key.  While one of them is at a
 * worker, the others wait for a place beside it, and not for a worker. */
struct http_siblings {
    struct http_sequence *waiting, **waiting_end; /* those that were at workers are the first */
    struct http_siblings *next, **to;             /* in the key's line, while some wait */
    uint32_t at_workers;
    uint64_t left_ns; /* when one last left a worker */
};

/* One text under way; a part of its owner's struct. */
struct http_sequence {
    struct http_front *front;
    const struct http_sequence_ops *ops;
    struct http_model *model;
    struct http_key *key;
    struct http_siblings *siblings;
    struct llm_generate request; /* tokens, token_count and most are filled in for each attempt */
    uint32_t *tokens;            /* prompt, then what was generated: the log */
    uint32_t token_count;
    size_t token_room;
    uint32_t prompt_count;
    uint32_t most;   /* tokens of the answer at most */
    uint32_t scored; /* of the prompt; the first has no logprob.  0: it is not asked for */
    char arithmetic[sizeof(((struct llm_served_model *)0)->arithmetic)]; /* "": any */
    struct http_attempt *attempt;     /* NULL: waits, or has ended */
    struct http_sequence *next, **to; /* among its siblings that wait; to NULL: it does not */
    uint64_t held;                    /* of the key's positions, while there is an attempt */
    uint64_t started_ns, waits_ns, first_ns, last_ns;
    uint64_t due_ns; /* while it waits: it does not wait too long before */
    uint32_t losses; /* since the last token */
    struct http_place lost[HTTP_LOSSES_MAX + 1];
    uint64_t refused; /* a bit for each worker that is too small for it */
    uint32_t attempts;
    uint32_t shared; /* tokens of the prompt whose KV a worker had, as it said at the end */
    bool stopped;    /* its owner has all of it, and waits for the worker's end */
    bool ended;
    float *vector; /* of an embedding that has ended */
    uint32_t width;
    struct http_error error; /* of HTTP_FINISH_ERROR */
};

/* A text at a worker, from the request there to its end there. */
struct http_attempt {
    struct http_action action; /* starts or cancels it */
    struct http_front *front;
    struct http_worker *worker;
    struct http_sequence *sequence; /* NULL: its owner does not want it any more */
    struct http_place place;
    uint64_t id;  /* at the connection */
    bool stays;   /* the worker drained already: it completes what no other one can */
    bool started; /* the call that starts it has returned */
    bool cancel;  /* wanted; done when started */
    bool over;    /* on_end has come, or it could not start */
};

struct http_prefix {
    uint64_t hash;
    uint32_t worker; /* its index + 1; 0: empty */
};

/* What the user gave, and what is in the files that it names. */
struct http_config {
    struct http_front_options options;
    struct http_options limits;
    struct rpc_addr addr;
    struct http_keys keys;
    char *cert, *key; /* PEM texts */
};

struct http_front {
    struct http_config config;
    struct MHD_Daemon *daemon;
    struct http_clients clients;
    struct http_budget bodies; /* of all requests that are being read */
    struct http_budget parsed; /* of all that are under way */
    pthread_mutex_t lock;      /* of what follows */
    bool finishing;            /* it takes no new texts */
    bool stopping;
    struct http_worker *workers; /* HTTP_WORKERS_MAX */
    size_t worker_count;
    pthread_cond_t tried; /* a worker was tried for the first time */
    struct http_model *models[HTTP_MODELS_MAX];
    size_t model_count;
    struct http_key nobody;   /* of all requests, where no key is asked for */
    struct http_key *waiting; /* keys with texts that wait */
    uint64_t passes, served;  /* of http_assign: calls, texts */
    uint64_t walks, looks;    /* along the line of one key; at a text there */
    struct http_action *actions, **actions_end;
    struct http_action assign; /* gives waiting texts to workers */
    struct http_prefix *prefixes;
    struct http_exchange *exchanges; /* that have texts */
    pthread_cond_t ended;            /* there are none any more */
    uint64_t exchange_ids;
    uint32_t running; /* requests with texts under way */
    uint64_t started_ns;
    uint64_t watched_ns; /* when somebody last asked for the map of KV */
    int watch;           /* epoll: clients that may leave */
    int wake;            /* eventfd: the watching thread */
    pthread_t watcher;
    bool watcher_runs;
};

/* ---- config.c ---- */

/* CMD_DONE, or the exit status after a message.  To be ended in any case; begins as zeros. */
enum cmd_exit http_config_read(struct http_config *c,
                               const struct http_front_options *options) MUST_CHECK;
void http_config_fini(struct http_config *c);
/* Of clients, at most. */
unsigned http_config_connections(const struct http_config *c);
/* Tells what is allowed and unwise. */
void http_config_warn(const struct http_config *c);

/* ---- lock.c ---- */

void http_lock(struct http_front *f);
/* Does what is to be done soon: may wait for a worker's socket. */
void http_unlock(struct http_front *f);
/* Under the lock; of one that is queued already: nothing. */
void http_do_soon(struct http_front *f, struct http_action *a);

/* ---- model.c ---- */

/* The model that a worker describes, known already or made from the header that the worker sends.
 * Without the lock, by the worker's thread.  NULL: why. */
struct http_model *http_model_get(struct http_front *f, struct llm_connection *conn,
                                  const struct llm_served_model *served, char *why);
void http_model_destroy(struct http_model *m);

/* ---- models.c ---- */

/* Right after the start: until each worker was tried, or the name (NULL: none) is known.  Under the
 * lock. */
void http_models_wait(struct http_front *f, const char *name);
/* By name; "" or NULL: the only one.  NULL after a refusal.  Under the lock; it may wait, as
 * above. */
struct http_model *http_model_find(struct http_front *f, const char *name, struct http_error *why);
/* The largest context of workers that take texts of it; where none does, of all that are known.
 * Under the lock. */
uint32_t http_model_context(const struct http_front *f, const struct http_model *m);
/* A worker that serves it is up.  Under the lock. */
bool http_model_is_up(const struct http_front *f, const struct http_model *m);

/* ---- worker.c ---- */

/* The index of the model there, or -1. */
int http_worker_model(const struct http_worker *w, const struct http_model *m);
/* It lost a text: its thread looks at once, and until it has the worker gets no other.  Under the
 * lock. */
void http_worker_doubt(struct http_worker *w);
bool http_worker_is_doubted(const struct http_worker *w);
/* A text's end told that it drains or is incomplete: its thread looks at once, and no new text goes
 * there until it describes itself anew.  Under the lock. */
void http_worker_drains(struct http_worker *w);
/* As it described itself.  Under the lock. */
bool http_worker_takes_texts(const struct http_worker *w);

/* ---- connect.c ---- */

int http_worker_start(struct http_worker *w) MUST_CHECK;
/* Waits for its thread; without the lock, after `stopping` is set. */
void http_worker_stop(struct http_worker *w);

/* ---- list.c ---- */

/* Those of the options.  0 or a negative errno: some may have been started. */
int http_workers_start(struct http_front *f) MUST_CHECK;
/* As http_worker_stop, and frees them. */
void http_workers_stop(struct http_front *f);

/* ---- router.c: under the lock ---- */

/* The worker for a text; NULL: none now. */
struct http_worker *http_route(struct http_front *f, const struct http_sequence *s);
/* No worker has a place for a new text of its model, however short. */
bool http_route_full(const struct http_front *f, const struct http_sequence *s);
/* The worker is too small for the text, which is not offered to it again.  Whether another can take
 * it, perhaps once it is up again. */
bool http_route_refuse(struct http_front *f, struct http_sequence *s, const struct http_worker *w);
/* When a worker that could compute it last got a text; 0: never. */
uint64_t http_route_took(const struct http_front *f, const struct http_sequence *s);
/* A worker has this text's prompt from now on. */
void http_route_note(struct http_front *f, const struct http_sequence *s,
                     const struct http_worker *w);

/* ---- sequence.c: under the lock ---- */

/* The caller has filled in front, key, siblings, ops, model, request, most, and the log with the
 * prompt, which becomes the sequence's.  on_end follows, exactly once, unless it is dropped before.
 * It waits for http_assign, so that many are begun together. */
void http_sequence_start(struct http_sequence *s);
/* Its text is complete for its owner, who is told so: the worker is told to stop.  After a stop the
 * owner may be told when the worker has stopped, and gets no tokens until then. */
void http_sequence_finish(struct http_sequence *s, enum http_finish how);
/* Its owner wants it no more.  No callback comes. */
void http_sequence_drop(struct http_sequence *s);
/* Forgets losses where it turned out that the worker lives and only its connection was cut. */
void http_sequence_forgive(struct http_sequence *s);
/* Gives a text that waits to a worker.  0 or -ENOMEM: it still waits. */
int http_sequence_assign(struct http_sequence *s, struct http_worker *w) MUST_CHECK;
/* No worker will take a text: it is refused with this.  NULL: it may wait for one. */
const char *http_drained(const struct http_front *f);
/* Ends texts that waited too long; when the next one will have: HW_NEVER where none waits. */
uint64_t http_sequences_expire(struct http_front *f, uint64_t now);
void http_sequence_fini(struct http_sequence *s);

/* ---- queue.c: under the lock ---- */

/* first: before the others of its key. */
void http_queue_add(struct http_sequence *s, bool first);
void http_queue_remove(struct http_sequence *s); /* of one that does not wait: nothing */
/* All that wait, one after the other; NULL: no more. */
struct http_sequence *http_queue_first(const struct http_front *f);
struct http_sequence *http_queue_next(const struct http_sequence *s);

/* ---- assign.c: under the lock ---- */

/* Gives waiting texts to workers. */
void http_assign(struct http_front *f);
/* The same as an action, for those that assign.c calls. */
void http_assign_waiting(struct http_front *f, struct http_action *a);

/* ---- exchange.c ---- */

/* A token's logarithm of probability, and where its text begins: of the answer in bytes, and of
 * prompt and answer in characters. */
struct http_logprob {
    uint32_t token;
    float logprob; /* NAN: it has none, as the first of a prompt */
    size_t start, offset;
    struct llm_logprob *top; /* heap */
    uint32_t top_count;
};

/* One text of an answer. */
struct http_choice {
    struct http_sequence sequence;
    struct http_exchange *exchange;
    uint32_t index;
    uint32_t prompt; /* which of the request's */
    struct http_text text;
    size_t fed;                 /* bytes of the text that were looked at for what follows */
    struct llm_answer *answer;  /* finds reasoning in the text; NULL: not looked for */
    struct http_text reasoning; /* what the text begins with */
    uint32_t reasoning_tokens;
    struct llm_tools *tools;  /* finds calls in the text; NULL: not asked for */
    struct http_text content; /* what is left of it where reasoning or calls are looked for */
    struct http_logprob *logprobs;
    uint32_t logprob_count;
    size_t logprob_room;
    uint32_t prompt_logprobs; /* the first ones are of the prompt */
    struct http_text scored;  /* the prompt's text as far as it is scored */
    size_t text_sent;         /* to a client that streams, as all below */
    size_t reasoning_sent;
    uint32_t logprobs_sent;
    size_t calls_begun, arguments_sent; /* arguments: of the last one that was begun */
    size_t calls_ended, message_at;     /* Responses API: message_at: its place among the items */
    const char *block;                  /* Messages API: the kind that is open; NULL: none */
    bool reasoning_begun, reasoning_ended;
    bool begun, finish_sent;
    enum http_finish finish; /* HTTP_FINISH_NONE: it runs */
};

/* One HTTP request, from its first line to the end of its answer. */
struct http_exchange {
    struct http_front *front;
    struct MHD_Connection *connection;
    const struct http_route *route;
    char rest[LLM_SERVED_NAME_CHARS]; /* of the path, after the route's */
    struct http_key *key;             /* the front's nobody where none is asked for */
    char *body;
    size_t body_len, body_room;
    size_t body_taken;   /* of the room for all bodies */
    size_t parsed_taken; /* of that for requests under way */
    struct http_error error;
    const char *allow; /* the methods that the path takes */
    bool preflight;    /* it asks for these only: OPTIONS */
    /* Of a request for texts, under the front's lock: */
    uint64_t id; /* 0: it has none */
    struct http_exchange *next, **to;
    struct http_request request;
    struct http_model *model;
    uint32_t context;                       /* the model's when the request came */
    enum llm_tools_form form;               /* of the calls that are looked for */
    const struct llm_chat_marks *reasoning; /* that is looked for; NULL: none */
    char *grammar;                          /* of a schema or of calls, in GBNF; NULL: none */
    struct http_choice *choices;
    uint32_t choice_count, open; /* open: that run */
    struct http_siblings siblings;
    uint32_t prompt_tokens;
    char name[48]; /* cmpl-... */
    time_t created;
    int fd; /* watched for its end; -1: not */
    bool started, suspended, gone, done_sent;
    uint64_t late;       /* bytes of a stream that were sent after its texts had ended */
    struct wire_enc out; /* of a stream: formatted; up to out_at it was taken */
    size_t out_at;
    char *chunk_begin; /* what all chunks begin with; NULL: not made yet */
    size_t chunk_begin_len;
    uint64_t events; /* of the Responses API: sent; of the Messages API: blocks that were begun */
};

enum MHD_Result http_exchange_handle(void *front, struct MHD_Connection *c, const char *url,
                                     const char *method, const char *version, const char *body,
                                     size_t *body_len, void **state);
void http_exchange_completed(void *front, struct MHD_Connection *c, void **state,
                             enum MHD_RequestTerminationCode code);
/* Answers all that run with status 503, and waits for a while until that is sent: the daemon can
 * stop. Under the lock, which it gives up in between. */
void http_exchanges_end(struct http_front *f);
/* The client of this exchange is gone.  Under the lock. */
void http_exchange_gone(struct http_front *f, uint64_t id);

/* ---- cors.c ---- */

/* CMD_DONE, or the exit status after a message. */
enum cmd_exit http_cors_check(const char *command, const struct http_options *o) MUST_CHECK;
/* Any page may ask. */
bool http_cors_is_open(const struct http_options *o);
/* Adds what lets the client's page read the response, if it may. */
void http_cors_add(const struct http_exchange *x, struct MHD_Response *response);

/* ---- generation.c ---- */

extern const char http_stops[]; /* what a front that stops says to every request */

/* Parses the body and begins its texts.  0, or -1 and the exchange's error. */
int http_generation_start(struct http_exchange *x, enum http_api api) MUST_CHECK;
/* The same without texts: only its prompt_tokens are wanted. */
int http_generation_count(struct http_exchange *x, enum http_api api) MUST_CHECK;
/* Ends its texts and frees what it had.  Under the lock. */
void http_generation_drop(struct http_exchange *x);
void http_generation_fini(struct http_exchange *x);

/* What the client gets to see as text. */
const struct http_text *http_choice_text(const struct http_choice *choice);
/* That, or text, or reasoning. */
bool http_choice_has_news(const struct http_choice *choice);

/* Calls that are complete. */
size_t http_whole_calls(const struct http_choice *choice);
/* For a client that streams: so many bytes at *text are new, and count as sent from now on. */
size_t http_take_text(const struct http_text *t, size_t *sent, const char **text);
/* The same of a call's arguments, of the last call that was begun or the next; true: it begins. */
bool http_take_call(struct http_choice *choice, size_t call, const char **text, size_t *bytes);

/* Text to tokens, with the token that begins a text where the model wants it, and room for one
 * more. NULL after a refusal. */
uint32_t *http_encode(const struct http_model *m, const char *text, size_t bytes, bool begin,
                      uint32_t *count, struct http_error *why);

/* ---- json.c ---- */

/* Takes the object, which may be NULL.  *len bytes, malloc'd; there is no NUL.  NULL where memory
 * was short for it, or for what this thread has made for it. */
char *http_json_text(json_t *json, size_t *len);

/* ---- answer.c: JSON, malloc'd or NULL; under the lock ---- */

/* These two without it, when the exchange has no open text: its choices do not change any more. */
char *http_answer_whole(const struct http_exchange *x, size_t *len);
char *http_answer_embeddings(const struct http_exchange *x, size_t *len);
/* What is new for a client that streams, in x->out. */
void http_answer_chunks(struct http_exchange *x);
char *http_answer_models(struct http_front *f, size_t *len);
char *http_answer_model(const struct http_front *f, const struct http_model *m, size_t *len);
char *http_answer_error(const struct http_error *e, bool anthropic, size_t *len);
char *http_answer_count(const struct http_exchange *x, size_t *len); /* of the prompt's tokens */

/* ---- logprobs.c: under the lock ---- */

/* A chat's, as a list. */
json_t *http_chat_logprobs(const struct http_choice *choice, uint32_t from, uint32_t to);
json_t *http_text_logprobs(const struct http_choice *choice, uint32_t from, uint32_t to);
/* How many entries belong to the first `shown` bytes, `from` at least; all that remain at the end,
 * but those of a stop string. */
uint32_t http_logprobs_due(const struct http_choice *choice, uint32_t from, size_t shown,
                           bool last);

/* ---- stream.c ---- */

void http_put_text(struct wire_enc *out, const char *text);
void http_put_json(struct wire_enc *out, json_t *json); /* takes the object */
/* {"type": type, members...} as an event of that type; takes the members. */
void http_put_event(struct http_exchange *x, const char *type, json_t *members);

/* ---- forms/: the same of requests of the Responses API and the Messages API ---- */

json_t *http_responses_whole(const struct http_exchange *x);
void http_responses_events(struct http_exchange *x);
json_t *http_messages_whole(const struct http_exchange *x);
void http_messages_events(struct http_exchange *x);

/* ---- state.c ---- */

/* What the front adds to the pages (serve/http/pages.h). */
void http_state_print(void *front, enum hw_counters_format format, FILE *out);
/* What the page of a browser shows: workers, requests, tokens, times.  Malloc'd or NULL; under the
 * lock. */
/* map: with where the KV is, which workers are asked for from now on while somebody looks. */
char *http_state_json(struct http_front *f, bool map, size_t *len);
/* That page, from page.html. */
extern const char http_page_html[];
extern const size_t http_page_html_len;

#endif
