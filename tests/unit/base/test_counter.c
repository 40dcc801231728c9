#include "unit.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/counter.h"

/* The registry is one for the process and never forgets a table, so the tests below use one table
 * each and print before the next begins; the exact output is checked in a process of its own table
 * only: the first test. */
static const struct hw_counter_def net_defs[] = {
    {"net_bytes", "Bytes sent,\nall \\ of them", "bytes", HW_COUNTER},
    {"net_open", "Open connections", "", HW_GAUGE},
};
enum { NET_BYTES, NET_OPEN, NET_COUNT };

struct net {
    _Atomic uint64_t values[NET_COUNT];
    struct hw_counter_set set;
};

static void net_init(struct net *net)
{
    memset(net, 0, sizeof *net);
    net->set.defs = net_defs;
    net->set.values = net->values;
    net->set.count = NET_COUNT;
}

static char *printed(enum hw_counters_format format)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    assert_int_equal(hw_counters_print(out, format), 0);
    fclose(out);
    return text;
}

static void expect_print(enum hw_counters_format format, const char *want)
{
    char *text = printed(format);
    assert_string_equal(text, want);
    free(text);
}

#define NET_HEAD                                                                                   \
    "# HELP hawser_net_bytes_total Bytes sent,\\nall \\\\ of them\n"                               \
    "# TYPE hawser_net_bytes_total counter\n"
#define NET_GAUGE                                                                                  \
    "# HELP hawser_net_open Open connections\n"                                                    \
    "# TYPE hawser_net_open gauge\n"

static void prometheus_output_is_exact_and_totals_never_go_back(void **state)
{
    (void)state;
    static struct net tcp, odd; /* static: a failed test must not leave its stack registered */
    uint64_t total;
    expect_print(HW_COUNTERS_PROMETHEUS, "");
    net_init(&tcp);
    net_init(&odd);
    assert_int_equal(hw_counter_set_label(&tcp.set, "transport", "tcp"), 0);
    assert_int_equal(hw_counter_set_label(&tcp.set, "peer", "a:1"), 0);
    assert_int_equal(hw_counter_set_label(&odd.set, "peer", "q\"b\\n\n"), 0);
    assert_int_equal(hw_counter_set_register(&tcp.set), 0);
    assert_int_equal(hw_counter_set_register(&odd.set), 0);
    hw_counter_bump(&tcp.values[NET_BYTES], 100);
    hw_counter_bump(&tcp.values[NET_BYTES], 23);
    hw_counter_bump(&odd.values[NET_BYTES], UINT64_C(1) << 40);
    hw_counter_bump(&tcp.values[NET_OPEN], 1);
    expect_print(HW_COUNTERS_PROMETHEUS,
                 NET_HEAD "hawser_net_bytes_total{peer=\"q\\\"b\\\\n\\n\"} 1099511627776\n"
                          "hawser_net_bytes_total{transport=\"tcp\",peer=\"a:1\"} 123\n" NET_GAUGE
                          "hawser_net_open{peer=\"q\\\"b\\\\n\\n\"} 0\n"
                          "hawser_net_open{transport=\"tcp\",peer=\"a:1\"} 1\n");
    hw_counter_set_unregister(&tcp.set);
    hw_counter_set_unregister(&tcp.set); /* nothing to do */
    expect_print(HW_COUNTERS_PROMETHEUS,
                 NET_HEAD "hawser_net_bytes_total{peer=\"q\\\"b\\\\n\\n\"} 1099511627776\n"
                          "hawser_net_bytes_total{retired=\"true\"} 123\n" NET_GAUGE
                          "hawser_net_open{peer=\"q\\\"b\\\\n\\n\"} 0\n");
    assert_int_equal(hw_counters_total("net_bytes", &total), 0);
    assert_int_equal(total, (UINT64_C(1) << 40) + 123);
    assert_int_equal(hw_counters_total("net_open", &total), 0);
    assert_int_equal(total, 0);
    hw_counter_set_unregister(&odd.set);
    expect_print(HW_COUNTERS_PROMETHEUS,
                 NET_HEAD "hawser_net_bytes_total{retired=\"true\"} 1099511627899\n" NET_GAUGE);
}

static void sets_with_equal_labels_are_one_series(void **state)
{
    (void)state;
    static struct net a, b;
    net_init(&a);
    net_init(&b);
    assert_int_equal(hw_counter_set_register(&a.set), 0);
    assert_int_equal(hw_counter_set_register(&b.set), 0);
    assert_int_equal(hw_counter_set_register(&a.set), -EEXIST);
    hw_counter_bump(&a.values[NET_OPEN], 2);
    hw_counter_bump(&b.values[NET_OPEN], 3);
    char *text = printed(HW_COUNTERS_PROMETHEUS);
    assert_non_null(strstr(text, NET_GAUGE "hawser_net_open 5\n"));
    free(text);
    text = printed(HW_COUNTERS_TEXT);
    assert_non_null(strstr(text, "net_open                    5         Open connections\n"));
    free(text);
    hw_counter_set_unregister(&a.set);
    hw_counter_set_unregister(&b.set);
}

