// BACKUP: begins a copy of the store, and reads the logs for it (backup.h).
#include "base/errors.h"
#include "base/mem.h"
#include "server/access.h"
#include "server/answer.h"
#include "server/backup.h"
#include "server/command.h"
#include "server/fetch.h"
#include "server/shards.h"
#include "wire/number.h"

#include <inttypes.h>

// ---- Beginning ----------------------------------------------------------------------------------

static void write_parts(struct session *s) {
    const struct host *h = s->host;
    reply_array(&s->reply, h->shards);
    for (uint32_t i = 0; i < h->shards; i++) {
        struct backup_part p = { 0 };
        (void)backup_part_of(s, i, &p); // the session has just begun it
        reply_array(&s->reply, 4);
        reply_integer(&s->reply, i);
        reply_integer(&s->reply, (int64_t)p.head);
        reply_integer(&s->reply, (int64_t)p.end);
        reply_integer(&s->reply, (int64_t)p.segment_size);
    }
}

static void parts_resume(struct session *s, void *state, enum wake wake) {
    (void)state;
    (void)wake;
    write_parts(s);
}

static const struct wait_kind for_parts = { .resume = parts_resume };

static void run_backup_begin(struct session *s) {
    backup_end(s);
    int noted = backup_begin(s);
    if (noted < 0)
        answer_error(s, noted);
    else if (noted)
        write_parts(s);
    else
        wait_begin(s, &for_parts, NULL, 0, UINT64_MAX);
}

// ---- Reading ------------------------------------------------------------------------------------

// A piece that is wanted.
struct backup_piece {
    uint32_t shard;
    enum fetch_part part;
    uint64_t from, upto;
};

// False: it has to be fetched; no reply was written.
static bool write_piece(struct session *s, const struct backup_piece *p) {
    struct buffer bytes = { 0 };
    int err = fetch_piece(s, p->shard, p->from, p->upto, p->part, &bytes);
    if (err == MR_EGONE)
        err = error_set(MR_EGONE, "the log was shortened because there was no room left; repeat "
                                  "the backup");
    if (err == 0)
        reply_bulk(&s->reply, buffer_bytes(&bytes));
    else if (err != MR_EAGAIN)
        answer_error(s, err);
    buffer_finish(&bytes);
    return err != MR_EAGAIN;
}

static void piece_resume(struct session *, void *, enum wake);

static const struct wait_kind for_piece = { .resume = piece_resume, .free = mem_free };

static void piece_resume(struct session *s, void *state, enum wake wake) {
    (void)wake;
    if (!write_piece(s, state))
        (void)fetch_wait(s, &for_piece, state, sizeof(struct backup_piece)); // else it has replied
}

static void read_piece(struct session *s, struct backup_piece piece) {
    if (write_piece(s, &piece))
        return;
    struct backup_piece *kept = mem_alloc(sizeof *kept);
    if (!kept) {
        answer_error(s, error_set(MR_ENOMEM, "no memory to read the log"));
        return;
    }
    *kept = piece;
    if (!fetch_wait(s, &for_piece, kept, sizeof *kept))
        mem_free(kept);
}

static void run_backup_read(struct session *s, const struct arguments *a) {
    const struct host *h = s->host;
    struct backup_piece piece = { .part = FETCH_PIECE };
    struct backup_part part;
    uint64_t shard;
    bool heads = a->count == 4 && word_is(a->words[3], "HEADS");
    if (!read_number(s, a->words[1], "the shard", &shard) ||
        !read_number(s, a->words[2], "the position", &piece.from))
        return;
    if (a->count == 4 && !heads) {
        session_usage(s, "syntax: BACKUP shard position [HEADS]");
    } else if (shard < h->first || shard >= h->end) {
        session_usage(s, "there is no shard %" PRIu64 ": the shards are 0 to %u", shard,
                      h->shards - 1);
    } else if (!backup_part_of(s, (uint32_t)shard, &part)) {
        session_usage(s, "this connection has begun no backup: BACKUP BEGIN");
    } else {
        piece.shard = (uint32_t)shard;
        piece.part = heads ? FETCH_HEADS : FETCH_PIECE;
        piece.upto = part.end;
        read_piece(s, piece);
    }
}

void run_backup(struct session *s, struct arguments *a) {
    if (!access_all(s, "BACKUP"))
        return;
    if (a->count > 2) {
        run_backup_read(s, a);
    } else if (word_is(a->words[1], "BEGIN")) {
        run_backup_begin(s);
    } else if (word_is(a->words[1], "END")) {
        backup_end(s);
        reply_simple(&s->reply, "OK");
    } else {
        session_usage(s, "syntax: BACKUP BEGIN, BACKUP shard position [HEADS], or BACKUP END");
    }
}
