// Metrics for Prometheus, in its text format: a table maps fields of replies to metrics. Times are
// in seconds, sizes in bytes; labels are stages, at most as many as one STAGES lists, the few
// groups of each that it shows, the first tokens with quotas, and fixed words.
#include "web/state.h"

#include "base/text.h"
#include "millrace.h"
#include "server/info.h"
#include "wire/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { METRIC_BYTES = 32 }; // what finding a value costs, as bytes written

// ---- Text format --------------------------------------------------------------------------------

static void put_family(struct doc *d, const char *name, const char *type, const char *help) {
    char text[512];
    int size = snprintf(text, sizeof text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
    doc_plain(d, text, (size_t)size);
}

// Names of stages have no characters that need escaping.
static void put_sample(struct doc *d, const char *name, mr_bytes stage, const char *label,
                       const char *value) {
    char text[512];
    bool labels = stage.size || *label;
    int size = snprintf(text, sizeof text, "%s%s%s%.*s%s%s%s%s %s\n", name, labels ? "{" : "",
                        stage.size ? "stage=\"" : "", (int)stage.size,
                        stage.size ? (const char *)stage.data : "", stage.size ? "\"" : "",
                        stage.size && *label ? "," : "", label, labels ? "}" : "", value);
    doc_plain(d, text, (size_t)size);
}

// Milliseconds as seconds, exactly.
static const char *number(char out[32], int64_t value, bool ms) {
    if (ms && value >= 0)
        snprintf(out, 32, "%" PRId64 ".%03d", value / 1000, (int)(value % 1000));
    else
        snprintf(out, 32, "%" PRId64, value);
    return out;
}

// ---- Metrics of the server ----------------------------------------------------------------------

struct figure {
    const char *name, *type, *help;
    size_t field;      // its offset in struct info_reply, or in struct stage_reply
    const char *label; // in addition to the stage
};

#define INFO(member) offsetof(struct info_reply, member)
#define STAGE(member) offsetof(struct stage_reply, member)

static const struct figure server_figures[] = {
    { "millrace_uptime_seconds", "gauge", "Time since the store was read.", INFO(uptime_s), "" },
    { "millrace_log_bytes", "gauge", "Size of the log.", INFO(log_bytes), "" },
    { "millrace_log_live_bytes", "gauge", "Bytes of the log that are still needed.",
      INFO(live_bytes), "" },
    { "millrace_log_full", "gauge", "Is 1 while the disk is full and pushes are refused.",
      INFO(log_full), "" },
    { "millrace_memory_used_bytes", "gauge", "Memory that max-bytes counts.", INFO(memory), "" },
    { "millrace_memory_limit_bytes", "gauge", "The value of max-bytes; 0 if there is no limit.",
      INFO(max_memory), "" },
    { "millrace_clients", "gauge", "Connections now.", INFO(clients), "" },
    { "millrace_clients_total", "counter", "Connections so far.", INFO(connections), "" },
    { "millrace_clients_rejected_total", "counter", "Connections refused at a limit.",
      INFO(rejections), "" },
    { "millrace_secrets_refused_total", "counter", "Wrong secrets.", INFO(refused_secrets), "" },
    { "millrace_commands_total", "counter", "Commands run.", INFO(commands), "" },
    { "millrace_refused_full_total", "counter", "Pushes and requests refused for lack of room.",
      INFO(refused_full), "" },
    { "millrace_store_outage_seconds", "gauge",
      "How long the store of a cluster has not answered; 0 if it does.", INFO(outage_ms), "" },
    { "millrace_store_claims_total", "counter", "How many times nodes have claimed the store.",
      INFO(epoch), "" },
};

static void put_server(struct doc *d, mr_bytes info) {
    char value[32], label[128];
    put_family(d, "millrace_info", "gauge", "Always 1; the label has the version.");
    snprintf(label, sizeof label, "version=\"%s\"", mr_version());
    put_sample(d, "millrace_info", (mr_bytes){ 0 }, label, "1");
    put_family(d, "millrace_log_stopped", "gauge",
               "Is 1 once the log has failed: only read commands are answered until a restart.");
    put_sample(d, "millrace_log_stopped", (mr_bytes){ 0 }, "",
               info_text(info, INFO_NAME(log_stopped)).size ? "1" : "0");
    for (size_t i = 0; i < sizeof server_figures / sizeof *server_figures; i++) {
        const struct figure *f = &server_figures[i];
        const char *name = info_name(f->field);
        if (!info_text(info, name).size)
            continue; // not for this token
        put_family(d, f->name, f->type, f->help);
        put_sample(d, f->name, (mr_bytes){ 0 }, "",
                   number(value, (int64_t)info_number(info, name), f->field == INFO(outage_ms)));
    }
}

// ---- Quotas -------------------------------------------------------------------------------------

// Names of tokens have no characters that need escaping. `used`: what they have, else their quotas.
static void put_quota_family(struct doc *d, const struct host *h, bool used) {
    const char *name = used ? "millrace_quota_used" : "millrace_quota_limit";
    uint32_t shown = 0;
    for (size_t i = 0; i < auth_count(h->auth) && shown < WEB_QUOTA_TOKENS; i++) {
        const struct auth_entry *e = auth_at(h->auth, i);
        struct quotas values = e->quota.most;
        if (!e->has_quota)
            continue;
        if (!shown++)
            put_family(d, name, "gauge",
                       used ? "What tokens with quotas have." : "The quotas of tokens.");
        if (used)
            usage_of(h->usage, e->maker, &values);
        for (int kind = 0; kind < QUOTA_KINDS; kind++) {
            char label[AUTH_NAME + 64], value[32];
            snprintf(label, sizeof label, "token=\"%.*s\",quota=\"%s\"", (int)e->name.size,
                     (const char *)e->name.data, quota_word((enum quota_kind)kind));
            if (e->quota.most.of[kind])
                put_sample(d, name, (mr_bytes){ 0 }, label,
                           number(value, (int64_t)values.of[kind], false));
        }
    }
}

// Only for tokens of all stages, as other figures of the server.
static void put_quotas(struct doc *d, const struct web_connection *v) {
    const struct host *h = v->session->host;
    if (!h->auth || !v->session->who || !v->session->who->all)
        return;
    put_quota_family(d, h, true);
    put_quota_family(d, h, false);
}

// ---- Metrics of stages --------------------------------------------------------------------------

#define JOBS "millrace_jobs", "gauge", "Jobs by status."
#define WAIT                                                                                       \
    "millrace_job_wait_seconds", "summary", "From a job's arrival in its channel to its start."
#define RUN "millrace_job_run_seconds", "summary", "From a job's start to its commit."

// Rows of one metric must be adjacent.
static const struct figure stage_figures[] = {
    { JOBS, STAGE(waiting), "status=\"waiting\"" },
    { JOBS, STAGE(running), "status=\"running\"" },
    { JOBS, STAGE(delayed), "status=\"delayed\"" },
    { JOBS, STAGE(dead), "status=\"dead\"" },
    { "millrace_channels_parked", "gauge",
      "Channels whose first job waits for a retry, or is halted.", STAGE(parked), "" },
    { "millrace_job_oldest_seconds", "gauge",
      "Age of the oldest job not ended; -1 if there is none.", STAGE(oldest_ms), "" },
    { "millrace_workers", "gauge", "Connections that take jobs.", STAGE(workers), "" },
    { "millrace_workers_level", "gauge",
      "Number of concurrent jobs chosen by the tuners of workers.", STAGE(level), "" },
    { "millrace_states", "gauge", "Channels that keep a state.", STAGE(states), "" },
    { "millrace_groups", "gauge", "Groups that have jobs.", STAGE(groups), "" },
    { "millrace_jobs_pushed_total", "counter", "Jobs pushed.", STAGE(pushed), "" },
    { "millrace_jobs_done_total", "counter", "Jobs committed.", STAGE(done), "" },
    { "millrace_attempts_failed_total", "counter", "Attempts that failed.", STAGE(failed), "" },
    { "millrace_jobs_expired_total", "counter", "Jobs not done by their deadline.", STAGE(expired),
      "" },
    { "millrace_jobs_cancelled_total", "counter", "Jobs cancelled.", STAGE(cancelled), "" },
    { "millrace_jobs_wasted_wait_seconds_total", "counter",
      "Time waited by jobs that were cancelled or expired before they started.",
      STAGE(wasted_wait_ms), "" },
    { WAIT, STAGE(wait_p50_ms), "quantile=\"0.5\"" },
    { WAIT, STAGE(wait_p99_ms), "quantile=\"0.99\"" },
    { "millrace_job_wait_seconds_sum", NULL, NULL, STAGE(waited_ms), "" },
    { "millrace_job_wait_seconds_count", NULL, NULL, STAGE(wait_count), "" },
    { RUN, STAGE(run_p50_ms), "quantile=\"0.5\"" },
    { RUN, STAGE(run_p99_ms), "quantile=\"0.99\"" },
    { "millrace_job_run_seconds_sum", NULL, NULL, STAGE(ran_ms), "" },
    { "millrace_job_run_seconds_count", NULL, NULL, STAGE(run_count), "" },
};

static const struct response_value *field(const struct response_value *map, size_t at) {
    static const struct response_value none = { .type = RESPONSE_NULL };
    const struct response_value *found =
        response_field(map, reply_field_at(&stage_replies, at)->name);
    return found ? found : &none;
}

static mr_bytes metric_stage(const struct response_value *stage) {
    return field(stage, STAGE(name))->bytes;
}

static void put_figure(struct doc *d, const struct figure *f, const struct response_value *stage) {
    char value[32];
    bool ms = reply_is_ms(reply_field_at(&stage_replies, f->field));
    const struct response_value *v = field(stage, f->field);
    int64_t n = v->type == RESPONSE_INTEGER ? v->integer : 0;
    put_sample(d, f->name, metric_stage(stage), f->label, number(value, n, ms));
}

// The reasons why jobs of a stage wait, one word each: "no-worker", "downstream" …
static void put_holds(struct doc *d, mr_bytes stage, mr_bytes held_by) {
    const char *at = held_by.data, *end = at + held_by.size;
    while (at < end) {
        const char *blank = memchr(at, ' ', (size_t)(end - at)), *to = blank ? blank : end;
        const char *colon = memchr(at, ':', (size_t)(to - at));
        char label[64];
        snprintf(label, sizeof label, "reason=\"%.*s\"", (int)((colon ? colon : to) - at), at);
        put_sample(d, "millrace_stage_held", stage, label, "1");
        at = blank ? blank + 1 : end;
    }
}

// ---- Groups -------------------------------------------------------------------------------------

enum { GROUP_SHOWN = 100, GROUP_LABEL = 256 };

// Longer names, and those that are no text, are left out: cut or replaced, two might be the same.
static bool group_label(mr_bytes name, char out[GROUP_LABEL]) {
    char escaped[2 * GROUP_SHOWN];
    int size = 0;
    if (name.size > GROUP_SHOWN || !text_is_utf8(name))
        return false;
    for (size_t i = 0; i < name.size; i++) {
        char letter = ((const char *)name.data)[i];
        if ((uint8_t)letter < ' ')
            return false;
        if (letter == '"' || letter == '\\')
            escaped[size++] = '\\';
        escaped[size++] = letter;
    }
    (void)snprintf(out, GROUP_LABEL, "group=\"%.*s\"", size, escaped);
    return true;
}

// The groups of a stage with the most jobs.
static void put_groups(struct doc *d, mr_bytes stage, const struct response_value *groups) {
    char label[GROUP_LABEL], value[32];
    const struct response_value *row = groups + 1;
    for (uint32_t i = 0; groups->type == RESPONSE_ARRAY && i < groups->count; i++) {
        struct group_reply g = { 0 };
        if (reply_read(&group_replies, row, &g) && group_label(g.group, label))
            put_sample(d, "millrace_group_jobs", stage, label,
                       number(value, (int64_t)g.depth, false));
        row += response_skip(row, 0);
    }
}

enum { STAGE_FIGURES = sizeof stage_figures / sizeof *stage_figures };

static void put_figure_family(struct doc *d, size_t figure) {
    const struct figure *f = &stage_figures[figure];
    bool is_first = !figure || strcmp(f[-1].name, f->name) != 0;
    if (f->help && is_first)
        put_family(d, f->name, f->type, f->help);
}

// `part` is the figure, and behind the last one the reasons and the groups; `row` and `at` are the
// stage.
enum { PART_HOLDS = STAGE_FIGURES, PART_GROUPS, METRIC_PARTS };

static void put_part_of_stage(struct doc *d, uint32_t part, const struct response_value *stage) {
    if (part < STAGE_FIGURES)
        put_figure(d, &stage_figures[part], stage);
    else if (part == PART_HOLDS)
        put_holds(d, metric_stage(stage), field(stage, STAGE(held_by))->bytes);
    else
        put_groups(d, metric_stage(stage), field(stage, STAGE(top_groups)));
}

static void begin_part(const struct web_connection *v, struct body *b,
                       const struct response_value *info) {
    if (!b->part) {
        put_server(&b->doc, info->bytes);
        put_quotas(&b->doc, v);
    }
    if (b->part < STAGE_FIGURES)
        put_figure_family(&b->doc, b->part);
    else if (b->part == PART_HOLDS)
        put_family(&b->doc, "millrace_stage_held", "gauge",
                   "Is 1 for each reason why a stage starts no jobs.");
    else
        put_family(&b->doc, "millrace_group_jobs", "gauge",
                   "Waiting and running jobs of the groups of a stage that have the most.");
    b->at = 1;
}

bool write_metrics(struct web_connection *v, struct body *b, size_t *left) {
    const struct response_value *stages = b->replies.of[0];
    for (; b->part < METRIC_PARTS; b->part++, b->row = 0) {
        if (!*left)
            return false;
        if (!b->row)
            begin_part(v, b, b->replies.of[1]);
        for (; b->row < stages->count && *left; b->row++) {
            size_t before = b->text.size;
            put_part_of_stage(&b->doc, b->part, stages + b->at);
            b->at = response_skip(stages, b->at);
            body_count(left, METRIC_BYTES + b->text.size - before);
        }
        if (b->row < stages->count)
            return false;
    }
    return true;
}
