/* A presenter between a canvas and a queue that the test controls. */
#include "unit.h"

#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "venus/client/present/presenter.h"
#include "venus/memory/track/kernel.h"

enum { IMAGES = 3, SIDE = 4, PICTURE_BYTES = SIDE * SIDE * VNC_PIXEL_BYTES, SHOWS_MAX = 16 };

/* A canvas that remembers what it showed, and a queue whose batches the test completes. */
struct stage {
    struct vnc_canvas canvas;
    uint8_t shown_pixels[PICTURE_BYTES];
    uint8_t pictures[IMAGES][PICTURE_BYTES];
    struct vnc_queue queue;
    sem_t done;           /* once for each batch */
    VkResult wait_result; /* before a batch is completed */
    VkResult show_result;
    uint8_t shows[SHOWS_MAX]; /* the first byte of each picture */
    uint32_t rects[SHOWS_MAX];
    uint32_t show_count;
    bool destroyed;
    VkPresentModeKHR mode; /* of what is presented next */
    bool paced[SHOWS_MAX];
    struct vnc_presenter *presenter;
};

static VkResult fake_show(struct vnc_canvas *canvas, const struct vnc_rects *rects)
{
    struct stage *s = CONTAINER_OF(canvas, struct stage, canvas);
    assert_true(s->show_count < SHOWS_MAX);
    s->shows[s->show_count] = canvas->picture.pixels[0];
    s->paced[s->show_count] = canvas->paced;
    s->rects[s->show_count++] = rects->count;
    return s->show_result;
}

static void fake_destroy(struct vnc_canvas *canvas)
{
    CONTAINER_OF(canvas, struct stage, canvas)->destroyed = true;
}

static const struct vnc_canvas_ops fake_ops = {fake_show, fake_destroy};

static VkResult fake_wait(void *user, struct vnc_queue *queue, uint64_t number)
{
    struct stage *s = user;
    assert_ptr_equal(queue, &s->queue);
    (void)number;
    while (sem_wait(&s->done))
        ;
    return s->wait_result;
}

static void start(struct stage *s, VkPresentModeKHR mode)
{
    memset(s, 0, sizeof(*s));
    assert_int_equal(sem_init(&s->done, 0, 0), 0);
    s->canvas.ops = &fake_ops;
    s->canvas.picture = (struct vnc_picture){s->shown_pixels, SIDE, SIDE};
    const uint8_t *pictures[IMAGES];
    for (int i = 0; i < IMAGES; i++)
        pictures[i] = memset(s->pictures[i], 10 + i, PICTURE_BYTES);
    s->mode = mode;
    struct vnc_presenter_params params = {
        .count = IMAGES, .canvas = &s->canvas, .pictures = pictures, .wait = fake_wait, .user = s};
    assert_int_equal(vnc_presenter_create(&params, &s->presenter), VK_SUCCESS);
}

static void stop(struct stage *s)
{
    vnc_presenter_destroy(s->presenter);
    assert_true(s->destroyed);
    sem_destroy(&s->done);
}

static uint32_t acquire(struct stage *s)
{
    uint32_t index = UINT32_MAX;
    assert_int_equal(vnc_presenter_acquire(s->presenter, HW_NEVER, &index), VK_SUCCESS);
    assert_in_range(index, 0, IMAGES - 1);
    return index;
}

/* Number i + 1 is the batch of image i. */
static VkResult try_present(struct stage *s, uint32_t index, uint64_t id)
{
    const struct vnc_present present = {&s->queue, index + 1, id, s->mode};
    return vnc_presenter_present(s->presenter, index, &present);
}

static void present(struct stage *s, uint32_t index)
{
    assert_int_equal(try_present(s, index, 0), VK_SUCCESS);
}

static void complete(struct stage *s, uint64_t number)
{
    atomic_store_explicit(&s->queue.done, number, memory_order_release);
    sem_post(&s->done);
}

static void images_come_back_in_order(void **state)
{
    (void)state;
    struct stage s;
    start(&s, VK_PRESENT_MODE_FIFO_KHR);
    for (uint32_t i = 0; i < IMAGES; i++)
        assert_int_equal(acquire(&s), i);
    present(&s, 2);
    present(&s, 0);
    present(&s, 1);
    for (uint64_t i = 1; i <= IMAGES; i++)
        complete(&s, IMAGES);
    assert_int_equal(acquire(&s), 2);
    assert_int_equal(acquire(&s), 0);
    assert_int_equal(acquire(&s), 1);
    stop(&s);
    const uint8_t order[] = {12, 10, 11};
    assert_int_equal(s.show_count, 3);
    assert_memory_equal(s.shows, order, sizeof(order));
}

