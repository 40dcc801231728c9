/* Evicts and restores the KV of the worker's sequences. */
#include "llm/worker/kv_eviction.h"

#include "base/log.h"
#include "llm/model/why.h"
#include "llm/worker/impl.h"
#include "llm/worker/record.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PROMPT_ROWS = 32,     /* of a step that is timed: fewer are bound by reading the weights */
    RECORDS_ASKED = 16,   /* keys of records in one request */
    RECORDS_MAX = 1 << 16 /* of one sequence; each has more tokens than the last */
};

/* A record on its way to the store. */
struct llm_leaving {
    struct llm_shadow_question question; /* first: it is freed by it */
    struct kv_block_key key;
    uint32_t tokens; /* in it */
    struct wire_enc record;
};

/* The search for the record of a sequence. */
struct llm_adoption {
    struct llm_shadow_question question; /* first: it is freed by it */
    uint8_t handle[LLM_HANDLE_BYTES];
    uint32_t records; /* that the store has */
    struct llm_record record;
    bool decoded;
};

/* ---- life ---- */

int llm_worker_kv_open(struct llm_worker *w, char *why)
{
    const struct llm_worker_options *o = &w->options;
    struct llm_shadow_config config = o->shadow;
    config.wake = llm_worker_wake;
    config.wake_user = w;
    return o->shadow_ops ? llm_shadow_create(o->shadow_ops, &config, &w->kv.shadow, why) : 0;
}

void llm_worker_kv_close(struct llm_worker *w)
{
    llm_shadow_destroy(w->kv.shadow);
}

int llm_kv_time(struct llm_worker *w, struct llm_model *m, char *why)
{
    uint32_t context = llm_engine_context(m->engine);
    uint32_t rows = context < PROMPT_ROWS ? context : PROMPT_ROWS;
    uint64_t ns;
    if (!w->kv.shadow || w->options.untimed)
        return 0;
    int rc = llm_engine_time(m->engine, rows, &ns, why);
    m->row_ns = rc ? 0 : ns / rows;
    return rc;
}

/* Made on demand: naming the weights takes a pass over them. */
static struct llm_evictor *evictor_of(struct llm_worker *w, struct llm_model *m)
{
    char name[2 * LLM_HASH_BYTES + 1];
    const uint8_t *hash = llm_model_own_hash(m);
    for (int i = 0; i < LLM_HASH_BYTES; i++)
        snprintf(name + 2 * i, 3, "%02x", hash[i]);
    if (m->evictor)
        return m->evictor;
    if (llm_evictor_create(m->engine, w->kv.shadow, name, &m->evictor))
        return NULL;
    if (m->row_ns)
        llm_evictor_timed(m->evictor, 1, m->row_ns);
    return m->evictor;
}

static struct llm_eviction_policy policy_of(const struct llm_client *c, const struct llm_request *r)
{
    bool blind = r->method == LLM_METHOD_PREFILL_HANDLE;
    if (c->moved.policy.recovery)
        return c->moved.policy;
    return (struct llm_eviction_policy){.recovery = blind ? LLM_RECOVER_ALL : LLM_RECOVER_DELTA,
                                        .pack = blind ? LLM_PACK_NEVER : LLM_PACK_AUTO};
}

int llm_sequence_kv_begin(struct llm_worker *w, struct llm_client *c, struct llm_sequence *s,
                          const struct llm_request *r)
{
    if (!w->kv.shadow)
        return 0;
    struct llm_evictor *evictor = evictor_of(w, s->model);
    int rc =
        evictor ? llm_eviction_create(evictor, s->seq, policy_of(c, r), &s->kv.eviction) : -ENOMEM;
    if (rc == 0)
        rc = llm_eviction_add_tokens(s->kv.eviction, r->tokens, r->token_count);
    s->kv.prompt = r->token_count;
    return rc;
}

static void end_leaving(struct llm_worker *w, struct llm_sequence *s)
{
    if (s->kv.leaving)
        llm_shadow_ask_no_more(w->kv.shadow, &s->kv.leaving->question);
    s->kv.leaving = NULL;
}

void llm_sequence_kv_end(struct llm_worker *w, struct llm_sequence *s)
{
    end_leaving(w, s);
    llm_eviction_destroy(s->kv.eviction);
    s->kv.eviction = NULL;
}

