#include "cli/doctor/finding.h"

#include "base/clock.h"
#include "base/process/child.h"
#include "base/text/controls.h"
#include "cli/screen.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    STATUS_WIDTH = 9,
    CHECK_WIDTH = 15,
    DETAIL_COLUMN = STATUS_WIDTH + CHECK_WIDTH,
    DETAIL_WIDTH_MIN = 20, /* on a narrower terminal lines are better broken anywhere */
    DETAIL_CHARS = 1024
};
#define CHILD_NS (20 * HW_SEC) /* a GPU wakes up in seconds; a hung driver never answers */

static const char *const statuses[] = {"ok", "warning", "failed"};

/* From DETAIL_COLUMN on; where a terminal ends, the next word begins a line there. */
static void put_text(const char *text)
{
    int columns = screen_columns(0), at = DETAIL_COLUMN;
    bool folds = columns >= DETAIL_COLUMN + DETAIL_WIDTH_MIN;
    for (const char *word = text; *word;) {
        int len = (int)strcspn(word, " ");
        if (at > DETAIL_COLUMN && folds && at + 1 + len > columns) {
            printf("\n%*s", DETAIL_COLUMN, "");
            at = DETAIL_COLUMN;
        } else if (at > DETAIL_COLUMN) {
            putchar(' ');
            at++;
        }
        printf("%.*s", len, word);
        at += len;
        word += len + (word[len] == ' ');
    }
    putchar('\n');
}

static void say(struct doctor *d, enum doctor_status status, const char *check, const char *remedy,
                const char *fmt, va_list args)
{
    char detail[DETAIL_CHARS];
    vsnprintf(detail, sizeof(detail), fmt, args);
    hw_blank_controls_of(detail); /* it may quote a file or a driver */
    d->warnings += status == DOCTOR_WARNING;
    d->failed += status == DOCTOR_FAILED;
    if (!d->json) {
        printf("%-*s%-*s", STATUS_WIDTH, statuses[status], CHECK_WIDTH, check);
        put_text(detail);
        if (remedy) {
            printf("%*s", DETAIL_COLUMN, "");
            put_text(remedy);
        }
        fflush(stdout); /* the next check may take a while */
        return;
    }
    hw_json_object_begin(d->json);
    hw_json_put_string(d->json, "check", check);
    hw_json_put_string(d->json, "status", statuses[status]);
    hw_json_put_string(d->json, "detail", detail);
    hw_json_put_string(d->json, "remedy", remedy);
    hw_json_object_end(d->json);
}

void doctor_say(struct doctor *d, enum doctor_status status, const char *check, const char *remedy,
                const char *fmt, ...)
{
    va_list args;
    if (status == DOCTOR_FAILED && d->code == CMD_DONE)
        d->code = CMD_FAILED;
    va_start(args, fmt);
    say(d, status, check, remedy, fmt, args);
    va_end(args);
}

void doctor_fail(struct doctor *d, enum cmd_exit code, const char *check, const char *remedy,
                 const char *fmt, ...)
{
    va_list args;
    if (d->code == CMD_DONE || d->code == CMD_FAILED)
        d->code = code;
    va_start(args, fmt);
    say(d, DOCTOR_FAILED, check, remedy, fmt, args);
    va_end(args);
}

int doctor_try(void (*work)(int fd, void *user), void *user, char *out, size_t size)
{
    fflush(stdout);
    ssize_t n = hw_child_try(work, user, CHILD_NS, out, size - 1);
    out[n < 0 ? 0 : n] = '\0';
    return n < 0 ? (int)n : 0;
}