static void without_a_free_image_the_timeout_decides(void **state)
{
    (void)state;
    struct stage s;
    start(&s, VK_PRESENT_MODE_FIFO_KHR);
    for (int i = 0; i < IMAGES; i++)
        (void)acquire(&s);
    present(&s, 0); /* and not done */
    uint32_t index = 77;
    assert_int_equal(vnc_presenter_acquire(s.presenter, 0, &index), VK_NOT_READY);
    assert_int_equal(vnc_presenter_acquire(s.presenter, HW_MS, &index), VK_TIMEOUT);
    assert_int_equal(index, 77);
    complete(&s, 1);
    assert_int_equal(acquire(&s), 0);
    stop(&s);
}

static void only_changes_are_named(void **state)
{
    (void)state;
    struct stage s;
    start(&s, VK_PRESENT_MODE_FIFO_KHR);
    memcpy(s.pictures[1], s.pictures[0], PICTURE_BYTES);
    for (uint32_t i = 0; i < IMAGES; i++) {
        present(&s, acquire(&s));
        complete(&s, i + 1);
    }
    stop(&s);
    const uint32_t rects[] = {1, 0, 1};
    assert_int_equal(s.show_count, 3);
    assert_memory_equal(s.rects, rects, sizeof(rects));
}

static void mailbox_leaves_out_what_was_overtaken(void **state)
{
    (void)state;
    struct stage s;
    start(&s, VK_PRESENT_MODE_MAILBOX_KHR);
    for (int i = 0; i < IMAGES; i++)
        (void)acquire(&s);
    for (uint32_t i = 0; i < IMAGES; i++)
        present(&s, i);
    atomic_store(&s.queue.done, IMAGES); /* all are done before the first is looked at */
    for (int i = 0; i < IMAGES; i++)
        sem_post(&s.done);
    for (uint32_t i = 0; i < IMAGES; i++)
        assert_int_equal(acquire(&s), i);
    stop(&s);
    assert_int_equal(s.show_count, 1);
    assert_int_equal(s.shows[0], 12);
}

static void a_failed_show_is_told_and_is_the_last(void **state)
{
    (void)state;
    struct stage s;
    start(&s, VK_PRESENT_MODE_FIFO_KHR);
    s.show_result = VK_ERROR_OUT_OF_DATE_KHR;
    for (int i = 0; i < IMAGES; i++)
        (void)acquire(&s);
    present(&s, 0);
    complete(&s, 1);
    uint32_t index;
    assert_int_equal(vnc_presenter_acquire(s.presenter, HW_NEVER, &index),
                     VK_ERROR_OUT_OF_DATE_KHR);
    assert_int_equal(try_present(&s, 1, 0), VK_ERROR_OUT_OF_DATE_KHR);
    complete(&s, 2);
    stop(&s);
    assert_int_equal(s.show_count, 1);
}

static void *acquire_until_lost(void *arg)
{
    struct stage *s = arg;
    uint32_t index;
    VkResult result = vnc_presenter_acquire(s->presenter, HW_NEVER, &index);
    return result == VK_ERROR_DEVICE_LOST ? s : NULL;
}

static void a_lost_device_ends_a_waiting_acquire(void **state)
{
    (void)state;
    struct stage s;
    start(&s, VK_PRESENT_MODE_FIFO_KHR);
    s.wait_result = VK_ERROR_DEVICE_LOST;
    for (int i = 0; i < IMAGES; i++)
        (void)acquire(&s);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, acquire_until_lost, &s), 0);
    present(&s, 0);
    sem_post(&s.done);
    void *told;
    pthread_join(thread, &told);
    assert_ptr_equal(told, &s);
    stop(&s);
    assert_int_equal(s.show_count, 0);
}

static void *complete_one(void *arg)
{
    complete(arg, 1);
    return NULL;
}

static void retiring_shows_what_is_pending_and_gives_no_more(void **state)
{
    (void)state;
    struct stage s;
    start(&s, VK_PRESENT_MODE_FIFO_KHR);
    present(&s, acquire(&s));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, complete_one, &s), 0);
    vnc_presenter_retire(s.presenter);
    pthread_join(thread, NULL);
    assert_int_equal(s.show_count, 1);
    uint32_t index;
    assert_int_equal(vnc_presenter_acquire(s.presenter, HW_NEVER, &index),
                     VK_ERROR_OUT_OF_DATE_KHR);
    stop(&s);
}

static void destroying_shows_what_is_pending(void **state)
{
    (void)state;
    struct stage s;
    start(&s, VK_PRESENT_MODE_FIFO_KHR);
    present(&s, acquire(&s));
    present(&s, acquire(&s));
    complete(&s, 2);
    complete(&s, 2);
    stop(&s);
    assert_int_equal(s.show_count, 2);
}

static void without_a_canvas_presents_complete(void **state)
{
    (void)state;
    struct stage s;
    start(&s, VK_PRESENT_MODE_FIFO_KHR);
    struct vnc_presenter *blind;
    struct vnc_presenter_params params = {.count = IMAGES, .wait = fake_wait, .user = &s};
    assert_int_equal(vnc_presenter_create(&params, &blind), VK_SUCCESS);
    for (uint32_t i = 0; i < 2 * IMAGES; i++) {
        uint32_t index;
        assert_int_equal(vnc_presenter_acquire(blind, HW_NEVER, &index), VK_SUCCESS);
        const struct vnc_present present = {&s.queue, i, 0, VK_PRESENT_MODE_FIFO_KHR};
        assert_int_equal(vnc_presenter_present(blind, index, &present), VK_SUCCESS);
        sem_post(&s.done);
    }
    vnc_presenter_destroy(blind);
    stop(&s);
    assert_int_equal(s.show_count, 0);
}

