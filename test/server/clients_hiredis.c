// hiredis in the hands of a test: `clients_hiredis PORT [TIMEOUT_MS]` reads a command a line, an
// array of words as JSON, and writes a line for each answer: {"reply": …}, or {"error": …} with
// what the program has then. After a lost connection the next command connects again.
#include <hiredis.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORDS_MOST = 32 };

static json_t *value(const redisReply *r) {
    json_t *list;
    switch (r->type) {
    case REDIS_REPLY_NIL:
        return json_null();
    case REDIS_REPLY_INTEGER:
        return json_integer(r->integer);
    case REDIS_REPLY_ARRAY:
        list = json_array();
        for (size_t i = 0; i < r->elements; i++)
            json_array_append_new(list, value(r->element[i]));
        return list;
    default:
        return json_stringn(r->str, r->len);
    }
}

static void tell(const redisContext *c, redisReply *r) {
    json_t *line;
    if (!r)
        line = json_pack("{s:s, s:s}", "error", c->errstr, "class", "context");
    else if (r->type == REDIS_REPLY_ERROR)
        line = json_pack("{s:s, s:s}", "error", r->str, "class", "reply");
    else
        line = json_pack("{s:o}", "reply", value(r));
    json_dumpf(line, stdout, JSON_COMPACT);
    putchar('\n');
    fflush(stdout);
    json_decref(line);
    if (r)
        freeReplyObject(r);
}

static redisReply *ask(redisContext *c, const json_t *words) {
    const char *argv[WORDS_MOST];
    size_t sizes[WORDS_MOST], count = json_array_size(words);
    if (count > WORDS_MOST || (c->err && redisReconnect(c) != REDIS_OK))
        return NULL;
    for (size_t i = 0; i < count; i++) {
        const json_t *word = json_array_get(words, i);
        argv[i] = json_string_value(word);
        sizes[i] = json_string_length(word);
    }
    return redisCommandArgv(c, (int)count, argv, sizes);
}

int main(int argc, char **argv) {
    int port = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0;
    long timeout_ms = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
    struct timeval timeout = { timeout_ms / 1000, timeout_ms % 1000 * 1000 };
    redisContext *c = redisConnect("127.0.0.1", port);
    if (!c || c->err || (timeout_ms && redisSetTimeout(c, timeout) != REDIS_OK))
        return 1;
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, stdin) > 0) {
        json_t *words = json_loads(line, 0, NULL);
        tell(c, ask(c, words));
        json_decref(words);
    }
    free(line);
    redisFree(c);
    return 0;
}
