// Any bytes as the heads of records: what is decoded is encoded and decoded again as the same, says
// the same when it is only peeked at, and borrows nothing but its own bytes; replayed one after
// another into a core they are taken or refused, and leave it sound enough to be closed. The first
// byte of each is its size.
#include "core/record.h"
#include "base/buffer.h"
#include "core/core.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect_inside(mr_bytes part, mr_bytes whole) {
    const uint8_t *from = part.data, *begin = whole.data;
    assert(!part.size || (from >= begin && from + part.size <= begin + whole.size));
}

static void decode_one(mr_bytes head) {
    static struct record_about about, again_about;
    struct record r, again;
    if (record_decode(head, &about, &r) < 0)
        return;
    expect_inside(r.name, head);
    expect_inside(r.key, head);
    uint8_t first[RECORD_MAX], second[RECORD_MAX];
    size_t first_size = record_encode(&r, first);
    assert(first_size <= sizeof first);
    int err = record_decode((mr_bytes){ first, first_size }, &again_about, &again);
    assert(err == 0);
    size_t second_size = record_encode(&again, second);
    assert(first_size == second_size && memcmp(first, second, first_size) == 0);
    enum record_kind kind;
    uint64_t id;
    bool once;
    if (record_peek((mr_bytes){ first, first_size }, &kind, &id, &once))
        assert(kind == r.kind && id == r.id);
}

static void read_reasons(mr_bytes body) {
    struct reason reason;
    size_t at = 0;
    while (reasons_next(body, &at, &reason))
        expect_inside(reason.text, body);
}

static int append(void *owner, const struct entry *e, size_t count, enum room room,
                  uint64_t *out_at) {
    uint64_t *end = owner;
    (void)room;
    for (size_t i = 0; i < count; i++) {
        out_at[i] = *end;
        *end += entry_size(e[i].head.size, e[i].body.size);
    }
    return 0;
}

static int read_nothing(void *owner, uint64_t at, struct buffer *out) {
    (void)owner, (void)at, (void)out;
    return MR_EGONE;
}

static void replay_all(const uint8_t *data, size_t size) {
    uint64_t end = 64;
    struct core_config config = { .sink = { append, read_nothing, .owner = &end } };
    struct core *core;
    int err = core_create(&config, &core);
    assert(err == 0);
    for (size_t at = 0; err == 0 && at < size;) {
        size_t some = data[at] < size - at - 1 ? data[at] : size - at - 1;
        err = core_replay(core, end, (mr_bytes){ data + at + 1, some }, 0);
        end += entry_size(some, 0);
        at += 1 + some;
    }
    if (err == 0)
        (void)core_open(core, core_now(core) + 1000, 4); // it may be refused: records are missing
    core_destroy(core);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (size_t at = 0; at < size;) {
        size_t some = data[at] < size - at - 1 ? data[at] : size - at - 1;
        decode_one((mr_bytes){ data + at + 1, some });
        read_reasons((mr_bytes){ data + at + 1, some });
        at += 1 + some;
    }
    replay_all(data, size);
    return 0;
}
