// See health.h.
#include "server/health.h"

#include "base/clock.h"
#include "server/notice.h"
#include "server/systemd.h"

#include <inttypes.h>
#include <stdio.h>

enum { OUTAGE_LOOK_MS = 1000 };

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
        systemd_notify("STATUS=The disk is full%s: pushes are refused", shards);
    } else {
        notice(NOTICE_INFO, "the disk has room again%s: pushes are accepted", shards);
        systemd_notify("STATUS=Ready");
    }
}

static void look_outage(struct health *e, const struct host *h) {
    struct log_state log;
    uint64_t now_ms = monotonic_ms();
    if (!h->node || now_ms - e->looked_ms < OUTAGE_LOOK_MS)
        return;
    e->looked_ms = now_ms;
    host_look(h, &log);
    bool outage = log.outage[0] != 0;
    if (outage && !e->outage) {
        notice(NOTICE_WARN, "%s; commands wait", log.outage);
        systemd_notify("STATUS=The store does not answer; commands wait");
    } else if (!outage && e->outage) {
        notice(NOTICE_INFO, "the store answers again");
        systemd_notify("STATUS=Ready");
    }
    e->outage = outage;
}

const char *health_word(const struct host *h, const char **out_why) {
    struct log_state log = { 0 };
    bool full = false, outage = false;
    for (uint32_t i = 0; h->group && i < h->shards; i++) { // also those of other loops
        if (!group_shard(h->group, i))
            continue; // another node has it
        shard_look(group_shard(h->group, i), &log);
        full = full || log.full;
        outage = outage || log.outage[0];
    }
    outage = outage || health_waiting_ms(h);
    *out_why = !h->shards   ? "the store is being read"
               : h->stopped ? h->why_stopped
               : full       ? "the disk is full: pushes are refused until there is room"
               : outage     ? "the store does not answer: commands wait for it"
                            : "";
    return !h->shards   ? "loading"
           : h->stopped ? "stopped"
           : full       ? "full"
           : outage     ? "waiting"
                        : "ok";
}

uint64_t health_waiting_ms(const struct host *h) {
    uint64_t since_ms = UINT64_MAX;
    struct log_state log;
    host_look(h, &log);
    if (log.outage[0])
        since_ms = log.waiting_since_ms;
    for (uint32_t i = 0; h->group && i < h->shards; i++) { // also those of other loops
        if (!group_shard(h->group, i))
            continue; // another node has it
        shard_look(group_shard(h->group, i), &log);
        if (log.outage[0] && log.waiting_since_ms < since_ms)
            since_ms = log.waiting_since_ms;
    }
    bool knows_node = h->node && !h->loop; // it belongs to the thread of the first loop
    if (knows_node && h->node->outage[0] && h->node->outage_since_ms < since_ms)
        since_ms = h->node->outage_since_ms;
    return since_ms == UINT64_MAX ? 0 : monotonic_ms() - since_ms;
}

void health_look(struct health *e, const struct host *h) {
    if (h->stopped && !e->stopped) {
        e->stopped = true;
        notice(NOTICE_ERROR,
               "the log has failed: only read commands are answered until a restart: %s",
               h->why_stopped);
        systemd_notify("STATUS=The log has failed: %s", h->why_stopped);
    }
    if (h->damaged != e->damaged) {
        notice(NOTICE_WARN, "cleaning found %" PRIu64 " damaged %s; the last: %s",
               h->damaged - e->damaged, h->damaged - e->damaged == 1 ? "entry" : "entries",
               h->damage);
        e->damaged = h->damaged;
    }
    if (!h->shards || h->stopped)
        return;
    look_outage(e, h);
    if (!e->full && h->refused == e->refused)
        return;
    e->refused = h->refused;
    struct log_state log;
    host_look(h, &log);
    look_full(e, h, &log);
}
