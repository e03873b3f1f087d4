// See health.h.
#include "server/health.h"

#include "server/notice.h"
#include "server/systemd.h"

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

void health_look(struct health *e, const struct host *h) {
    if (h->stopped && !e->stopped) {
        e->stopped = true;
        notice(NOTICE_ERROR, "the log has failed: only looks are answered until a restart: %s",
               h->why_stopped);
        systemd_tell("STATUS=The log has failed: %s", h->why_stopped);
    }
    if (!h->shards || h->stopped || (!e->full && h->refused == e->refused))
        return;
    e->refused = h->refused;
    struct log_state log;
    host_look(h, &log);
    look_full(e, &log);
}