/* ---- figures ---- */

static struct llm_client_kv_cache *figures_of(struct llm_worker *w, const struct llm_sequence *s)
{
    return s->owner ? &s->owner->moved : &w->kv.nobody;
}

static void add(_Atomic uint64_t *counter, uint64_t value)
{
    atomic_fetch_add_explicit(counter, value, memory_order_relaxed);
}

static void publish_figures(struct llm_worker *w, struct llm_model *m,
                            const struct llm_eviction_figures *f)
{
    hw_counter_bump(&w->counts[LLM_COUNT_KV_EVICTED], f->evicted_layers);
    hw_counter_bump(&w->counts[LLM_COUNT_KV_RESTORED], f->restored_layers);
    hw_counter_bump(&w->counts[LLM_COUNT_KV_FETCHED], f->fetched_bytes);
    hw_counter_bump(&w->counts[LLM_COUNT_KV_STORED], f->stored_bytes);
    hw_counter_bump(&w->counts[LLM_COUNT_KV_LOST], f->lost_chunks);
    if (f->fetched_bytes)
        hw_buckets_note(&m->notes[LLM_NOTE_FETCHED], f->fetched_bytes);
    if (f->stored_bytes)
        hw_buckets_note(&m->notes[LLM_NOTE_STORED], f->stored_bytes);
}

static void count_figures(struct llm_worker *w, const struct llm_sequence *s,
                          const struct llm_eviction_figures *f)
{
    struct llm_client_kv_cache *to = figures_of(w, s);
    bool whole = llm_eviction_policy(s->kv.eviction).recovery == LLM_RECOVER_ALL;
    enum llm_kv_kind kind = whole ? LLM_KV_WHOLE : LLM_KV_PARTS;
    add(&to->fetched[kind], f->fetched_bytes + f->kept_bytes);
    add(&to->stored[kind], f->stored_bytes);
    llm_eviction_figures_add(&to->figures, f);
    publish_figures(w, s->model, f);
}

/* Counts the stores that finished since the last step. */
static void reap_all(struct llm_worker *w)
{
    for (struct llm_sequence *s = w->kv.shadow ? w->sequences : NULL; s; s = s->next) {
        struct llm_eviction_figures f = {0};
        if (!s->kv.eviction)
            continue;
        llm_eviction_reap(s->kv.eviction, &f);
        count_figures(w, s, &f);
    }
}

/* ---- records ---- */

static int run_leaving(struct llm_shadow *shadow, struct llm_shadow_question *question)
{
    struct llm_leaving *l = (struct llm_leaving *)question;
    return llm_shadow_put_bytes(shadow, &l->key, wire_enc_data(&l->record),
                                (uint32_t)wire_enc_len(&l->record));
}

static void drop_leaving(struct llm_shadow_question *question)
{
    struct llm_leaving *l = (struct llm_leaving *)question;
    wire_enc_fini(&l->record);
    free(l);
}

static void not_recorded(int rc)
{
    hw_info(HW_CAT_LLM, "no other worker can continue a sequence: its record is not stored: %s",
            strerror(-rc));
}

/* Notes a record that has arrived; true while one is on its way. */
static bool is_leaving(struct llm_worker *w, struct llm_sequence *s)
{
    const struct llm_leaving *l = s->kv.leaving;
    if (!l)
        return false;
    if (!llm_shadow_is_answered(w->kv.shadow, &l->question))
        return true;
    if (l->question.status == 0) {
        s->kv.records++;
        s->kv.recorded_tokens = l->tokens;
    } else {
        not_recorded(l->question.status);
    }
    end_leaving(w, s);
    return false;
}

/* Best effort: without a record another worker does not find the sequence.  Nobody has the handle
 * of a text, or of a prompt that is not finished. */