static void each_present_has_a_mode_of_its_own(void **state)
{
    (void)state;
    struct stage s;
    start(&s, VK_PRESENT_MODE_FIFO_KHR);
    const VkPresentModeKHR modes[IMAGES] = {VK_PRESENT_MODE_FIFO_KHR, VK_PRESENT_MODE_IMMEDIATE_KHR,
                                            VK_PRESENT_MODE_FIFO_RELAXED_KHR};
    for (uint32_t i = 0; i < IMAGES; i++) {
        s.mode = modes[i];
        present(&s, acquire(&s));
        complete(&s, i + 1);
    }
    stop(&s);
    const bool paced[IMAGES] = {true, false, true};
    assert_int_equal(s.show_count, IMAGES);
    assert_memory_equal(s.paced, paced, sizeof(paced));
}

static void what_is_released_is_free_again(void **state)
{
    (void)state;
    struct stage s;
    start(&s, VK_PRESENT_MODE_FIFO_KHR);
    for (uint32_t i = 0; i < IMAGES; i++)
        (void)acquire(&s);
    const uint32_t back[] = {2, 0};
    assert_int_equal(vnc_presenter_release(s.presenter, 2, back), VK_SUCCESS);
    assert_int_equal(acquire(&s), 2);
    assert_int_equal(acquire(&s), 0);
    uint32_t index;
    assert_int_equal(vnc_presenter_acquire(s.presenter, 0, &index), VK_NOT_READY);
    stop(&s);
    assert_int_equal(s.show_count, 0);
}

static void ids_are_past_once_shown(void **state)
{
    (void)state;
    struct stage s;
    start(&s, VK_PRESENT_MODE_FIFO_KHR);
    assert_int_equal(try_present(&s, acquire(&s), 7), VK_SUCCESS);
    assert_int_equal(vnc_presenter_wait(s.presenter, 7, 0), VK_TIMEOUT);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, complete_one, &s), 0);
    assert_int_equal(vnc_presenter_wait(s.presenter, 7, HW_NEVER), VK_SUCCESS);
    pthread_join(thread, NULL);
    assert_int_equal(s.show_count, 1);
    assert_int_equal(vnc_presenter_wait(s.presenter, 3, 0), VK_SUCCESS);
    assert_int_equal(vnc_presenter_wait(s.presenter, 8, 0), VK_TIMEOUT);
    s.show_result = VK_ERROR_SURFACE_LOST_KHR;
    assert_int_equal(try_present(&s, acquire(&s), 8), VK_SUCCESS);
    complete(&s, 2);
    assert_int_equal(vnc_presenter_wait(s.presenter, 9, HW_NEVER), VK_ERROR_SURFACE_LOST_KHR);
    stop(&s);
}

/* A child has the struct and no thread. */
static void after_fork_nothing_waits(void **state)
{
    (void)state;
    struct stage s;
    start(&s, VK_PRESENT_MODE_FIFO_KHR);
    struct vn_kernel *kernel;
    assert_int_equal(vn_kernel_ref(&kernel), 0);
    pid_t child = fork();
    if (child == 0) {
        uint32_t index;
        bool lost = vnc_presenter_acquire(s.presenter, HW_NEVER, &index) == VK_ERROR_DEVICE_LOST &&
                    try_present(&s, 0, 0) == VK_ERROR_DEVICE_LOST &&
                    vnc_presenter_release(s.presenter, 0, NULL) == VK_ERROR_DEVICE_LOST &&
                    vnc_presenter_wait(s.presenter, 1, HW_NEVER) == VK_ERROR_DEVICE_LOST;
        vnc_presenter_retire(s.presenter);
        vnc_presenter_destroy(s.presenter);
        _exit(lost ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    vn_kernel_unref(kernel);
    stop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_come_back_in_order),
        cmocka_unit_test(without_a_free_image_the_timeout_decides),
        cmocka_unit_test(only_changes_are_named),
        cmocka_unit_test(mailbox_leaves_out_what_was_overtaken),
        cmocka_unit_test(a_failed_show_is_told_and_is_the_last),
        cmocka_unit_test(a_lost_device_ends_a_waiting_acquire),
        cmocka_unit_test(retiring_shows_what_is_pending_and_gives_no_more),
        cmocka_unit_test(destroying_shows_what_is_pending),
        cmocka_unit_test(without_a_canvas_presents_complete),
        cmocka_unit_test(each_present_has_a_mode_of_its_own),
        cmocka_unit_test(what_is_released_is_free_again),
        cmocka_unit_test(ids_are_past_once_shown),
        cmocka_unit_test(after_fork_nothing_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
