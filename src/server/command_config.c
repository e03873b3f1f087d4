// CONFIG: what can change while the server runs, by the names of its flags.
#include "server/command.h"
#include "server/notice.h"

#include <stdio.h>
#include <string.h>

static const char *level_get(void) {
    return notice_level_name(notice_most());
}

static bool level_set(const char *value) {
    enum notice_level level;
    if (!notice_level_read(value, &level))
        return false;
    notice_set(level, notice_is_json());
    return true;
}

static const char *json_get(void) {
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
    const char *(*get)(void);
    bool (*set)(const char *value);
} settings[] = {
    { "log-level", "error, warn, info or debug", level_get, level_set },
    { "log-json", "yes or no", json_get, json_set },
};

enum { SETTINGS = sizeof settings / sizeof *settings, VALUE = 32 };

static bool is_named(const struct setting *t, mr_bytes name) {
    return name.size == strlen(t->name) && memcmp(name.data, t->name, name.size) == 0;
}

// Clients ask for what Redis has: that is not there, and no error.
static void config_get(struct session *s, mr_bytes name) {
    bool all = word_is(name, "*");
    size_t count = 0;
    for (size_t i = 0; i < SETTINGS; i++)
        count += all || is_named(&settings[i], name);
    reply_map(&s->reply, count);
    for (size_t i = 0; i < SETTINGS; i++) {
        if (!all && !is_named(&settings[i], name))
            continue;
        reply_bulk(&s->reply, mr_str(settings[i].name));
        reply_bulk(&s->reply, mr_str(settings[i].get()));
    }
}

static void config_set(struct session *s, mr_bytes name, mr_bytes word) {
    const struct setting *t = settings;
    while (t < settings + SETTINGS && !is_named(t, name))
        t++;
    if (t == settings + SETTINGS) {
        session_usage(s, "only log-level and log-json change while the server runs; STAGE sets a "
                         "stage's policy");
        return;
    }
    char value[VALUE];
    snprintf(value, sizeof value, "%.*s", (int)(word.size < VALUE ? word.size : VALUE),
             (const char *)word.data);
    if (!t->set(value)) {
        session_usage(s, "%s is %s", t->name, t->values);
        return;
    }
    notice(NOTICE_INFO, "%s is %s now, as a client has asked", t->name, value);
    reply_simple(&s->reply, "OK");
}

void run_config(struct session *s, struct arguments *a) {
    uint32_t words = a->count - a->at;
    if (words == 2 && word_is(a->words[a->at], "GET"))
        config_get(s, a->words[a->at + 1]);
    else if (words == 3 && word_is(a->words[a->at], "SET"))
        config_set(s, a->words[a->at + 1], a->words[a->at + 2]);
    else
        session_usage(s, "it is: CONFIG GET name, or CONFIG SET name value");
}
