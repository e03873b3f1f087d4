// See reads.h.
#include "shard/reads.h"

#include "base/errors.h"
#include "base/mem.h"

struct kept_read {
    struct list of_reads;
    uint64_t at, since_ms;
    int err;
    struct buffer bytes;
};

static void kept_read_free(struct reads *r, struct kept_read *k) {
    list_remove(&k->of_reads);
    r->kept_bytes -= k->bytes.size;
    buffer_finish(&k->bytes);
    mem_free(k);
}

static struct kept_read *kept_read_find(const struct reads *r, uint64_t at) {
    for (struct list *l = r->kept.next; l && l != &r->kept; l = l->next) {
        struct kept_read *k = list_entry(l, struct kept_read, of_reads);
        if (k->at == at)
            return k;
    }
    return NULL;
}

void reads_finish(struct reads *r) {
    for (struct list *l; (l = list_first(&r->kept));)
        kept_read_free(r, list_entry(l, struct kept_read, of_reads));
}

void reads_want(struct reads *r, uint64_t at) {
    for (uint32_t i = 0; i < r->wanted_count; i++)
        if (r->wanted[i] == at)
            return;
    if (r->wanted_count < READS_WANTED)
        r->wanted[r->wanted_count++] = at;
}

uint32_t reads_take_wanted(struct reads *r, uint64_t *out, uint32_t most) {
    uint32_t count = r->wanted_count < most ? r->wanted_count : most;
    memcpy(out, r->wanted, count * sizeof *out);
    memmove(r->wanted, r->wanted + count, (r->wanted_count - count) * sizeof *out);
    r->wanted_count -= count;
    return count;
}

static void reads_shorten(struct reads *r, uint64_t now_ms) {
    for (struct list *l; (l = list_first(&r->kept));) {
        struct kept_read *k = list_entry(l, struct kept_read, of_reads);
        if (r->kept_bytes <= READS_BYTES && now_ms < k->since_ms + READS_KEPT_MS)
            return;
        kept_read_free(r, k);
    }
}

void reads_keep(struct reads *r, uint64_t at, int err, struct buffer *bytes, uint64_t now_ms) {
    struct kept_read *k = kept_read_find(r, at);
    if (k)
        kept_read_free(r, k);
    reads_shorten(r, now_ms);
    if (!(k = mem_alloc(sizeof *k))) {
        buffer_finish(bytes);
        return;
    }
    *k = (struct kept_read){ .at = at, .since_ms = now_ms, .err = err, .bytes = *bytes };
    *bytes = (struct buffer){ 0 };
    r->kept_bytes += k->bytes.size;
    list_append(&r->kept, &k->of_reads);
}

bool reads_has(const struct reads *r, uint64_t at) {
    return kept_read_find(r, at) != NULL;
}

int reads_use(struct reads *r, uint64_t at, struct buffer *out) {
    struct kept_read *k = kept_read_find(r, at);
    if (!k)
        return MR_EAGAIN;
    int err = k->err < 0
                  ? error_set(k->err, "the entry at %llu could not be read", (unsigned long long)at)
                  : buffer_append(out, k->bytes.data, k->bytes.size);
    kept_read_free(r, k);
    return err;
}
