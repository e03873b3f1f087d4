// See route.h.
#include "web/route.h"

#include "base/errors.h"
#include "base/job_spec.h"
#include "web/limits.h"
#include "web/respond.h"
#include "wire/number.h"

#include <string.h>

// ---- The table ----------------------------------------------------------------------------------

#define HTTP_NAME(member, kind, word, value, name, ...) name HTTP_END_##kind
#define HTTP_END_BYTES " "
#define HTTP_END_MS " "
#define HTTP_END_COUNT " "
#define HTTP_END_WAIT " "
#define HTTP_END_FLAG "! "

static const struct route routes[] = {
    { HTTP_GET, "/healthz", .answer = respond_health, .open = true },
    { HTTP_GET, "/metrics", "STAGES ; INFO", .write = write_metrics,
      .type = "text/plain; version=0.0.4; charset=utf-8" },
    { HTTP_GET, "/api/info", "INFO", .answer = respond_info },
    { HTTP_GET, "/api/events", "STAGES ; INFO", .write = write_snapshot, .send = send_snapshot },
    { HTTP_GET, "/api/stages", "STAGES", "count from", .member = "stages" },
    { HTTP_GET, "/api/stage", "STAGES NAME $stage ; STAGE $stage", .answer = respond_stage },
    { HTTP_GET, "/api/stages/*/policy", "STAGE *", .member = "policy" },
    { HTTP_GET, "/api/policies", "PING", .answer = respond_policies },
    { HTTP_GET, "/api/channels", "CHANNELS $stage", "top", .member = "channels" },
    { HTTP_GET, "/api/groups", "CHANNELS $stage GROUPS", "top", .member = "groups" },
    { HTTP_GET, "/api/jobs", "JOBS $stage", "key status parked! from count", .member = "jobs" },
    { HTTP_GET, "/api/jobs/*", "JOB *", "body!", .member = "job" },
    { HTTP_GET, "/api/dead", "DEAD ?stage", "from count", .member = "dead" },
    { HTTP_GET, "/api/workers", "WORKERS", "from count", .member = "workers" },
    { HTTP_GET, "/api/quotas", "PING", .answer = respond_quotas },
    { HTTP_GET, "/api/epics", "EPICS", "stage from count", .member = "epics" },
    { HTTP_GET, "/api/schedules", "SCHEDULES ?stage", "from count", .member = "schedules" },
    { HTTP_GET, "/api/schedule", "SCHEDULE $stage $name", "body!", .member = "schedule" },
    { HTTP_GET, "/api/why", "WHY $of", .member = "why" },
    { HTTP_POST, "/api/jobs", "PUSH $stage $body", PUSH_OPTIONS(HTTP_NAME), .member = "id",
      .most = WEB_BODY },
    { HTTP_POST, "/api/jobs/retry", "RETRY @ids", .member = "count" },
    { HTTP_POST, "/api/jobs/drop", "DROP @ids", .member = "count" },
    { HTTP_POST, "/api/jobs/*/cancel", "CANCEL *", .member = "changed" },
    { HTTP_POST, "/api/jobs/*/retry", "RETRY *", .member = "count" },
    { HTTP_POST, "/api/jobs/*/drop", "DROP *", .member = "count" },
    { HTTP_POST, "/api/jobs/*/due", "DUE *", .member = "changed" },
    { HTTP_POST, "/api/progress", "PROGRESS $id $token $done $total", "say", .member = "stop" },
    { HTTP_POST, "/api/dead/retry", "RETRY STAGE $stage DEAD", "key reason max dry!",
      .member = "count" },
    { HTTP_POST, "/api/dead/drop", "DROP STAGE $stage DEAD", "key reason max dry!",
      .member = "count" },
    { HTTP_POST, "/api/waiting/drop", "DROP STAGE $stage WAITING", "key max dry!",
      .member = "count" },
    { HTTP_POST, "/api/epics/then", "EPIC $stage $name THEN $then $key $body", .member = "epic" },
    { HTTP_POST, "/api/epics/cancel", "EPIC $stage $name CANCEL", .member = "epic" },
    { HTTP_POST, "/api/epics/forget", "EPIC $stage $name FORGET $after", .member = "epic" },
    { HTTP_POST, "/api/epics/drop", "EPIC $stage $name DROP", .member = "epic" },
    { HTTP_POST, "/api/schedules", "SCHEDULE $stage $name PUSH $body",
      "cron every tz missed " SCHEDULE_OPTIONS(HTTP_NAME), .member = NULL, .most = WEB_BODY },
    { HTTP_POST, "/api/schedules/drop", "SCHEDULE $stage $name DROP", .member = NULL },
    { HTTP_POST, "/api/schedules/pause", "SCHEDULE $stage $name PAUSE", .member = NULL },
    { HTTP_POST, "/api/schedules/resume", "SCHEDULE $stage $name RESUME", .member = NULL },
    { HTTP_POST, "/api/schedules/now", "SCHEDULE $stage $name NOW", .member = NULL },
    { HTTP_POST, "/api/stages/*/cancel", "CANCEL STAGE *", "key status max dry!",
      .member = "count" },
    { HTTP_POST, "/api/stages/*/pause", "PAUSE *", "key", .member = NULL },
    { HTTP_POST, "/api/stages/*/resume", "RESUME *", "key", .member = NULL },
    { HTTP_POST, "/api/stages/*/drain", "DRAIN *", .member = NULL },
    { HTTP_POST, "/api/stages/*/policy", "STAGE * %", .member = NULL },
};