static void leave_record(struct llm_worker *w, struct llm_sequence *s)
{
    bool nameless = s->is_text || (s->job && llm_job_steps(s->job) && !llm_job_decodes(s->job));
    struct llm_record record = {.policy = llm_eviction_policy(s->kv.eviction),
                                .wish = s->wish,
                                .prompt = s->kv.prompt,
                                .last = s->last};
    record.tokens = llm_eviction_tokens(s->kv.eviction, &record.token_count);
    if (nameless || !llm_shadow_shared(w->kv.shadow) || s->kv.records == RECORDS_MAX)
        return;
    s->kv.leaves_again = is_leaving(w, s); /* each has more tokens than the one before */
    if (s->kv.leaves_again || record.token_count == s->kv.recorded_tokens)
        return;
    struct llm_leaving *l = malloc(sizeof *l);
    if (!l) {
        not_recorded(-ENOMEM);
        return;
    }
    *l = (struct llm_leaving){.question = {.run = run_leaving, .drop = drop_leaving},
                              .key = llm_record_key(s->handle, s->kv.records),
                              .tokens = record.token_count};
    memcpy(record.hash, llm_model_own_hash(s->model), sizeof record.hash);
    wire_enc_init(&l->record, LLM_REQUEST_BYTES_MAX);
    llm_record_encode(&record, &l->record);
    if (wire_enc_error(&l->record)) {
        not_recorded(wire_enc_error(&l->record));
        drop_leaving(&l->question);
        return;
    }
    s->kv.leaving = l;
    llm_shadow_ask(w->kv.shadow, &l->question);
}

static int take_record(void *user, const uint8_t *bytes, uint32_t len)
{
    struct llm_adoption *a = user;
    int rc = llm_record_decode(bytes, len, &a->record);
    a->decoded = rc == 0;
    return rc;
}

/* How many records the store has, from the first on. */
static uint32_t count_records(struct llm_shadow *shadow, const uint8_t handle[LLM_HANDLE_BYTES])
{
    uint32_t count = 0;
    while (count < RECORDS_MAX) {
        struct kv_block_key keys[RECORDS_ASKED];
        bool there[RECORDS_ASKED];
        uint32_t n = 0;
        for (uint32_t i = 0; i < RECORDS_ASKED; i++)
            keys[i] = llm_record_key(handle, count + i);
        if (llm_shadow_has(shadow, keys, RECORDS_ASKED, there))
            break;
        while (n < RECORDS_ASKED && there[n])
            n++;
        count += n;
        if (n < RECORDS_ASKED)
            break;
    }
    return count;
}

static int run_adoption(struct llm_shadow *shadow, struct llm_shadow_question *question)
{
    struct llm_adoption *a = (struct llm_adoption *)question;
    a->records = count_records(shadow, a->handle);
    if (a->records == 0)
        return -ENOENT;
    struct kv_block_key key = llm_record_key(a->handle, a->records - 1);
    return llm_shadow_get_bytes(shadow, &key, take_record, a);
}

static void drop_adoption(struct llm_shadow_question *question)
{
    struct llm_adoption *a = (struct llm_adoption *)question;
    if (a->decoded)
        llm_record_fini(&a->record);
    free(a);
}

static struct llm_model *model_with(struct llm_worker *w, const uint8_t hash[LLM_HASH_BYTES])
{
    struct llm_model *m = w->models;
    while (m && memcmp(llm_model_own_hash(m), hash, LLM_HASH_BYTES) != 0)
        m = m->next;
    return m;
}

static bool tokens_fit(const struct llm_record *r, const struct llm_model *m)
{
    uint32_t vocab = llm_model_vocab(m);
    for (uint32_t i = 0; i < r->token_count; i++) {
        if (r->tokens[i] >= vocab)
            return false;
    }
    return r->last < vocab && r->token_count <= llm_engine_context(m->engine);
}

/* Makes the sequence that the record describes; its rows are in the store or to be computed. */
static int revive(struct llm_worker *w, struct llm_job *job, const struct llm_record *r,
                  struct llm_sequence **out)
{
    struct llm_request request = {.method = job->request.method,
                                  .wish = r->wish,
                                  .tokens = (uint32_t *)(uintptr_t)r->tokens, /* only read */
                                  .token_count = r->token_count};
    struct llm_model *m = model_with(w, r->hash);
    struct llm_eviction_policy policy = job->client->moved.policy;
    struct llm_sequence *s;
    if (!m || !tokens_fit(r, m))
        return llm_why(job->why, -ENOENT,
                       "the sequence is of a model that this worker has not loaded");
    job->client->moved.policy = r->policy; /* for this one sequence */
    int rc = llm_sequence_create(w, job->client, m, &request, &s, job->why);
    job->client->moved.policy = policy;
    if (rc)
        return rc;
    memcpy(s->handle, job->request.handle, sizeof s->handle);
    s->last = r->last;
    s->kv.prompt = r->prompt;
    if (s->sampler)
        llm_sampler_skip(s->sampler, (uint64_t)r->token_count - r->prompt + 1);
    if (r->policy.recovery != LLM_RECOVER_COMPUTE)
        s->kv.looks = llm_eviction_match_begin(s->kv.eviction, r->token_count) == 0;
    hw_info(HW_CAT_LLM, "a sequence of %u positions continues from its record", r->token_count);
    *out = s;
    return 0;
}

