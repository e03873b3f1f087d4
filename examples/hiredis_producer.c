// A producer with hiredis: hiredis_producer [PORT [NAME]]. hiredis sends nothing twice: if the
// reply is lost this program fails; run it again: ONCE makes one job of all pushes for that name.
#include <hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    struct timeval connect = { .tv_sec = 5 }, silence = { .tv_sec = 30 };
    int port = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 7411;
    const char *name = argc > 2 ? argv[2] : "world";
    redisContext *c = redisConnectWithTimeout("127.0.0.1", port, connect);
    if (!c || c->err || redisSetTimeout(c, silence) != REDIS_OK)
        return fprintf(stderr, "cannot connect: %s\n", c ? c->errstr : "no memory"), 1;
    redisReply *id = redisCommand(c, "PUSH greetings %b ONCE %s", name, strlen(name), name);
    redisReply *end = id && id->type == REDIS_REPLY_STRING
                          ? redisCommand(c, "AWAIT %s WAIT 20000", id->str)
                          : NULL;
    int ok = end && end->type == REDIS_REPLY_STRING;
    if (ok)
        printf("%s\n", end->str);
    else
        fprintf(stderr, "%s\n", end && end->str ? end->str : id && id->str ? id->str : c->errstr);
    freeReplyObject(end);
    freeReplyObject(id);
    redisFree(c);
    return !ok;
}
