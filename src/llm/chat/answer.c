#include "llm/chat/answer.h"

#include "base/grow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum state { STATE_BEGINS, STATE_THINKS, STATE_ENDS, STATE_ANSWERS };

struct llm_answer {
    const struct llm_chat_marks *marks;
    enum state state;
    bool fresh;   /* nothing of this reasoning was given out */
    bool thought; /* of an earlier one something was */
    char *text;   /* not decided */
    size_t bytes, room;
};

struct llm_answer *llm_answer_create(const struct llm_chat_marks *marks, bool open)
{
    struct llm_answer *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->marks = marks;
    a->state = open ? STATE_THINKS : STATE_BEGINS;
    a->fresh = true;
    return a;
}

void llm_answer_destroy(struct llm_answer *a)
{
    if (a)
        free(a->text);
    free(a);
}

bool llm_answer_is_thinking(const struct llm_answer *a)
{
    return a->state == STATE_THINKS;
}

bool llm_answer_has_thought(const struct llm_answer *a)
{
    return a->state == STATE_ANSWERS;
}

const char *llm_answer_piece(const struct llm_answer *a, const struct llm_vocab *vocab,
                             uint32_t token, size_t *bytes)
{
    return a->state <= STATE_THINKS || a->marks->drop[0]
               ? llm_chat_piece(a->marks, vocab, token, bytes)
               : llm_vocab_piece(vocab, token, false, bytes);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static size_t count_blanks(const struct llm_answer *a)
{
    size_t n = 0;
    while (n < a->bytes && is_blank(a->text[n]))
        n++;
    return n;
}

static void drop(struct llm_answer *a, size_t n)
{
    a->bytes -= n;
    if (n && a->bytes)
        memmove(a->text, a->text + n, a->bytes);
}

/* The text has mark at `at`, or what may become it.  *there: all of it. */
static bool may_be(const struct llm_answer *a, size_t at, const char *mark, bool *there)
{
    size_t n = strlen(mark), left = a->bytes - at;
    *there = left >= n;
    return memcmp(a->text + at, mark, left < n ? left : n) == 0;
}

/* The opening mark, after blanks.  False: more text decides. */
static bool begin(struct llm_answer *a, bool last)
{
    size_t at = count_blanks(a);
    bool there = false, fits = a->bytes == 0 || may_be(a, at, a->marks->open, &there);
    if (fits && !there && !last)
        return false;
    a->state = fits && there ? STATE_THINKS : STATE_ANSWERS;
    if (a->state == STATE_THINKS)
        drop(a, at + strlen(a->marks->open));
    return true;
}

static int think(struct llm_answer *a, bool last, llm_answer_put put, void *user)
{
    const char *close = a->marks->close;
    size_t n = strlen(close);
    if (a->fresh)
        drop(a, count_blanks(a));
    const char *found = a->bytes ? memmem(a->text, a->bytes, close, n) : NULL;
    size_t to = found ? (size_t)(found - a->text) : a->bytes;
    /* What may be the beginning of the mark waits, and so do blanks. */
    size_t kept = !found && !last ? (to < n ? to : n - 1) : 0;
    while (kept > 0 && memcmp(a->text + to - kept, close, kept) != 0)
        kept--;
    size_t end = to - kept;
    while (end > 0 && is_blank(a->text[end - 1]))
        end--;
    int rc = end > 0 && a->fresh && a->thought ? put(user, true, "\n\n", 2) : 0;
    if (rc == 0 && end > 0)
        rc = put(user, true, a->text, end);
    a->fresh = a->fresh && end == 0;
    a->thought = a->thought || end > 0;
    if (found || last)
        a->state = found ? STATE_ENDS : STATE_ANSWERS;
    drop(a, found ? to + n : last ? a->bytes : end);
    return rc;
}

/* Where the next mark of an answer is, and which; where one may begin, and NULL; or the end. */
static size_t find_mark(const struct llm_answer *a, bool last, const char **mark)
{
    *mark = NULL;
    for (size_t at = 0; a->marks->drop[0] && at < a->bytes; at++) {
        bool waits = false;
        for (size_t i = 0; i <= ARRAY_LEN(a->marks->drop); i++) {
            const char *m = i < ARRAY_LEN(a->marks->drop) ? a->marks->drop[i] : a->marks->open;
            bool there;
            if (!m || !may_be(a, at, m, &there))
                continue;
            waits = !last;
            if (!there)
                continue;
            *mark = m;
            return at;
        }
        if (waits)
            return at;
    }
    return a->bytes;
}

/* The answer up to the next mark.  1 to go on, 0 for more text, or an error. */
static int say(struct llm_answer *a, bool last, llm_answer_put put, void *user)
{
    const char *mark;
    size_t to = find_mark(a, last, &mark);
    int rc = to > 0 ? put(user, false, a->text, to) : 0;
    drop(a, mark ? to + strlen(mark) : to);
    if (mark == a->marks->open) {
        a->state = STATE_THINKS;
        a->fresh = true;
    }
    return rc ? rc : mark != NULL;
}

int llm_answer_feed(struct llm_answer *a, const char *text, size_t bytes, bool last,
                    llm_answer_put put, void *user)
{
    int rc = 1;
    if (bytes && !hw_grow(&a->text, &a->room, a->bytes + bytes, 1))
        return -ENOMEM;
    if (bytes)
        memcpy(a->text + a->bytes, text, bytes);
    a->bytes += bytes;
    if (a->state == STATE_BEGINS && !begin(a, last))
        return 0;
    while (rc == 1) {
        rc = 0;
        if (a->state == STATE_THINKS)
            rc = think(a, last, put, user);
        if (a->state == STATE_ENDS) {
            drop(a, count_blanks(a));
            a->state = a->bytes ? STATE_ANSWERS : STATE_ENDS;
        }
        if (rc == 0 && a->state == STATE_ANSWERS)
            rc = say(a, last, put, user);
    }
    return rc;
}