static int begin_adoption(struct llm_worker *w, struct llm_job *job)
{
    struct llm_adoption *a = calloc(1, sizeof *a);
    if (!a)
        return llm_why(job->why, -ENOMEM, "no memory for a look-up");
    a->question = (struct llm_shadow_question){.run = run_adoption, .drop = drop_adoption};
    memcpy(a->handle, job->request.handle, sizeof a->handle);
    job->adoption = a;
    llm_shadow_ask(w->kv.shadow, &a->question);
    return -EAGAIN;
}

int llm_kv_adopt(struct llm_worker *w, struct llm_job *job, struct llm_sequence **out)
{
    const struct llm_adoption *a = job->adoption;
    if (!w->kv.shadow || !llm_shadow_shared(w->kv.shadow))
        return -ENOENT;
    if (!a)
        return begin_adoption(w, job);
    if (!llm_shadow_is_answered(w->kv.shadow, &a->question))
        return -EAGAIN;
    int rc = a->question.status;
    if (rc && rc != -ENOENT)
        rc = llm_why(job->why, rc == -EAGAIN ? -EHOSTDOWN : rc, "the record of a sequence: %s",
                     strerror(-rc));
    if (rc == 0)
        rc = revive(w, job, &a->record, out);
    if (rc == 0) {
        (*out)->kv.records = a->records;
        (*out)->kv.recorded_tokens = a->record.token_count;
    }
    llm_kv_adopt_end(w, job);
    return rc;
}

void llm_kv_adopt_end(struct llm_worker *w, struct llm_job *job)
{
    if (job->adoption)
        llm_shadow_ask_no_more(w->kv.shadow, &job->adoption->question);
    job->adoption = NULL;
}

/* ---- evicting ---- */

static int evict(struct llm_worker *w, struct llm_sequence *s, const struct llm_layers *layers,
                 enum llm_evict_sync sync, char *why)
{
    struct llm_eviction_figures f = {0};
    leave_record(w, s);
    int rc = llm_eviction_evict(s->kv.eviction, layers, sync, &f, why);
    count_figures(w, s, &f);
    return rc;
}

static uint32_t resident_layers(const struct llm_sequence *s)
{
    struct llm_layers missing = llm_seq_missing(s->seq);
    uint32_t layers = llm_engine_config(s->model->engine)->layers;
    return llm_seq_length(s->seq) ? layers - llm_layers_count(&missing) : 0;
}

/* Sequences whose client is gone go first, then idle ones, then the least recently computed. */
static bool goes_before(const struct llm_sequence *a, const struct llm_sequence *b)
{
    if (!a->owner != !b->owner)
        return !a->owner;
    if (!a->job != !b->job)
        return !a->job;
    return a->kv.used < b->kv.used;
}

static struct llm_sequence *victim(struct llm_worker *w, const struct llm_model *m)
{
    struct llm_sequence *first = NULL;
    uint64_t now_ns = hw_now_ns();
    for (struct llm_sequence *s = w->sequences; s; s = s->next) {
        if (s->model == m && s->kv.eviction && !s->kv.in_step && s->kv.stuck_until_ns <= now_ns &&
            resident_layers(s) > 0 && (!first || goes_before(s, first)))
            first = s;
    }
    return first;
}

