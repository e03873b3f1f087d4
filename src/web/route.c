// See route.h.
#include "web/route.h"

#include "base/errors.h"
#include "base/job_spec.h"
#include "base/mem.h"
#include "base/reply_fields.h"
#include "web/limits.h"
#include "web/respond.h"
#include "wire/number.h"

#include <stdio.h>
#include <string.h>

// ---- The table ----------------------------------------------------------------------------------

#define HTTP_NAME(member, kind, word, value, name, ...) name HTTP_END_##kind
#define HTTP_END_BYTES " "
#define HTTP_END_MS " "
#define HTTP_END_COUNT " "
#define HTTP_END_WAIT " "
#define HTTP_END_FLAG "! "

#define GRANT_NAME(from, member, kind, name, about) name,

static const char *const grant_names[] = { GRANT_FIELDS(GRANT_NAME) NULL };

static const struct route routes[] = {
    { HTTP_GET, "/healthz", .answer = respond_health, .open = true },
    { HTTP_GET, "/metrics", "STAGES ; INFO", .write = write_metrics,
      .type = "text/plain; version=0.0.4; charset=utf-8" },
    { HTTP_GET, "/api/info", "INFO", .answer = respond_info },
    { HTTP_GET, "/api/events", "STAGES ; INFO", .write = write_snapshot, .send = send_snapshot },
    { HTTP_GET, "/api/stages", "STAGES", "count from", .member = "stages" },
    { HTTP_GET, "/api/stage", "STAGES NAME $stage ; STAGE $stage", .answer = respond_stage },
    { HTTP_GET, "/api/stages/*/policy", "STAGE *", .member = "policy" },
    { HTTP_GET, "/api/stages/*/history/hour", "STAGES NAME *", .answer = respond_history,
      .span = HISTORY_HOUR },
    { HTTP_GET, "/api/stages/*/history/day", "STAGES NAME *", .answer = respond_history,
      .span = HISTORY_DAY },
    { HTTP_GET, "/api/history/hour", "STAGES COUNT 1", .write = write_history_of_all,
      .span = HISTORY_HOUR },
    { HTTP_GET, "/api/history/day", "STAGES COUNT 1", .write = write_history_of_all,
      .span = HISTORY_DAY },
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
    { HTTP_GET, "/api/await/*", "AWAIT *", "wait", .member = "result", .wraps = true },
    { HTTP_POST, "/api/jobs", "PUSH $stage $body", PUSH_OPTIONS(HTTP_NAME), .member = "id",
      .most = WEB_BODY },
    { HTTP_POST, "/api/jobs/retry", "RETRY @ids", .member = "count" },
    { HTTP_POST, "/api/jobs/drop", "DROP @ids", .member = "count" },
    { HTTP_POST, "/api/jobs/*/cancel", "CANCEL *", .member = "changed" },
    { HTTP_POST, "/api/jobs/*/retry", "RETRY *", .member = "count" },
    { HTTP_POST, "/api/jobs/*/drop", "DROP *", .member = "count" },
    { HTTP_POST, "/api/jobs/*/due", "DUE *", .member = "changed" },
    { HTTP_POST, "/api/take", "TAKE &stage DETACHED", "count batch wait lease", .member = "jobs",
      .rows = grant_names, .wraps = true, .named = true },
    { HTTP_POST, "/api/done", "DONE $id $token +emits", "result state", .member = NULL,
      .most = WEB_BODY },
    { HTTP_POST, "/api/fail", "FAIL $id $token $reason", "retry never! output", .member = NULL },
    { HTTP_POST, "/api/release", "RELEASE $id $token", "delay", .member = NULL },
    { HTTP_POST, "/api/beat", "BEAT ~jobs", .member = "stop", .most = WEB_BODY_LIST },
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
enum { ROUTE_WORDS = 16 }; // of a row, beside the fields

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
    mr_bytes *words;        // room for two of each field, and for those of the row
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
    if (x && x->kind >= FORM_ITEM)
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
    }
    return 0;
}

// The value of a field, or each item of the list that is named like it, in the plural.
static int add_one_or_more(struct route_words *w, mr_bytes name) {
    char plural[64];
    int size = snprintf(plural, sizeof plural, "%.*ss", (int)name.size, (const char *)name.data);
    mr_bytes list = { plural, (size_t)size };
    uint32_t before = w->count;
    int err = add_field(w, name, false);
    if (err < 0)
        return err;
    if (w->count > before && form_next(w->form, &list))
        return error_set(MR_EINVAL, "either '%.*s' or '%s', not both", (int)name.size,
                         (const char *)name.data, plural);
    for (const struct form_field *x; (x = form_next(w->form, &list)) != NULL;) {
        if (x->kind != FORM_ITEM)
            return error_set(MR_EINVAL, "'%s' must be a list of texts", plural);
        route_words_add(w, form_value(w->form, x));
    }
    if (w->count > before)
        return 0;
    return error_set(MR_EINVAL, "'%.*s' is missing, or '%s': a list", (int)name.size,
                     (const char *)name.data, plural);
}

// ---- Objects in lists ---------------------------------------------------------------------------

// The object of a list behind another (NULL: the first); NULL: there is none, or something else
// (`*out_err`).
static const struct form_field *next_object(struct route_words *w, const struct form_field *before,
                                            mr_bytes list, int *out_err) {
    const struct form_field *x = form_after(w->form, before, &list);
    *out_err =
        x && x->kind != FORM_OBJECT ? route_refuse("'%.*s' must be a list of objects", list) : 0;
    return *out_err < 0 ? NULL : x;
}

