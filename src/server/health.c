// See health.h.
#include "server/health.h"

#include "server/notice.h"
#include "server/systemd.h"

#include <inttypes.h>

static void look_full(struct health *e, const struct log_state *log) {
    if (log->full == e->full)
        return;
    e->full = log->full;
    if (log->full) {
        notice(NOTICE_WARN, "there is no room on the disk: pushes are refused until there is");
        systemd_tell("STATUS=No room on the disk: pushes are refused");
    } else {
        notice(NOTICE_INFO, "there is room on the disk again");
        systemd_tell("STATUS=Ready");
    }
}

const char *health_word(const struct host *h, const char **out_why) {
    struct log_state log = { 0 };
    for (uint32_t i = 0; h->shards && !log.full && i < h->shards; i++)
        shard_look(group_shard(h->group, i), &log); // also those of other loops
    *out_why = !h->shards   ? "the store is being read"
               : h->stopped ? h->why_stopped
               : log.full   ? "there is no room on the disk: pushes are refused until there is"
                            : "";
    return !h->shards ? "loading" : h->stopped ? "stopped" : log.full ? "full" : "ok";
}

void health_look(struct health *e, const struct host *h) {
    if (h->stopped && !e->stopped) {
        e->stopped = true;
        notice(NOTICE_ERROR, "the log has failed: only looks are answered until a restart: %s",
               h->why_stopped);
        systemd_tell("STATUS=The log has failed: %s", h->why_stopped);
    }
    if (h->damaged != e->damaged) {
        notice(NOTICE_WARN, "cleaning met %" PRIu64 " damaged %s; the last: %s",
               h->damaged - e->damaged, h->damaged - e->damaged == 1 ? "entry" : "entries",
               h->damage);
        e->damaged = h->damaged;
    }
    if (!h->shards || h->stopped || (!e->full && h->refused == e->refused))
        return;
    e->refused = h->refused;
    struct log_state log;
    host_look(h, &log);
    look_full(e, &log);
}
