// Any bytes as a message between shards: it is refused, or it is written again as the same bytes,
// every emit in it can be read, and lies inside of it.
#include "shard/message.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect_in(mr_bytes part, const struct buffer *whole) {
    const uint8_t *from = part.data;
    assert(!part.size || (from >= whole->data && from + part.size <= whole->data + whole->size));
}

static void read_emits(const struct message *m) {
    struct reader r = reader_of(buffer_bytes(&m->emits));
    struct link_entry e = { 0 };
    mr_bytes body;
    while (message_next_emit(&r, &e, &body)) {
        expect_in(e.stage, &m->emits);
        expect_in(e.key, &m->emits);
        expect_in(e.once, &m->emits);
        expect_in(body, &m->emits);
    }
    assert(reader_done(&r) && (m->kind != MESSAGE_EMITS || e.number == m->number));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct message m = { 0 };
    struct buffer again = { 0 };
    if (message_read((mr_bytes){ data, size }, &m) == 0) {
        read_emits(&m);
        int err = message_write(&m, &again);
        assert(err == 0 && again.size == size && memcmp(again.data, data, size) == 0);
    }
    message_finish(&m);
    buffer_finish(&again);
    return 0;
}
