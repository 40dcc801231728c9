/* One way of tracking, named on the command line: what it finds, what it survives, what it costs.
 */
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "joint.h"

enum { SIZE = 64 * VN_PAGE_BYTES };

static enum vn_track_method method;
static struct joint joint;

static int setup(void **state)
{
    (void)state;
    joint_open(&joint, method, SIZE, NULL, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    joint_close(&joint);
    return 0;
}

static void assert_same(void)
{
    assert_memory_equal(joint.memory, joint.server, joint.size);
}

static void the_method_asked_for_is_used(void **state)
{
    (void)state;
    assert_string_equal(vn_region_method(joint.region), vn_track_name(method));
}

static void keep_line(void *user, const char *line, size_t len)
{
    snprintf(user, 200, "%.*s", (int)len, line);
}

static const char *method_by_environment(void)
{
    struct vn_region_params params = {.size = SIZE};
    struct vn_region *region;
    assert_int_equal(vn_region_create(&params, &region), 0);
    const char *name = vn_region_method(region);
    vn_region_destroy(region);
    return name;
}

static void the_environment_chooses_where_the_caller_does_not(void **state)
{
    (void)state;
    assert_string_equal(method_by_environment(), vn_track_name(method));
    unsetenv("VENUS_TRACK");
    const char *best = method_by_environment();
    char line[200] = "";
    hw_log_set_sink(keep_line, line);
    setenv("VENUS_TRACK", "guess", 1);
    assert_string_equal(method_by_environment(), best);
    assert_non_null(strstr(line, "VENUS_TRACK=guess is none of userfaultfd, mprotect, compare"));
    line[0] = '\0';
    method_by_environment();
    assert_string_equal(line, ""); /* said once */
    hw_log_set_sink(NULL, NULL);
}

static void written_pages_are_found_once(void **state)
{
    (void)state;
    assert_int_equal(joint_push(&joint), 0);
    joint.memory[5] = 1;
    joint.memory[9 * VN_PAGE_BYTES + 4095] = 2;
    assert_int_equal(joint_push(&joint), 2);
    assert_same();
    assert_int_equal(joint_push(&joint), 0);
    joint_idle(&joint);
    joint.memory[9 * VN_PAGE_BYTES] = 3; /* the same page again, after it was left alone for long */
    assert_int_equal(joint_push(&joint), 1);
    assert_same();
}

/* It goes to an address of the program's and back: nothing is lost, and what either side writes
 * afterwards is found. */
static void memory_that_moves_is_followed(void **state)
{
    (void)state;
    uint8_t *place =
        mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct vn_region_params params = {.size = SIZE, .method = method, .moves = true};
    assert_ptr_not_equal(place, MAP_FAILED);
    assert_int_equal(vn_region_move(joint.region, place, true), -ENOTSUP);
    vn_region_destroy(joint.region);
    assert_int_equal(vn_region_create(&params, &joint.region), 0);
    joint.memory = vn_region_memory(joint.region);
    memset(joint.memory, 1, SIZE / 2);
    joint_push(&joint);
    joint_idle(&joint);
    for (int turn = 0; turn < 6; turn++) {
        joint.memory[turn] = 77; /* not sent before it moves */
        uint8_t *old = joint.memory;
        assert_int_equal(vn_region_move(joint.region, place + 1, true), -EINVAL);
        assert_int_equal(vn_region_move(joint.region, turn % 2 ? NULL : place, turn % 2), 0);
        joint.memory = vn_region_memory(joint.region);
        assert_true(turn % 2 ? joint.memory != place : joint.memory == place);
        if (turn % 2) /* reserved: nobody else has been given it */
            assert_ptr_equal(
                mmap(old, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), place);
        assert_true(joint_push(&joint) >= 1);
        assert_same();
        joint_idle(&joint);
        joint.memory[SIZE - 1 - (size_t)turn * VN_PAGE_BYTES] = 5;
        joint.server[100 + turn] = 6;
        assert_int_equal(joint_push(&joint), 1);
        joint_pull(&joint);
        assert_same();
    }
    munmap(place, SIZE);
}

static void pages_only_read_are_not_sent(void **state)
{
    (void)state;
    unsigned sum = 0;
    for (size_t at = 0; at < SIZE; at += VN_PAGE_BYTES)
        sum += ((volatile uint8_t *)joint.memory)[at];
    assert_int_equal(sum, 0);
    assert_int_equal(joint_push(&joint), 0);
}

static void pending_runs_are_listed(void **state)
{
    (void)state;
    joint.memory[2 * VN_PAGE_BYTES] = 1;
    joint.memory[3 * VN_PAGE_BYTES] = 1;
    joint.memory[7 * VN_PAGE_BYTES] = 1;
    assert_int_equal(vn_region_collect(joint.region, 0, SIZE_MAX), 0);
    size_t off = 0, len = 0;
    assert_true(vn_region_next_pending(joint.region, &off, &len));
    assert_int_equal(off, 2 * VN_PAGE_BYTES);
    assert_int_equal(len, 2 * VN_PAGE_BYTES);
    off += len;
    assert_true(vn_region_next_pending(joint.region, &off, &len));
    assert_int_equal(off, 7 * VN_PAGE_BYTES);
    off += len;
    assert_false(vn_region_next_pending(joint.region, &off, &len));
}

static void a_range_is_collected_alone(void **state)
{
    (void)state;
    size_t host = (size_t)sysconf(_SC_PAGESIZE), changes;
    joint.memory[0] = 1;
    joint.memory[2 * host] = 1;
    assert_int_equal(vn_region_collect(joint.region, 2 * host + 5, 10), 0);
    assert_int_equal(vn_region_encode(joint.region, joint.client_codec, &joint.up, SIZE,
                                      VN_SERVER_WRITES, &changes),
                     0);
    assert_int_equal(changes, 1);
    joint_apply_server(&joint);
    assert_int_equal(joint.server[0], 0);
    assert_int_equal(joint.server[2 * host], 1);
    joint_push(&joint);
    assert_same();
    assert_int_equal(vn_region_collect(joint.region, SIZE, 1), -EINVAL);
    assert_int_equal(vn_region_collect(joint.region, 1, SIZE), -EINVAL);
}

static void a_budget_leaves_the_rest_pending(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZE; i++)
        joint.memory[i] = (uint8_t)(i * 7 + i / 255 + 1);
    assert_int_equal(vn_region_collect(joint.region, 0, SIZE_MAX), 0);
    int more, deltas = 0;
    do {
        size_t changes = 0;
        wire_enc_reset(&joint.up);
        more = vn_region_encode(joint.region, joint.client_codec, &joint.up, 8 * VN_CHANGE_WIRE_MAX,
                                VN_SERVER_WRITES, &changes);
        assert_true(more >= 0 && changes > 0);
        joint_apply_server(&joint);
        deltas++;
    } while (more);
    assert_true(deltas >= 8);
    assert_same();
}

