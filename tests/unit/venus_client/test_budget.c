/* How long an answer about budgets is good. */
#include "unit.h"

#include "venus/client/device/budget.h"

static const uint64_t asked = 1000 * VNC_BUDGET_NS;

static void keep(struct vnc_budget *b, uint64_t when, uint64_t usage)
{
    VkPhysicalDeviceMemoryBudgetPropertiesEXT said = {.heapBudget = {100}, .heapUsage = {usage}};
    vnc_budget_keep(b, when, when, vnc_budget_changes(b), &said);
}

static void expect(struct vnc_budget *b, uint64_t now, uint64_t usage)
{
    VkPhysicalDeviceMemoryBudgetPropertiesEXT found = {0};
    assert_true(vnc_budget_find(b, now, &found));
    assert_int_equal(found.heapBudget[0], 100);
    assert_int_equal(found.heapUsage[0], usage);
}

static void expect_none(struct vnc_budget *b, uint64_t now)
{
    VkPhysicalDeviceMemoryBudgetPropertiesEXT found;
    assert_false(vnc_budget_find(b, now, &found));
}

static void an_answer_is_good_for_a_moment(void **state)
{
    struct vnc_budget b;
    (void)state;
    vnc_budget_init(&b);
    expect_none(&b, asked);
    keep(&b, asked, 7);
    expect(&b, asked, 7);
    expect(&b, asked + VNC_BUDGET_NS - 1, 7);
    expect_none(&b, asked + VNC_BUDGET_NS);
    vnc_budget_fini(&b);
}

/* A program that asks all the time waits for a sixteenth of it. */
static void an_answer_that_took_long_is_good_for_longer(void **state)
{
    static const struct {
        uint64_t took, good;
    } rows[] = {{VNC_BUDGET_NS / 100, VNC_BUDGET_NS},
                {VNC_BUDGET_NS, VNC_BUDGET_TIMES * VNC_BUDGET_NS},
                {VNC_BUDGET_MOST_NS, VNC_BUDGET_MOST_NS}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        VkPhysicalDeviceMemoryBudgetPropertiesEXT said = {.heapBudget = {100}, .heapUsage = {7}};
        struct vnc_budget b;
        vnc_budget_init(&b);
        vnc_budget_keep(&b, asked, asked + rows[i].took, 0, &said);
        expect(&b, asked + rows[i].good - 1, 7);
        expect_none(&b, asked + rows[i].good);
        vnc_budget_fini(&b);
    }
}

static void what_the_program_allocates_is_seen_at_once(void **state)
{
    struct vnc_budget b;
    (void)state;
    vnc_budget_init(&b);
    keep(&b, asked, 7);
    vnc_budget_change(&b);
    expect_none(&b, asked);
    /* Asked before, told after: it may be missing in the answer. */
    uint64_t before = vnc_budget_changes(&b);
    vnc_budget_change(&b);
    vnc_budget_keep(&b, asked + 1, asked + 1, before,
                    &(VkPhysicalDeviceMemoryBudgetPropertiesEXT){0});
    expect_none(&b, asked + 1);
    keep(&b, asked + 2, 9);
    expect(&b, asked + 2, 9);
    vnc_budget_fini(&b);
}

static void of_two_answers_the_newer_question_counts(void **state)
{
    struct vnc_budget b;
    (void)state;
    vnc_budget_init(&b);
    keep(&b, asked + 5, 2);
    keep(&b, asked, 1);
    expect(&b, asked + 5, 2);
    vnc_budget_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_is_good_for_a_moment),
        cmocka_unit_test(an_answer_that_took_long_is_good_for_longer),
        cmocka_unit_test(what_the_program_allocates_is_seen_at_once),
        cmocka_unit_test(of_two_answers_the_newer_question_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
