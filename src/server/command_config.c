// CONFIG: options that clients of Redis ask for, and options of the server that can be changed at
// run time, by the names of its flags.
#include "server/access.h"
#include "server/command.h"
#include "server/notice.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

// redis-benchmark asks for these two, and warns if the reply is empty.
static const char *save_get(const struct host *h) {
    (void)h;
    return "";
}

static const char *appendonly_get(const struct host *h) {
    return strcmp(h->store, "mem:") == 0 ? "no" : "yes";
}

static const char *level_get(const struct host *h) {
    (void)h;
    return notice_level_name(notice_most());
}

static bool level_set(const char *value) {
    enum notice_level level;
    if (!notice_level_read(value, &level))
        return false;
    notice_set(level, notice_is_json());
    return true;
}

static const char *json_get(const struct host *h) {
    (void)h;
    return notice_is_json() ? "yes" : "no";
}

static bool json_set(const char *value) {
    bool yes = strcmp(value, "yes") == 0;
    if (!yes && strcmp(value, "no") != 0)
        return false;
    notice_set(notice_most(), yes);
    return true;
}

static const struct setting {
    const char *name, *values;
    const char *(*get)(const struct host *);
    bool (*set)(const char *value); // NULL: it cannot be changed at run time
} settings[] = {
    { "log-level", "error, warn, info or debug", level_get, level_set },
    { "log-json", "yes or no", json_get, json_set },
    { "save", NULL, save_get, NULL },
    { "appendonly", NULL, appendonly_get, NULL },
};

enum { SETTINGS = sizeof settings / sizeof *settings, VALUE = 32 };

static bool is_named(const struct setting *t, mr_bytes name) {
    return name.size == strlen(t->name) && strncasecmp(name.data, t->name, name.size) == 0;
}

static bool is_asked(const struct setting *t, const struct arguments *a) {
    for (uint32_t i = a->at; i < a->count; i++)
        if (word_is(a->words[i], "*") || is_named(t, a->words[i]))
            return true;
    return false;
}

// Unknown options, such as those of Redis, are omitted and are not an error.
static void config_get(struct session *s, const struct arguments *a) {
    size_t count = 0;
    for (size_t i = 0; i < SETTINGS; i++)
        count += is_asked(&settings[i], a);
    reply_map(&s->reply, count);
    for (size_t i = 0; i < SETTINGS; i++) {
        if (!is_asked(&settings[i], a))
            continue;
        reply_bulk(&s->reply, mr_str(settings[i].name));
        reply_bulk(&s->reply, mr_str(settings[i].get(s->host)));
    }
}

static void config_set(struct session *s, mr_bytes name, mr_bytes word) {
    const struct setting *t = settings;
    while (t < settings + SETTINGS && !(t->set && is_named(t, name)))
        t++;
    if (t == settings + SETTINGS) {
        session_usage(s, "only log-level and log-json can be set; the policy of a stage is set by "
                         "STAGE");
        return;
    }
    char value[VALUE];
    snprintf(value, sizeof value, "%.*s", (int)(word.size < VALUE ? word.size : VALUE),
             (const char *)word.data);
    if (!t->set(value)) {
        session_usage(s, "%s must be %s", t->name, t->values);
        return;
    }
    notice(NOTICE_INFO, "a client has set %s to %s", t->name, value);
    reply_simple(&s->reply, "OK");
}

void run_config(struct session *s, struct arguments *a) {
    mr_bytes what = a->words[a->at++];
    if (word_is(what, "GET"))
        config_get(s, a);
    else if (!word_is(what, "SET") || a->count - a->at != 2)
        session_usage(s, "syntax: CONFIG GET name, or CONFIG SET name value");
    else if (access_role(s, ROLE_ADMIN) && access_all(s, "CONFIG SET"))
        config_set(s, a->words[a->at], a->words[a->at + 1]);
}