static void what_the_server_sends_is_not_sent_back(void **state)
{
    (void)state;
    joint_idle(&joint);
    for (size_t at = 0; at < SIZE; at += 13)
        joint.server[at] = (uint8_t)(at + 1);
    assert_true(joint_pull(&joint) > 0);
    assert_same();
    size_t off = 0, len;
    assert_int_equal(vn_region_collect(joint.region, 0, SIZE_MAX), 0);
    assert_false(vn_region_next_pending(joint.region, &off, &len));
}

static void writes_of_both_sides_in_one_page_survive(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        size_t at = (size_t)round * 5 * VN_PAGE_BYTES;
        joint.memory[at + 100] = 1;
        joint.server[at + 101] = 2;
        joint_pull(&joint); /* before the program's byte was collected */
        assert_int_equal(joint.memory[at + 100], 1);
        assert_int_equal(joint.memory[at + 101], 2);
        assert_int_equal(joint_push(&joint), 1);
        assert_same();
        joint_idle(&joint);
    }
}

static void the_program_s_byte_stays_where_both_wrote_it(void **state)
{
    (void)state;
    joint_idle(&joint);
    memset(joint.memory, 1, 100);
    memset(joint.server + 50, 2, 8192);
    joint_pull(&joint);
    assert_int_equal(joint.memory[99], 1);
    assert_int_equal(joint.memory[100], 2);
    joint_push(&joint);
    assert_int_equal(joint.server[50], 1);
    assert_same();
}