/* An eighth of the layers, the last that are there: the next step needs them last. */
static struct llm_layers last_layers(const struct llm_sequence *s)
{
    uint32_t layers = llm_engine_config(s->model->engine)->layers, want = (layers + 7) / 8;
    struct llm_layers missing = llm_seq_missing(s->seq), set = {0};
    for (uint32_t l = layers; l > 0 && want > 0; l--) {
        if (!llm_layers_has(&missing, l - 1)) {
            llm_layers_add(&set, l - 1);
            want--;
        }
    }
    return set;
}

static void fetch_end(struct llm_worker *w, struct llm_sequence *s)
{
    struct llm_eviction_figures f = {0};
    llm_eviction_fetch_end(s->kv.eviction, &f);
    count_figures(w, s, &f);
}

/* A fetch has pages reserved. */
static bool stop_a_fetch(struct llm_worker *w, const struct llm_model *m)
{
    struct llm_sequence *s = w->sequences;
    while (s && (s->model != m || !s->kv.eviction || s->kv.in_step ||
                 !llm_eviction_is_fetching(s->kv.eviction)))
        s = s->next;
    if (!s)
        return false;
    fetch_end(w, s);
    llm_seq_truncate(s->seq, llm_seq_length(s->seq));
    return true;
}

bool llm_kv_make_room(struct llm_worker *w, struct llm_model *m)
{
    char why[LLM_WHY_CHARS];
    for (struct llm_sequence *s; w->kv.shadow && (s = victim(w, m));) {
        struct llm_layers layers = last_layers(s);
        uint32_t before = resident_layers(s);
        int rc = evict(w, s, &layers, LLM_EVICT_ASYNC, why);
        if (rc == 0 || resident_layers(s) < before)
            return true;
        if (rc == -EAGAIN) {
            w->kv.waits = true;
            break;
        }
        hw_info(HW_CAT_LLM, "memory is short: %s", why);
        s->kv.stuck_until_ns = hw_now_ns() + LLM_SHADOW_REST_NS;
    }
    return stop_a_fetch(w, m) || llm_worker_free_orphan(w, m);
}

bool llm_kv_may_wait(const struct llm_worker *w)
{
    return w->kv.shadow != NULL;
}

bool llm_kv_must_wait(const struct llm_worker *w)
{
    return w->kv.waits;
}

/* ---- restoring ---- */

void llm_kv_look(struct llm_worker *w, struct llm_job *job)
{
    struct llm_sequence *s = job->seq;
    if (!s->kv.eviction || !w->options.share_prefixes ||
        llm_eviction_policy(s->kv.eviction).recovery != LLM_RECOVER_DELTA)
        return;
    /* The last row is always computed, for its logits. */
    s->kv.looks = llm_eviction_match_begin(s->kv.eviction, s->kv.prompt - 1) == 0;
}

/* The store has these rows of a prompt; how many of them are not computed. */
static uint32_t share_rows(struct llm_worker *w, struct llm_sequence *s, uint32_t rows)
{
    char why[LLM_WHY_CHARS];
    if (llm_eviction_should_compute(s->kv.eviction, why)) {
        (void)llm_eviction_truncate(s->kv.eviction);
        return 0;
    }
    hw_debug(HW_CAT_LLM, "the store has %u rows of a prompt of %u: %s", rows, s->kv.prompt, why);
    figures_of(w, s)->shared_rows += rows;
    return rows;
}

static bool is_prompt(const struct llm_job *job)
{
    return job && llm_job_steps(job) && !llm_job_decodes(job);
}

/* True until the store has said which rows it has. */
static bool is_looking(struct llm_worker *w, struct llm_sequence *s)
{
    uint32_t rows;
    if (!s->kv.looks)
        return false;
    if (llm_eviction_match_poll(s->kv.eviction, &rows))
        return true;
    s->kv.looks = false;
    if (rows == 0 || llm_eviction_adopt(s->kv.eviction, rows) || !is_prompt(s->job))
        return false;
    s->job->done = share_rows(w, s, rows);
    if (s->is_text)
        s->job->text.end.shared = s->job->done;
    return false;
}

static bool is_evicting(struct llm_worker *w, struct llm_sequence *s)
{
    char why[LLM_WHY_CHARS];
    if (!s->kv.evicts)
        return false;
    int rc = evict(w, s, &w->options.evict.layers, LLM_EVICT_ASYNC, why);
    s->kv.evicts = rc == -EAGAIN;
    if (rc && rc != -EAGAIN)
        hw_info(HW_CAT_LLM, "eviction by rule: %s", why);
    return s->kv.evicts;
}

