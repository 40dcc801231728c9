#include "bench/rpc/raw_limits.h"

#include "command/measure.h"

int raw_ping(struct raw_link *link, void *buf, size_t size, uint64_t count, struct hw_hist *hist)
{
    const struct raw_ops *ops = link->ops;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t start = hw_now_ns();
        int rc = ops->send(link, buf, size);
        if (rc == 0)
            rc = ops->recv(link, buf, size);
        if (rc)
            return rc;
        if (hist)
            hw_hist_record(hist, hw_now_ns() - start);
    }
    return 0;
}

int raw_pong(struct raw_link *link, void *buf, size_t size, uint64_t count)
{
    const struct raw_ops *ops = link->ops;
    for (uint64_t i = 0; i < count; i++) {
        int rc = ops->recv(link, buf, size);
        if (rc == 0)
            rc = ops->send(link, buf, size);
        if (rc)
            return rc;
    }
    return 0;
}

int raw_pour(struct raw_link *link, void *buf, size_t size, uint64_t count, struct hw_hist *hist)
{
    int rc = 0;
    uint64_t last = 0;
    for (uint64_t i = 0; i < count && rc == 0; i++) {
        rc = link->ops->send(link, buf, size);
        measure_slice(hist, i, &last);
    }
    return rc ? rc : link->ops->recv(link, buf, 1);
}

int raw_drain(struct raw_link *link, void *buf, size_t size, uint64_t count)
{
    int rc = 0;
    for (uint64_t i = 0; i < count && rc == 0; i++)
        rc = link->ops->recv(link, buf, size);
    return rc ? rc : link->ops->send(link, buf, 1);
}