static void a_write_after_apply_is_found(void **state)
{
    (void)state;
    memset(joint.server, 0x44, SIZE);
    joint_pull(&joint);
    joint_idle(&joint);
    joint.memory[10] = 5;
    assert_int_equal(joint_push(&joint), 1);
    assert_same();
}

static void a_bad_delta_changes_nothing(void **state)
{
    (void)state;
    const uint8_t bad[] = {0, 0, 5, 1, 0, 1, 0xff};
    size_t changed;
    joint.memory[0] = 9;
    assert_int_equal(vn_region_apply(joint.region, joint.client_codec, bad, sizeof(bad), &changed),
                     -EPROTO);
    assert_int_equal(joint.memory[0], 9);
    joint_push(&joint);
    assert_same();
}

static void any_alignment_and_size_is_given(void **state)
{
    (void)state;
    for (size_t alignment = 64; alignment <= 1 << 22; alignment *= 4) {
        struct vn_region_params params = {.size = 5001, .alignment = alignment, .method = method};
        struct vn_region *region;
        assert_int_equal(vn_region_create(&params, &region), 0);
        assert_int_equal((uintptr_t)vn_region_memory(region) % alignment, 0);
        memset(vn_region_memory(region), 1, 5001);
        assert_int_equal(vn_region_collect(region, 0, 5001), 0);
        vn_region_destroy(region);
    }
    struct vn_region *none = NULL;
    struct vn_region_params odd = {.size = 1, .alignment = 48, .method = method};
    assert_int_equal(vn_region_create(&odd, &none), -EINVAL);
    struct vn_region_params nothing = {.size = 0, .method = method};
    assert_int_equal(vn_region_create(&nothing, &none), -EINVAL);
    assert_null(none);
}

/* --- system calls and fork ------------------------------------------------------------------- */

/* Into fresh pages, into pages just sent, and into pages that travelled from the server. */
static void system_calls_may_write_into_the_mapping(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    joint.server[3 * VN_PAGE_BYTES] = 1;
    joint_pull(&joint);
    for (int round = 0; round < 8; round++) {
        uint8_t sent[6000];
        memset(sent, 0x60 + round, sizeof(sent));
        assert_int_equal(write(fds[1], sent, sizeof(sent)), sizeof(sent));
        assert_int_equal(read(fds[0], joint.memory + 2 * VN_PAGE_BYTES + 50, sizeof(sent)),
                         sizeof(sent));
        assert_true(joint_push(&joint) >= 2);
        assert_same();
    }
    close(fds[0]);
    close(fds[1]);
}

static void in_child(void)
{
    size_t changes;
    bool ok = joint.memory[0] == 1; /* what was there before is there */
    memset(joint.memory, 0xcc, SIZE);
    ok = ok && joint.memory[SIZE - 1] == 0xcc;
    ok = ok && vn_region_collect(joint.region, 0, SIZE_MAX) == -ESHUTDOWN;
    ok = ok && vn_region_encode(joint.region, joint.client_codec, &joint.up, SIZE, VN_SERVER_WRITES,
                                &changes) == -ESHUTDOWN;
    vn_region_destroy(joint.region);
    /* A child may have regions of its own. */
    struct vn_region_params params = {.size = SIZE, .method = method};
    struct vn_region *own;
    ok = ok && vn_region_create(&params, &own) == 0;
    if (ok) {
        size_t off = 0, len;
        ((uint8_t *)vn_region_memory(own))[7] = 7;
        ok = vn_region_collect(own, 0, SIZE_MAX) == 0 && vn_region_next_pending(own, &off, &len);
        vn_region_destroy(own);
    }
    _exit(ok ? 0 : 1);
}

static void a_child_does_not_disturb_the_parent(void **state)
{
    (void)state;
    joint.memory[0] = 1;
    joint_push(&joint);
    joint_idle(&joint);
    joint.memory[VN_PAGE_BYTES] = 2; /* not collected when the child is made */
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        in_child();
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    joint.memory[5 * VN_PAGE_BYTES] = 3;
    assert_int_equal(joint_push(&joint), 2);
    assert_same();
    assert_int_equal(joint.server[SIZE - 1], 0);
}

/* --- the program's own handler --------------------------------------------------------------- */