bool llm_kv_is_busy(struct llm_worker *w, struct llm_sequence *s)
{
    return is_looking(w, s) || is_evicting(w, s);
}

static void compute_instead(struct llm_worker *w, struct llm_sequence *s, const char *why)
{
    struct llm_layers missing = llm_seq_missing(s->seq);
    uint32_t layers = llm_layers_count(&missing), rows = llm_eviction_truncate(s->kv.eviction);
    hw_info(HW_CAT_LLM, "%u layers are missing, %u rows are computed again: %s", layers, rows, why);
    figures_of(w, s)->computed_rows += rows;
    hw_counter_bump(&w->counts[LLM_COUNT_KV_COMPUTED], rows);
    if (is_prompt(s->job))
        s->job->done = llm_seq_length(s->seq);
}

void llm_kv_prepare(struct llm_worker *w, struct llm_job *job)
{
    struct llm_sequence *s = job->seq;
    char why[LLM_WHY_CHARS];
    if (!s->kv.eviction || llm_eviction_is_fetching(s->kv.eviction))
        return;
    struct llm_layers missing = llm_seq_missing(s->seq);
    uint32_t count = llm_layers_count(&missing);
    if (count == 0)
        return;
    if (llm_eviction_should_compute(s->kv.eviction, why))
        compute_instead(w, s, why);
    else
        hw_info(HW_CAT_LLM, "%u layers are missing and are fetched: %s", count, why);
}

bool llm_kv_is_whole(const struct llm_sequence *s)
{
    struct llm_layers missing = llm_seq_missing(s->seq);
    return llm_layers_count(&missing) == 0;
}

bool llm_kv_waits(struct llm_worker *w, struct llm_job *job)
{
    struct llm_sequence *s = job->seq;
    struct llm_eviction_figures f = {0};
    char why[LLM_WHY_CHARS] = "no memory for fetched rows";
    if (llm_kv_is_whole(s) || !s->kv.eviction)
        return false;
    int rc = llm_eviction_is_fetching(s->kv.eviction)
                 ? 0
                 : llm_eviction_fetch_begin(s->kv.eviction, NULL);
    if (rc == 0)
        rc = llm_eviction_fetch_poll(s->kv.eviction, &f, why);
    count_figures(w, s, &f);
    if (rc == -EAGAIN)
        return true;
    fetch_end(w, s);
    if (rc)
        compute_instead(w, s, why);
    return false;
}

uint32_t llm_kv_behind(const struct llm_sequence *s)
{
    uint32_t tokens;
    if (!s->kv.eviction)
        return 0;
    (void)llm_eviction_tokens(s->kv.eviction, &tokens);
    return tokens - llm_seq_length(s->seq);
}

uint32_t llm_kv_token(const struct llm_sequence *s, uint32_t i)
{
    uint32_t count, at = llm_seq_length(s->seq) + i;
    const uint32_t *tokens = llm_eviction_tokens(s->kv.eviction, &count);
    assert(at < count);
    return tokens[at];
}

void llm_kv_step(struct llm_worker *w, struct llm_sequence *const *seqs, uint32_t count)
{
    w->kv.steps++;
    reap_all(w);
    for (uint32_t i = 0; i < count; i++)
        seqs[i]->kv.used = w->kv.steps;
}

bool llm_kv_lost(struct llm_worker *w, struct llm_sequence *s, int status, const char *why)
{
    if (status != -ENODATA || !s->kv.eviction)
        return false;
    struct llm_layers missing = llm_seq_missing(s->seq);
    if (llm_layers_count(&missing) == 0)
        return true; /* another sequence's rows were lost */
    compute_instead(w, s, why);
    return true;
}

/* ---- after a step ---- */

void llm_kv_timed(const struct llm_worker *w, struct llm_model *m, uint32_t rows, uint64_t ns)
{
    if (m->evictor && rows >= PROMPT_ROWS && !w->options.untimed)
        llm_evictor_timed(m->evictor, rows, ns);
}

