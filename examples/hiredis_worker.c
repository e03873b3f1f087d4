// A worker with hiredis: hiredis_worker [PORT]. It exits with an error when the connection breaks:
// a supervisor starts it again, and the job it had is given to the next worker at once.
#include <hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_S = 20 }; // TAKE answers after this at the latest

static redisReply *work(redisContext *c, redisReply *job) {
    const char *id = job->element[0]->str, *token = job->element[1]->str;
    const redisReply *body = job->element[4];
    char result[128];
    if (body->len > 100)
        return redisCommand(c, "FAIL %s %s %s NEVER", id, token, "too long a name");
    snprintf(result, sizeof result, "hello, %s", body->str);
    return redisCommand(c, "DONE %s %s RESULT %b", id, token, result, strlen(result));
}

int main(int argc, char **argv) {
    struct timeval connect = { .tv_sec = 5 }, silence = { .tv_sec = WAIT_S + 10 };
    int port = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 7411;
    redisContext *c = redisConnectWithTimeout("127.0.0.1", port, connect);
    if (!c || c->err || redisSetTimeout(c, silence) != REDIS_OK)
        return fprintf(stderr, "cannot connect: %s\n", c ? c->errstr : "no memory"), 1;
    redisReply *jobs;
    while ((jobs = redisCommand(c, "TAKE greetings WAIT %d", WAIT_S * 1000))) {
        if (jobs->type == REDIS_REPLY_ERROR)
            return fprintf(stderr, "%s\n", jobs->str), 1;
        redisReply *end = jobs->elements ? work(c, jobs->element[0]) : NULL;
        if (end && end->type == REDIS_REPLY_ERROR) // STALE, CANCELLED, EXPIRED: it was too late
            fprintf(stderr, "%s\n", end->str);
        freeReplyObject(end);
        freeReplyObject(jobs);
    }
    return fprintf(stderr, "%s\n", c->errstr), 1;
}