static sigjmp_buf escape;
static volatile sig_atomic_t caught;
static struct sigaction before_mine;

static void mine(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)info, (void)context;
    caught++;
    siglongjmp(escape, 1);
}

/* As crash reporters do: count, then call whatever was there before. */
static void mine_then_chain(int sig, siginfo_t *info, void *context)
{
    caught++;
    before_mine.sa_sigaction(sig, info, context);
}

static void install(void (*handler)(int, siginfo_t *, void *), struct sigaction *old)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    assert_int_equal(sigaction(SIGSEGV, &action, old), 0);
}

/* Whether a fault of the program's own reaches its handler `mine` once. */
static bool own_fault_is_caught(void)
{
    static uint8_t *forbidden;
    if (!forbidden)
        forbidden = mmap(NULL, VN_PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    caught = 0;
    if (sigsetjmp(escape, 1) == 0)
        *(volatile uint8_t *)forbidden = 1;
    return caught > 0;
}

static void write_and_check(uint8_t value)
{
    for (size_t at = 0; at < SIZE; at += 3 * VN_PAGE_BYTES)
        joint.memory[at] = value;
    joint_push(&joint);
    assert_same();
    joint_idle(&joint);
}

static void a_handler_installed_before_keeps_its_faults(void **state)
{
    (void)state;
    struct sigaction old;
    install(mine, &old);
    joint_open(&joint, method, SIZE, NULL, NULL);
    write_and_check(1);
    caught = 0;
    write_and_check(2);
    assert_int_equal(caught, 0);
    assert_true(own_fault_is_caught());
    write_and_check(3);
    joint_close(&joint);
    assert_true(own_fault_is_caught()); /* and has its place back */
    sigaction(SIGSEGV, &old, NULL);
}

static void a_handler_installed_after_is_found_at_the_next_collection(void **state)
{
    (void)state;
    struct sigaction old;
    joint_open(&joint, method, SIZE, NULL, NULL);
    write_and_check(1);
    install(mine, &old);
    assert_int_equal(vn_region_collect(joint.region, 0, SIZE_MAX), 0);
    caught = 0;
    write_and_check(2);
    assert_int_equal(caught, 0);
    assert_true(own_fault_is_caught());
    assert_true(own_fault_is_caught()); /* leaving by siglongjmp has upset nothing */
    write_and_check(3);
    joint_close(&joint);
    sigaction(SIGSEGV, &old, NULL);
}

static void handlers_that_call_each_other_end(void **state)
{
    (void)state;
    struct sigaction old;
    install(mine, &old);
    joint_open(&joint, method, SIZE, NULL, NULL);
    write_and_check(1);
    install(mine_then_chain, &before_mine); /* calls ours under mprotect, else `mine` */
    assert_int_equal(vn_region_collect(joint.region, 0, SIZE_MAX), 0);
    write_and_check(2);
    assert_true(own_fault_is_caught());
    assert_int_equal(caught, 2);
    write_and_check(3);
    joint_close(&joint);
    sigaction(SIGSEGV, &old, NULL);
}

/* --- what it costs --------------------------------------------------------------------------- */

static size_t open_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    size_t n = 0;
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static size_t kilobytes(const char *field)
{
    char line[256];
    size_t value = 0, len = strlen(field);
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file)) {
        if (strncmp(line, field, len) == 0)
            assert_int_equal(sscanf(line + len, "%zu", &value), 1);
    }
    fclose(file);
    return value;
}

static size_t mappings(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    assert_non_null(file);
    size_t lines = 0;
    for (int c; (c = fgetc(file)) != EOF;)
        lines += c == '\n';
    fclose(file);
    return lines;
}

static void map_once(void)
{
    struct vn_region_params params = {.size = SIZE, .method = method};
    struct vn_region *region;
    assert_int_equal(vn_region_create(&params, &region), 0);
    memset(vn_region_memory(region), 1, SIZE);
    assert_int_equal(vn_region_collect(region, 0, SIZE_MAX), 0);
    vn_region_destroy(region);
}