void llm_kv_decoded(struct llm_worker *w, struct llm_sequence *s, uint32_t token)
{
    const struct llm_evict_rule *rule = &w->options.evict;
    if (!s->kv.eviction)
        return;
    if (llm_eviction_add_tokens(s->kv.eviction, &token, 1)) {
        hw_warn(HW_CAT_LLM, "no memory for a token: the sequence is not evicted any more");
        llm_sequence_kv_end(w, s); /* no layer is missing: the step needed them all */
        return;
    }
    s->kv.evicts = rule->at && ++s->kv.decoded % rule->at == 0;
    (void)is_evicting(w, s);
}

static void share_prompt(struct llm_worker *w, struct llm_sequence *s)
{
    struct llm_eviction_figures f = {0};
    struct llm_layers all = llm_layers_first(llm_engine_config(s->model->engine)->layers);
    char why[LLM_WHY_CHARS];
    int rc = llm_eviction_store(s->kv.eviction, &all, &f, why);
    s->kv.shares = rc == -EAGAIN;
    if (rc && rc != -EAGAIN)
        hw_info(HW_CAT_LLM, "a prompt is not shared: %s", why);
    count_figures(w, s, &f);
}

void llm_kv_prefilled(struct llm_worker *w, struct llm_sequence *s)
{
    if (s->kv.eviction && w->options.share_prefixes &&
        llm_eviction_policy(s->kv.eviction).recovery == LLM_RECOVER_DELTA)
        share_prompt(w, s);
}

void llm_kv_go_on(struct llm_worker *w)
{
    for (struct llm_model *m = w->models; m; m = m->next) {
        struct llm_eviction_figures f = {0};
        if (m->evictor)
            llm_evictor_reap(m->evictor, &f);
        publish_figures(w, m, &f);
    }
    for (struct llm_sequence *s = w->kv.shadow ? w->sequences : NULL; s; s = s->next) {
        if (s->kv.eviction && s->kv.shares)
            share_prompt(w, s);
        if (s->kv.eviction && s->kv.leaves_again && !is_leaving(w, s))
            leave_record(w, s);
    }
}

/* ---- requests ---- */

/* The sequence of an evict or fetch, which becomes the job's.  It needs a store. */
static int find(struct llm_worker *w, struct llm_job *job, struct llm_sequence **out)
{
    struct llm_sequence *s;
    int rc = llm_sequence_by_handle(w, job, &s);
    if (rc)
        return rc;
    if (!s->kv.eviction)
        return llm_why(job->why, -EOPNOTSUPP,
                       "this worker has no KV store: start it with --shadow");
    rc = llm_sequence_is_free(s, job);
    if (rc)
        return rc;
    for (uint32_t l = llm_engine_config(s->model->engine)->layers; l < LLM_LAYERS_MAX; l++) {
        if (llm_layers_has(&job->request.layers, l))
            return llm_why(job->why, -ERANGE, "there is no layer %u; the model has %u", l,
                           llm_engine_config(s->model->engine)->layers);
    }
    s->job = job;
    job->seq = s;
    *out = s;
    return llm_kv_is_busy(w, s) ? -EAGAIN : 0;
}

/* The answer tells that the store has the layers, and the record. */
static int evict_layers(struct llm_worker *w, struct llm_job *job)
{
    struct llm_sequence *s;
    int rc = find(w, job, &s);
    if (rc)
        return rc;
    leave_record(w, s); /* first: if the worker dies in between, another knows the tokens */
    rc = is_leaving(w, s) ? -EAGAIN : evict(w, s, &job->request.layers, LLM_EVICT_SYNC, job->why);
    if (rc)
        return rc;
    struct llm_layers missing = llm_seq_missing(s->seq);
    wire_put_u32(&job->answer, llm_layers_count(&missing));
    return 0;
}

/* Restores the layers; as llm_kv_request. */
static int restore(struct llm_worker *w, struct llm_sequence *s, const struct llm_layers *layers,
                   char *why)
{
    struct llm_eviction_figures f = {0};
    int rc = 0;
    if (!llm_eviction_is_fetching(s->kv.eviction))
        rc = llm_eviction_fetch_begin(s->kv.eviction, layers);
    if (rc)
        return llm_why(why, rc, "no memory for fetched rows");
    s->kv.in_step = true;
    do
        rc = llm_eviction_fetch_poll(s->kv.eviction, &f, why);
    while (rc == -ENOSPC && llm_kv_make_room(w, s->model));
    s->kv.in_step = false;
    count_figures(w, s, &f);
    if (rc != -EAGAIN)
        fetch_end(w, s);
    return rc;
}

