/* What benchkv makes of its figures: the line through the cycles, the modes, figures as bytes. */
#include "../kv/unit.h"

#include "bench/kv/benchkv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void a_line_is_found_exactly(void **state)
{
    (void)state;
    struct bkv_summary points[4] = {{0}};
    for (int i = 0; i < 4; i++) {
        double n = 1 << (2 * i), cycle_us = 5 + 0.95 * n;
        points[i].in_flight = n;
        points[i].remote_rps = n / cycle_us * 1e6;
    }
    struct bkv_fit fit;
    assert_true(bkv_fit_cycle(points, 4, &fit));
    assert_true(fabs(fit.fixed_us - 5) < 1e-6 && fabs(fit.per_request_us - 0.95) < 1e-6);
    assert_true(fit.r2 > 0.999999);
}

static void too_few_points_give_no_line(void **state)
{
    (void)state;
    struct bkv_summary points[3] = {{.in_flight = 3, .remote_rps = 100}};
    struct bkv_fit fit;
    assert_false(bkv_fit_cycle(points, 3, &fit));
}

/* The published distribution of 16 clients: 18% fast, 82% slow. */
static void two_populations_are_told_apart(void **state)
{
    (void)state;
    uint64_t us[64] = {
        [3] = 4,        [4] = 19086,    [5] = 313681,   [6] = 376919,  [7] = 296414,
        [8] = 231283,   [9] = 173872,   [10] = 207723,  [11] = 431567, [12] = 1147000,
        [13] = 2499061, [14] = 3176682, [15] = 1894466, [16] = 414100, [17] = 21742};
    struct bkv_mode modes[BKV_MODES_MAX];
    assert_int_equal(bkv_find_modes(us, 64, modes), 2);
    assert_int_equal(modes[0].us, 6);
    assert_int_equal(modes[1].us, 14);
    assert_true(modes[0].share > 0.08 && modes[0].share < 0.2);
    assert_true(fabs(modes[0].share + modes[1].share - 1) < 1e-9);
}

static void noise_is_no_population(void **state)
{
    (void)state;
    uint64_t us[100] = {0};
    struct bkv_mode modes[BKV_MODES_MAX];
    assert_int_equal(bkv_find_modes(us, 100, modes), 0);
    for (uint32_t i = 0; i < 100; i++)
        us[i] = (uint64_t)(10000 * exp(-pow((double)i - 50, 2) / 50)) + i % 3;
    assert_int_equal(bkv_find_modes(us, 100, modes), 1);
    assert_int_equal(modes[0].us, 50);
}

/* The published breakdown: 16 clients, half of the requests remote. */
static void the_gap_is_broken_down_or_not_at_all(void **state)
{
    (void)state;
    struct bkv_point point = {.clients = 16, .depth = 1};
    struct bkv_summary one = {.point = &point, .rtt_mean_us = 4.2};
    struct bkv_summary many = {.point = &point,
                               .rtt_mean_us = 13.9,
                               .remote_mean_us = 14.1,
                               .local_mean_us = 0.12,
                               .rank_rps = 2.25e6,
                               .remote_rps = 1.125e6};
    struct bkv_gap gap = bkv_find_gap(&one, &many);
    assert_true(gap.holds);
    assert_true(fabs(gap.average_us - 7.11) < 0.001);
    assert_true(fabs(gap.queue_us - 9.7) < 0.001 && fabs(gap.shm_us - 0.2) < 0.001);
    assert_true(fabs(gap.predicted_rps / many.rank_rps - 1) < 0.01);
    one.rtt_mean_us = 20; /* more clients were quicker */
    assert_false(bkv_find_gap(&one, &many).holds);
    one.rtt_mean_us = 4.2;
    many.rank_rps = 2 * (many.remote_rps = 0.5e6); /* clients did something else most of the time */
    assert_false(bkv_find_gap(&one, &many).holds);
    many.rank_rps = many.remote_rps = 0;
    assert_false(bkv_find_gap(&one, &many).holds);
}

static void results_survive_the_way_to_rank_0(void **state)
{
    (void)state;
    struct bkv_result *from = malloc(sizeof(*from)), *to = malloc(sizeof(*to));
    uint8_t *data;
    size_t len;
    assert_true(from && to);
    assert_int_equal(bkv_result_init(from) | bkv_result_init(to), 0);
    for (uint64_t i = 1; i < 5000; i += 7) {
        hw_hist_record(&from->rtt, i * 100);
        hw_hist_record(&from->latency, i * 10);
        hw_hist_record(&from->stage[KV_STAGE_SERVE], i);
    }
    from->rtt_us[3] = 9;
    from->rtt_mean = 1.25;
    from->results[KV_OK] = 11;
    from->stats[2] = 77;
    from->late = 5;
    assert_int_equal(bkv_result_encode(from, &data, &len), 0);
    assert_int_equal(bkv_result_decode(data, len, to), 0);
    assert_int_equal(to->rtt.count, from->rtt.count);
    assert_int_equal(to->stage[KV_STAGE_SERVE].count, from->rtt.count);
    for (double p = 1; p < 100; p += 7) {
        uint64_t want = hw_hist_percentile(&from->rtt, p), got = hw_hist_percentile(&to->rtt, p);
        assert_in_range(got, want - want / 128, want + want / 128);
    }
    assert_int_equal(to->rtt_us[3], 9);
    assert_true(to->rtt_mean == 1.25);
    assert_int_equal(bkv_result_requests(to), 11);
    assert_int_equal(to->stats[2], 77);
    assert_int_equal(to->late, 5);
    assert_int_equal(bkv_result_decode(data, len - 1, to), -EPROTO);
    free(data);
    bkv_result_fini(from);
    bkv_result_fini(to);
    free(from);
    free(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_found_exactly),
        cmocka_unit_test(too_few_points_give_no_line),
        cmocka_unit_test(two_populations_are_told_apart),
        cmocka_unit_test(noise_is_no_population),
        cmocka_unit_test(the_gap_is_broken_down_or_not_at_all),
        cmocka_unit_test(results_survive_the_way_to_rank_0),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