static void a_thousand_mappings_leave_nothing_behind(void **state)
{
    (void)state;
    map_once();
    size_t descriptors = open_descriptors(), maps = mappings();
    for (int i = 0; i < 1000; i++)
        map_once();
    assert_int_equal(open_descriptors(), descriptors);
    /* Sanitizers and malloc map a little of their own; a leak would be a thousand. */
    assert_true(mappings() < maps + 100);
}

static void many_regions_share_two_descriptors(void **state)
{
    (void)state;
    enum { MANY = 200 };
    static struct vn_region *regions[MANY];
    size_t before = open_descriptors();
    struct vn_region_params params = {.size = 3 * VN_PAGE_BYTES, .method = method};
    for (size_t i = 0; i < MANY; i++)
        assert_int_equal(vn_region_create(&params, &regions[i]), 0);
    assert_true(open_descriptors() <= before + 2);
    for (size_t i = 0; i < MANY; i++) {
        size_t off = 0, len;
        *(uint8_t *)vn_region_memory(regions[i]) = 1;
        assert_int_equal(vn_region_collect(regions[i], 0, SIZE_MAX), 0);
        assert_true(vn_region_next_pending(regions[i], &off, &len));
    }
    for (size_t i = 0; i < MANY; i++)
        vn_region_destroy(regions[i]);
    assert_int_equal(open_descriptors(), before);
}

static void add_span(void *user, uintptr_t addr, size_t len)
{
    size_t first = (addr - (uintptr_t)joint.memory) / VN_PAGE_BYTES;
    vn_pageset_add_span(user, first, len / VN_PAGE_BYTES);
}

static void touched_pages_are_found_on_old_kernels_too(void **state)
{
    (void)state;
    struct vn_kernel *kernel;
    assert_int_equal(vn_kernel_ref(&kernel), 0);
    for (size_t page = 0; page < SIZE / VN_PAGE_BYTES; page += 1 + page % 5)
        joint.memory[page * VN_PAGE_BYTES] = 1;
    struct vn_kernel ways[] = {*kernel, *kernel, *kernel};
    ways[1].scans = false;
    ways[2].pagemap = -1;
    struct vn_pageset found[3];
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(vn_pageset_init(&found[i], SIZE / VN_PAGE_BYTES), 0);
        assert_int_equal(
            vn_kernel_populated(&ways[i], (uintptr_t)joint.memory, SIZE, add_span, &found[i]), 0);
    }
    assert_true(found[0].count > 0 && found[0].count < SIZE / VN_PAGE_BYTES);
    assert_memory_equal(found[0].words, found[1].words, SIZE / VN_PAGE_BYTES / 8);
    assert_int_equal(found[2].count, SIZE / VN_PAGE_BYTES); /* without /proc, all may be */
    for (size_t i = 0; i < 3; i++)
        vn_pageset_fini(&found[i]);
    vn_kernel_unref(kernel);
}

/* A span that is rewritten again and again, then in part, then not, then by one byte. */
static void memory_rewritten_as_a_whole_is_followed(void **state)
{
    (void)state;
    enum { BYTES = 3 * (256 << 10) };
    struct joint large;
    joint_open(&large, method, BYTES, NULL, NULL);
    for (int round = 0; round < 40; round++) {
        int kind = round / 5 % 4;
        if (kind == 0)
            memset(large.memory, round + 1, BYTES);
        else if (kind == 1)
            memset(large.memory + BYTES / 4, 100 + round, BYTES / 4);
        else if (kind == 2)
            large.memory[(size_t)round * 9999 % BYTES] ^= 1;
        size_t sent = joint_push(&large);
        assert_memory_equal(large.memory, large.server, BYTES);
        assert_int_equal(sent, kind == 0   ? BYTES / VN_PAGE_BYTES
                               : kind == 1 ? BYTES / 4 / VN_PAGE_BYTES
                                           : kind == 2);
        if (kind == 3 && round % 5 == 4) { /* nothing is left to be looked at */
            size_t off = 0, len;
            joint_idle(&large);
            assert_int_equal(vn_region_collect(large.region, 0, SIZE_MAX), 0);
            assert_false(vn_region_next_pending(large.region, &off, &len));
        }
        large.server[(size_t)round * 7777 % BYTES] += 3; /* and the GPU writes, too */
        joint_pull(&large);
        assert_memory_equal(large.memory, large.server, BYTES);
    }
    joint_close(&large);
}