/* As many of the wanted layers as fit an answer. */
static struct llm_layers fitting(const struct llm_layers *wanted, uint64_t layer_bytes)
{
    uint64_t room =
        layer_bytes && LLM_FETCH_BYTES > layer_bytes ? LLM_FETCH_BYTES / layer_bytes : 1;
    struct llm_layers set = {0};
    for (uint32_t l = 0; l < LLM_LAYERS_MAX && room > 0; l++) {
        if (llm_layers_has(wanted, l)) {
            llm_layers_add(&set, l);
            room--;
        }
    }
    return set;
}

static int put_layer(struct llm_job *job, struct llm_sequence *s, uint32_t layer, uint8_t *rows)
{
    uint32_t from = job->request.from, to = llm_seq_length(s->seq);
    uint64_t bytes = (to - from) * llm_kv_row_bytes(s->model->engine);
    bool plain = llm_eviction_policy(s->kv.eviction).pack == LLM_PACK_NEVER;
    int rc = llm_seq_read_kv(s->seq, layer, 1, from, to, rows);
    return rc ? rc
              : wire_codec_encode(s->packer.codec, plain ? WIRE_CODEC_RAW : WIRE_CODEC_SHUFFLE_ZSTD,
                                  WIRE_DTYPE_F16, rows, bytes / sizeof(uint16_t), NULL,
                                  &job->answer);
}

static int fetch_layers(struct llm_worker *w, struct llm_job *job)
{
    struct llm_sequence *s;
    uint32_t from = job->request.from;
    bool begins = !job->seq;
    int rc = find(w, job, &s);
    if (rc)
        return rc;
    if (begins)
        fetch_end(w, s); /* of a request whose client is gone */
    if (from > llm_seq_length(s->seq))
        return llm_why(job->why, -ERANGE, "there is no row %u; the sequence has %u", from,
                       llm_seq_length(s->seq));
    uint64_t bytes = (llm_seq_length(s->seq) - from) * llm_kv_row_bytes(s->model->engine);
    struct llm_layers now = fitting(&job->request.layers, bytes);
    rc = restore(w, s, &now, job->why);
    if (rc)
        return rc;
    uint8_t *rows = malloc(bytes ? bytes : 1);
    if (!rows)
        return llm_why(job->why, -ENOMEM, "no memory for rows");
    wire_put_u32(&job->answer, llm_seq_length(s->seq));
    llm_put_layers(&job->answer, &now);
    for (uint32_t l = 0; l < LLM_LAYERS_MAX && rc == 0; l++) {
        if (llm_layers_has(&now, l))
            rc = put_layer(job, s, l, rows);
    }
    free(rows);
    return rc ? llm_why(job->why, rc, "rows %u and on: %s", from, strerror(-rc)) : 0;
}

static int resume(struct llm_worker *w, struct llm_job *job)
{
    struct llm_sequence *s;
    uint32_t behind;
    int rc = llm_sequence_by_handle(w, job, &s);
    if (rc)
        return rc;
    if (llm_kv_is_busy(w, s))
        return -EAGAIN;
    behind = llm_kv_behind(s);
    wire_put_varint(&job->answer, s->id);
    wire_put_u32(&job->answer, llm_seq_length(s->seq) + behind);
    return 0;
}

static int request(struct llm_worker *w, struct llm_job *job)
{
    switch (job->request.method) {
    case LLM_METHOD_EVICT_KV:
        return evict_layers(w, job);
    case LLM_METHOD_FETCH_KV:
        return fetch_layers(w, job);
    case LLM_METHOD_RESUME:
        return resume(w, job);
    default:
        assert(job->request.method == LLM_METHOD_SET_RECOVERY);
        job->client->moved.policy = job->request.policy;
        return 0;
    }
}

int llm_kv_request(struct llm_worker *w, struct llm_job *job)
{
    int rc = request(w, job);
    if (rc != -EAGAIN && job->seq) {
        job->seq->job = NULL;
        job->seq = NULL;
    }
    return rc;
}
