// See backup.h.
#include "shard/backup.h"

#include "base/codec.h"
#include "base/errors.h"

enum { PIECE_HEAD = 8, PIECE_ENTRY = 8 + 4 + 4 };

struct packing {
    struct buffer *out;
    uint64_t upto;
    bool with_bodies, is_over;
};

static int pack_entry(void *arg, const struct log_seen *seen) {
    struct packing *p = arg;
    uint8_t sizes[PIECE_ENTRY];
    struct writer w = { .data = sizes, .capacity = sizeof sizes };
    if (seen->at >= p->upto) {
        p->is_over = true;
        return MR_ECANCELLED; // ends the scan
    }
    if (seen->damaged || seen->restored)
        return MR_ECORRUPT; // the log has said where
    put_u64(&w, seen->at);
    put_u32(&w, (uint32_t)seen->head.size);
    put_u32(&w, seen->body_size);
    int err = buffer_append(p->out, sizes, sizeof sizes);
    if (err == 0)
        err = buffer_append(p->out, seen->head.data, seen->head.size);
    if (err == 0 && p->with_bodies && seen->body_size)
        err = buffer_append(p->out, seen->body.data, seen->body_size);
    return err;
}

int backup_pack(struct shard *s, uint64_t from, uint64_t upto, bool with_bodies,
                struct buffer *out) {
    struct packing p = { .out = out, .upto = upto, .with_bodies = with_bodies };
    uint8_t head[PIECE_HEAD] = { 0 };
    size_t before = out->size;
    uint64_t next = upto;
    int err = buffer_append(out, head, sizeof head); // the next position, known later
    if (err == 0 && from < upto)
        err = shard_scan(s, from, BACKUP_PIECE, pack_entry, &p, &next);
    if (err < 0 && !p.is_over) {
        out->size = before;
        return err;
    }
    struct writer w = { .data = out->data + before, .capacity = PIECE_HEAD };
    put_u64(&w, p.is_over || next > upto ? upto : next);
    return 0;
}

int backup_unpack(mr_bytes piece, bool with_bodies, log_each *each, void *arg, uint64_t *out_next) {
    struct reader r = reader_of(piece);
    uint64_t next = get_u64(&r);
    while (!r.bad && r.at < r.size) {
        struct log_seen seen = { .at = get_u64(&r) };
        uint32_t head = get_u32(&r);
        seen.body_size = get_u32(&r);
        seen.head = get_raw(&r, head);
        if (with_bodies)
            seen.body = get_raw(&r, seen.body_size);
        int err = r.bad ? 0 : each(arg, &seen);
        if (err < 0)
            return err;
    }
    if (r.bad)
        return error_set(MR_ECORRUPT, "the server has sent what is no piece of a log");
    *out_next = next;
    return 0;
}
