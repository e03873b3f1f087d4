// /healthz, /api/info, /api/stage, histories, /api/policies, /api/quotas. The lines of INFO become
// members of an object.
#include "web/state.h"

#include "base/mem.h"
#include "core/policy.h"
#include "millrace.h"
#include "server/access.h"
#include "server/auth.h"
#include "server/health.h"
#include "server/info.h"
#include "wire/json.h"
#include "wire/number.h"

#include <string.h>

// ---- Lines of INFO ------------------------------------------------------------------------------

// Finds the next line with a name and a value. False: there is none.
static bool info_next_line(mr_bytes info, size_t *at, mr_bytes *out_name, mr_bytes *out_value) {
    const char *p = info.data;
    while (*at < info.size) {
        const char *from = p + *at, *end = memmem(from, info.size - *at, "\r\n", 2);
        size_t size = end ? (size_t)(end - from) : info.size - *at;
        *at += size + 2;
        const char *colon = memchr(from, ':', size);
        if (!colon || *from == '#')
            continue;
        *out_name = (mr_bytes){ from, (size_t)(colon - from) };
        *out_value = (mr_bytes){ colon + 1, size - (size_t)(colon - from) - 1 };
        return true;
    }
    return false;
}

mr_bytes info_text(mr_bytes info, const char *name) {
    mr_bytes found, value;
    for (size_t at = 0; info_next_line(info, &at, &found, &value);)
        if (http_same(found, name))
            return value;
    return (mr_bytes){ "", 0 };
}

uint64_t info_number(mr_bytes info, const char *name) {
    uint64_t number = 0;
    (void)number_parse(info_text(info, name), &number); // text counts as 0
    return number;
}

static bool is_of_token(mr_bytes name) {
    const struct info_field *f = info_field_named(name);
    return f && f->section == INFO_QUOTAS;
}

void web_write_info(struct doc *d, const char *name, mr_bytes info, bool of_token) {
    enum { NAME = 64 };
    mr_bytes key, value;
    uint64_t number;
    char text[NAME];
    doc_open(d, name, '{');
    for (size_t at = 0; info_next_line(info, &at, &key, &value);) {
        if (key.size >= NAME || (!of_token && is_of_token(key)))
            continue;
        memcpy(text, key.data, key.size);
        text[key.size] = 0;
        if (number_parse(value, &number) == 0 && number <= INT64_MAX)
            doc_number(d, text, (int64_t)number);
        else
            doc_text(d, text, value);
    }
    doc_close(d, '}');
}

// ---- Health -------------------------------------------------------------------------------------

// Only during an outage of the store.
static void write_waiting(struct doc *d, const struct host *h) {
    uint64_t waiting_ms = health_waiting_ms(h);
    if (waiting_ms)
        doc_number(d, "waiting-ms", (int64_t)waiting_ms);
}

void write_health(struct doc *d, const struct host *h) {
    const char *why;
    doc_text(d, "health", mr_str(health_word(h, &why)));
    doc_text(d, "why", mr_str(why));
    write_waiting(d, h);
}

static void respond_doc(struct web_connection *v, struct doc *d, enum http_status status) {
    doc_plain(d, "\n", 1);
    if (d->err)
        v->session->broken = true;
    respond(v, &(struct http_response){ .status = status, .body = buffer_bytes(d->out) });
}

static struct doc doc_begin(struct web_connection *v) {
    struct doc d = { .out = &v->web->scratch };
    buffer_clear(d.out);
    doc_open(&d, NULL, '{');
    return d;
}

// Needs no token, so it does not include the reason.
void respond_health(struct web_connection *v, const struct replies *replies) {
    const char *why, *health = health_word(v->web->place.host, &why);
    (void)replies;
    struct doc d = doc_begin(v);
    doc_text(&d, "health", mr_str(health));
    write_waiting(&d, v->web->place.host);
    doc_close(&d, '}');
    bool well = strcmp(health, "loading") != 0 && strcmp(health, "stopped") != 0;
    respond_doc(v, &d, well ? HTTP_OK : HTTP_FULL);
}

// ---- The token ----------------------------------------------------------------------------------

static void write_who(struct doc *d, const struct auth_entry *who) {
    static const enum role roles[] = { ROLE_PUSH, ROLE_WORK, ROLE_READ, ROLE_ADMIN };
    doc_open(d, "who", '{');
    if (who)
        doc_text(d, "name", who->name);
    else
        doc_raw(d, "name", "null");
    doc_open(d, "roles", '[');
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (!who || who->roles & (roles[i] | ROLE_ADMIN))
            doc_text(d, NULL, mr_str(role_name(roles[i])));
    doc_close(d, ']');
    doc_text(d, "stages", who ? who->patterns : mr_str("*"));
    doc_close(d, '}');
}

void respond_info(struct web_connection *v, const struct replies *replies) {
    struct doc d = doc_begin(v);
    write_health(&d, v->web->place.host);
    doc_number(&d, "time-ms", (int64_t)web_now_ms(v->web));
    doc_text(&d, "version", mr_str(mr_version()));
    write_who(&d, v->session->who);
    web_write_info(&d, "info", replies->of[0]->bytes, true);
    doc_close(&d, '}');
    respond_doc(v, &d, HTTP_OK);
}

// ---- One stage ----------------------------------------------------------------------------------

