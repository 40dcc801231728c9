/* Small pages in slabs: packed low, mapped while one is in use, counted against the limit; and a
 * trace of all this, which reads as what the device did. */
#include "unit.h"

#include "base/rng.h"
#include "page/slabs.h"
#include "page/trace/trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGES = 40, RUN = 4, SLABS = 10, SLAB_BYTES = 1000 };

struct device {
    bool mapped[SLABS];
    uint32_t count, most;
    uint32_t batches, ids; /* that were done */
    bool fail;
};

static int change(struct device *d, const uint32_t *slabs, size_t count, bool map,
                  struct page_error *why)
{
    if (d->fail)
        return page_fail(why, -EIO, 5, "told to fail");
    for (size_t i = 0; i < count; i++) {
        assert_true(slabs[i] < SLABS && d->mapped[slabs[i]] != map);
        d->mapped[slabs[i]] = map;
    }
    d->count = map ? d->count + (uint32_t)count : d->count - (uint32_t)count;
    d->most = d->count > d->most ? d->count : d->most;
    d->batches++;
    d->ids += (uint32_t)count;
    return 0;
}

static int map(void *user, const uint32_t *slabs, size_t count, struct page_error *why)
{
    return change(user, slabs, count, true, why);
}

static int unmap(void *user, const uint32_t *slabs, size_t count, struct page_error *why)
{
    return change(user, slabs, count, false, why);
}

struct rig {
    struct device device;
    struct page_limit *limit;
    struct page_slabs *slabs;
    struct page_trace *trace;
    char path[32];
};