enum { ROUTES = sizeof routes / sizeof *routes };

// The part of the path that * matches, or all of it if the pattern has no *; data is NULL if the
// path does not match.
static mr_bytes route_part_of(const char *pattern, mr_bytes path) {
    const char *star = strchr(pattern, '*'), *p = path.data;
    size_t before = star ? (size_t)(star - pattern) : strlen(pattern);
    size_t behind = star ? strlen(star + 1) : 0;
    if (path.size < before + behind || memcmp(p, pattern, before) != 0)
        return (mr_bytes){ 0 };
    size_t size = path.size - before - behind;
    if (star ? !size || memcmp(p + before + size, star + 1, behind) != 0 : size > 0)
        return (mr_bytes){ 0 };
    return (mr_bytes){ p + before, size };
}

// An exact match is preferred to a pattern with *.
const struct route *route_find(enum http_method method, mr_bytes path, uint32_t *out_methods) {
    enum http_method wanted = method == HTTP_HEAD ? HTTP_GET : method;
    const struct route *found = NULL;
    bool exact = false;
    *out_methods = 0;
    for (const struct route *r = routes; r < routes + ROUTES; r++) {
        bool stars = strchr(r->path, '*') != NULL;
        if ((exact && stars) || !route_part_of(r->path, path).data)
            continue;
        if (!stars && !exact)
            found = NULL, *out_methods = 0;
        exact = exact || !stars;
        *out_methods |= 1u << r->method;
        if (r->method == wanted && !found)
            found = r;
    }
    return found;
}

// ---- From a request to words --------------------------------------------------------------------

struct route_words {
    struct form *form;
    size_t part, part_size; // the part of the path, in the form's text
    mr_bytes words[WEB_WORDS + 64];
    uint32_t count, ends[ROUTE_COMMANDS], commands;
};

static void route_words_add(struct route_words *w, mr_bytes word) {
    w->words[w->count++] = word;
}

static int route_refuse(const char *what, mr_bytes name) {
    return error_set(MR_EINVAL, what, (int)(name.size < 64 ? name.size : 64),
                     (const char *)name.data);
}

static int add_field(struct route_words *w, mr_bytes name, bool required) {
    const struct form_field *x = form_find(w->form, name);
    if (x && x->kind == FORM_ITEM)
        return route_refuse("'%.*s' must be a single value, not a list", name);
    if (x)
        route_words_add(w, form_value(w->form, x));
    return x || !required ? 0 : route_refuse("'%.*s' is missing", name);
}

static int add_list(struct route_words *w, mr_bytes name) {
    uint32_t before = w->count;
    uint64_t id;
    for (const struct form_field *x; (x = form_next(w->form, &name)) != NULL;) {
        if (number_parse(form_value(w->form, x), &id) < 0)
            return route_refuse("every item of '%.*s' must be a number",
                                name); // a word would be an option
        route_words_add(w, form_value(w->form, x));
    }
    return w->count > before ? 0
                             : route_refuse("'%.*s' is missing: a list of at least one item", name);
}