// The policy is null for a token without the role admin.
void respond_stage(struct web_connection *v, const struct replies *replies) {
    const struct response_value *stages = replies->of[0], *policy = replies->of[1];
    struct doc d = doc_begin(v);
    doc_number(&d, "time-ms", (int64_t)web_now_ms(v->web));
    doc_value(&d, "stage", stages, 1);
    if (policy->type == RESPONSE_MAP)
        doc_value(&d, "policy", policy, 0);
    else
        doc_raw(&d, "policy", "null");
    web_write_series(v->web, stages[3].bytes, &d);
    doc_close(&d, '}');
    respond_doc(v, &d, HTTP_OK);
}

// ---- Histories ----------------------------------------------------------------------------------

void respond_history(struct web_connection *v, const struct replies *replies) {
    struct doc d = doc_begin(v);
    doc_number(&d, "time-ms", (int64_t)web_now_ms(v->web));
    web_write_history(v->web, replies->of[0][3].bytes, v->route->span, &d);
    doc_close(&d, '}');
    respond_doc(v, &d, HTTP_OK);
}

// True: there is no memory for it, which ends the connection.
static bool begin_sum_fails(struct web_connection *v, struct body *b) {
    b->sum = mem_alloc(sizeof *b->sum);
    v->session->broken = v->session->broken || !b->sum;
    if (b->sum)
        b->sum->newest = web_now_ms(v->web) / history_step_ms(v->route->span);
    return !b->sum;
}

// Adds up the stages of all loops that the token may see, some in each turn: `row` is the loop,
// `at` the stage.
static bool add_to_sum(struct web_connection *v, struct body *b, size_t *left) {
    const struct session *s = v->session;
    size_t cost = (HISTORY_POINTS / WEB_STEP_POINTS + access_steps(s)) * WEB_STEP_BYTES;
    while (b->row < LOOPS_MOST && *left) {
        bool any = web_sum_history(v->web, b->row, b->at, v->route->span, s, b->sum);
        body_count(left, any ? cost : WEB_STEP_BYTES);
        if (!any || ++b->at == WEB_STAGES)
            b->row++, b->at = 0;
    }
    return b->row == LOOPS_MOST;
}

bool write_history_of_all(struct web_connection *v, struct body *b, size_t *left) {
    if (!b->part++) // the command was small, this is not: it continues in its share of a later turn
        return begin_sum_fails(v, b);
    if (!add_to_sum(v, b, left))
        return false;
    doc_open(&b->doc, NULL, '{');
    doc_number(&b->doc, "time-ms", (int64_t)web_now_ms(v->web));
    history_sum_write(b->sum, v->route->span, &b->doc);
    doc_close(&b->doc, '}');
    doc_plain(&b->doc, "\n", 1);
    body_count(left, b->text.size);
    return true;
}

// ---- Policies -----------------------------------------------------------------------------------

static const char *policy_form(const struct policy_row *row) {
    return row->kind == POLICY_CHOICE ? "choice" : policy_is_duration(row) ? "duration" : "count";
}

// The table of policies, for clients that show and change values.
void respond_policies(struct web_connection *v, const struct replies *replies) {
    const struct policy_row *row;
    struct doc d = doc_begin(v);
    (void)replies;
    doc_open(&d, "policies", '[');
    for (size_t i = 0; (row = policy_row(i)) != NULL; i++) {
        doc_open(&d, NULL, '{');
        doc_text(&d, "name", mr_str(row->name));
        doc_text(&d, "form", mr_str(policy_form(row)));
        if (row->kind == POLICY_CHOICE) {
            doc_open(&d, "choices", '[');
            doc_text(&d, NULL, mr_str(row->choices[0]));
            doc_text(&d, NULL, mr_str(row->choices[1]));
            doc_close(&d, ']');
        }
        doc_text(&d, "takes", mr_str(row->takes));
        doc_text(&d, "about", mr_str(row->about));
        doc_close(&d, '}');
    }
    doc_close(&d, ']');
    doc_close(&d, '}');
    respond_doc(v, &d, HTTP_OK);
}

// ---- Quotas -------------------------------------------------------------------------------------

static void write_quotas_of(struct doc *d, const struct host *h, const struct auth_entry *e) {
    struct quotas used;
    usage_of(h->usage, e->maker, &used);
    doc_open(d, NULL, '{');
    doc_text(d, "token", e->name);
    for (int kind = 0; kind < QUOTA_KINDS; kind++) {
        if (!e->quota.most.of[kind])
            continue;
        doc_open(d, quota_word((enum quota_kind)kind), '{');
        doc_number(d, "used", (int64_t)used.of[kind]);
        doc_number(d, "max", (int64_t)e->quota.most.of[kind]);
        doc_close(d, '}');
    }
    doc_close(d, '}');
}

// Tokens with quotas: the first ones, as in /metrics, or only its own for a token that may not read
// all stages.
void respond_quotas(struct web_connection *v, const struct replies *replies) {
    const struct host *h = v->session->host;
    const struct auth_entry *who = v->session->who;
    bool sees_all = who && who->all && who->roles & (ROLE_READ | ROLE_ADMIN);
    uint32_t shown = 0;
    struct doc d = doc_begin(v);
    (void)replies;
    doc_open(&d, "quotas", '[');
    for (size_t i = 0; who && i < auth_count(h->auth) && shown < WEB_QUOTA_TOKENS; i++) {
        const struct auth_entry *e = auth_at(h->auth, i);
        if (!e->has_quota || !(sees_all || e->maker == who->maker))
            continue;
        write_quotas_of(&d, h, e);
        shown++;
    }
    doc_close(&d, ']');
    doc_close(&d, '}');
    respond_doc(v, &d, HTTP_OK);
}
