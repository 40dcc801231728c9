/* Stores a value under a name and reads it where it lies.
 *
 *     hawser kvd --blocks 64MiB &
 *     cc hawser-kv.c $(pkg-config --cflags --libs hawser-kv) && ./a.out */
#include <hawser-kv.h>

#include <stdio.h>

int main(int argc, char **argv)
{
    char why[HAWSER_KV_WHY_CHARS];
    struct hawser_kv *kv = hawser_kv_open(argc > 1 ? argv[1] : NULL, 0, why);
    if (!kv) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    uint32_t copies = 0;
    int rc = hawser_kv_put(kv, "greeting", 8, "hello, store", 12, 0, 0, &copies);
    struct hawser_kv_value value = {0};
    if (rc == HAWSER_KV_OK)
        rc = hawser_kv_get(kv, "greeting", 8, &value);
    if (rc == HAWSER_KV_OK) {
        printf("%.*s (%u copy)\n", (int)value.len, (const char *)value.data, copies);
        rc = hawser_kv_check(kv, &value); /* the lease held while we read */
        hawser_kv_release(kv, &value);
    }
    if (rc != HAWSER_KV_OK)
        fprintf(stderr, "%s\n", hawser_kv_result_name(rc));
    hawser_kv_close(kv);
    return rc != HAWSER_KV_OK;
}