static int add_rest(struct route_words *w) {
    for (const struct form_field *x; (x = form_next(w->form, NULL)) != NULL;) {
        if (x->kind != FORM_TEXT)
            return route_refuse("the value of '%.*s' must be text or a number",
                                form_name(w->form, x));
        route_words_add(w, form_name(w->form, x));
        route_words_add(w, form_value(w->form, x));
        if (w->count > WEB_WORDS)
            return error_set(MR_EINVAL, "the request has too many values");
    }
    return 0;
}

static int add_token(struct route_words *w, mr_bytes token) {
    const char *p = token.data;
    mr_bytes name = { p + 1, token.size - 1 };
    switch (*p) {
    case '*':
        route_words_add(w, (mr_bytes){ w->form->text.data + w->part, w->part_size });
        return 0;
    case '$':
        return add_field(w, name, true);
    case '?':
        return add_field(w, name, false);
    case '@':
        return add_list(w, name);
    case '%':
        return add_rest(w);
    case ';':
        w->ends[w->commands++] = w->count;
        return 0;
    default:
        route_words_add(w, token);
        return 0;
    }
}

static bool is_set(mr_bytes text) {
    return !text.size || http_same(text, "1") || http_same(text, "true") || http_same(text, "yes");
}

// Appends an option of the command, if the form has it. Commands accept options in lower case.
static int add_option(struct route_words *w, mr_bytes token) {
    const char *p = token.data;
    bool flag = p[token.size - 1] == '!';
    mr_bytes name = { p, token.size - flag };
    const struct form_field *x = form_find(w->form, name);
    if (!x)
        return 0;
    if (x->kind == FORM_ITEM || (x->kind == FORM_FLAG && !flag))
        return route_refuse("the value of '%.*s' must be text or a number", name);
    if (flag && x->kind == FORM_TEXT && !is_set(form_value(w->form, x)))
        return 0;
    route_words_add(w, name);
    if (!flag)
        route_words_add(w, form_value(w->form, x));
    return 0;
}

static int each_token(struct route_words *w, const char *text,
                      int (*each)(struct route_words *, mr_bytes)) {
    int err = 0;
    while (err == 0 && text && *text) {
        size_t size = strcspn(text, " ");
        err = each(w, (mr_bytes){ text, size });
        text += size + (text[size] == ' ');
    }
    return err;
}

static int words_fill(struct route_words *w, const struct route *r, mr_bytes part) {
    w->part = w->form->text.size;
    int err = form_unescape(&w->form->text, part, false);
    w->part_size = w->form->text.size - w->part;
    if (err == 0)
        err = each_token(w, r->commands, add_token);
    if (err == 0)
        err = each_token(w, r->options, add_option);
    if (w->count)
        w->ends[w->commands++] = w->count;
    const struct form_field *unknown = err < 0 ? NULL : form_next(w->form, NULL);
    return unknown
               ? route_refuse("'%.*s' is not a parameter of this path", form_name(w->form, unknown))
               : err;
}

// A pattern "COMMAND *" has the part of the path as its first argument.
int route_head(const struct route *r, mr_bytes path, struct buffer *text, mr_bytes out_words[2]) {
    size_t size = r->commands ? strcspn(r->commands, " ") : 0;
    bool named = size && strncmp(r->commands + size, " *", 2) == 0;
    if (!size)
        return 0;
    if (named) {
        buffer_clear(text);
        int err = form_unescape(text, route_part_of(r->path, path), false);
        if (err < 0)
            return err;
        out_words[1] = buffer_bytes(text);
    }
    out_words[0] = (mr_bytes){ r->commands, size };
    return 1 + named;
}

int route_run(const struct route *r, mr_bytes path, struct form *form,
              void (*run)(void *arg, const mr_bytes *words, uint32_t count), void *arg) {
    struct route_words w = { .form = form };
    mr_bytes part = strchr(r->path, '*') ? route_part_of(r->path, path) : (mr_bytes){ "", 0 };
    int err = words_fill(&w, r, part);
    for (uint32_t i = 0, from = 0; err == 0 && i < w.commands; from = w.ends[i++])
        run(arg, w.words + from, w.ends[i] - from);
    return err;
}
