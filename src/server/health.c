// See health.h.
#include "server/health.h"

#include "server/notice.h"
#include "server/systemd.h"

#include <inttypes.h>
#include <stdio.h>

// Which shards a notice is about; empty if it is about all of them.
static const char *shards_text(const struct host *h, char *out, size_t size) {
    out[0] = 0;
    if (h->end - h->first == 1 && h->shards > 1)
        (void)snprintf(out, size, " (shard %" PRIu32 ")", h->first);
    else if (h->end - h->first < h->shards)
        (void)snprintf(out, size, " (shards %" PRIu32 " to %" PRIu32 ")", h->first, h->end - 1);
    return out;
}

static void look_full(struct health *e, const struct host *h, const struct log_state *log) {
    char shards[64];
    if (log->full == e->full)
        return;
    e->full = log->full;
    shards_text(h, shards, sizeof shards);
    if (log->full) {
        notice(NOTICE_WARN, "the disk is full%s: pushes are refused until there is room", shards);
        systemd_tell("STATUS=The disk is full%s: pushes are refused", shards);
    } else {
        notice(NOTICE_INFO, "the disk has room again%s: pushes are accepted", shards);
        systemd_tell("STATUS=Ready");
    }
}

const char *health_word(const struct host *h, const char **out_why) {
    struct log_state log = { 0 };
    for (uint32_t i = 0; h->shards && !log.full && i < h->shards; i++)
        shard_look(group_shard(h->group, i), &log); // also those of other loops
    *out_why = !h->shards   ? "the store is being read"
               : h->stopped ? h->why_stopped
               : log.full   ? "the disk is full: pushes are refused until there is room"
                            : "";
    return !h->shards ? "loading" : h->stopped ? "stopped" : log.full ? "full" : "ok";
}

void health_look(struct health *e, const struct host *h) {
    if (h->stopped && !e->stopped) {
        e->stopped = true;
        notice(NOTICE_ERROR,
               "the log has failed: only read commands are answered until a restart: %s",
               h->why_stopped);
        systemd_tell("STATUS=The log has failed: %s", h->why_stopped);
    }
    if (h->damaged != e->damaged) {
        notice(NOTICE_WARN, "cleaning found %" PRIu64 " damaged %s; the last: %s",
               h->damaged - e->damaged, h->damaged - e->damaged == 1 ? "entry" : "entries",
               h->damage);
        e->damaged = h->damaged;
    }
    if (!h->shards || h->stopped || (!e->full && h->refused == e->refused))
        return;
    e->refused = h->refused;
    struct log_state log;
    host_look(h, &log);
    look_full(e, h, &log);
}
