// See backup.h.
#include "server/backup.h"

#include "base/errors.h"
#include "server/remote.h"
#include "server/router.h"
#include "server/session.h"

void backup_init(struct backup *b) {
    *b = (struct backup){ 0 };
    pthread_mutex_init(&b->lock, NULL);
}

void backup_finish(struct backup *b) {
    loop_message_free(b->noted);
    pthread_mutex_destroy(&b->lock);
}

static bool backup_is_under_way(const struct backup *b) {
    return atomic_load(&b->number) % 2;
}

// ---- Each loop ----------------------------------------------------------------------------------

static void backup_note_shard(struct backup *b, struct host *h, uint32_t shard) {
    struct log_state log;
    shard_look(h->parts[shard].shard, &log);
    b->parts[shard] = (struct backup_part){ log.head, log.tail, log.segment_size };
}

// The lock is held.
static void backup_note_loop(struct backup *b, struct host *h) {
    bool begins = backup_is_under_way(b);
    h->backup_seen = atomic_load(&b->number);
    for (uint32_t i = h->first; i < h->end; i++) {
        shard_pin(h->parts[i].shard, begins);
        if (begins)
            backup_note_shard(b, h, i);
    }
    if (begins && --b->missing == 0 && b->noted) {
        loop_send(h->loops, b->loop, b->noted);
        b->noted = NULL;
    }
}

void backup_catch_up(struct host *h) {
    struct backup *b = h->backup;
    pthread_mutex_lock(&b->lock);
    if (h->backup_seen != atomic_load(&b->number))
        backup_note_loop(b, h);
    pthread_mutex_unlock(&b->lock);
}

// ---- The client's loop --------------------------------------------------------------------------

static void backup_wake_loops(const struct host *h) {
    for (uint32_t i = 0; h->loops && i < h->loops->count; i++)
        if (i != h->loop)
            loops_wake(h->loops, i);
}

// That backup may be over by now, and another one under way, also of another loop's session.
static void on_noted(struct host *h, void *number) {
    struct backup *b = h->backup;
    pthread_mutex_lock(&b->lock);
    struct session *s = atomic_load(&b->number) == (uintptr_t)number ? b->session : NULL;
    pthread_mutex_unlock(&b->lock);
    if (s)
        wait_wake(s, WAKE_READY);
}

static int backup_prepare(struct session *s) {
    struct host *h = s->host;
    struct backup *b = h->backup;
    if (h->loops && h->loops->is_cluster)
        return error_set(MR_EINVAL, "the shards of a cluster are in its store: copy that, "
                                    "millrace store copy postgres://... or nats://...");
    if (backup_is_under_way(b))
        return error_set(MR_EBUSY, "another backup is under way: wait until it ends");
    struct loop_message *noted = h->loops ? loop_message_create(LOOP_RUN, NULL) : NULL;
    if (h->loops && !noted)
        return error_set(MR_ENOMEM, "no memory for a backup");
    if (noted) {
        noted->run = on_noted;
        noted->arg = (void *)(uintptr_t)(atomic_load(&b->number) + 1);
    }
    b->noted = noted;
    b->session = s;
    b->connection = s->id;
    b->loop = h->loop;
    b->missing = h->loops ? h->loops->count : 1;
    atomic_fetch_add(&b->number, 1);
    return 0;
}

int backup_begin(struct session *s) {
    struct backup *b = s->host->backup;
    pthread_mutex_lock(&b->lock);
    int err = backup_prepare(s);
    if (err == 0)
        backup_note_loop(b, s->host);
    pthread_mutex_unlock(&b->lock);
    if (err < 0)
        return err;
    s->has_backup = true;
    backup_wake_loops(s->host);
    return s->host->loops ? 0 : 1;
}

void backup_end(struct session *s) {
    struct backup *b = s->host->backup;
    if (!s->has_backup)
        return;
    pthread_mutex_lock(&b->lock);
    s->has_backup = false;
    b->session = NULL;
    loop_message_free(b->noted);
    b->noted = NULL;
    atomic_fetch_add(&b->number, 1);
    backup_note_loop(b, s->host);
    pthread_mutex_unlock(&b->lock);
    backup_wake_loops(s->host);
}

bool backup_part_of(const struct session *s, uint32_t shard, struct backup_part *out) {
    struct backup *b = s->host->backup;
    pthread_mutex_lock(&b->lock);
    bool owned = backup_is_under_way(b) && !b->missing && b->connection == router_id(s);
    if (owned)
        *out = b->parts[shard];
    pthread_mutex_unlock(&b->lock);
    return owned;
}
