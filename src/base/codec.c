// See codec.h. After the first failure a writer writes nothing and a reader returns zeros.
#include "base/codec.h"

void put_u32(struct writer *w, uint32_t v) {
    uint8_t *p = writer_room(w, 4);
    for (int i = 0; p && i < 4; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

void put_u64(struct writer *w, uint64_t v) {
    uint8_t *p = writer_room(w, 8);
    for (int i = 0; p && i < 8; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

void put_raw(struct writer *w, mr_bytes b) {
    uint8_t *p = writer_room(w, b.size);
    if (p && b.size)
        memcpy(p, b.data, b.size);
}

void put_bytes(struct writer *w, mr_bytes b) {
    put_number(w, b.size);
    put_raw(w, b);
}

static const uint8_t *reader_take(struct reader *r, size_t size) {
    if (r->bad || size > r->size - r->at) {
        r->bad = true;
        return NULL;
    }
    const uint8_t *p = r->data ? r->data + r->at : NULL;
    r->at += size;
    return p;
}

uint8_t get_u8(struct reader *r) {
    const uint8_t *p = reader_take(r, 1);
    return p ? *p : 0;
}

uint32_t get_u32(struct reader *r) {
    const uint8_t *p = reader_take(r, 4);
    uint32_t v = 0;
    for (int i = 0; p && i < 4; i++)
        v |= (uint32_t)p[i] << 8 * i;
    return v;
}

uint64_t get_u64(struct reader *r) {
    const uint8_t *p = reader_take(r, 8);
    uint64_t v = 0;
    for (int i = 0; p && i < 8; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

uint64_t get_number(struct reader *r) {
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint8_t byte = get_u8(r);
        if ((shift == 63 && byte > 1) || (shift && !byte))
            break;
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return r->bad ? 0 : v;
    }
    r->bad = true;
    return 0;
}

mr_bytes get_raw(struct reader *r, size_t size) {
    const uint8_t *p = reader_take(r, size);
    return p ? (mr_bytes){ p, size } : (mr_bytes){ 0 };
}

mr_bytes get_bytes(struct reader *r) {
    return get_raw(r, get_number(r));
}