/* A buffer that the device writes again and again: what the program writes there in between is
 * found, with collections of all of it, of a part, or none before the device writes again. */
static void memory_read_back_again_and_again_is_followed(void **state)
{
    (void)state;
    enum { BYTES = 2 * (256 << 10), PART = 100 << 10 };
    struct joint large;
    joint_open(&large, method, BYTES, NULL, NULL);
    for (int round = 0; round < 24; round++) {
        if (round % 6 != 5)
            memset(large.server + PART, round + 1, PART);
        joint_pull(&large);
        assert_memory_equal(large.memory, large.server, BYTES);
        if (round % 3 == 1)
            continue;
        large.memory[PART + 5000 * (size_t)round % PART] ^= 0x55;
        if (round % 3 == 0)
            assert_int_equal(vn_region_collect(large.region, PART, PART), 0);
        assert_true(joint_push(&large) <= 2);
        assert_memory_equal(large.memory, large.server, BYTES);
    }
    joint_close(&large);
}

/* What the upload cache does: the bytes of pending pages, copied once, are the server's by another
 * way than a delta. */
/* Most of a page: all of it, but only where the server does not write. */
static void a_still_server_gets_whole_pages(void **state)
{
    (void)state;
    size_t changes, exact, whole;
    memset(joint.memory, 7, SIZE);
    joint_push(&joint);
    for (int still = 0; still < 2; still++) {
        for (size_t i = 0; i < VN_PAGE_BYTES; i++)
            joint.memory[i] += i % 64 != 5;
        joint.server[5] = 99;
        wire_enc_reset(&joint.up);
        assert_int_equal(vn_region_collect(joint.region, 0, SIZE_MAX), 0);
        assert_int_equal(vn_region_encode(joint.region, joint.client_codec, &joint.up,
                                          WIRE_MESSAGE_MAX,
                                          still ? VN_SERVER_IS_STILL : VN_SERVER_WRITES, &changes),
                         0);
        assert_int_equal(changes, 1);
        *(still ? &whole : &exact) = wire_enc_len(&joint.up);
        joint_apply_server(&joint);
        assert_int_equal(joint.server[5], still ? 7 : 99);
    }
    assert_int_equal(whole, VN_PAGE_BYTES + 3);
    assert_true(exact > whole);
    joint.server[5] = 7;
    assert_same();
}

/* Half of a block: all of it, so that both ends copy blocks.  Of the next block less than half. */
static void a_still_server_gets_whole_blocks(void **state)
{
    (void)state;
    size_t changes;
    memset(joint.memory, 7, SIZE);
    joint_push(&joint);
    for (size_t i = 0; i < 2 * VN_BLOCK_BYTES; i++)
        joint.memory[i] += i % 2 && i != VN_BLOCK_BYTES + 1;
    joint.server[0] = joint.server[VN_BLOCK_BYTES] = 99;
    assert_int_equal(vn_region_collect(joint.region, 0, SIZE_MAX), 0);
    wire_enc_reset(&joint.up);
    assert_int_equal(vn_region_encode(joint.region, joint.client_codec, &joint.up, WIRE_MESSAGE_MAX,
                                      VN_SERVER_IS_STILL, &changes),
                     0);
    assert_int_equal(changes, 1);
    joint_apply_server(&joint);
    assert_int_equal(joint.server[0], 7);
    assert_int_equal(joint.server[VN_BLOCK_BYTES], 99);
    joint.server[VN_BLOCK_BYTES] = 7;
    assert_same();
}

