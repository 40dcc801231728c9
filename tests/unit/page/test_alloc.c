/* Page ids: free, reserved, in use, withdrawn by the limit. */
#include "unit.h"

#include "folder.h"
#include "page/alloc.h"

#include <errno.h>
#include <stdio.h>

enum { PAGES = 16, ID_BYTES = 1000 };

/* What would be the workers: every page is mapped or not, and never twice. */
struct device {
    bool mapped[PAGES];
    int maps, unmaps;
    int fail_maps, fail_unmaps;
};

static int device_change(struct device *d, const uint32_t *ids, size_t count, bool map,
                         struct page_error *why)
{
    if (map ? d->fail_maps : d->fail_unmaps)
        return page_fail(why, -EIO, 5, "told to fail");
    for (size_t i = 0; i < count; i++) {
        assert_true(ids[i] < PAGES);
        assert_int_equal(d->mapped[ids[i]], !map);
        d->mapped[ids[i]] = map;
    }
    *(map ? &d->maps : &d->unmaps) += 1;
    return 0;
}

static int device_map(void *user, const uint32_t *ids, size_t count, struct page_error *why)
{
    return device_change(user, ids, count, true, why);
}

static int device_unmap(void *user, const uint32_t *ids, size_t count, struct page_error *why)
{
    return device_change(user, ids, count, false, why);
}

static struct page_alloc_config config_for(struct device *d)
{
    *d = (struct device){.maps = 0};
    return (struct page_alloc_config){
        .pages = PAGES, .map = device_map, .unmap = device_unmap, .user = d, .id_bytes = ID_BYTES};
}

static struct page_alloc *make(const struct page_alloc_config *config)
{
    struct page_alloc *a;
    struct page_error why;
    if (page_alloc_create(config, &a, &why))
        fail_msg("%s", why.text);
    return a;
}

static void expect_counts(struct page_alloc *a, uint32_t used, uint32_t nothing, uint32_t reserved,
                          uint32_t reclaimed)
{
    struct page_alloc_stats s;
    page_alloc_stats(a, &s);
    assert_int_equal(s.used, used);
    assert_int_equal(s.free, nothing);
    assert_int_equal(s.reserved, reserved);
    assert_int_equal(s.reclaimed, reclaimed);
}

static void pages_go_round(void **state)
{
    (void)state;
    struct device d;
    struct page_alloc_config config = config_for(&d);
    config.reserve = 2;
    struct page_alloc *a = make(&config);
    struct page_error why;
    uint32_t ids[PAGES];
    assert_int_equal(page_alloc_pages(a, ids, 5, &why), 0);
    expect_counts(a, 5, 11, 0, 0);
    assert_int_equal(page_alloc_free(a, ids, 5, &why), 0);
    expect_counts(a, 0, 14, 2, 0); /* two stay mapped for the next */
    int maps = d.maps;
    assert_int_equal(page_alloc_pages(a, ids, 2, &why), 0);
    assert_int_equal(d.maps, maps);
    assert_int_equal(page_alloc_pages(a, ids + 2, 15, &why), -ENOSPC);
    assert_non_null(strstr(why.text, "15 pages asked for; 14 are free, 0 reserved, 2 in use"));
    assert_int_equal(page_alloc_free(a, ids, 2, &why), 0);
    assert_int_equal(page_alloc_trim(a, &why), 0);
    expect_counts(a, 0, 16, 0, 0);
    page_alloc_destroy(a);
}

static void what_is_not_in_use_cannot_be_freed(void **state)
{
    (void)state;
    struct device d;
    struct page_alloc_config config = config_for(&d);
    struct page_alloc *a = make(&config);
    struct page_error why;
    uint32_t ids[4];
    assert_int_equal(page_alloc_pages(a, ids, 2, &why), 0);
    ids[2] = ids[0]; /* twice in one call */
    assert_int_equal(page_alloc_free(a, ids, 3, &why), -ENOENT);
    ids[2] = PAGES;
    assert_int_equal(page_alloc_free(a, ids, 3, &why), -ENOENT);
    expect_counts(a, 2, 14, 0, 0);
    assert_int_equal(page_alloc_free(a, ids, 2, &why), 0);
    assert_int_equal(page_alloc_free(a, ids, 1, &why), -ENOENT);
    page_alloc_destroy(a);
}

static void a_map_that_fails_loses_no_page(void **state)
{
    (void)state;
    struct device d;
    struct page_alloc_config config = config_for(&d);
    config.reserve = 4;
    struct page_alloc *a = make(&config);
    struct page_error why;
    uint32_t ids[PAGES];
    assert_int_equal(page_alloc_pages(a, ids, 3, &why), 0);
    assert_int_equal(page_alloc_free(a, ids, 3, &why), 0);
    d.fail_maps = 1;
    assert_int_equal(page_alloc_pages(a, ids, 5, &why), -EIO);
    assert_int_equal(why.driver, 5);
    expect_counts(a, 0, 13, 3, 0);
    assert_int_equal(page_alloc_pages(a, ids, 3, &why), 0); /* these need no map */
    d.fail_maps = 0;
    assert_int_equal(page_alloc_pages(a, ids + 3, 5, &why), 0);
    d.fail_unmaps = 1;
    assert_int_equal(page_alloc_free(a, ids, 8, &why), -EIO);
    expect_counts(a, 0, 8, 8, 0); /* still mapped, so reserved */
    d.fail_unmaps = 0;
    page_alloc_destroy(a);
    for (int i = 0; i < PAGES; i++)
        assert_false(d.mapped[i]);
}

static void the_limit_withdraws_pages_and_gives_them_back(void **state)
{
    (void)state;
    char base[FOLDER_CHARS], path[64];
    struct device d;
    struct page_alloc_config config = config_for(&d);
    struct page_error why;
    uint32_t ids[PAGES];
    folder_make(base);
    snprintf(path, sizeof path, "%s/limit", base);
    assert_int_equal(page_limit_open(path, &config.limit, &why), 0);
    config.reserve = 4;
    struct page_alloc *a = make(&config);
    assert_int_equal(page_alloc_pages(a, ids, 6, &why), 0);
    page_limit_set(config.limit, 10 * ID_BYTES);
    expect_counts(a, 6, 4, 0, 6);
    assert_int_equal(page_alloc_pages(a, ids + 6, 5, &why), -ENOSPC);
    page_limit_set(config.limit, 4 * ID_BYTES + 1); /* below what is in use */
    expect_counts(a, 6, 0, 0, 10);
    assert_int_equal(page_alloc_pages(a, ids + 6, 1, &why), -ENOSPC);
    assert_int_equal(page_alloc_free(a, ids, 3, &why), 0); /* not kept in reserve: too many */
    expect_counts(a, 3, 1, 0, 12);
    page_limit_set(config.limit, 0);
    expect_counts(a, 3, 13, 0, 0);
    assert_int_equal(page_alloc_free(a, ids + 3, 3, &why), 0);
    page_alloc_destroy(a);
    page_limit_close(config.limit);
    unlink(path);
    folder_remove(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_go_round),
        cmocka_unit_test(what_is_not_in_use_cannot_be_freed),
        cmocka_unit_test(a_map_that_fails_loses_no_page),
        cmocka_unit_test(the_limit_withdraws_pages_and_gives_them_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
