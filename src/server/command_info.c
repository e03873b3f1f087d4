// INFO: lines about the server, in sections that can be requested separately.
#include "server/access.h"
#include "server/cluster_view.h"
#include "server/health.h"
#include "server/info.h"
#include "server/shards.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "millrace.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

// ---- The table --------------------------------------------------------------------------------

enum { SEEN_all = false, SEEN_whole = true, LOOPS_first = false, LOOPS_sum = true };

#define INFO_FIELD(section, seen, loops, member, kind, name, about)                                \
    { INFO_##section,                                                                              \
      SEEN_##seen,                                                                                 \
      LOOPS_##loops,                                                                               \
      { name, REPLY_##kind, offsetof(struct info_reply, member), about } },

static const struct info_field fields[] = { INFO_FIELDS(INFO_FIELD) };

enum { FIELDS = sizeof fields / sizeof *fields };

const struct info_field *info_field(size_t index) {
    return index < FIELDS ? &fields[index] : NULL;
}

const struct info_field *info_field_named(mr_bytes name) {
    for (size_t i = 0; i < FIELDS; i++)
        if (bytes_equal(name, mr_str(fields[i].field.name)))
            return &fields[i];
    return NULL;
}

const char *info_name(size_t offset) {
    size_t i = 0;
    while (i < FIELDS && fields[i].field.offset != offset)
        i++;
    assert(i < FIELDS);
    return fields[i].field.name;
}

// ---- Values -----------------------------------------------------------------------------------

struct info_values {
    struct info_reply reply;
    struct log_state log;     // texts of the reply point into it …
    char owner[NODE_ADDRESS]; // … and into this
};

static void fill_server(const struct session *s, struct info_values *to) {
    const struct host *h = s->host;
    struct info_reply *r = &to->reply;
    r->redis_version = mr_str(REDIS_VERSION);
    r->redis_mode = mr_str(h->node ? "cluster" : "standalone");
    r->millrace_version = mr_str(mr_version());
    r->uptime_s = (host_now_ms(h) - h->started_ms) / 1000;
    r->store = mr_str(h->store);
    r->shards = h->shards;
    r->port = h->port;
    r->unix_path = mr_str(h->unix_path ? h->unix_path : "");
}

static void fill_clients(const struct session *s, struct info_values *to) {
    const struct host *h = s->host;
    struct info_reply *r = &to->reply;
    for (struct list *l = h->sessions.next; l != &h->sessions; l = l->next, s->host->steps++) {
        const struct session *one = list_entry(l, struct session, of_host);
        r->blocked += wait_is_open(one);
        r->clients += !one->remote; // its connection is counted in its own loop
        r->workers += !one->remote && one->stages[0] != 0;
    }
}

static void fill_memory(const struct session *s, struct info_values *to) {
    const struct host *h = s->host;
    struct info_reply *r = &to->reply;
    r->memory = host_memory(h);
    r->max_memory = h->max_bytes;
    r->index_bytes = shards_memory(h);
    r->buffer_bytes = h->buffered;
    r->max_buffers = host_client_limit(h);
    r->refused_full = h->refused;
}

static void fill_persistence(const struct session *s, struct info_values *to) {
    const struct host *h = s->host;
    struct info_reply *r = &to->reply;
    host_look(h, &to->log);
    r->loading = !h->shards;
    r->log_bytes = to->log.bytes;
    r->live_bytes = shards_live_bytes(h);
    r->log_full = to->log.full;
    r->log_stopped = mr_str(h->stopped ? h->why_stopped : to->log.stopped); // of any loop
}

// Jobs of the stages that this session may see.
static void sum_stages(const struct session *s, struct info_reply *r) {
    struct host *h = s->host;
    struct stage_counts n;
    for (uint32_t i = h->first; i < h->end; i++)
        for (uint32_t k = 1; core_stage_counts(h->parts[i].core, k, &n); k++) {
            if (!n.name.size)
                continue;
            h->steps += access_steps(s) - 1;
            if (!access_sees(s, n.name))
                continue;
            r->waiting += n.waiting;
            r->running += n.running;
            r->delayed += n.delayed;
            r->dead += n.dead;
            r->pushed += n.pushed;
            r->done += n.done;
            r->failed += n.failed;
        }
}

static void fill_stats(const struct session *s, struct info_values *to) {
    const struct host *h = s->host;
    struct info_reply *r = &to->reply;
    r->connections = h->connections;
    r->commands = h->commands;
    r->rejections = h->rejections;
    r->refused_secrets = h->refusals;
    sum_stages(s, r);
}

// What the client's token has in the whole server, and may have.
static void fill_quotas(const struct session *s, struct info_values *to) {
    struct info_reply *r = &to->reply;
    struct quotas used, most;
    if (!s->who)
        return;
    usage_of(s->host->usage, s->who->maker, &used);
    most = s->who->quota.most;
    r->token = s->who->name;
    r->used_stages = used.of[QUOTA_STAGES], r->max_stages = most.of[QUOTA_STAGES];
    r->used_jobs = used.of[QUOTA_JOBS], r->max_jobs = most.of[QUOTA_JOBS];
    r->used_bytes = used.of[QUOTA_BYTES], r->max_bytes = most.of[QUOTA_BYTES];
    r->used_sources = used.of[QUOTA_SOURCES], r->max_sources = most.of[QUOTA_SOURCES];
    r->used_epics = used.of[QUOTA_EPICS], r->max_epics = most.of[QUOTA_EPICS];
    r->used_schedules = used.of[QUOTA_SCHEDULES], r->max_schedules = most.of[QUOTA_SCHEDULES];
    r->used_connections = used.of[QUOTA_CONNECTIONS];
    r->max_connections = most.of[QUOTA_CONNECTIONS];
}

static void fill_replication(const struct session *s, struct info_values *to) {
    (void)s;
    to->reply.role = mr_str("master");
}

static void fill_cluster(const struct session *s, struct info_values *to) {
    const struct host *h = s->host;
    struct info_reply *r = &to->reply;
    if (!h->node || !h->loops || h->loop) // the thread of the first loop changes its fields
        return;
    r->cluster_enabled = 1;
    r->cluster = mr_str(h->node->cluster);
    r->node = mr_str(h->node->address);
    (void)cluster_view_shard(h, 0, to->owner);
    r->owner = mr_str(to->owner);
    for (uint32_t i = 0; i < h->node->seen->nodes; i++)
        r->nodes += cluster_view_is_alive(h, &h->node->seen->node[i]);
    r->shards_here = cluster_view_count(h, h->node->address, NULL);
    r->shards_unowned = cluster_view_count(h, "", NULL);
    for (uint32_t i = 0; i < h->node->seen->shards; i++) {
        uint64_t epoch = h->node->seen->shard[i].epoch;
        r->epoch = epoch > r->epoch ? epoch : r->epoch;
    }
    r->replicated = h->node->is_replicated;
    r->promise = mr_str(h->node->promise);
    uint64_t outage_ms = health_waiting_ms(h);
    host_look(h, &to->log);
    r->outage_ms = outage_ms;
    if (outage_ms)
        r->outage = mr_str(to->log.outage[0] ? to->log.outage : h->node->outage);
}

// ---- Lines ------------------------------------------------------------------------------------

static const struct {
    const char *word, *title;
    void (*fill)(const struct session *, struct info_values *);
} sections[INFO_SECTIONS] = {
    [INFO_SERVER] = { "SERVER", "Server", fill_server },
    [INFO_CLIENTS] = { "CLIENTS", "Clients", fill_clients },
    [INFO_MEMORY] = { "MEMORY", "Memory", fill_memory },
    [INFO_PERSISTENCE] = { "PERSISTENCE", "Persistence", fill_persistence },
    [INFO_STATS] = { "STATS", "Stats", fill_stats },
    [INFO_QUOTAS] = { "QUOTAS", "Quotas", fill_quotas },
    [INFO_REPLICATION] = { "REPLICATION", "Replication", fill_replication },
    [INFO_CLUSTER] = { "CLUSTER", "Cluster", fill_cluster },
};

static bool wants(const struct arguments *a, const char *section) {
    bool wanted = a->at == a->count;
    for (uint32_t i = a->at; i < a->count; i++)
        wanted = wanted || word_is(a->words[i], section) || word_is(a->words[i], "ALL") ||
                 word_is(a->words[i], "DEFAULT") || word_is(a->words[i], "EVERYTHING");
    return wanted;
}

// Figures of the whole server are only for tokens of all stages. Whether pushes are accepted is for
// every token.
static bool sees(const struct session *s, const struct info_field *f) {
    return !f->is_whole || !s->who || s->who->all;
}

static void add_text(struct reply *r, mr_bytes text) {
    if (!r->err)
        r->err = buffer_append(r->out, text.data, text.size);
}

static void info_add_line(struct reply *r, const struct reply_field *f,
                          const struct info_reply *from) {
    const void *value = (const char *)from + f->offset;
    char digits[24];
    add_text(r, mr_str(f->name));
    add_text(r, mr_str(":"));
    if (f->kind == REPLY_bytes) {
        add_text(r, *(const mr_bytes *)value);
    } else {
        (void)snprintf(digits, sizeof digits, "%" PRIu64, *(const uint64_t *)value);
        add_text(r, mr_str(digits));
    }
    add_text(r, mr_str("\r\n"));
}

// A section without any line that the session may see is neither computed nor written.
static void add_section(struct session *s, enum info_section section) {
    struct info_values values = { 0 };
    bool begun = false;
    for (size_t i = 0; i < FIELDS; i++) {
        if (fields[i].section != section || !sees(s, &fields[i]))
            continue;
        if (!begun) {
            sections[section].fill(s, &values);
            add_text(&s->reply, mr_str("# "));
            add_text(&s->reply, mr_str(sections[section].title));
            add_text(&s->reply, mr_str("\r\n"));
        }
        begun = true;
        info_add_line(&s->reply, &fields[i].field, &values.reply);
    }
    if (begun)
        add_text(&s->reply, mr_str("\r\n"));
}

void run_info(struct session *s, struct arguments *a) {
    size_t begin = reply_bulk_begin(&s->reply);
    for (enum info_section i = INFO_SERVER; i < INFO_SECTIONS; i++)
        if (wants(a, sections[i].word))
            add_section(s, i);
    reply_bulk_end(&s->reply, begin);
}