static void a_region_never_touched_costs_no_memory(void **state)
{
    (void)state;
    size_t size = (size_t)4 << 30, off = 0, len;
    struct vn_region_params params = {.size = size, .method = method};
    struct vn_region *region;
    assert_int_equal(vn_region_create(&params, &region), 0);
    size_t rss = kilobytes("VmRSS:"), tables = kilobytes("VmPTE:");
    for (int i = 0; i < 3; i++)
        assert_int_equal(vn_region_collect(region, 0, SIZE_MAX), 0);
    assert_false(vn_region_next_pending(region, &off, &len));
    uint8_t *middle = (uint8_t *)vn_region_memory(region) + size / 2;
    middle[0] = 1;
    assert_int_equal(vn_region_collect(region, 0, SIZE_MAX), 0);
    assert_true(vn_region_next_pending(region, &off, &len));
    assert_int_equal(off, size / 2);
    assert_int_equal(len, VN_PAGE_BYTES);
    unsigned char resident[512];
    assert_int_equal(mincore(middle - (2 << 20), sizeof(resident) * VN_PAGE_BYTES, resident), 0);
    for (size_t i = 0; i < sizeof(resident); i++)
        assert_int_equal(resident[i] & 1, 0);
    assert_true(kilobytes("VmRSS:") <
                rss + 2048); /* the scan's stack, and what libraries page in */
    assert_true(kilobytes("VmPTE:") < tables + 256);
    vn_region_destroy(region);
}

/* Content that no page table knows of yet is found, too, and the memory stays the program's. */
static void borrowed_memory_is_followed(void **state)
{
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), off = 0, len;
    int fd = memfd_create("test", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, SIZE), 0);
    assert_int_equal(pwrite(fd, "one", 3, (off_t)(2 * page)), 3);
    uint8_t *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    struct vn_region_params params = {.size = SIZE, .borrowed = memory, .method = method};
    struct vn_region *region;
    assert_int_equal(vn_region_create(&params, &region), 0);
    assert_ptr_equal(vn_region_memory(region), memory);
    assert_int_equal(vn_region_collect(region, 0, SIZE_MAX), 0);
    assert_true(vn_region_next_pending(region, &off, &len));
    assert_int_equal(off, 2 * page);
    assert_int_equal(pwrite(fd, "two", 3, 0), 3); /* not through the mapping */
    assert_int_equal(vn_region_collect(region, 0, page), 0);
    off = 0;
    assert_true(vn_region_next_pending(region, &off, &len));
    assert_int_equal(off, 0);
    assert_int_equal(vn_region_move(region, NULL, false), -ENOTSUP);
    vn_region_destroy(region);
    assert_memory_equal(memory, "two", 3);
    params.borrowed = memory + 8;
    assert_int_equal(vn_region_create(&params, &region), -EINVAL);
    munmap(memory, SIZE);
    close(fd);
}

int main(int argc, char **argv)
{
    method = joint_method(argc, argv);
#define WITH_JOINT(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_JOINT(the_method_asked_for_is_used),
        cmocka_unit_test(the_environment_chooses_where_the_caller_does_not),
        WITH_JOINT(written_pages_are_found_once),
        WITH_JOINT(memory_that_moves_is_followed),
        WITH_JOINT(pages_only_read_are_not_sent),
        WITH_JOINT(pending_runs_are_listed),
        WITH_JOINT(a_range_is_collected_alone),
        WITH_JOINT(a_budget_leaves_the_rest_pending),
        WITH_JOINT(what_the_server_sends_is_not_sent_back),
        WITH_JOINT(writes_of_both_sides_in_one_page_survive),
        WITH_JOINT(the_program_s_byte_stays_where_both_wrote_it),
        WITH_JOINT(a_write_after_apply_is_found),
        WITH_JOINT(a_bad_delta_changes_nothing),
        cmocka_unit_test(any_alignment_and_size_is_given),
        WITH_JOINT(system_calls_may_write_into_the_mapping),
        WITH_JOINT(a_child_does_not_disturb_the_parent),
        cmocka_unit_test(a_handler_installed_before_keeps_its_faults),
        cmocka_unit_test(a_handler_installed_after_is_found_at_the_next_collection),
        cmocka_unit_test(handlers_that_call_each_other_end),
        cmocka_unit_test(a_thousand_mappings_leave_nothing_behind),
        cmocka_unit_test(many_regions_share_two_descriptors),
        WITH_JOINT(touched_pages_are_found_on_old_kernels_too),
        cmocka_unit_test(memory_rewritten_as_a_whole_is_followed),
        cmocka_unit_test(memory_read_back_again_and_again_is_followed),
        WITH_JOINT(a_still_server_gets_whole_pages),
        WITH_JOINT(a_still_server_gets_whole_blocks),
        cmocka_unit_test(a_region_never_touched_costs_no_memory),
        cmocka_unit_test(borrowed_memory_is_followed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