// Adds a member of an object in a list, which is text or a number.
static int add_member(struct route_words *w, const struct form_field *object, const char *name,
                      bool required) {
    const struct form_field *x = form_find_in(w->form, object, name);
    mr_bytes list = form_name(w->form, object);
    if (x && x->kind != FORM_TEXT)
        return error_set(MR_EINVAL, "'%s' in '%.*s' must be text or a number", name, (int)list.size,
                         (const char *)list.data);
    if (!x && required)
        return error_set(MR_EINVAL, "'%s' is missing in an object of '%.*s'", name, (int)list.size,
                         (const char *)list.data);
    route_words_add(w, x ? form_value(w->form, x) : (mr_bytes){ "", 0 });
    return 0;
}

static int add_leases(struct route_words *w, mr_bytes list) {
    int err = 0;
    uint32_t before = w->count;
    const struct form_field *x = NULL;
    while (err == 0 && (x = next_object(w, x, list, &err)) != NULL) {
        err = add_member(w, x, "id", true);
        if (err == 0)
            err = add_member(w, x, "token", true);
    }
    if (err < 0 || w->count > before)
        return err;
    err = add_field(w, mr_str("id"), true);
    return err < 0 ? err : add_field(w, mr_str("token"), true);
}

static const char emit_members[] = "stage key body " EMIT_OPTIONS(HTTP_NAME);

#define EMIT_NAME(member, kind, word, value, name, ...) name,

static int add_emit(struct route_words *w, const struct form_field *object) {
    static const char *const options[] = { EMIT_OPTIONS(EMIT_NAME) };
    route_words_add(w, mr_str("EMIT"));
    int err = add_member(w, object, "stage", true);
    if (err == 0)
        err = add_member(w, object, "key", false);
    if (err == 0)
        err = add_member(w, object, "body", true);
    for (size_t i = 0; err == 0 && i < sizeof options / sizeof *options; i++) {
        if (!form_find_in(w->form, object, options[i]))
            continue;
        route_words_add(w, mr_str(options[i]));
        err = add_member(w, object, options[i], true);
    }
    return err;
}

static int add_emits(struct route_words *w, mr_bytes list) {
    int err = 0;
    const struct form_field *x = NULL;
    while (err == 0 && (x = next_object(w, x, list, &err)) != NULL)
        err = add_emit(w, x);
    return err;
}

// ---- Words of a row -----------------------------------------------------------------------------

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
    case '&':
        return add_one_or_more(w, name);
    case '~':
        return add_leases(w, name);
    case '+':
        return add_emits(w, name);
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
    if (x->kind >= FORM_ITEM || (x->kind == FORM_FLAG && !flag))
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

// ---- What a path accepts ------------------------------------------------------------------------

struct known_names {
    char text[400]; // each with a blank before it
    size_t size;
};

static void known_name_add(struct known_names *k, const char *name, size_t size,
                           const char *behind) {
    size_t room = sizeof k->text - k->size;
    int used = snprintf(k->text + k->size, room, " %.*s%s", (int)size, name, behind);
    k->size += (size_t)used < room ? (size_t)used : 0;
    k->text[k->size] = 0;
}

static void known_token(struct known_names *k, const char *token, size_t size) {
    if (strchr("$?@+", *token))
        known_name_add(k, token + 1, size - 1, "");
    if (*token == '~')
        known_name_add(k, "id token", strlen("id token"), "");
    if (strchr("&~", *token))
        known_name_add(k, token + 1, size - 1, "");
    if (*token == '&')
        known_name_add(k, token + 1, size - 1, "s");
}

static void known_by(struct known_names *k, const char *text, bool options) {
    while (text && *text) {
        size_t size = strcspn(text, " ");
        if (options && size)
            known_name_add(k, text, size - (text[size - 1] == '!'), "");
        else if (size)
            known_token(k, text, size);
        text += size + (text[size] == ' ');
    }
}

// Refuses a field that the row does not use. The objects in lists have members of their own.
static int refuse_unknown_field(const struct route_words *w, const struct route *r,
                                const struct form_field *x) {
    struct known_names k = { .size = 0 };
    mr_bytes name = form_name(w->form, x);
    if (x->item) {
        known_by(&k, strchr(r->commands, '+') ? emit_members : "id token", true);
    } else {
        known_by(&k, r->commands, false);
        known_by(&k, r->options, true);
        if (r->named)
            known_name_add(&k, "name", 4, "");
    }
    return error_set(MR_EINVAL, "'%.*s' is not a parameter of %s, which has%s",
                     (int)(name.size < 64 ? name.size : 64), (const char *)name.data,
                     x->item ? "an object in this list" : "this path", k.size ? k.text : " none");
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
    return unknown ? refuse_unknown_field(w, r, unknown) : err;
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
    w.words = mem_alloc((2 * (size_t)form->count + ROUTE_WORDS) * sizeof *w.words);
    int err = w.words ? words_fill(&w, r, part)
                      : error_set(MR_ENOMEM, "no memory for the words of a command");
    for (uint32_t i = 0, from = 0; err == 0 && i < w.commands; from = w.ends[i++])
        run(arg, w.words + from, w.ends[i] - from);
    mem_free(w.words);
    return err;
}