static void open_rig(struct rig *r, uint32_t reserve)
{
    struct page_error why;
    *r = (struct rig){0};
    strcpy(r->path, "/tmp/hawser-trace-XXXXXX");
    int fd = mkstemp(r->path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(page_trace_create(r->path, &r->trace), 0);
    assert_int_equal(page_limit_open(NULL, &r->limit, &why), 0);
    assert_int_equal(page_limit_claim(r->limit, 0, &why), 0);
    struct page_slabs_config config = {.pages = PAGES,
                                       .run = RUN,
                                       .map = map,
                                       .unmap = unmap,
                                       .user = &r->device,
                                       .reserve = reserve,
                                       .limit = r->limit,
                                       .slab_bytes = SLAB_BYTES,
                                       .trace = r->trace};
    assert_int_equal(page_slabs_create(&config, &r->slabs, &why), 0);
}

static void check_trace(struct rig *r)
{
    struct page_trace_file f;
    size_t line;
    assert_int_equal(page_trace_destroy(r->trace), 0);
    FILE *file = fopen(r->path, "re");
    assert_non_null(file);
    assert_int_equal(page_trace_read(file, &f, &line), 0);
    assert_int_equal(line, 2 + r->device.batches);
    assert_int_equal(f.id_limit, SLABS);
    assert_int_equal(f.id_bytes, SLAB_BYTES);
    assert_int_equal(f.batch_count, r->device.batches);
    assert_int_equal(f.id_count, r->device.ids);
    assert_int_equal(f.most, r->device.most);
    page_trace_free(&f);
    fclose(file);
    unlink(r->path);
}

static void close_rig(struct rig *r)
{
    page_slabs_destroy(r->slabs);
    check_trace(r);
    assert_int_equal(r->device.count, 0);
    assert_int_equal(page_limit_charged(r->limit), 0);
    page_limit_close(r->limit);
}

static void expect(const struct rig *r, uint32_t used, uint32_t mapped, uint32_t reserved)
{
    struct page_slabs_stats s;
    page_slabs_stats(r->slabs, &s);
    assert_int_equal(s.used, used);
    assert_int_equal(s.mapped, mapped);
    assert_int_equal(s.reserved, reserved);
    assert_int_equal(r->device.count, mapped + reserved);
    assert_int_equal(page_limit_charged(r->limit), (mapped + reserved) * SLAB_BYTES);
}

static uint64_t mapped_bytes(const struct rig *r)
{
    struct page_limit_user users[PAGE_LIMIT_USERS];
    assert_int_equal(page_limit_users(r->limit, users), 1);
    return users[0].mapped_bytes;
}

static void pools_of_one_user_are_added_up(void **state)
{
    (void)state;
    struct rig r;
    struct device device = {0};
    struct page_slabs_config config = {.pages = PAGES,
                                       .run = RUN,
                                       .map = map,
                                       .unmap = unmap,
                                       .user = &device,
                                       .slab_bytes = SLAB_BYTES};
    struct page_slabs *second;
    struct page_error why;
    uint32_t ids[PAGES], other[1];
    open_rig(&r, 1);
    config.limit = r.limit;
    assert_int_equal(page_slabs_create(&config, &second, &why), 0);
    assert_int_equal(page_slabs_take(r.slabs, ids, 2 * RUN, &why), 0);
    assert_int_equal(page_slabs_take(second, other, 1, &why), 0);
    assert_int_equal(mapped_bytes(&r), 3 * SLAB_BYTES);
    assert_int_equal(page_slabs_give(r.slabs, ids, RUN, &why), 0); /* is a reserve */
    assert_int_equal(mapped_bytes(&r), 2 * SLAB_BYTES);
    assert_int_equal(page_slabs_give(second, other, 1, &why), 0);
    assert_int_equal(mapped_bytes(&r), SLAB_BYTES);
    assert_int_equal(page_slabs_give(r.slabs, ids + RUN, RUN, &why), 0);
    assert_int_equal(mapped_bytes(&r), 0);
    page_slabs_destroy(second);
    close_rig(&r);
}

static void a_slab_is_mapped_while_a_page_of_it_is_used(void **state)
{
    (void)state;
    struct rig r;
    struct page_error why;
    uint32_t ids[PAGES + 1];
    open_rig(&r, 0);
    assert_int_equal(page_slabs_take(r.slabs, ids, 5, &why), 0);
    expect(&r, 5, 2, 0);
    assert_int_equal(page_slabs_give(r.slabs, ids, 4, &why), 0);
    expect(&r, 1, 1, 0);
    assert_int_equal(page_slabs_take(r.slabs, ids, 3, &why), 0); /* beside the one that is left */
    expect(&r, 4, 1, 0);
    assert_int_equal(page_slabs_give(r.slabs, ids, 3, &why), 0);
    assert_int_equal(page_slabs_take(r.slabs, ids, PAGES - 1, &why), 0); /* to the last */
    expect(&r, PAGES, SLABS, 0);
    assert_int_equal(page_slabs_take(r.slabs, ids + PAGES - 1, 1, &why), -ENOSPC);
    expect(&r, PAGES, SLABS, 0);
    ids[PAGES - 1] = 4; /* the fifth of the first five */
    assert_int_equal(page_slabs_give(r.slabs, ids, PAGES, &why), 0);
    expect(&r, 0, 0, 0);
    close_rig(&r);
}

static void the_limit_counts_slabs_and_leaves_nothing_half_done(void **state)
{
    (void)state;
    struct rig r;
    struct page_error why;
    uint32_t ids[PAGES];
    open_rig(&r, 2);
    page_limit_set(r.limit, 3 * SLAB_BYTES + 1);
    assert_int_equal(page_slabs_take(r.slabs, ids, 3 * RUN + 1, &why), -ENOSPC);
    assert_int_equal(page_slabs_take(r.slabs, ids, 3 * RUN, &why), 0);
    expect(&r, 3 * RUN, 3, 0);
    page_limit_set(r.limit, SLAB_BYTES); /* lowered under use: what is freed goes back at once */
    assert_int_equal(page_slabs_give(r.slabs, ids + RUN, 2 * RUN, &why), 0);
    expect(&r, RUN, 1, 0);
    assert_int_equal(page_slabs_take(r.slabs, ids + RUN, 1, &why), -ENOSPC);
    page_limit_set(r.limit, 0);
    page_limit_set_own(r.limit, 2 * SLAB_BYTES);
    assert_int_equal(page_slabs_take(r.slabs, ids + RUN, RUN + 1, &why), -ENOSPC);
    assert_int_equal(page_slabs_take(r.slabs, ids + RUN, RUN, &why), 0);
    assert_int_equal(page_slabs_give(r.slabs, ids, 2 * RUN, &why), 0);
    expect(&r, 0, 0, 2); /* the reserve */
    assert_int_equal(page_slabs_trim(r.slabs, &why), 0);
    expect(&r, 0, 0, 0);
    close_rig(&r);
}

static void what_the_device_refuses_is_not_charged(void **state)
{
    (void)state;
    struct rig r;
    struct page_error why;
    uint32_t ids[2 * RUN];
    open_rig(&r, 0);
    assert_int_equal(page_slabs_take(r.slabs, ids, 1, &why), 0);
    r.device.fail = true;
    assert_int_equal(page_slabs_take(r.slabs, ids + 1, RUN, &why), -EIO);
    expect(&r, 1, 1, 0);
    assert_int_equal(page_slabs_give(r.slabs, ids, 1, &why), -EIO);
    expect(&r, 0, 0, 1); /* it is still mapped, and will be used again */
    r.device.fail = false;
    assert_int_equal(page_slabs_take(r.slabs, ids, RUN, &why), 0);
    expect(&r, RUN, 1, 0);
    assert_int_equal(page_slabs_give(r.slabs, ids, RUN, &why), 0);
    close_rig(&r);
}

static void the_reserve_needs_no_map_and_outlives_a_failure(void **state)
{
    (void)state;
    struct rig r;
    struct page_error why;
    uint32_t ids[6 * RUN];
    open_rig(&r, 3);
    assert_int_equal(page_slabs_take(r.slabs, ids, 4 * RUN, &why), 0);
    assert_int_equal(page_slabs_give(r.slabs, ids, 4 * RUN, &why), 0);
    expect(&r, 0, 0, 3);
    r.device.fail = true;
    assert_int_equal(page_slabs_take(r.slabs, ids, 5 * RUN, &why), -EIO);
    expect(&r, 0, 0, 3);
    assert_int_equal(page_slabs_take(r.slabs, ids, 3 * RUN, &why), 0);
    expect(&r, 3 * RUN, 3, 0);
    r.device.fail = false;
    assert_int_equal(page_slabs_take(r.slabs, ids + 3 * RUN, 2 * RUN, &why), 0);
    assert_int_equal(page_slabs_give(r.slabs, ids, 5 * RUN, &why), 0);
    page_limit_set(r.limit, 2 * SLAB_BYTES); /* below the reserve, which is not handed out then */
    assert_int_equal(page_slabs_take(r.slabs, ids, 1, &why), -ENOSPC);
    assert_non_null(strstr(why.text, "0 are in use and 3 reserved of 10, and the limit allows 2"));
    r.device.fail = true;
    assert_int_equal(page_slabs_trim(r.slabs, &why), -EIO);
    expect(&r, 0, 0, 3);
    r.device.fail = false;
    close_rig(&r);
}

/* Random takes and gives, under a limit that moves: no page twice, no slab too many. */
static void random_use_keeps_the_books(void **state)
{
    (void)state;
    struct rig r;
    struct page_error why;
    struct hw_rng rng;
    uint32_t held[PAGES], count = 0;
    hw_rng_seed(&rng, 25);
    open_rig(&r, 1);
    for (int i = 0; i < 20000; i++) {
        uint32_t what = (uint32_t)hw_rng_below(&rng, 20);
        if (what == 0)
            page_limit_set(r.limit, hw_rng_below(&rng, SLABS + 2) * SLAB_BYTES);
        if (what < 11) {
            uint32_t n = (uint32_t)hw_rng_below(&rng, 7);
            uint64_t limit = page_limit_get(r.limit), before = page_limit_charged(r.limit);
            n = n < PAGES - count ? n : PAGES - count;
            if (page_slabs_take(r.slabs, held + count, n, &why) == 0)
                count += n;
            assert_true(limit == 0 || page_limit_charged(r.limit) <= limit ||
                        page_limit_charged(r.limit) <= before);
        } else if (count > 0) {
            uint32_t at = (uint32_t)hw_rng_below(&rng, count), id = held[at];
            held[at] = held[--count];
            assert_int_equal(page_slabs_give(r.slabs, &id, 1, &why), 0);
        }
        bool seen[PAGES] = {false};
        for (uint32_t k = 0; k < count; k++) {
            assert_true(held[k] < PAGES && !seen[held[k]]);
            assert_true(r.device.mapped[held[k] / RUN]);
            seen[held[k]] = true;
        }
    }
    assert_int_equal(page_slabs_give(r.slabs, held, count, &why), 0);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slab_is_mapped_while_a_page_of_it_is_used),
        cmocka_unit_test(pools_of_one_user_are_added_up),
        cmocka_unit_test(the_limit_counts_slabs_and_leaves_nothing_half_done),
        cmocka_unit_test(what_the_device_refuses_is_not_charged),
        cmocka_unit_test(the_reserve_needs_no_map_and_outlives_a_failure),
        cmocka_unit_test(random_use_keeps_the_books),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