static void json_holds_the_same_figures(void **state)
{
    (void)state;
    static struct net net;
    uint64_t total;
    net_init(&net);
    assert_int_equal(hw_counter_set_label(&net.set, "peer", "x\"y"), 0);
    assert_int_equal(hw_counter_set_register(&net.set), 0);
    hw_counter_bump(&net.values[NET_BYTES], 5);
    assert_int_equal(hw_counters_total("net_bytes", &total), 0);
    char *text = printed(HW_COUNTERS_JSON);
    json_t *root = json_loads(text, 0, NULL);
    assert_non_null(root);
    json_t *first = json_array_get(json_object_get(root, "counters"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "name")), "net_bytes");
    assert_string_equal(json_string_value(json_object_get(first, "unit")), "bytes");
    assert_string_equal(json_string_value(json_object_get(first, "kind")), "counter");
    assert_int_equal(json_integer_value(json_object_get(first, "total")), total);
    json_t *series = json_array_get(json_object_get(first, "series"), 0);
    assert_int_equal(json_integer_value(json_object_get(series, "value")), 5);
    json_t *labels = json_object_get(series, "labels");
    assert_string_equal(json_string_value(json_object_get(labels, "peer")), "x\"y");
    json_decref(root);
    free(text);
    hw_counter_set_unregister(&net.set);
}

static void malformed_and_clashing_definitions_are_refused(void **state)
{
    (void)state;
    static const struct hw_counter_def clash[] = {{"net_bytes", "again", "", HW_COUNTER}};
    static const struct hw_counter_def twice[] = {{"twin", "", "", HW_GAUGE},
                                                  {"twin", "", "", HW_GAUGE}};
    static const struct hw_counter_def upper[] = {{"Net", "", "", HW_COUNTER}};
    static const struct hw_counter_def digit[] = {{"9net", "", "", HW_COUNTER}};
    static const struct hw_counter_def suffix[] = {{"x_total", "", "", HW_COUNTER}};
    static const struct hw_counter_def helpless[] = {{"helpless", NULL, "", HW_COUNTER}};
    _Atomic uint64_t values[2] = {0};
    struct {
        const struct hw_counter_def *defs;
        size_t count;
        int rc;
    } cases[] = {{clash, 1, -EEXIST}, {twice, 2, -EEXIST},    {upper, 1, -EINVAL},
                 {digit, 1, -EINVAL}, {suffix, 1, -EINVAL},   {helpless, 1, -EINVAL},
                 {NULL, 1, -EINVAL},  {net_defs, 1, -EEXIST}, {net_defs, 0, -EINVAL}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct hw_counter_set set = {
            .defs = cases[i].defs, .values = values, .count = cases[i].count};
        assert_int_equal(hw_counter_set_register(&set), cases[i].rc);
    }
}

static void labels_are_checked_and_bounded(void **state)
{
    (void)state;
    struct hw_counter_set set = {0};
    char longest[HW_COUNTER_LABEL_BYTES];
    assert_int_equal(hw_counter_set_label(&set, "", "x"), -EINVAL);
    assert_int_equal(hw_counter_set_label(&set, "a b", "x"), -EINVAL);
    memset(longest, 'v', sizeof longest);
    longest[HW_COUNTER_LABEL_BYTES - 3] = '\0'; /* with "a" and two NULs, one past */
    longest[HW_COUNTER_LABEL_BYTES - 2] = '\0';
    assert_int_equal(hw_counter_set_label(&set, "a", longest), 0);
    assert_int_equal(hw_counter_set_label(&set, "b", ""), -ENOSPC);
    assert_int_equal(set.labels_len, HW_COUNTER_LABEL_BYTES);
}

static void unknown_counter_has_no_total(void **state)
{
    (void)state;
    uint64_t total = 77;
    assert_int_equal(hw_counters_total("nothing", &total), -ENOENT);
    assert_int_equal(total, 77);
}

static void failed_write_is_told(void **state)
{
    (void)state;
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    assert_int_equal(hw_counters_print(full, HW_COUNTERS_TEXT), -ENOSPC);
    fclose(full);
}

static const struct hw_counter_def work_defs[] = {{"work_done", "Work done", "", HW_COUNTER}};
enum { WORKERS = 3, ROUNDS = 200, BUMPS = 50 };

static void *work(void *arg)
{
    for (int round = 0; round < ROUNDS; round++) {
        _Atomic uint64_t value = 0;
        struct hw_counter_set set = {.defs = work_defs, .values = &value, .count = 1};
        if (hw_counter_set_register(&set) < 0)
            return arg;
        for (int i = 0; i < BUMPS; i++)
            hw_counter_bump(&value, 1);
        hw_counter_set_unregister(&set);
    }
    return NULL;
}

static void totals_only_grow_while_sets_come_and_go(void **state)
{
    pthread_t threads[WORKERS];
    uint64_t before = 0, total = 0;
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, state), 0);
    for (int i = 0; i < 100; i++) {
        int rc = hw_counters_total("work_done", &total);
        assert_true(rc == 0 || rc == -ENOENT);
        assert_true(total >= before);
        before = total;
        free(printed(HW_COUNTERS_PROMETHEUS));
    }
    for (int i = 0; i < WORKERS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(hw_counters_total("work_done", &total), 0);
    assert_int_equal(total, WORKERS * ROUNDS * BUMPS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prometheus_output_is_exact_and_totals_never_go_back),
        cmocka_unit_test(sets_with_equal_labels_are_one_series),
        cmocka_unit_test(json_holds_the_same_figures),
        cmocka_unit_test(malformed_and_clashing_definitions_are_refused),
        cmocka_unit_test(labels_are_checked_and_bounded),
        cmocka_unit_test(unknown_counter_has_no_total),
        cmocka_unit_test(failed_write_is_told),
        cmocka_unit_test(totals_only_grow_while_sets_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
